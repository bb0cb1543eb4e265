//! Copies of superblocks that were found damaged at open, while the other one of the volume is
//! right.
//!
//! The right copy is written over the other with the first write to the store, so that the loss of
//! one more block does not lose all; a store that is only read stays as it was. Invariant: the
//! right copy is never written to. Threads: the first that is about to write, once.

use std::path::PathBuf;

use crate::format::{BLOCK_BYTES, SUPERBLOCK_BYTES};
use crate::memory::mapped::AlignedBuf;
use crate::space::Space;
use crate::sync::{Mutex, lock};

/// What is wrong with each copy of a volume's superblock.
pub(crate) type WrongCopies = [Option<String>; 2];

/// One of the two copies of a volume's superblock.
pub(crate) struct DamagedCopy {
    volume: usize,
    copy: usize,
    reason: String,
}

impl DamagedCopy {
    /// Those of a volume, by what is wrong with each of its copies.
    pub(crate) fn all_of(volume: usize, wrong: WrongCopies) -> impl Iterator<Item = DamagedCopy> {
        let of = move |(copy, reason): (usize, Option<String>)| {
            Some(DamagedCopy { volume, copy, reason: reason? })
        };
        wrong.into_iter().enumerate().filter_map(of)
    }

    pub(crate) fn warning(&self, paths: &[PathBuf]) -> String {
        let which = ["first", "second"][self.copy];
        format!(
            "{}: the {which} copy of the superblock is damaged ({}); the other one is right, and the first write to the store puts it in its place",
            paths[self.volume].display(),
            self.reason
        )
    }
}

/// All of a store.
pub(crate) struct DamagedCopies {
    found: u64,
    left: Mutex<Vec<DamagedCopy>>,
}

impl DamagedCopies {
    pub(crate) fn new(found: Vec<DamagedCopy>) -> DamagedCopies {
        DamagedCopies { found: found.len() as u64, left: Mutex::new(found) }
    }

    /// How many there were at open.
    pub(crate) fn found(&self) -> u64 {
        self.found
    }

    /// Writes each of them again, once. One that cannot be written the next open finds again; that
    /// the write fails does not count against its volume, which works without it.
    pub(crate) fn mend(&self, space: &Space) {
        const _: () = assert!(SUPERBLOCK_BYTES == BLOCK_BYTES as usize);
        for DamagedCopy { volume, copy, .. } in std::mem::take(&mut *lock(&self.left)) {
            let volume = &space.volumes[volume];
            if volume.is_out() {
                continue;
            }
            let mut block = AlignedBuf::zeroed(SUPERBLOCK_BYTES);
            block.copy_from_slice(&volume.superblock.encode());
            let at = (copy * SUPERBLOCK_BYTES) as u64;
            if volume.write_at(at, &block).is_ok() {
                let _ = space.sync(volume);
            }
        }
    }
}
