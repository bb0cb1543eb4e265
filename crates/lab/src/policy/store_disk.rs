//! The store's disk policies (`damelo::policy`), driven by the code that ships, on a ring of
//! segments without layout: objects go to the open segment; when there is no room the oldest
//! segment is reused, and of its objects those that the policy finds worth it go on, within the
//! budget.
//!
//! Differences to the engine: a count rises with every request (there, with reads from disk and
//! once for a stay in memory); what is kept goes straight to the open segment, not through the
//! nursery; groups are neutral; an object larger than a segment is not taken.
//!
//! Where sizes are ignored, a cache may be of fewer objects than the ring has segments, or of a few
//! for each. So that none of its room is lost, some segments are then of one object more than
//! others; so that a fifth of three objects is not nothing, what is left of a segment's budget is
//! the next one's.

use std::collections::VecDeque;
use std::time::Duration;

use damelo::policy::{
    Candidate, DiskPolicy, ReinsertionPolicy, Survivor, disk_policy, reinsertion_policy,
};
use damelo::{Config, GroupId, Hint};

use super::lists::Nodes;
use super::registry::CAPACITY_BYTES_MAX;
use super::{Policy, Step};

/// No disk has such segments, but a trace may ask for them; a percentage of more would not fit 64
/// bits.
const BUDGETED_BYTES_MAX: u64 = u64::MAX / 100;
/// The index holds two bits.
const FREQ_MAX: u32 = 3;
/// Where an object is that is in no segment.
const NOWHERE: u8 = 0;
const ON_DISK: u8 = 1;

/// Parts of an object that budgets are counted in where each counts as one.
const OBJECT_PARTS: u64 = 4 << 10;

struct Segment {
    keys: Vec<u32>,
    /// Room taken, by objects that are gone too.
    bytes: u64,
    /// Room that there is.
    bytes_max: u64,
}

impl Segment {
    fn of(bytes_max: u64) -> Segment {
        Segment { keys: Vec::new(), bytes: 0, bytes_max }
    }
}

pub(crate) struct StoreDisk {
    /// Their places are the segments that objects lie in, by number since the start; stale entries
    /// of segments are told by it.
    nodes: Nodes<u32>,
    /// Oldest first; the last is open.
    ring: VecDeque<Segment>,
    /// Modulo 2^32, as places are: no entry is older than the ring.
    first_number: u32,
    segments: usize,
    segment_bytes: u64,
    /// Of so many segments, as many as there are in the ring, this many are of one byte more, and
    /// this part of one has come together.
    longer: u64,
    longer_part: u64,
    /// Parts of a byte in which the budget is counted.
    scale: u64,
    /// What was left of the last budget, in these, if it is the next one's.
    budget_left: u64,
    used_bytes: u64,
    objects: u64,
    policy: Box<dyn DiskPolicy>,
    reinsertion: Box<dyn ReinsertionPolicy>,
}

impl StoreDisk {
    pub(crate) fn new(capacity_bytes: u64, config: &Config, segments: u64) -> StoreDisk {
        let segment_bytes = capacity_bytes / segments;
        StoreDisk {
            nodes: Nodes::default(),
            ring: VecDeque::from([Segment::of(segment_bytes)]),
            first_number: 0,
            segments: segments as usize,
            segment_bytes,
            longer: 0,
            longer_part: 0,
            scale: 1,
            budget_left: 0,
            used_bytes: 0,
            objects: 0,
            policy: disk_policy(
                config.disk_policy,
                config.fbc_count_max,
                config.fbc_average_max_percent,
            ),
            reinsertion: reinsertion_policy(config.reinsertion, config.reinsert_percent_max),
        }
    }

    /// A cache for so many objects, each of which has one byte in its steps.
    pub(crate) fn of_objects(capacity: u64, config: &Config, segments: u64) -> StoreDisk {
        let capacity = capacity.clamp(1, CAPACITY_BYTES_MAX / OBJECT_PARTS);
        let segments = segments.min(capacity);
        let longer = capacity % segments;
        let plain = StoreDisk::new(capacity, config, segments);
        StoreDisk { longer, longer_part: longer, scale: OBJECT_PARTS, ..plain }
    }

    /// Opens a segment. Any that follow each other, as many as the ring has, have all its room.
    fn open(&mut self) {
        self.longer_part += self.longer;
        let is_longer = self.longer_part >= self.segments as u64;
        if is_longer {
            self.longer_part -= self.segments as u64;
        }
        self.ring.push_back(Segment::of(self.segment_bytes + u64::from(is_longer)));
    }

