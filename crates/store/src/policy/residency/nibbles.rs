//! Small counters, two in a byte. Counts up to 14 are stored in place; greater ones, which are rare
//! in a sketch, lie aside at three bytes each, ordered by index within blocks of counters.
//!
//! Invariants: a count reads as the value it was last raised to, apart from halvings; counters
//! never raised occupy no memory, since their pages are untouched zeros. Threads: any; two threads
//! that raise counters in one byte at once may lose one update. Counts above 14 are behind a lock.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::sync::{Mutex, lock};

/// Marks a count that lies aside.
const ASIDE: u8 = 15;
/// Counters whose great counts share a list: enough that the list's own bytes are few beside
/// theirs, and few enough that a list is short as long as great counts are rare.
const BLOCK: usize = if cfg!(test) { 16 } else { 1 << 12 };
/// Great counts that a list makes room for at once: doubling would take up to twice the memory.
const ROOM: usize = 16;

pub(super) struct Nibbles {
    bytes: Box<[AtomicU8]>,
    great: Mutex<GreatCounts>,
}

/// Counts by the index of their counter.
#[derive(Default)]
struct GreatCounts {
    blocks: Vec<Vec<GreatCount>>,
}

/// A counter, as its place in the block, and its count.
struct GreatCount {
    place: [u8; 2],
    count: u8,
}

const _: () = assert!(size_of::<GreatCount>() == 3);

impl GreatCounts {
    /// The list that a counter belongs to, and where in it: `Err` has the place where it would be.
    fn find(&self, at: usize) -> (&[GreatCount], Result<usize, usize>) {
        let list = self.blocks.get(at / BLOCK).map_or(&[][..], Vec::as_slice);
        let place = (at % BLOCK) as u16;
        (list, list.binary_search_by_key(&place, |great| u16::from_le_bytes(great.place)))
    }

    fn get(&self, at: usize) -> Option<u8> {
        let (list, found) = self.find(at);
        found.ok().map(|found| list[found].count)
    }

    fn insert(&mut self, at: usize, count: u8) {
        let (_, found) = self.find(at);
        if self.blocks.len() <= at / BLOCK {
            self.blocks.resize_with(at / BLOCK + 1, Vec::new);
        }
        let list = &mut self.blocks[at / BLOCK];
        match found {
            Ok(found) => list[found].count = count,
            Err(found) => {
                if list.len() == list.capacity() {
                    list.reserve_exact(ROOM);
                }
                let place = ((at % BLOCK) as u16).to_le_bytes();
                list.insert(found, GreatCount { place, count });
            }
        }
    }

    fn remove(&mut self, at: usize) {
        if let (_, Ok(found)) = self.find(at) {
            self.blocks[at / BLOCK].remove(found);
        }
    }
}

/// Counters of zero, allocated as zeroed pages: untouched ones occupy no memory.
pub(super) fn zeros(count: usize) -> Box<[AtomicU8]> {
    let zeros = Box::into_raw(vec![0_u8; count].into_boxed_slice());
    // SAFETY: the box has just been given up, and a counter has the size, the alignment and the
    // values of a byte.
    unsafe { Box::from_raw(zeros as *mut [AtomicU8]) }
}

fn shift(at: usize) -> u32 {
    if at.is_multiple_of(2) { 0 } else { 4 }
}

impl Nibbles {
    /// This many counters, an even number.
    pub(super) fn new(counts: usize) -> Nibbles {
        Nibbles { bytes: zeros(counts / 2), great: Mutex::new(GreatCounts::default()) }
    }

    pub(super) fn len(&self) -> usize {
        2 * self.bytes.len()
    }

    fn small(&self, at: usize) -> u8 {
        self.bytes[at / 2].load(Ordering::Relaxed) >> shift(at) & ASIDE
    }

    pub(super) fn get(&self, at: usize) -> u8 {
        match self.small(at) {
            ASIDE => {
                let great = lock(&self.great);
                great.get(at).unwrap_or(ASIDE)
            }
            small => small,
        }
    }

    fn set(&self, at: usize, count: u8) {
        let mut great = None;
        if count >= ASIDE || self.small(at) == ASIDE {
            great = Some(lock(&self.great));
        }
        if let Some(great) = &mut great {
            match count {
                ASIDE.. => great.insert(at, count),
                _ => great.remove(at),
            };
        }
        let byte = &self.bytes[at / 2];
        let other = byte.load(Ordering::Relaxed) & !(ASIDE << shift(at));
        byte.store(other | count.min(ASIDE) << shift(at), Ordering::Relaxed);
    }

    /// Raises a count to at least `to`.
    pub(super) fn raise(&self, at: usize, to: u8) {
        if self.get(at) < to {
            self.set(at, to);
        }
    }

    /// Halves the first `counts` counters.
    pub(super) fn halve(&self, counts: usize) {
        let small = |byte: u8| byte & 0x0f != ASIDE && byte >> 4 != ASIDE;
        for (pair, byte) in self.bytes[..counts / 2].iter().enumerate() {
            match byte.load(Ordering::Relaxed) {
                0 => {}
                both if small(both) => byte.store(both >> 1 & 0x77, Ordering::Relaxed),
                _ => (2 * pair..2 * pair + 2).for_each(|at| self.set(at, self.get(at) / 2)),
            }
        }
    }

    /// Copies the first `counts` counters to the `counts` after them.
    pub(super) fn double(&self, counts: usize) {
        for at in 0..counts {
            match self.get(at) {
                0 => {}
                count => self.set(counts + at, count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each great count takes its three bytes, and a list has room for few more.
    #[test]
    fn great_counts_take_three_bytes() {
        const LEN: usize = 1 << 10;
        let nibbles = Nibbles::new(LEN);
        (0..LEN).rev().for_each(|at| nibbles.raise(at, ASIDE + (at % 100) as u8));
        assert!((0..LEN).all(|at| nibbles.get(at) == ASIDE + (at % 100) as u8));
        let great = nibbles.great.lock().unwrap();
        assert_eq!(great.blocks.iter().map(Vec::len).sum::<usize>(), LEN);
        assert!(great.blocks.iter().all(|list| list.capacity() < list.len() + ROOM));
    }

    /// Compared with a plain vector as the model.
    #[test]
    fn counts_are_what_they_were_raised_to() {
        const LEN: usize = 64;
        let mut rng = fastrand::Rng::with_seed(2);
        let (nibbles, mut model) = (Nibbles::new(2 * LEN), vec![0_u8; 2 * LEN]);
        assert_eq!(nibbles.len(), 2 * LEN);
        for step in 0..if cfg!(miri) { 500 } else { 20_000 } {
            let (at, to) = (rng.usize(0..LEN), rng.u8(..) >> rng.u8(0..8));
            nibbles.raise(at, to);
            model[at] = model[at].max(to);
            if step % 50 == 0 {
                nibbles.halve(LEN);
                model[..LEN].iter_mut().for_each(|count| *count /= 2);
            }
            let counts: Vec<u8> = (0..LEN).map(|at| nibbles.get(at)).collect();
            assert_eq!(counts, model[..LEN], "step {step}");
        }
        nibbles.double(LEN);
        assert!((0..LEN).all(|at| nibbles.get(LEN + at) == model[at]));
        (0..20).for_each(|_| nibbles.halve(2 * LEN));
        assert!((0..2 * LEN).all(|at| nibbles.get(at) == 0));
        let great = nibbles.great.lock().unwrap();
        assert!(great.blocks.iter().all(Vec::is_empty), "nothing is left aside");
    }
}
