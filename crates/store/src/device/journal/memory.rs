//! The memory of a journal area: its mapping, and which parts of that may be stored to.
//!
//! An area is locked as a whole if a process may lock that much by default. Of a longer one, pieces
//! are: that which is being written in each of the two copies, and the one behind it, which is made
//! ready ahead of need. Invariants: only what is locked is stored to, and no piece is unlocked
//! while one stores to it; who writes never locks a piece, nor waits while one is read: what is not
//! ready is written to the file. What is settled is not written in between. Where the system
//! refuses to lock a piece, no other is tried. Threads: any; one at a time makes pieces ready.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::sys::Mapping;

/// The longest area that is locked as a whole: a process may lock 8 MiB by default on Linux.
const WHOLE_MAX: u64 = 7 << 20;
/// What is locked at once of a longer one: room for 32,768 deletes.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES_MAX: usize = 4;
/// What is settled while who writes beside it waits.
const STEP_BYTES: u64 = 4096;

pub(super) enum Memory {
    Whole(Mapping),
    Pieces(Box<InPieces>),
}

pub(super) struct InPieces {
    map: Mapping,
    area: Range<u64>,
    pieces: Mutex<Pieces>,
    /// Held while a step of a piece is settled, and while what is not ready is written.
    settling: Mutex<()>,
    /// Held by who makes a piece ready.
    preparing: Mutex<()>,
}

/// The pieces that are ready: locked and settled.
#[derive(Default)]
struct Pieces {
    /// By their numbers, the one that was asked for last behind the others.
    ready: VecDeque<u64>,
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
        Some(Memory::Pieces(Box::new(InPieces {
            map,
            area,
            pieces: Mutex::default(),
            settling: Mutex::default(),
            preparing: Mutex::default(),
        })))
    }

    /// Copies bytes in, or writes them to the file where they do not lie in what is ready.
    pub(super) fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Memory::Whole(map) => map.store(offset, bytes),
            Memory::Pieces(pieces) if pieces.store(offset, bytes) => {}
            Memory::Pieces(pieces) => {
                let _settling = lock(&pieces.settling);
                file.write_all_at(bytes, pieces.area.start + offset)?;
            }
        }
        Ok(())
    }

    /// Makes the piece ready in which this offset lies, in place of the one that was asked for
    /// least recently. May wait for the disk.
    pub(super) fn prepare(&self, file: &File, offset: u64) {
        if let Memory::Pieces(pieces) = self {
            pieces.prepare(file, offset / PIECE_BYTES);
        }
    }
}

/// Whether an area of this length is locked as a whole.
pub(super) fn is_whole(len: u64) -> bool {
    len <= WHOLE_MAX
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InPieces {
    /// False if the bytes do not lie in one piece that is ready.
    fn store(&self, offset: u64, bytes: &[u8]) -> bool {
        let last = (offset + bytes.len() as u64).saturating_sub(1) / PIECE_BYTES;
        let number = offset / PIECE_BYTES;
        let pieces = lock(&self.pieces);
        let is_ready = number == last && pieces.ready.contains(&number);
        if is_ready {
            self.map.store(offset, bytes);
        }
        is_ready
    }

    fn prepare(&self, file: &File, number: u64) {
        let _preparing = lock(&self.preparing);
        {
            let mut pieces = lock(&self.pieces);
            if let Some(at) = pieces.ready.iter().position(|ready| *ready == number) {
                pieces.ready.remove(at);
                pieces.ready.push_back(number);
                return;
            }
            if pieces.is_refused {
                return;
            }
            if pieces.ready.len() >= PIECES_MAX
                && let Some(first) = pieces.ready.pop_front()
            {
                self.map.unlock(self.range(first));
            }
        }
        let range = self.range(number);
        let is_ready = self.map.lock(range.clone()) && self.settle(file, range).is_ok();
        let mut pieces = lock(&self.pieces);
        if is_ready {
            pieces.ready.push_back(number);
        } else {
            pieces.is_refused = true;
        }
    }

    fn range(&self, number: u64) -> Range<u64> {
        let len = self.area.end - self.area.start;
        number * PIECE_BYTES..((number + 1) * PIECE_BYTES).min(len)
    }

    /// Writes to a piece what it holds: see [`super::settle`], which cannot do it for pages that
    /// the system takes again before they are locked. It is read from memory, step by step, so that
    /// nothing is written over that comes meanwhile.
    fn settle(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        if !file.metadata()?.is_file() {
            return Ok(());
        }
        let mut bytes = vec![0; STEP_BYTES as usize];
        for at in range.clone().step_by(STEP_BYTES as usize) {
            let bytes = &mut bytes[..(range.end - at).min(STEP_BYTES) as usize];
            let _settling = lock(&self.settling);
            file.read_exact_at(bytes, self.area.start + at)?;
            file.write_all_at(bytes, self.area.start + at)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Memory {
    /// The pieces that are locked; `None` if the whole area is.
    pub(super) fn locked(&self) -> Option<Vec<u64>> {
        let Memory::Pieces(pieces) = self else { return None };
        Some(lock(&pieces.pieces).ready.iter().copied().collect())
    }

    /// As if the system had refused to lock a piece: no more are locked.
    pub(super) fn refuse(&self) {
        if let Memory::Pieces(pieces) = self {
            lock(&pieces.pieces).is_refused = true;
        }
    }
}