    /// What may be kept of a segment, in parts of a byte.
    fn budget(&mut self) -> u64 {
        let room =
            self.segment_bytes * self.scale + self.longer * self.scale / self.segments as u64;
        // No policy of a configuration looks at the time.
        let budget = self.reinsertion.budget(room.min(BUDGETED_BYTES_MAX), Duration::ZERO);
        budget + self.budget_left
    }

    /// Appends to the open segment, or to a new one.
    fn append(&mut self, key: u32) {
        let bytes = self.nodes.size(key);
        let full = self.ring.back().is_none_or(|open| open.bytes + bytes > open.bytes_max);
        if full {
            self.open();
        }
        let number = self.first_number.wrapping_add(self.ring.len() as u32 - 1);
        if let Some(open) = self.ring.back_mut() {
            open.keys.push(key);
            open.bytes += bytes;
        }
        self.nodes.set_place(key, number);
        self.nodes.set_queue(key, ON_DISK);
        self.used_bytes += bytes;
        self.objects += 1;
    }

    fn forget(&mut self, key: u32) {
        self.nodes.set_queue(key, NOWHERE);
        self.used_bytes -= self.nodes.size(key);
        self.objects -= 1;
    }

    /// Reuses the oldest segment.
    fn reclaim(&mut self) {
        let Some(segment) = self.ring.pop_front() else { return };
        let number = self.first_number;
        self.first_number = number.wrapping_add(1);
        let mut live: Vec<(u32, u8)> = Vec::new();
        for key in segment.keys {
            if self.nodes.queue(key) == ON_DISK && self.nodes.place(key) == number {
                live.push((key, self.nodes.count(key) as u8));
                self.forget(key);
            }
        }
        let mean_percent = mean_percent(live.iter().map(|(_, freq)| *freq));
        let mut keepers: Vec<(u32, u8, u8)> = Vec::new();
        for (key, freq) in live {
            let candidate = Candidate { freq, loved: false, hated: false };
            if let Some(worth) = self.policy.worth(candidate, mean_percent) {
                keepers.push((key, freq, worth));
            }
        }
        keepers.sort_by_key(|(_, _, worth)| std::cmp::Reverse(*worth));
        let mut left = self.budget();
        for (key, freq, worth) in keepers {
            let bytes = self.nodes.size(key) * self.scale;
            let survivor = Survivor {
                hash: u64::from(key),
                group: GroupId::new(0),
                hint: Hint::Neutral,
                freq,
                worth,
                bytes,
            };
            if bytes <= left && self.reinsertion.keeps(&survivor) {
                left -= bytes;
                let freq = self.policy.next_freq(freq, mean_percent);
                self.nodes.set_count(key, u32::from(freq));
                self.append(key);
            }
        }
        // Less than an object, where each counts as one, so that nothing comes together where
        // nobody is worth it.
        self.budget_left = left.min(self.scale - 1);
    }
}

/// Mean of counts, in hundredths. Of 15 million objects of a segment the sum does not fit 32 bits.
fn mean_percent(counts: impl Iterator<Item = u8>) -> u32 {
    let (sum, len) =
        counts.fold((0u64, 0u64), |(sum, len), count| (sum + u64::from(count), len + 1));
    (sum * 100 / len.max(1)) as u32
}

