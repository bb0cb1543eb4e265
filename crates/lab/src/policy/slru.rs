//! Segmented LRU (Karedla, Love, Wherry, *Caching strategies to improve disk system performance*,
//! IEEE Computer 27(3), 1994): a hit moves an object into the next segment up; what is too much for
//! a segment goes to the one below, and from the lowest for good.
//!
//! The paper has two segments, probationary and protected, of sizes to be chosen; here, as in
//! libCacheSim, there are as many as wanted, four unless said otherwise, of one size. Decides as
//! libCacheSim does, whose deviations these are: nothing larger than a segment is taken; what is
//! new comes into the lowest segment that has room while there is one, not into the lowest of all;
//! and once none has room the lowest may be longer than its share until something is moved down to
//! it.

use super::lists::Nodes;
use super::one_queue::ObjectQueue;
use super::rings::Ring;
use super::{Policy, Step};

/// Segments there may be: libCacheSim's limit.
pub(super) const SEGMENTS_MAX: u8 = 16;

pub(crate) struct Slru {
    nodes: Nodes<u32>,
    /// From the lowest up; their ids are 1 and up.
    segments: Vec<Ring>,
    capacity_bytes: u64,
    segment_bytes: u64,
}

impl Slru {
    pub(crate) fn new(capacity_bytes: u64, segments: u8) -> Slru {
        let segments = segments.clamp(1, SEGMENTS_MAX);
        Slru {
            nodes: Nodes::default(),
            segments: (1..=segments).map(Ring::new).collect(),
            capacity_bytes,
            segment_bytes: capacity_bytes / u64::from(segments),
        }
    }

    /// A hit in the segment at this place.
    fn hit(&mut self, key: u32, at: usize) {
        if at + 1 == self.segments.len() {
            return self.segments[at].renew(&mut self.nodes, key);
        }
        self.segments[at].remove(&mut self.nodes, key);
        self.segments[at + 1].push(&mut self.nodes, key);
        self.cool(at + 1);
    }

    /// What is too much for a segment goes down, as far as there is too much there. Its oldest go
    /// first, and that a segment below has too much is seen to before the next one goes.
    fn cool(&mut self, at: usize) {
        while self.segments[at].bytes() > self.segment_bytes {
            let Some(key) = self.segments[at].pop(&mut self.nodes) else { return };
            if let Some(below) = at.checked_sub(1) {
                self.segments[below].push(&mut self.nodes, key);
                self.cool(below);
            }
        }
    }

    /// The oldest of the lowest segment that has something goes.
    fn evict(&mut self) {
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.len() > 0) {
            segment.pop(&mut self.nodes);
        }
    }
}

impl Policy for Slru {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if let Some(at) = self.nodes.queue(key).checked_sub(1) {
            self.hit(key, usize::from(at));
            return true;
        }
        if step.size_bytes > self.segment_bytes {
            return false;
        }
        while self.used_bytes() > self.capacity_bytes - step.size_bytes {
            self.evict();
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        let room = self.segment_bytes - step.size_bytes;
        let with_room = self.segments.iter().position(|segment| segment.bytes() <= room);
        self.segments[with_room.unwrap_or(0)].push(&mut self.nodes, key);
        false
    }

    fn delete(&mut self, key: u32) {
        if let Some(at) = self.nodes.queue(key).checked_sub(1) {
            self.segments[usize::from(at)].remove(&mut self.nodes, key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.segments.iter().map(Ring::bytes).sum()
    }

    fn objects(&self) -> u64 {
        self.segments.iter().map(Ring::len).sum()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NEVER;

    /// Worked out on paper, two segments of two. 0 and 1 come into the lower one, 2 and 3 find room
    /// in the upper one. 0 moves up and 2 down; 4 puts out 1, the older one below. 2 moves up, and
    /// 3 down; 1 puts out 4, and 0 is still there.
    #[test]
    fn a_hit_moves_up_and_the_oldest_down() {
        let mut slru = Slru::new(4, 2);
        let requests = [0, 1, 2, 3, 0, 4, 2, 1, 4, 0];
        let hits = requests.map(|key| slru.get(&Step::get(key, 1, NEVER)));
        let expected = [false, false, false, false, true, false, true, false, false, true];
        assert_eq!(hits, expected);
    }

    /// One segment is LRU.
    #[test]
    fn one_segment_is_lru() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut slru = Slru::new(50, 1);
        let mut lru = crate::policy::PolicySpec::parse("lru").expect("known").build(50);
        for _ in 0..5_000 {
            let key = rng.u32(0..8).min(rng.u32(0..40));
            let step = Step::get(key, u64::from(key % 9) + 1, NEVER);
            assert_eq!(slru.get(&step), lru.get(&step));
        }
    }
}
