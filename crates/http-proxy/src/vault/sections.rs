//! A large body in the store: sections of [`SECTION_BYTES`] one after the other, each an object.
//!
//! Invariants: a section can be read as soon as it is full, long before the body is complete, by
//! whoever reads along; a complete body is served only from what its response's entry refers to.
//! Section `n` of a body lies under the key of its response, 0x01, the body's generation, and `n`.
//! Threads: a reader belongs to the body that it feeds.

use bytes::{BufMut as _, Bytes};
use damelo::{ReadError, Reader, Store};

use crate::vault::entry::Apart;

/// Length of every section but the last.
pub(crate) const SECTION_BYTES: u64 = 1 << 20;

/// Where a section of the body of the response under `key` lies.
pub(crate) fn section_key(key: &[u8], generation: u64, section: u64) -> Vec<u8> {
    let mut full = Vec::with_capacity(key.len() + 17);
    full.extend_from_slice(key);
    full.push(1);
    full.put_u64(generation);
    full.put_u64(section);
    full
}

/// Forgets the first sections of a body that nothing refers to.
pub(crate) fn forget(store: &Store, key: &[u8], generation: u64, sections: u64) {
    for section in 0..sections {
        // What cannot be removed is unreachable, and goes when the ring comes round.
        let _ = store.remove(&section_key(key, generation, section));
    }
}

/// Reads a body from front to back, or from any offset.
pub(crate) struct Sections {
    store: Store,
    key: Vec<u8>,
    generation: u64,
    length_bytes: u64,
    offset: u64,
    /// The section that was read last.
    open: Option<(u64, Reader)>,
    /// A piece that was read before it was asked for, and where it begins.
    ahead: Option<(u64, Bytes)>,
}

impl Sections {
    /// A body that may still grow, of which `length_bytes` are there.
    pub(crate) fn growing(store: &Store, key: &[u8], generation: u64, length_bytes: u64) -> Self {
        let (store, key) = (store.clone(), key.to_vec());
        Sections { store, key, generation, length_bytes, offset: 0, open: None, ahead: None }
    }

    /// A complete body; `None` if the store has let go of any of it. Costs no I/O: that all of it can
    /// be read is known only when it was.
    pub(crate) fn complete(store: &Store, key: &[u8], apart: &Apart) -> Option<Sections> {
        let sections = Sections::growing(store, key, apart.generation, apart.length_bytes);
        let count = apart.length_bytes.div_ceil(SECTION_BYTES);
        let there = |n| store.may_contain(&section_key(key, apart.generation, n));
        (0..count).all(there).then_some(sections)
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Says that this much is there by now.
    pub(crate) fn grow(&mut self, length_bytes: u64) {
        self.length_bytes = self.length_bytes.max(length_bytes);
    }

    /// Goes on from `offset` bytes into the body.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.offset = offset.min(self.length_bytes);
    }

    /// Reads the piece at `offset`, which [`Sections::next`] will give then: what cannot be read shows
    /// while it can still be fetched instead.
    pub(crate) async fn read_ahead(&mut self, offset: u64) -> Result<(), ReadError> {
        self.seek(offset);
        let piece = self.next().await?;
        self.seek(offset);
        self.ahead = piece.map(|piece| (self.offset, piece));
        Ok(())
    }

    /// The next piece, or `None` at the end of what is there.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        if let Some((offset, piece)) = self.ahead.take()
            && offset == self.offset
        {
            self.offset += piece.len() as u64;
            return Ok(Some(piece));
        }
        if self.offset >= self.length_bytes {
            return Ok(None);
        }
        let section = self.offset / SECTION_BYTES;
        if self.open.as_ref().is_none_or(|(open, _)| *open != section) {
            self.open_section(section).await?;
        }
        let Some((_, reader)) = &mut self.open else { return Err(ReadError::Gone) };
        reader.seek(self.offset % SECTION_BYTES);
        let piece = reader.next().await?;
        self.offset += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }

    /// Opens a section; one that is not as long as it must be is not ours.
    async fn open_section(&mut self, section: u64) -> Result<(), ReadError> {
        let key = section_key(&self.key, self.generation, section);
        let reader = self.store.reader(&key).await?.ok_or(ReadError::Gone)?;
        let expected = (self.length_bytes - section * SECTION_BYTES).min(SECTION_BYTES);
        if reader.info().length_bytes != expected {
            return Err(ReadError::Gone);
        }
        self.open = Some((section, reader));
        Ok(())
    }
}
