//! Which blocks of a device or file are free, and where the first run of enough of them is.
//!
//! Owns a bitmap and a tree over its words: each node knows the free run at its start, at its end
//! and the longest within, so that a search passes over what is too broken up and costs the tree's
//! height instead of the bitmap's length. Invariants: a node says what the bits below it are;
//! blocks beyond the end are in use. Threads: one user.

use std::ops::Range;

const WORD: u64 = 64;

/// Free runs of a part of the map, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Runs {
    head: u64,
    tail: u64,
    longest: u64,
}

/// The map.
#[derive(Debug, Clone)]
pub(crate) struct FreeMap {
    /// A bit for each block in use.
    used: Vec<u64>,
    /// A binary tree: the children of `n` are `2n` and `2n + 1`, the words begin at `words`.
    tree: Vec<Runs>,
    /// Words, a power of two; those beyond the end are full.
    words: usize,
    blocks: u64,
    free: u64,
}

impl FreeMap {
    /// All blocks are free.
    pub(crate) fn new(blocks: u64) -> FreeMap {
        let words = (blocks.div_ceil(WORD) as usize).next_power_of_two();
        let mut used = vec![u64::MAX; words];
        let whole = (blocks / WORD) as usize;
        used[..whole].fill(0);
        if !blocks.is_multiple_of(WORD) {
            used[whole] = u64::MAX << (blocks % WORD);
        }
        let none = Runs { head: 0, tail: 0, longest: 0 };
        let mut map = FreeMap { used, tree: vec![none; 2 * words], words, blocks, free: blocks };
        map.sum_up(0..words);
        map
    }

    /// Blocks in all.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    pub(crate) fn is_free(&self, block: u64) -> bool {
        self.used[(block / WORD) as usize] >> (block % WORD) & 1 == 0
    }

    /// Free blocks become used.
    pub(crate) fn take(&mut self, start: u64, count: u64) {
        self.flip(start, count, 0);
        self.free -= count;
    }

    /// Used blocks become free.
    pub(crate) fn release(&mut self, start: u64, count: u64) {
        self.flip(start, count, u64::MAX);
        self.free += count;
    }

    /// Flips blocks whose words must have the bits of `before` there.
    fn flip(&mut self, start: u64, count: u64, before: u64) {
        let end = start + count;
        assert!(count > 0 && end <= self.blocks, "blocks {start} to {end} are on the map");
        let (first, last) = ((start / WORD) as usize, ((end - 1) / WORD) as usize);
        for word in first..=last {
            let base = word as u64 * WORD;
            let (from, to) = (start.max(base) - base, end.min(base + WORD) - base);
            let mask = (u64::MAX >> (WORD - (to - from))) << from;
            assert_eq!(self.used[word] & mask, before & mask, "blocks {start} to {end} change");
            self.used[word] ^= mask;
        }
        self.sum_up(first..last + 1);
    }

    /// Brings the tree above some words up to date.
    fn sum_up(&mut self, words: Range<usize>) {
        for word in words.clone() {
            self.tree[self.words + word] = runs_of(self.used[word]);
        }
        let (mut from, mut to) = (self.words + words.start, self.words + words.end - 1);
        let mut child_blocks = WORD;
        while from > 1 {
            (from, to) = (from / 2, to / 2);
            for node in from..=to {
                let (left, right) = (self.tree[2 * node], self.tree[2 * node + 1]);
                let head =
                    if left.head == child_blocks { left.head + right.head } else { left.head };
                let tail =
                    if right.tail == child_blocks { right.tail + left.tail } else { right.tail };
                let longest = left.longest.max(right.longest).max(left.tail + right.head);
                self.tree[node] = Runs { head, tail, longest };
            }
            child_blocks *= 2;
        }
    }

    /// The first run of `count` free blocks of which none lies before `from`.
    pub(crate) fn find(&self, from: u64, count: u64) -> Option<u64> {
        assert!(count > 0, "a run has blocks");
        let mut search = Search { from, count, run: 0 };
        search.within(self, 1, 0, self.words as u64 * WORD)
    }
}

/// A search from left to right.
struct Search {
    from: u64,
    count: u64,
    /// Free blocks that end where the search is.
    run: u64,
}

impl Search {
    fn within(&mut self, map: &FreeMap, node: usize, start: u64, blocks: u64) -> Option<u64> {
        let runs = map.tree[node];
        if start + blocks <= self.from {
            return None;
        }
        if start >= self.from {
            if self.run + runs.head >= self.count {
                return Some(start - self.run);
            }
            if runs.longest < self.count {
                self.run = if runs.head == blocks { self.run + blocks } else { runs.tail };
                return None;
            }
        }
        if blocks == WORD {
            return self.within_word(map.used[(start / WORD) as usize], start);
        }
        let half = blocks / 2;
        self.within(map, 2 * node, start, half)
            .or_else(|| self.within(map, 2 * node + 1, start + half, half))
    }

    fn within_word(&mut self, used: u64, start: u64) -> Option<u64> {
        for at in self.from.saturating_sub(start)..WORD {
            self.run = if used >> at & 1 == 0 { self.run + 1 } else { 0 };
            if self.run == self.count {
                return Some(start + at + 1 - self.count);
            }
        }
        None
    }
}

/// Free runs of a word.
fn runs_of(used: u64) -> Runs {
    let head = u64::from(used.trailing_zeros());
    let tail = u64::from(used.leading_zeros());
    // Each round shortens every free run by one block.
    let (mut free, mut longest) = (!used, 0);
    while free != 0 {
        free &= free << 1;
        longest += 1;
    }
    Runs { head, tail, longest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_run(free: &[bool], from: usize, count: usize) -> Option<u64> {
        let starts = from..(free.len() + 1).saturating_sub(count);
        let mut starts = starts.filter(|&at| free[at..at + count].iter().all(|&free| free));
        starts.next().map(|at| at as u64)
    }

    /// A vector of all blocks is the model.
    #[test]
    fn finds_the_first_run_that_there_is() {
        let mut rng = fastrand::Rng::with_seed(8);
        for blocks in [1, 63, 64, 65, 500, 4_096] {
            let mut map = FreeMap::new(blocks as u64);
            let mut free = vec![true; blocks];
            for _ in 0..2_000 {
                let most = blocks.min(1 + rng.usize(0..200));
                let count = rng.usize(1..=most);
                let from = if rng.bool() { 0 } else { rng.usize(0..blocks + 2) };
                let found = map.find(from as u64, count as u64);
                assert_eq!(found, first_run(&free, from, count), "{count} from {from}");
                if let Some(at) = found.filter(|_| rng.u8(0..4) > 0) {
                    map.take(at, count as u64);
                    free[at as usize..at as usize + count].fill(false);
                }
                let at = rng.usize(0..blocks);
                let len = free[at..].iter().take(rng.usize(0..150)).take_while(|free| !**free);
                let len = len.count();
                if len > 0 {
                    map.release(at as u64, len as u64);
                    free[at..at + len].fill(true);
                }
                assert_eq!(map.free(), free.iter().filter(|free| **free).count() as u64);
                assert_eq!(map.is_free(at as u64), free[at]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "blocks 3 to 5 change")]
    fn what_is_used_is_not_taken_again() {
        let mut map = FreeMap::new(10);
        map.take(4, 1);
        map.take(3, 2);
    }
}
