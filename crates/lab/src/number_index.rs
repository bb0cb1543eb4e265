//! From numbers to positions in an array, for numbers that come in runs: sectors of a file, objects
//! in order of their first request, files by number.
//!
//! Numbers are kept in leaves of 64, so that looking for the neighbours of a number stays within
//! the same few cache lines, where a hash table would visit as many as there are numbers. Leaves of
//! small numbers are found through an array, of others through a hash map. Invariants: `len` counts
//! the entries that are not `NONE`; a leaf, once made, stays, at 256 bytes for 64 numbers. Threads:
//! one user.

use crate::cpu_prefetch;
use crate::linked::NONE;
use crate::lru::NumberMap;

const LEAF_BITS: u32 = 6;
const LEAF_LEN: usize = 1 << LEAF_BITS;
/// Leaves that are found through the array: 16 MiB of it at most, sectors of 128 GiB.
const DIRECT_LEAVES_MAX: u64 = 1 << 22;

/// A map from numbers to positions below `NONE`.
#[derive(Debug, Clone, Default)]
pub(crate) struct NumberIndex {
    direct: Vec<u32>,
    far: NumberMap<u64, u32>,
    leaves: Vec<[u32; LEAF_LEN]>,
    len: usize,
}

impl NumberIndex {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn leaf(&self, number: u64) -> Option<usize> {
        let leaf = number >> LEAF_BITS;
        let at = if leaf < DIRECT_LEAVES_MAX {
            self.direct.get(leaf as usize).copied()
        } else {
            self.far.get(&leaf).copied()
        };
        at.filter(|at| *at != NONE).map(|at| at as usize)
    }

    fn leaf_or_new(&mut self, number: u64) -> usize {
        if let Some(at) = self.leaf(number) {
            return at;
        }
        let (leaf, at) = (number >> LEAF_BITS, self.leaves.len());
        self.leaves.push([NONE; LEAF_LEN]);
        if leaf < DIRECT_LEAVES_MAX {
            let wanted = (leaf as usize + 1).next_power_of_two();
            if self.direct.len() < wanted {
                self.direct.resize(wanted, NONE);
            }
            self.direct[leaf as usize] = at as u32;
        } else {
            self.far.insert(leaf, at as u32);
        }
        at
    }

    /// The position behind a number.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<u32> {
        let leaf = self.leaf(number)?;
        Some(self.leaves[leaf][slot(number)]).filter(|at| *at != NONE)
    }

    /// Begins to fetch what is known of a number.
    #[inline]
    pub(crate) fn fetch(&self, number: u64) {
        if let Some(leaf) = self.leaf(number) {
            cpu_prefetch::fetch(&self.leaves[leaf], slot(number));
        }
    }

    /// Puts a position behind a number; what was there before.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64, position: u32) -> Option<u32> {
        assert!(position != NONE, "a position is below the mark of none");
        let leaf = self.leaf_or_new(number);
        let before = std::mem::replace(&mut self.leaves[leaf][slot(number)], position);
        self.len += usize::from(before == NONE);
        Some(before).filter(|at| *at != NONE)
    }

    /// Takes a number out; what was behind it.
    #[inline]
    pub(crate) fn remove(&mut self, number: u64) -> Option<u32> {
        let leaf = self.leaf(number)?;
        let before = std::mem::replace(&mut self.leaves[leaf][slot(number)], NONE);
        self.len -= usize::from(before != NONE);
        Some(before).filter(|at| *at != NONE)
    }
}

#[inline]
fn slot(number: u64) -> usize {
    number as usize & (LEAF_LEN - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A hash map is the model; numbers are near each other, far apart, and at both ends.
    #[test]
    fn behaves_like_a_hash_map() {
        let mut rng = fastrand::Rng::with_seed(3);
        let (mut index, mut model) = (NumberIndex::default(), HashMap::<u64, u32>::new());
        let edge = DIRECT_LEAVES_MAX << LEAF_BITS;
        for step in 0..40_000 {
            let base = [0, 1 << 20, edge - 100, 1 << 40, u64::MAX - 300][rng.usize(0..5)];
            let number = base + rng.u64(0..300);
            match rng.u8(0..3) {
                0 => assert_eq!(index.insert(number, step), model.insert(number, step)),
                1 => assert_eq!(index.remove(number), model.remove(&number)),
                _ => assert_eq!(index.get(number), model.get(&number).copied()),
            }
            assert_eq!(index.len(), model.len());
        }
    }
}
