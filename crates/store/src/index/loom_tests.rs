//! Model checks: all interleavings with up to three preemptions, and every value each atomic may
//! be seen to have then, of a reader and a writer on a tiny table (buckets of two slots).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p damelo --release --lib loom_`.

use loom::sync::Arc;
use loom::thread;

use super::geometry::{Geometry, Pair};
use super::*;

/// Two buckets in one shard.
const SLOTS: u64 = 4;

fn ring_age(location: Location) -> u64 {
    Location::MAX.units() - location.units()
}

/// Checks with readers that look into the pair's buckets in either order.
fn check(model: impl Fn(Look) + Clone + Send + Sync + 'static) {
    for reversed in [false, true] {
        let model = model.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || model(Look { reversed }));
    }
}

/// How readers look.
#[derive(Clone, Copy)]
struct Look {
    reversed: bool,
}

impl Look {
    fn candidates(self, index: &Index, hash: u64) -> Vec<Location> {
        let (shard, mut pair) = index.locate(hash);
        if self.reversed {
            (pair.first, pair.second) = (pair.second, pair.first);
        }
        shard.candidates(pair).iter().map(|c| c.location).collect()
    }

    fn has_any(self, index: &Index, hash: u64) -> bool {
        let (shard, mut pair) = index.locate(hash);
        if self.reversed {
            (pair.first, pair.second) = (pair.second, pair.first);
        }
        shard.has_any(pair)
    }
}

fn insert(index: &Index, hash: u64, location: u64) -> usize {
    let location = Location::new(location);
    let class = LengthClass::from_units(1);
    index.insert(hash, location, class, 0, ring_age).evicted.len()
}

/// A hash of the `nth` tag whose first bucket is this.
fn hash_in(slots: u64, bucket: u32, nth: usize) -> u64 {
    let geometry = Geometry::for_slots(slots);
    let hashes = (1u64..).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut in_bucket = hashes.filter(|&hash| geometry.locate(hash).1.first == bucket);
    in_bucket.nth(nth).expect("some")
}

fn pair_of(index: &Index, hash: u64) -> Pair {
    index.geometry.locate(hash).1
}

/// Readers see an entry that moves to its other bucket and back.
fn check_while_an_entry_moves(see: fn(Look, &Index, u64)) {
    check(move |look| {
        let index = Arc::new(Index::new(SLOTS));
        let hash = hash_in(SLOTS, 0, 0);
        insert(&index, hash, 1);
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                let (shard, pair) = index.locked(hash);
                let from = shard.search(pair, Location::new(1)).expect("there");
                for to in [pair.second, pair.first] {
                    let from = shard.search(pair, Location::new(1)).unwrap_or(from);
                    let to = shard.empty_in(to).expect("room");
                    shard.relocate(from, to);
                }
            })
        };
        see(look, &index, hash);
        writer.join().unwrap();
    });
}

#[test]
fn loom_readers_find_an_entry_that_moves() {
    check_while_an_entry_moves(|look, index, hash| {
        assert_eq!(look.candidates(index, hash), [Location::new(1)]);
    });
}

#[test]
fn loom_readers_know_of_an_entry_that_moves() {
    check_while_an_entry_moves(|look, index, hash| assert!(look.has_any(index, hash)));
}

#[test]
fn loom_readers_find_entries_that_an_insertion_displaces() {
    const WIDE: u64 = 8; // four buckets
    check(|look| {
        let index = Arc::new(Index::new(WIDE));
        // Fill a pair, then insert a fifth into it: one of the four must go to a third bucket.
        let hash = hash_in(WIDE, 0, 0);
        let pair = pair_of(&index, hash);
        let alike = |&(_, other): &(u64, Pair)| {
            (other.first == pair.first && other.second != pair.second) && other.tag() != pair.tag()
        };
        let others = (0..64).map(|n| hash_in(WIDE, 0, n)).map(|h| (h, pair_of(&index, h)));
        let (mover, _) = others.clone().find(alike).expect("one that may leave");
        let same = others.filter(|(_, other)| other.second == pair.second);
        let same: Vec<u64> = same.map(|(hash, _)| hash).collect();
        insert(&index, mover, 9);
        for (n, &hash) in same[..3].iter().enumerate() {
            insert(&index, hash, n as u64);
        }
        let last = same[3];
        let writer = {
            let index = index.clone();
            thread::spawn(move || assert_eq!(insert(&index, last, 5), 0))
        };
        assert_eq!(look.candidates(&index, mover), [Location::new(9)]);
        writer.join().unwrap();
        assert_eq!(index.len(), 5);
    });
}

#[test]
fn loom_readers_find_one_version_or_the_next() {
    check(|look| {
        let index = Arc::new(Index::new(SLOTS));
        let hash = hash_in(SLOTS, 0, 0);
        insert(&index, hash, 1);
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                insert(&index, hash, 2);
                assert_eq!(index.remove_older(hash, Location::new(2), ring_age).len(), 1);
            })
        };
        assert!(!look.candidates(&index, hash).is_empty());
        writer.join().unwrap();
    });
}

#[test]
fn loom_removing_all_never_uncovers_an_older_version() {
    check(|look| {
        let index = Arc::new(Index::new(SLOTS));
        let hash = hash_in(SLOTS, 0, 0);
        insert(&index, hash, 1);
        insert(&index, hash, 2);
        let writer = {
            let index = index.clone();
            thread::spawn(move || assert_eq!(index.remove_all(hash, ring_age).len(), 2))
        };
        let newest = look.candidates(&index, hash).into_iter().max();
        assert!(newest.is_none() || newest == Some(Location::new(2)));
        writer.join().unwrap();
    });
}

#[test]
fn loom_no_bump_is_lost_in_a_move() {
    check(|_| {
        let index = Arc::new(Index::new(SLOTS));
        let hash = hash_in(SLOTS, 0, 0);
        insert(&index, hash, 1);
        let bump = {
            let index = index.clone();
            thread::spawn(move || assert!(index.bump_freq(hash, Location::new(1), 1).is_some()))
        };
        {
            let (shard, pair) = index.locked(hash);
            let from = shard.search(pair, Location::new(1)).expect("there");
            let to = if from.bucket == pair.first { pair.second } else { pair.first };
            shard.relocate(from, shard.empty_in(to).expect("room"));
        }
        bump.join().unwrap();
        assert_eq!(index.freq(hash, Location::new(1)), Some(1));
    });
}

#[test]
fn loom_who_misses_a_dropped_entry_knows_that_it_was_dropped() {
    check(|look| {
        let index = Arc::new(Index::new(SLOTS));
        let hash = hash_in(SLOTS, 0, 0);
        insert(&index, hash, 1);
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                index.drop_at(hash, Location::new(1));
                index.checkpoint_begins();
            })
        };
        let missed = look.candidates(&index, hash).is_empty();
        assert!(!missed || index.has_dropped(hash));
        writer.join().unwrap();
    });
}