impl Policy for StoreDisk {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.nodes.queue(key) == ON_DISK {
            let count = self.nodes.count(key) + 1;
            self.nodes.set_count(key, count.min(FREQ_MAX));
            return true;
        }
        if step.size_bytes > self.segment_bytes {
            return false;
        }
        self.nodes.reach(key);
        self.nodes.set_size(key, step.size_bytes);
        self.nodes.set_count(key, 0);
        self.append(key);
        while self.ring.len() > self.segments {
            self.reclaim();
        }
        false
    }

    fn delete(&mut self, key: u32) {
        if self.nodes.queue(key) == ON_DISK {
            self.forget(key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn objects(&self) -> u64 {
        self.objects
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.nodes.fetch(key);
    }
}

#[cfg(test)]
mod tests {
    use damelo::{ByteSize, DiskPolicyKind};

    use super::*;
    use crate::policy::NEVER;

    fn cache(kind: DiskPolicyKind) -> StoreDisk {
        let mut config = Config::new("", ByteSize::new(0));
        config.disk_policy = kind;
        config.reinsert_percent_max = 50;
        StoreDisk::new(8, &config, 4)
    }

    fn misses(cache: &mut StoreDisk, keys: &[u32]) -> Vec<u32> {
        let missed = keys.iter().filter(|key| !cache.get(&Step::get(**key, 1, NEVER)));
        missed.copied().collect()
    }

    /// Worked out on paper. Four segments of two objects. 0 is asked for again, then 1 to 8 fill
    /// the ring and reuse its first segment (0 and 1). FBC keeps 0, FIFO forgets both.
    #[test]
    fn what_was_used_survives_a_turn_of_the_ring_if_the_policy_says_so() {
        for (kind, kept) in [
            (DiskPolicyKind::Fbc, true),
            (DiskPolicyKind::LfuAging, true),
            (DiskPolicyKind::Lru, true),
            (DiskPolicyKind::Fifo, false),
        ] {
            let mut cache = cache(kind);
            misses(&mut cache, &[0, 1, 0, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(misses(&mut cache, &[1]), [1], "{kind:?}");
            assert_eq!(misses(&mut cache, &[0]).is_empty(), kept, "{kind:?}");
        }
    }

    fn of_objects(capacity: u64, kind: DiskPolicyKind) -> StoreDisk {
        let mut config = Config::new("", ByteSize::new(0));
        (config.disk_policy, config.reinsert_percent_max) = (kind, 20);
        StoreDisk::of_objects(capacity, &config, 64)
    }

    /// All but what went with the oldest segment, which is used again as a whole.
    #[test]
    fn a_cache_of_few_objects_holds_as_many_as_asked_for() {
        for capacity in [1, 2, 5, 50, 63, 64, 65, 100, 127, 250, 1_000] {
            let mut cache = of_objects(capacity, DiskPolicyKind::Fifo);
            let mut held_max = 0;
            for key in 0..5 * capacity {
                cache.get(&Step::get(key as u32, 1, NEVER));
                held_max = held_max.max(cache.objects());
                let least = (capacity + 1 - capacity.div_ceil(64)).min(key + 1);
                let held = cache.objects();
                assert!((least..=capacity).contains(&held), "{held} of {capacity}");
            }
            assert_eq!(held_max, capacity);
        }
    }

    /// One request in eight is for one of a tenth as many objects as there is room for, so that
    /// each is asked for once or twice while those that came with it go. FBC keeps them, as it
    /// does in a large cache, FIFO loses them each time.
    #[test]
    fn a_cache_of_few_objects_keeps_what_is_worth_it() {
        let missed_percent = |capacity: u32, kind| {
            let mut cache = of_objects(capacity.into(), kind);
            let popular = capacity / 10;
            let asked = 100 * popular;
            let is_missed = |n: &u32| {
                let others = 7 * n..7 * (n + 1);
                others.for_each(|other| _ = cache.get(&Step::get(popular + other, 1, NEVER)));
                !cache.get(&Step::get(n % popular, 1, NEVER))
            };
            100 * (0..asked).filter(is_missed).count() as u32 / asked
        };
        for capacity in [50, 100, 250, 300, 10_000] {
            let [kept, lost] = [DiskPolicyKind::Fbc, DiskPolicyKind::Fifo]
                .map(|kind| missed_percent(capacity, kind));
            assert!(kept < 10 && lost > 40, "{kept} and {lost}% of {capacity}");
        }
    }

    #[test]
    fn the_mean_of_a_large_segment_is_exact() {
        assert_eq!(mean_percent(std::iter::empty()), 0);
        assert_eq!(mean_percent([1, 2].into_iter()), 150);
        assert_eq!(mean_percent(std::iter::repeat_n(FREQ_MAX as u8, 15_000_000)), 300);
    }

    #[test]
    fn objects_larger_than_a_segment_and_deleted_ones_are_not_there() {
        let mut cache = cache(DiskPolicyKind::Fbc);
        let large = Step::get(1, 3, NEVER);
        assert!(!cache.get(&large) && !cache.get(&large));
        misses(&mut cache, &[2]);
        cache.delete(2);
        assert_eq!((cache.objects(), cache.used_bytes()), (0, 0));
        assert_eq!(misses(&mut cache, &[2, 2]), [2]);
    }
}
