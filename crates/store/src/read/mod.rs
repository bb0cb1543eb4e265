//! Reads (`operation`): first from memory (`memory`), then by the index and one disk read, blocking
//! (`disk`) or submitted (`submit`). The disk read is of the object or of its page (`page`, chosen
//! by `page_choice`), shared with concurrent callers (`flight`), and bounded in the memory it may
//! take (`under_way`, `gathering`). What lies in several places is put together (`assemble`), and
//! kept where its newer metadata wait (`assembled`). `range` and `stream` read parts of large
//! objects (`large`, by `chunks`), of which the `heads` are kept, blocking or submitted
//! (`submit_part`); `prefetch` reads whole groups. What cannot be had (`lost`) is forgotten
//! (`gone`).

mod assemble;
pub(crate) mod assembled;
mod chunks;
pub(crate) mod disk;
pub(crate) mod flight;
pub(crate) mod gathering;
mod gone;
pub(crate) mod heads;
pub(crate) mod large;
pub(crate) mod lost;
pub(crate) mod memory;
pub(crate) mod operation;
pub(crate) mod page;
pub(crate) mod page_choice;
pub(crate) mod prefetch;
pub(crate) mod range;
pub(crate) mod stream;
mod submit;
mod submit_part;
pub(crate) mod under_way;
