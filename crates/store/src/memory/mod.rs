//! Memory: frames (`pool`), what is resident in them (`resident`), who gets them (`cache`, with the
//! decisions in `policy` and `density`, which remembers by a `sketch`, if need be of `nibbles`, and divides by `balance`); what
//! others lose by it (`regret`). The last two follow a `sample` of what leaves, by `notes`.

mod balance;
pub(crate) mod cache;
#[cfg(test)]
mod cache_tests;
mod density;
pub(crate) mod mapped;
mod nibbles;
pub(crate) mod notes;
pub(crate) mod policy;
pub(crate) mod pool;
mod regret;
pub(crate) mod resident;
mod sample;
mod sketch;
