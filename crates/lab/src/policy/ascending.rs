//! A queue by priority for objects whose priority only rises, into which nobody comes with less
//! than what left last (a radix heap: Ahuja, Mehlhorn, Orlin, Tarjan 1990): of equals the one
//! leaves first that was asked for longest ago. Priorities lie in the objects' nodes; beside them a
//! key for each.
//!
//! Objects are listed in buckets by the highest bit in which their priority differs from the one
//! that left last. Whose priority rises stays where it is listed, and goes on when that bucket's
//! turn comes: so a hit touches nothing but the node. Whoever leaves is in the lowest bucket that
//! is not empty; the others of that bucket then differ in lower bits only, and go to lower ones,
//! all of which are empty. So each moves at most once for each bit.
//!
//! Invariants: an object that is there is listed once, as its node's queue says, in the bucket of
//! its priority or a lower one; bucket 0 has those that equal what left last, in the order of their
//! last requests. What is listed and counts no more is known: its node says so, or `stale` does.
//! One thread at a time.

use std::collections::{HashMap, VecDeque};

use super::lists::{Nodes, Place};

/// By the bit in which they differ, and one for those that do not.
const BUCKETS: usize = u64::BITS as usize + 1;
/// Keys of a chunk of a bucket.
const CHUNK: usize = 1 << 8;
/// Keys ahead of the one that is looked at whose nodes are fetched.
const AHEAD: usize = 16;
/// Keys that are sorted in an array of their own; of more, which may be all that there are, it
/// would take as much memory as the list.
const ARRAY_MAX: usize = if cfg!(test) { 8 } else { 1 << 12 };
/// More are sorted by so many bits at once.
const DIGIT_BITS: u32 = 4;
/// In a node's queue: the object has left, and is still listed in the bucket of the other bits.
const GONE: u8 = 0x80;

/// How an object stands; two halves, so that a node needs no more than four bytes' alignment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    priority: [u32; 2],
    /// Number of the last request, modulo 2^32: among equals of longer traces the order is lost.
    last_request: u32,
}

const _: () = assert!(size_of::<Standing>() == 12 && align_of::<Standing>() == 4);

impl Place for Standing {
    const NOWHERE: Standing = Standing { priority: [0; 2], last_request: 0 };
}

impl Standing {
    pub(crate) fn new(priority: u64, last_request: u32) -> Standing {
        let priority = [(priority >> u32::BITS) as u32, priority as u32];
        Standing { priority, last_request }
    }

    fn priority(&self) -> u64 {
        u64::from(self.priority[0]) << u32::BITS | u64::from(self.priority[1])
    }
}

type Chunk = Box<[u32; CHUNK]>;

/// Keys, first in first out, in chunks that go back to where they came from.
#[derive(Debug, Default)]
struct Bucket {
    chunks: VecDeque<Chunk>,
    /// Keys of the first chunk that are gone.
    passed: usize,
    len: usize,
}

impl Bucket {
    fn push(&mut self, key: u32, free: &mut Vec<Chunk>) {
        let at = self.passed + self.len;
        if at == self.chunks.len() * CHUNK {
            self.chunks.push_back(free.pop().unwrap_or_else(|| Box::new([0; CHUNK])));
        }
        self.chunks[at / CHUNK][at % CHUNK] = key;
        self.len += 1;
    }

    /// The first key, and the one some places behind it.
    fn pop(&mut self, free: &mut Vec<Chunk>) -> Option<(u32, Option<u32>)> {
        self.len = self.len.checked_sub(1)?;
        let ahead = self.passed + AHEAD;
        let ahead = self.chunks.get(ahead / CHUNK).map(|chunk| chunk[ahead % CHUNK]);
        let key = self.chunks[0][self.passed];
        self.passed += 1;
        if self.passed == CHUNK {
            self.passed = 0;
            free.extend(self.chunks.pop_front());
        } else if self.len == 0 {
            self.passed = 0;
            free.extend(self.chunks.drain(..));
        }
        Some((key, ahead))
    }
}

/// The objects of a policy, from the lowest priority on.
#[derive(Debug)]
pub(crate) struct Ascending {
    buckets: [Bucket; BUCKETS],
    free: Vec<Chunk>,
    /// Priority of the one that left last, 0 before.
    last: u64,
    len: u64,
    /// Where an object is listed so many times before the one that counts. Few: who left and came
    /// back with less, or was asked for without rising.
    stale: HashMap<(u32, u8), u32>,
}

