//! The C API of Damelo: `include/damelo.h`, and `include/damelo.hpp` for the thesis's C++ class.
//!
//! Owns nothing but the border: every entry point checks its arguments, turns errors into the
//! numbers of [`status::Status`], and catches panics, so that nothing unwinds into C. The headers
//! are written by hand; `tests/header.rs` holds them to this source.
//!
//! Invariants: an entry point's body is one call of `border::guard` or `border::guard_or`, so no
//! panic passes it; an `out` argument is written before anything else can fail.
//!
//! Threads: as `damelo.h` says. Stores, objects and ranges are shared freely, options, writers and
//! readers belong to one thread at a time.
//!
//! # Safety
//!
//! One contract holds for every `unsafe extern "C"` function here: each pointer is null or valid
//! for the length beside it (without one: for its type), for the duration of the call; each handle
//! is null or came from the function that makes its type and has not been freed; text ends with a
//! zero byte. What C cannot promise is checked: null, misaligned, impossibly long, not a number of
//! the enumeration.

#![expect(clippy::missing_safety_doc, reason = "one contract for every entry point, above")]

mod border;
pub mod error;
pub mod groups;
pub mod info;
pub mod object;
pub mod options;
pub mod range;
pub mod reader;
pub mod stats;
pub mod status;
pub mod store;
pub mod thesis;
pub mod writer;

#[cfg(test)]
mod tests;

/// What `damelo.h` promises of threads: these are used by many at once, the others by one after the
/// other.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<store::DameloStore>();
    shared::<object::DameloObject>();
    shared::<range::DameloRange>();
    shared::<thesis::DameloThesis>();
    moved::<options::DameloOptions>();
    moved::<writer::DameloWriter>();
    moved::<reader::DameloReader>();
};
