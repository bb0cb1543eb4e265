//! Low-level I/O, below everything that knows HTTP caching: helpers to implement bodies and byte
//! streams, pieces of bodies, how much of them is in memory or in a socket, timers for silence and
//! deadlines, wakes from other threads, calls that block, locks, addresses of names, and stamps of
//! files.

// Threads for calls that block.
pub(crate) mod blocking;
// How hand-written bodies become `http_body` ones.
pub(crate) mod body;
// Futures made on the heap.
pub(crate) mod boxed;
// Deadlines that move with every byte.
pub(crate) mod deadline;
// Whether a file has changed.
pub(crate) mod file_stamp;
// What a socket has yet to deliver.
pub(crate) mod held_bytes;
// A timer for silence.
pub(crate) mod idle;
// Locks that survive a panic.
pub(crate) mod locks;
// Addresses of a name, looked up once for all who want it at the moment.
pub(crate) mod names;
// Pieces of bodies, kept as they come.
pub(crate) mod pieces;
// How enums of byte streams become streams.
pub(crate) mod stream;
// How much of bodies from origins is in memory.
pub(crate) mod transit;
// Wakes from the store's threads, brought to an event loop together.
pub(crate) mod wake_relay;

/// Smallest buffer limit that hyper accepts, towards clients and origins alike.
pub(crate) const BUFFER_BYTES_MIN: usize = 8192;