impl Ascending {
    pub(crate) fn new() -> Ascending {
        Ascending {
            buckets: std::array::from_fn(|_| Bucket::default()),
            free: Vec::new(),
            last: 0,
            len: 0,
            stale: HashMap::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether an object is there.
    #[inline]
    pub(crate) fn holds(nodes: &Nodes<Standing>, key: u32) -> bool {
        matches!(nodes.queue(key), 1..GONE)
    }

    /// An object that is not there comes, with no less than what left last.
    pub(crate) fn push(&mut self, nodes: &mut Nodes<Standing>, key: u32, standing: Standing) {
        debug_assert!(standing.priority() >= self.last);
        nodes.set_place(key, standing);
        self.len += 1;
        let bucket = self.bucket(standing.priority());
        match nodes.queue(key) {
            0 => self.list(nodes, key, bucket),
            gone => {
                // In bucket 0 it would keep the turn that it had.
                let listed = gone & !GONE;
                if listed > 0 && listed <= bucket {
                    nodes.set_queue(key, listed + 1);
                } else {
                    self.list_again(nodes, key, listed, bucket);
                }
            }
        }
    }

    /// An object that is there is asked for: it has no less priority than before.
    #[inline]
    pub(crate) fn raise(&mut self, nodes: &mut Nodes<Standing>, key: u32, standing: Standing) {
        nodes.set_place(key, standing);
        if nodes.queue(key) == 1 && standing.priority() == self.last {
            self.list_again(nodes, key, 0, 0);
        }
    }

    /// An object that is there leaves.
    pub(crate) fn remove(&mut self, nodes: &mut Nodes<Standing>, key: u32) {
        nodes.set_queue(key, GONE | (nodes.queue(key) - 1));
        self.len -= 1;
    }

    /// The one with the lowest priority leaves: which, and its priority.
    pub(crate) fn pop(&mut self, nodes: &mut Nodes<Standing>) -> Option<(u32, u64)> {
        loop {
            while let Some(key) = self.next_of(nodes, 0) {
                let priority = nodes.place(key).priority();
                if priority == self.last {
                    nodes.set_queue(key, 0);
                    self.len -= 1;
                    return Some((key, priority));
                }
                self.list(nodes, key, self.bucket(priority));
            }
            let lowest = self.buckets.iter().position(|bucket| bucket.len > 0)?;
            self.spread(nodes, lowest as u8);
        }
    }

    /// Takes the next object that is there off a bucket's list.
    #[inline]
    fn next_of(&mut self, nodes: &mut Nodes<Standing>, bucket: u8) -> Option<u32> {
        loop {
            let (key, ahead) = self.buckets[usize::from(bucket)].pop(&mut self.free)?;
            ahead.into_iter().for_each(|ahead| nodes.fetch(ahead));
            if !self.stale.is_empty() && self.was_stale(key, bucket) {
                continue;
            }
            if nodes.queue(key) & GONE == 0 {
                return Some(key);
            }
            nodes.set_queue(key, 0);
        }
    }

    fn was_stale(&mut self, key: u32, bucket: u8) -> bool {
        let Some(times) = self.stale.get_mut(&(key, bucket)) else { return false };
        *times -= 1;
        if *times == 0 {
            self.stale.remove(&(key, bucket));
        }
        true
    }

    /// Moves what is in the lowest bucket that is not empty to where it belongs by now.
    fn spread(&mut self, nodes: &mut Nodes<Standing>, bucket: u8) {
        let mut kept = Bucket::default();
        let mut least = u64::MAX;
        while let Some(key) = self.next_of(nodes, bucket) {
            let priority = nodes.place(key).priority();
            match self.bucket(priority) {
                same if same == bucket => {
                    kept.push(key, &mut self.free);
                    least = least.min(priority);
                }
                // It has risen since.
                higher => self.list(nodes, key, higher),
            }
        }
        if kept.len == 0 {
            return;
        }
        self.last = least;
        let (mut equals, mut request, mut are_sorted) = (Bucket::default(), 0, true);
        while let Some((key, ahead)) = kept.pop(&mut self.free) {
            ahead.into_iter().for_each(|ahead| nodes.fetch(ahead));
            let standing = nodes.place(key);
            match self.bucket(standing.priority()) {
                0 => {
                    are_sorted &= standing.last_request >= request;
                    request = standing.last_request;
                    equals.push(key, &mut self.free);
                }
                lower => self.list(nodes, key, lower),
            }
        }
        if !are_sorted {
            equals = self.sorted_by_request(nodes, equals);
        }
        while let Some((key, _)) = equals.pop(&mut self.free) {
            self.list(nodes, key, 0);
        }
    }

    /// The keys of a list in the order of their last requests.
    fn sorted_by_request(&mut self, nodes: &Nodes<Standing>, mut keys: Bucket) -> Bucket {
        if keys.len > ARRAY_MAX {
            return (0..u32::BITS)
                .step_by(DIGIT_BITS as usize)
                .fold(keys, |keys, shift| self.sorted_by_digit(nodes, keys, shift));
        }
        let mut array = Vec::with_capacity(keys.len);
        while let Some((key, _)) = keys.pop(&mut self.free) {
            array.push(key);
        }
        array.sort_unstable_by_key(|key| nodes.place(*key).last_request);
        array.into_iter().for_each(|key| keys.push(key, &mut self.free));
        keys
    }

    /// One pass of a sort by digits, from the lowest on: those with the same digit keep their
    /// order.
    fn sorted_by_digit(&mut self, nodes: &Nodes<Standing>, mut keys: Bucket, shift: u32) -> Bucket {
        let mut by_digit: [Bucket; 1 << DIGIT_BITS] = Default::default();
        while let Some((key, ahead)) = keys.pop(&mut self.free) {
            ahead.into_iter().for_each(|ahead| nodes.fetch(ahead));
            let digit = nodes.place(key).last_request >> shift & ((1 << DIGIT_BITS) - 1);
            by_digit[digit as usize].push(key, &mut self.free);
        }
        for mut same in by_digit {
            while let Some((key, _)) = same.pop(&mut self.free) {
                keys.push(key, &mut self.free);
            }
        }
        keys
    }

    #[inline]
    fn bucket(&self, priority: u64) -> u8 {
        (u64::BITS - (priority ^ self.last).leading_zeros()) as u8
    }

    /// Lists an object behind the others of a bucket.
    #[inline]
    fn list(&mut self, nodes: &mut Nodes<Standing>, key: u32, bucket: u8) {
        nodes.set_queue(key, bucket + 1);
        self.buckets[usize::from(bucket)].push(key, &mut self.free);
    }

    /// The same for one that is listed somewhere already, which does not count any more.
    #[cold]
    fn list_again(&mut self, nodes: &mut Nodes<Standing>, key: u32, listed: u8, bucket: u8) {
        *self.stale.entry((key, listed)).or_default() += 1;
        self.list(nodes, key, bucket);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Objects of equal priority that were asked for in another order than that in which they came,
    /// for an array and for sorting by digits; the latter takes next to no memory but the list.
    #[test]
    fn many_equals_leave_in_the_order_of_their_last_requests() {
        for keys in [ARRAY_MAX as u32, 5_000] {
            let (mut nodes, mut queue) = (Nodes::default(), Ascending::new());
            nodes.reach(keys - 1);
            (0..keys).for_each(|key| queue.push(&mut nodes, key, Standing::new(1 << 40, key)));
            let mut order: Vec<u32> = (0..keys).collect();
            fastrand::Rng::with_seed(3).shuffle(&mut order);
            for (key, time) in order.iter().zip(keys..) {
                // Times of any size, as far as they rise.
                queue.raise(&mut nodes, *key, Standing::new(1 << 50, time * 80_000));
            }
            let left: Vec<_> = std::iter::from_fn(|| queue.pop(&mut nodes)).collect();
            assert!(left.iter().map(|(key, _)| *key).eq(order.iter().copied()));
            assert!(left.iter().all(|(_, priority)| *priority == 1 << 50));
            let chunks =
                queue.free.len() + queue.buckets.iter().map(|b| b.chunks.len()).sum::<usize>();
            assert!(chunks <= keys as usize / CHUNK + 2 + (1 << DIGIT_BITS), "{chunks}");
        }
    }

    /// A sorted set of priority and last request is the model. Steps of all sizes, so that all
    /// buckets are used, and of none, so that many are equal; objects that leave and come back with
    /// less than they had.
    #[test]
    fn leaves_by_priority_and_then_in_the_order_of_requests() {
        for shift in [0, 3, 40, 60] {
            let mut rng = fastrand::Rng::with_seed(8);
            let (mut nodes, mut queue) = (Nodes::default(), Ascending::new());
            nodes.reach(63);
            let mut model = BTreeSet::<(u64, u32, u32)>::new();
            let mut last = 0_u64;
            let mut stale_max = 0;
            for time in 0..40_000 {
                let key = rng.u32(0..64);
                let there = model.iter().find(|held| held.2 == key).copied();
                assert_eq!(Ascending::holds(&nodes, key), there.is_some());
                if rng.u8(0..4) == 0 {
                    let first = model.pop_first();
                    assert_eq!(queue.pop(&mut nodes), first.map(|held| (held.2, held.0)));
                    last = first.map_or(last, |held| held.0);
                    continue;
                }
                let above = if rng.u8(0..9) == 0 { u64::MAX >> rng.u32(0..64) } else { 0 };
                let more = rng.u64(0..3) << shift | above;
                let least = there.map_or(last, |held| held.0);
                let standing = Standing::new(least.saturating_add(more), time);
                if let Some(held) = there {
                    model.remove(&held);
                    if rng.u8(0..4) == 0 {
                        queue.remove(&mut nodes, key);
                        continue;
                    }
                    queue.raise(&mut nodes, key, standing);
                } else {
                    queue.push(&mut nodes, key, standing);
                }
                model.insert((standing.priority(), time, key));
                assert_eq!(queue.len(), model.len() as u64);
                stale_max = stale_max.max(queue.stale.len());
            }
            assert!(stale_max > 0, "some were listed again");
            while let Some(first) = model.pop_first() {
                assert_eq!(queue.pop(&mut nodes), Some((first.2, first.0)));
            }
            assert_eq!(queue.pop(&mut nodes), None);
            assert!(queue.stale.is_empty(), "nothing is left over");
        }
    }
}
