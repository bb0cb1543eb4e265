//! The memory of a journal area: its mapping, and which parts of that may be stored to.
//!
//! An area is locked as a whole if a process may lock so much by default. Of a longer one, pieces
//! are: that which is being written in each of the two copies, and the one before it. Invariants:
//! only what is locked is stored to, and no piece is unlocked while one stores to it; where the
//! system refuses to lock a piece, no other is tried. Threads: any; pieces are changed, and stored
//! to, under a mutex, which those who write to a journal one after the other do not wait for.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use super::super::sys::Mapping;

/// The longest area that is locked as a whole: a process may lock 8 MiB by default on Linux.
const WHOLE_MAX: u64 = 7 << 20;
/// What is locked at once of a longer one: room for 32,768 deletes.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES_MAX: usize = 4;

pub(super) enum Memory {
    Whole(Mapping),
    Pieces(Box<Mutex<Pieces>>),
}

/// The pieces that are locked.
pub(super) struct Pieces {
    map: Mapping,
    area: Range<u64>,
    /// By their numbers, the one that was stored to last behind the others.
    locked: VecDeque<u64>,
    is_refused: bool,
}

impl Memory {
    /// Maps an area; `None` if the system refuses that, or to lock it.
    pub(super) fn of(file: &File, area: Range<u64>) -> Option<Memory> {
        let len = area.end - area.start;
        let map = Mapping::new(file, area.start, len)?;
        if is_whole(len) {
            return map.lock(0..len).then_some(Memory::Whole(map));
        }
        let pieces = Pieces { map, area, locked: VecDeque::new(), is_refused: false };
        Some(Memory::Pieces(Box::new(Mutex::new(pieces))))
    }

    /// Copies bytes in; false if they have to be written to the file instead.
    pub(super) fn store(&self, file: &File, offset: u64, bytes: &[u8]) -> bool {
        match self {
            Memory::Whole(map) => {
                map.store(offset, bytes);
                true
            }
            Memory::Pieces(pieces) => {
                let mut pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner);
                pieces.store(file, offset, bytes)
            }
        }
    }
}

/// Whether an area of this length is locked as a whole.
pub(super) fn is_whole(len: u64) -> bool {
    len <= WHOLE_MAX
}

impl Pieces {
    fn store(&mut self, file: &File, offset: u64, bytes: &[u8]) -> bool {
        let last = (offset + bytes.len() as u64).saturating_sub(1) / PIECE_BYTES;
        let number = offset / PIECE_BYTES;
        if number != last || !self.hold(file, number) {
            return false;
        }
        self.map.store(offset, bytes);
        true
    }

    /// Locks a piece, in the place of the one that was stored to least recently.
    fn hold(&mut self, file: &File, number: u64) -> bool {
        if let Some(at) = self.locked.iter().position(|locked| *locked == number) {
            self.locked.remove(at);
            self.locked.push_back(number);
            return true;
        }
        if self.is_refused {
            return false;
        }
        if self.locked.len() >= PIECES_MAX
            && let Some(first) = self.locked.pop_front()
        {
            self.map.unlock(self.range(first));
        }
        let range = self.range(number);
        if self.map.lock(range.clone()) && self.settle(file, range).is_ok() {
            self.locked.push_back(number);
        } else {
            self.is_refused = true;
        }
        !self.is_refused
    }

    fn range(&self, number: u64) -> Range<u64> {
        let len = self.area.end - self.area.start;
        number * PIECE_BYTES..((number + 1) * PIECE_BYTES).min(len)
    }

    /// Writes to a piece what it holds: see [`super::settle`], which cannot do it for pages that
    /// the system takes again before they are locked.
    fn settle(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        if !file.metadata()?.is_file() {
            return Ok(());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, self.area.start + range.start)?;
        file.write_all_at(&bytes, self.area.start + range.start)
    }
}

#[cfg(test)]
impl Memory {
    /// The pieces that are locked; `None` if the whole area is.
    pub(super) fn locked(&self) -> Option<Vec<u64>> {
        let Memory::Pieces(pieces) = self else { return None };
        Some(pieces.lock().unwrap().locked.iter().copied().collect())
    }

    /// As if the system had refused to lock a piece: no more are locked.
    pub(super) fn refuse(&self) {
        if let Memory::Pieces(pieces) = self {
            pieces.lock().unwrap().is_refused = true;
        }
    }
}
