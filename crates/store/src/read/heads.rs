//! Heads of long records of which parts were read lately: header, checksums, key and metadata, or
//! the list of an object's parts. The next part then costs one I/O, not one more for the head.
//!
//! Invariants: a head stands for what lies at its place in one life of its segment, in which that
//! does not change; all together take at most 1/`MEMORY_SHARE` of the memory. What was asked for
//! again outlasts what was not (a clock). Threads: any; one lock, taken last, for a moment.

use std::collections::{HashMap, VecDeque};

use crate::format::RecordHeader;
use crate::index::Location;
use crate::sync::{Arc, Mutex, lock};
use crate::types::{KeyHash, SegmentLife};

/// A thousand bytes here save a read for each part of a mebibyte.
const MEMORY_SHARE: u64 = 64;
/// What the tables, the allocator and a head's own fields take for each, about.
const OVERHEAD_BYTES: usize = 240;

pub(crate) struct Head {
    pub(super) header: RecordHeader,
    pub(super) bytes: Vec<u8>,
    /// The life of its segment before it was read: what is read later counts only if it is still
    /// that.
    pub(super) life: SegmentLife,
}

struct Kept {
    head: Arc<Head>,
    /// Asked for since it was passed over last.
    is_wanted: bool,
}

#[derive(Default)]
struct State {
    kept: HashMap<Location, Kept>,
    /// The oldest first; each location once.
    order: VecDeque<Location>,
    bytes: usize,
}

pub(crate) struct Heads {
    state: Mutex<State>,
    bytes_max: usize,
}

impl Heads {
    pub(crate) fn new(memory_bytes: u64) -> Heads {
        let bytes_max = usize::try_from(memory_bytes / MEMORY_SHARE).unwrap_or(usize::MAX);
        Heads { state: Mutex::default(), bytes_max }
    }

    /// Memory that they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    /// The head at a location in this life of its segment.
    pub(super) fn get(&self, location: Location, life: SegmentLife) -> Option<Arc<Head>> {
        let mut state = lock(&self.state);
        let kept = state.kept.get_mut(&location).filter(|kept| kept.head.life == life)?;
        kept.is_wanted = true;
        Some(Arc::clone(&kept.head))
    }

    pub(crate) fn clear(&self) {
        *lock(&self.state) = State::default();
    }

    /// Whether it is here, which does not count as asking for it.
    pub(super) fn holds(&self, location: Location, life: SegmentLife) -> bool {
        lock(&self.state).kept.get(&location).is_some_and(|kept| kept.head.life == life)
    }

    /// Keeps a head, unless it would push out much of the others.
    pub(super) fn keep(&self, location: Location, head: &Arc<Head>) {
        let bytes = head.held_bytes();
        if bytes > self.bytes_max / 8 {
            return;
        }
        let mut state = lock(&self.state);
        let new = Kept { head: Arc::clone(head), is_wanted: false };
        match state.kept.insert(location, new) {
            Some(old) => state.bytes -= old.head.held_bytes(),
            None => state.order.push_back(location),
        }
        state.bytes += bytes;
        while state.bytes > self.bytes_max {
            state.drop_one();
        }
    }
}

impl State {
    /// Drops the oldest that was not asked for since it was passed over last.
    fn drop_one(&mut self) {
        while let Some(location) = self.order.pop_front() {
            let kept = self.kept.get_mut(&location);
            if kept.is_some_and(|kept| std::mem::take(&mut kept.is_wanted)) {
                self.order.push_back(location);
                continue;
            }
            let dropped = self.kept.remove(&location);
            self.bytes -= dropped.map_or(0, |kept| kept.head.held_bytes());
            return;
        }
    }
}

impl Head {
    pub(super) fn is_of(&self, hash: KeyHash, key: &[u8]) -> bool {
        let header = &self.header;
        header.key_hash() == hash && self.bytes.get(header.key_range()) == Some(key)
    }

    /// What it takes while it is kept.
    fn held_bytes(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{RecordKind, StoreNonce};

    fn life(number: u64) -> SegmentLife {
        SegmentLife::from_raw(number)
    }

    fn head(number: u64, bytes: usize) -> Arc<Head> {
        let header = RecordHeader {
            nonce: StoreNonce(1),
            kind: RecordKind::Object,
            chunked: true,
            key_len: 1,
            meta_len: 0,
            value_len: 1 << 20,
            body_crc: 0,
            hash: 1,
            seq: 1,
            group: 1,
            expires_s: 0,
            segment_seq_low: 1,
        };
        Arc::new(Head { header, bytes: vec![0; bytes], life: life(number) })
    }

    fn at(units: u64) -> Location {
        Location::new(units)
    }

    #[test]
    fn a_head_stands_for_one_life_of_its_segment() {
        let heads = Heads::new(1 << 20);
        heads.keep(at(7), &head(3, 100));
        assert!(heads.get(at(7), life(3)).is_some() && heads.holds(at(7), life(3)));
        assert!(heads.get(at(7), life(4)).is_none() && !heads.holds(at(7), life(4)));
        assert!(heads.get(at(8), life(3)).is_none());
        heads.keep(at(7), &head(4, 200));
        assert!(heads.get(at(7), life(3)).is_none());
        assert_eq!(heads.bytes(), 200 + OVERHEAD_BYTES);
    }

    #[test]
    fn the_wanted_outlast_the_others_within_the_limit() {
        let heads = Heads::new(64 * 10_000);
        for units in 0..1000 {
            heads.keep(at(units), &head(1, 760));
            assert!(heads.get(at(0), life(1)).is_some(), "asked for each time: {units}");
            assert!(heads.bytes() <= 10_000);
        }
        let left = (0..1000).filter(|&units| heads.holds(at(units), life(1))).count();
        assert_eq!(left, 10);
        assert!(heads.holds(at(999), life(1)) && !heads.holds(at(500), life(1)));
    }

    #[test]
    fn one_that_is_long_is_not_kept() {
        let heads = Heads::new(64 * 10_000);
        heads.keep(at(1), &head(1, 5000));
        assert_eq!(heads.bytes(), 0);
    }
}
