//! Small counters, two in a byte. Counts up to 14 are stored in place; greater ones, which are rare
//! in a sketch, are in a map by index.
//!
//! Invariants: a count reads as the value it was last raised to, apart from halvings; counters
//! never raised occupy no memory, since their pages are untouched zeros. Threads: any; two threads
//! that raise counters in one byte at once may lose one update. Counts above 14 are behind a lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::sync::{Mutex, lock};

/// Marks a count that is in the map.
const ASIDE: u8 = 15;

pub(super) struct Nibbles {
    bytes: Box<[AtomicU8]>,
    great: Mutex<HashMap<usize, u8>>,
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
        Nibbles { bytes: zeros(counts / 2), great: Mutex::new(HashMap::new()) }
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
                great.get(&at).copied().unwrap_or(ASIDE)
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
                _ => great.remove(&at),
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
        assert!(nibbles.great.lock().unwrap().is_empty(), "nothing is left aside");
    }
}
