//! What a policy has and may have: the bookkeeping of bytes and objects that those with one order
//! of leaving share.
//!
//! Invariant: what has entered and not left is what is counted. One thread at a time.

/// Bytes and objects that are there, of so many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    used_bytes: u64,
    objects: u64,
    capacity_bytes: u64,
}

impl Room {
    /// An empty one.
    pub(crate) fn new(capacity_bytes: u64) -> Room {
        Room { used_bytes: 0, objects: 0, capacity_bytes }
    }

    /// False of an object that is too large for all of it.
    #[inline]
    pub(crate) fn fits(&self, size_bytes: u64) -> bool {
        size_bytes <= self.capacity_bytes
    }

    /// True while something has to leave before an object of this size, which fits, can enter.
    #[inline]
    pub(crate) fn is_short_of(&self, size_bytes: u64) -> bool {
        self.used_bytes > self.capacity_bytes - size_bytes
    }

    /// True while something has to leave, what entered last perhaps.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used_bytes > self.capacity_bytes
    }

    #[inline]
    pub(crate) fn enter(&mut self, size_bytes: u64) {
        self.used_bytes += size_bytes;
        self.objects += 1;
    }

    #[inline]
    pub(crate) fn leave(&mut self, size_bytes: u64) {
        self.used_bytes -= size_bytes;
        self.objects -= 1;
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }
}
