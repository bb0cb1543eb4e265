//! What is needed to do I/O by hand, below everything that knows HTTP caching: how bodies and byte
//! streams are written, timers for silence and deadlines, wakes that come from other threads,
//! locks, and what shows that a file has changed.

pub(crate) mod body;
pub(crate) mod deadline;
pub(crate) mod file_stamp;
pub(crate) mod idle;
pub(crate) mod locks;
pub(crate) mod stream;
pub(crate) mod wake_relay;

/// Fewest bytes hyper accepts as the limit of a buffer, towards clients and origins alike.
pub(crate) const BUFFER_BYTES_MIN: usize = 8192;
