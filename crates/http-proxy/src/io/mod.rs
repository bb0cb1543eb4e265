//! What is needed to do I/O by hand, below everything that knows HTTP caching: how bodies and byte
//! streams are written, timers for silence and deadlines, and wakes that come from other threads.

pub(crate) mod body;
pub(crate) mod deadline;
pub(crate) mod idle;
pub(crate) mod stream;
pub(crate) mod wake_relay;
