//! A row of keys that grows at one end and is taken off at the other, in chunks: what lies next is
//! seen before it is taken, so that memory can be asked for it, and a chunk that was passed is used
//! again. One thread at a time.

use std::collections::VecDeque;

/// Keys of a chunk.
pub(super) const CHUNK: usize = 1 << 12;
/// Places from the first key to the one that is shown with it: longer than memory takes.
const AHEAD: usize = 16;

/// The row.
#[derive(Debug, Default)]
pub(super) struct Log {
    chunks: VecDeque<Box<[u32]>>,
    /// A chunk that was passed, for the end.
    free: Option<Box<[u32]>>,
    /// Keys of the first chunk that were taken off.
    passed: usize,
    len: u64,
}

impl Log {
    /// Keys in it.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(super) fn append(&mut self, key: u32) {
        let at = self.passed + self.len as usize;
        if at == self.chunks.len() * CHUNK {
            let chunk = self.free.take();
            self.chunks.push_back(chunk.unwrap_or_else(|| vec![0; CHUNK].into_boxed_slice()));
        }
        self.chunks[at / CHUNK][at % CHUNK] = key;
        self.len += 1;
    }

    /// A key some places behind the first; where there are not so many, any key that was there
    /// once, or 0.
    #[inline]
    pub(super) fn ahead(&self) -> Option<u32> {
        let ahead = self.passed + AHEAD;
        self.chunks.get(ahead / CHUNK).map(|chunk| chunk[ahead % CHUNK])
    }

    /// Takes the first key off. There must be one.
    #[inline]
    pub(super) fn pass(&mut self) -> u32 {
        let key = self.chunks[0][self.passed];
        self.passed += 1;
        self.len -= 1;
        if self.passed == CHUNK {
            self.passed = 0;
            self.free = self.chunks.pop_front();
        }
        key
    }

    /// Room for keys that is taken.
    #[cfg(test)]
    pub(super) fn room(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }
}
