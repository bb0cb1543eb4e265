//! Reads (`operation`): memory first (`memory`), then the index and one disk read (`disk`, or `submit` if no
//! thread waits), of the object or of its page (`page`, by `page_choice`), shared with other callers (`flight`),
//! so many at once (`under_way`, `gathering`). Parts of large objects (`large`) come by `range` and `stream`; whole
//! groups by `prefetch`.

pub(crate) mod disk;
pub(crate) mod flight;
pub(crate) mod gathering;
mod large;
mod memory;
mod operation;
pub(crate) mod page;
pub(crate) mod page_choice;
pub(crate) mod prefetch;
pub(crate) mod range;
pub(crate) mod stream;
mod submit;
pub(crate) mod under_way;
