//! The index under many threads: an entry in the index is always found, also while it is moved.
//!
//! Sizes shrink under Miri.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const SLOTS: u64 = if cfg!(miri) { 64 } else { 2048 };
const TIME: Duration = Duration::from_millis(if cfg!(miri) { 50 } else { 400 });

fn ring_age(location: Location) -> u64 {
    Location::MAX.units() - location.units()
}

fn class() -> LengthClass {
    LengthClass::from_units(1)
}

/// Fills up to 96 % and empties again, over and over: each time many entries must move.
fn churn(index: &Index, seed: u64, count: u64, stop: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let base = (seed + 1) << 30;
    while !stop.load(Ordering::Relaxed) {
        let hashes: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
        for (n, &hash) in hashes.iter().enumerate() {
            let location = Location::new(base + n as u64);
            let evicted = index.insert(hash, location, class(), 0, ring_age).evicted;
            assert!(evicted.iter().all(|e| e.reason == EvictionReason::TagLimit));
        }
        for (n, &hash) in hashes.iter().enumerate() {
            index.remove_at(hash, Location::new(base + n as u64));
        }
    }
}

#[test]
fn readers_find_what_is_there_while_writers_move_it() {
    let index = Index::new(SLOTS);
    let stop = AtomicBool::new(false);
    let mut random = fastrand::Rng::with_seed(1);
    let lasting: Vec<u64> = (0..SLOTS / 2).map(|_| random.u64(..)).collect();
    for (n, &hash) in lasting.iter().enumerate() {
        let evicted = index.insert(hash, Location::new(n as u64), class(), 0, |_| 0).evicted;
        assert!(evicted.is_empty());
    }
    thread::scope(|scope| {
        for seed in 0..2 {
            let (index, stop) = (&index, &stop);
            scope.spawn(move || churn(index, seed, SLOTS * 23 / 100, stop));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds == 0 {
                    for (n, &hash) in lasting.iter().enumerate() {
                        let location = Location::new(n as u64);
                        let found = index.candidates(hash);
                        let copies = found.iter().filter(|c| c.location == location).count();
                        assert_eq!(copies, 1, "round {rounds}");
                        assert!(index.bump_freq(hash, location, 1).is_some());
                    }
                    rounds += 1;
                }
            });
        }
        thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(index.len(), lasting.len() as u64);
    for (n, &hash) in lasting.iter().enumerate() {
        assert!(index.freq(hash, Location::new(n as u64)) >= Some(1));
    }
}

#[test]
fn readers_always_find_some_version_and_never_go_back() {
    let index = Index::new(64);
    let stop = AtomicBool::new(false);
    let hash = 0xfeed_beef_0123_4567;
    let first = index.insert(hash, Location::new(0), class(), 0, ring_age);
    assert!(first.evicted.is_empty());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut newest = Location::new(0);
                while !stop.load(Ordering::Relaxed) {
                    let found = index.candidates(hash).iter().map(|c| c.location).max();
                    let found = found.expect("a version");
                    assert!(found >= newest);
                    newest = found;
                }
            });
        }
        let started = Instant::now();
        for n in 1.. {
            if started.elapsed() > TIME {
                break;
            }
            let location = Location::new(n);
            let evicted = index.insert(hash, location, class(), 0, ring_age).evicted;
            assert!(evicted.is_empty());
            match n % 3 {
                0 => drop(index.remove_older(hash, location, ring_age)),
                1 => assert!(index.remove_at(hash, Location::new(n - 1)).is_some()),
                _ => assert_eq!(index.remove_older(hash, location, ring_age).len(), 1),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(index.len(), 1);
}

#[test]
fn lengths_and_freqs_add_up_over_threads() {
    let index = Index::new(SLOTS * 8);
    let per_thread = SLOTS;
    thread::scope(|scope| {
        for seed in 0..4u64 {
            let index = &index;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for n in 0..per_thread {
                    let (hash, location) = (random.u64(..), Location::new(seed << 32 | n));
                    let gone = index.insert(hash, location, class(), 0, ring_age).evicted;
                    assert!(gone.is_empty());
                    assert_eq!(index.bump_freq(hash, location, 2), Some(2));
                    if n % 2 == 0 {
                        assert_eq!(index.remove_at(hash, location), Some(2));
                    }
                }
            });
        }
    });
    assert_eq!(index.len(), 4 * per_thread / 2);
}
