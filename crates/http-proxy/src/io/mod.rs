//! Low-level I/O, below everything that knows HTTP caching: helpers to implement bodies and byte
//! streams, pieces of bodies, how much of them is in memory or in a socket, timers for silence and
//! deadlines,
//! wakes from other threads, calls that block, locks, addresses of names, and stamps of files.

pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod boxed;
pub(crate) mod deadline;
pub(crate) mod error_page;
pub(crate) mod file_stamp;
pub(crate) mod held_bytes;
pub(crate) mod idle;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod pieces;
pub(crate) mod stream;
pub(crate) mod transit;
pub(crate) mod wake_relay;

/// Smallest buffer limit that hyper accepts, towards clients and origins alike.
pub(crate) const BUFFER_BYTES_MIN: usize = 8192;
