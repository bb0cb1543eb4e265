//! The index by one thread: against a model, filled up, and the numbers it promises.
//!
//! Sizes shrink under Miri. Run with `cargo test -p damelo index`.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::geometry::{Geometry, alternate};
use super::slot::{KeyBits, TAGS, freq, tag};
use super::*;

const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

/// Record `n` of a ring that was written from 0 up: the higher, the younger.
fn ring_age(location: Location) -> u64 {
    Location::MAX.units() - location.units()
}

fn class(units: u64) -> LengthClass {
    LengthClass::from_units(units)
}

fn insert(index: &Index, hash: u64, location: u64) -> Inserted {
    index.insert(hash, Location::new(location), class(location % 1000), 0, ring_age)
}

fn found(index: &Index, hash: u64) -> Vec<Location> {
    let mut found: Vec<_> = index.candidates(hash).iter().map(|c| c.location).collect();
    found.sort_unstable();
    assert_eq!(index.has_any(hash), !found.is_empty());
    found
}

fn locations(units: &[u64]) -> Vec<Location> {
    units.iter().map(|&units| Location::new(units)).collect()
}

fn fill(index: &Index, count: u64, seed: u64) -> (Vec<u64>, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut evicted = 0;
    let hashes: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
    for (n, &hash) in hashes.iter().enumerate() {
        let gone = insert(index, hash, n as u64).evicted;
        evicted += gone.iter().filter(|e| e.reason == EvictionReason::IndexFull).count() as u64;
    }
    (hashes, evicted)
}

#[test]
fn length_classes_round_up_by_two_percent_at_most() {
    for units in 0..=49 {
        assert_eq!(class(units).units(), units);
    }
    let step = if cfg!(miri) { 40_009 } else { 7 };
    for units in (1..=LengthClass::LONGEST_UNITS).step_by(step) {
        let covered = class(units).units();
        assert!(covered >= units && covered * 50 <= units * 51, "{units} as {covered}");
        assert_eq!(class(covered), class(units));
        assert!(!class(units).is_large());
    }
    assert!(class(LengthClass::LONGEST_UNITS + 1).is_large());
    assert!(class(u64::MAX).is_large());
    const { assert!(LengthClass::LONGEST_UNITS * UNIT_BYTES > 16 << 20) };
    assert_eq!(LengthClass::LARGE.code(), 511);
    assert_eq!(Location::try_new(1 << 38), None);
    assert_eq!(Location::new(3).bytes(), 192);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn slots_unpack_to_what_was_packed(
        tag in 1..=TAGS as u16,
        location in 0..=Location::MAX.units(),
        units in 0..2 * LengthClass::LONGEST_UNITS,
        freq in 0..=FREQ_MAX,
    ) {
        let location = Location::new(location);
        let fields = SlotFields { tag, location, length_class: class(units), freq };
        prop_assert_eq!(SlotFields::unpack(fields.pack()), Some(fields));
        prop_assert_eq!(SlotFields::unpack(fields.pack() << 15 >> 15), None);
    }

    #[test]
    fn bits_above_all_locations_tell_keys_apart(
        tag in 1..=TAGS as u16, units in 1..u64::MAX, place: prop::sample::Index, hash: u64, other: u64,
    ) {
        let key_bits = KeyBits::for_locations_below(units);
        let last = (units - 1).min(Location::MAX.units());
        for at in [last, place.index(last.saturating_add(1) as usize) as u64] {
            let location = Location::new(at);
            let fields = SlotFields { tag, location, length_class: class(at), freq: 1 };
            let key = key_bits.of_hash(tag, hash);
            let slot = key_bits.pack(fields, key);
            prop_assert_eq!(SlotFields::unpack(key_bits.entry(slot)), Some(fields));
            prop_assert_eq!(key_bits.location(slot), location);
            prop_assert_eq!(key_bits.of_slot(slot), key);
            let other = key_bits.of_hash(tag, other);
            prop_assert_eq!(key_bits.match_slot(slot, other), key == other);
        }
    }

    #[test]
    fn alternate_is_an_involution(
        buckets in 1u32..=8192, bucket: prop::sample::Index, tag in 1..=TAGS as u16,
    ) {
        let bucket = bucket.index(buckets as usize) as u32;
        let other = alternate(buckets, bucket, tag);
        prop_assert!(other < buckets);
        prop_assert_eq!(alternate(buckets, other, tag), bucket);
        prop_assert!(other != bucket || buckets % 2 == 1);
    }

    #[test]
    fn hashes_are_located_within_the_table(slots in 0u64..1 << 40, hash: u64) {
        let geometry = Geometry::for_slots(slots);
        let (shard, pair) = geometry.locate(hash);
        prop_assert!(geometry.shard_slots() <= 1 << 16);
        prop_assert!(geometry.shards as u64 * geometry.shard_slots() >= slots);
        prop_assert!(shard < geometry.shards);
        prop_assert!(pair.first < geometry.buckets && pair.second < geometry.buckets);
        prop_assert!(pair.tag() != 0 && u64::from(pair.tag()) <= TAGS);
    }

    #[test]
    fn behaves_as_a_map_of_lists(
        slots in prop_oneof![Just(8u64), Just(16), Just(100), 1u64..400],
        keys in 1u64..160,
        units in prop_oneof![Just(u64::MAX), 1u64 << 9..1 << 40],
        steps in prop::collection::vec((0u8..11, any::<u64>(), any::<u8>()), 1..400),
    ) {
        let mut model = Model::new(slots, units);
        for (what, key, extra) in steps {
            model.step(what, key % keys, extra);
        }
        model.check();
    }
}

/// What the index should hold: by shard and pair, since the index cannot tell hashes apart that
/// agree in these.
struct Model {
    index: Index,
    entries: HashMap<u64, Vec<(Location, u8)>>,
    hashes: HashMap<(usize, [u32; 2], u64), u64>,
    written: u64,
}

impl Model {
    fn new(slots: u64, units: u64) -> Model {
        Model {
            index: Index::new(slots).with_locations_below(units),
            entries: HashMap::new(),
            hashes: HashMap::new(),
            written: 0,
        }
    }

    fn hash(&self, key: u64) -> u64 {
        fastrand::Rng::with_seed(key).u64(..)
    }

    /// The first hash seen that is alike to the index.
    fn canonical(&mut self, hash: u64) -> u64 {
        let (shard, pair) = self.index.geometry.locate(hash);
        let (low, high) = (pair.first.min(pair.second), pair.first.max(pair.second));
        *self.hashes.entry((shard, [low, high], pair.key)).or_insert(hash)
    }

    fn step(&mut self, what: u8, key: u64, extra: u8) {
        let hash = self.hash(key);
        let canonical = self.canonical(hash);
        let list = self.entries.entry(canonical).or_default().clone();
        let some = list.get(usize::from(extra) % list.len().max(1)).copied();
        let location = some.map_or(Location::MAX, |(location, _)| location);
        match what {
            0..=6 => self.insert(hash, canonical, extra),
            7 => {
                let removed = self.index.remove_at(hash, location);
                assert_eq!(removed, some.map(|(_, freq)| freq));
                self.list(canonical).retain(|e| e.0 != location);
            }
            8 => self.remove_several(hash, canonical, location, extra),
            9 => {
                let freq = self.index.bump_freq(hash, location, extra % 3);
                assert_eq!(freq, some.map(|(_, freq)| (freq + extra % 3).min(FREQ_MAX)));
                self.set_freq(canonical, location, freq);
            }
            _ => assert_eq!(self.index.freq(hash, location), some.map(|(_, freq)| freq)),
        }
        self.check_key(canonical);
    }

    fn list(&mut self, canonical: u64) -> &mut Vec<(Location, u8)> {
        self.entries.entry(canonical).or_default()
    }

    fn next_location(&mut self) -> Location {
        self.written += 1;
        Location::new(self.written)
    }

    fn set_freq(&mut self, canonical: u64, location: Location, freq: Option<u8>) {
        for entry in self.list(canonical).iter_mut().filter(|e| e.0 == location) {
            entry.1 = freq.expect("present");
        }
    }

    fn insert(&mut self, hash: u64, canonical: u64, extra: u8) {
        let location = self.next_location();
        let freq = extra % 4;
        let gone = self.index.insert(hash, location, class(1), freq, ring_age).evicted;
        for evicted in &gone {
            self.evict(canonical, *evicted);
        }
        self.list(canonical).push((location, freq));
    }

    /// An evicted entry was there, and no older one with its tag is left.
    fn evict(&mut self, inserted: u64, evicted: Evicted) {
        let home = self
            .entries
            .iter_mut()
            .find(|(_, list)| list.iter().any(|&(location, _)| location == evicted.location));
        let (&canonical, list) = home.expect("evicted what was not there");
        if evicted.reason == EvictionReason::TagLimit {
            assert_eq!((canonical, list.len()), (inserted, 3));
        }
        list.retain(|&(location, _)| location != evicted.location);
        assert!(list.iter().all(|&(location, _)| location > evicted.location));
    }

    fn remove_several(&mut self, hash: u64, canonical: u64, location: Location, extra: u8) {
        let removed = if extra.is_multiple_of(2) {
            self.index.remove_all(hash, ring_age)
        } else {
            self.index.remove_older(hash, location, ring_age)
        };
        let gone = |other: Location| extra.is_multiple_of(2) || other < location;
        let list = self.list(canonical);
        let mut expected: Vec<_> = list.iter().map(|e| e.0).filter(|&l| gone(l)).collect();
        expected.sort_unstable(); // oldest first
        assert_eq!(&*removed, &*expected);
        list.retain(|e| !gone(e.0));
    }

    fn check_key(&self, canonical: u64) {
        let mut expected = self.entries[&canonical].clone();
        expected.sort_unstable();
        assert!(expected.len() <= 3);
        let mut found: Vec<_> =
            self.index.candidates(canonical).iter().map(|c| (c.location, c.freq)).collect();
        found.sort_unstable();
        assert_eq!(found, expected);
        for (location, freq) in expected {
            assert!(self.index.contains_at(canonical, location));
            assert_eq!(self.index.freq(canonical, location), Some(freq));
        }
    }

    fn check(&self) {
        for &canonical in self.entries.keys() {
            self.check_key(canonical);
        }
        assert_eq!(self.index.len(), self.entries.values().map(|l| l.len() as u64).sum::<u64>());
    }
}

#[test]
fn fills_to_97_percent_without_evicting() {
    let sizes: &[u64] =
        if cfg!(miri) { &[8, 16, 100] } else { &[8, 16, 100, 1000, 65_536, 70_000, 1_000_000] };
    for &slots in sizes {
        for (percent, seed) in [(90, 1), (97, 2), (97, 3)] {
            let index = Index::new(slots);
            assert!(index.slots() >= slots && index.slots() <= slots + 16 * 32);
            let count = index.slots() * percent / 100;
            let (hashes, evicted) = fill(&index, count, seed);
            assert_eq!((evicted, index.len()), (0, count), "{slots} slots");
            for (n, &hash) in hashes.iter().enumerate() {
                assert!(index.contains_at(hash, Location::new(n as u64)));
            }
        }
    }
}

#[test]
fn evicts_the_oldest_and_older_entries_with_its_tag() {
    let index = Index::new(8);
    let tags: Vec<u64> = (0..8).map(|n| n << 8).collect();
    for location in [20, 21] {
        assert!(insert(&index, tags[0], location).evicted.is_empty());
    }
    for (n, &hash) in tags.iter().enumerate().skip(1).take(6) {
        assert!(insert(&index, hash, 30 + n as u64).evicted.is_empty());
    }
    let evicted = insert(&index, tags[7], 40).evicted;
    let full =
        |units| Evicted { location: Location::new(units), reason: EvictionReason::IndexFull };
    assert_eq!(&*evicted, &[full(20)]);
    assert_eq!(found(&index, tags[0]), locations(&[21]));
    assert_eq!(index.len(), 8);
}

#[test]
fn evicting_takes_older_entries_of_the_other_bucket_along() {
    let slots = if cfg!(miri) { 100 } else { 1000 };
    let index = Index::new(slots);
    let mut random = fastrand::Rng::with_seed(5);
    let mut several = 0;
    let hashes: Vec<u64> = (0..index.slots()).map(|_| random.u64(..)).collect();
    for location in 0..20 * index.slots() {
        let hash = hashes[random.usize(..hashes.len())];
        let evicted = insert(&index, hash, location).evicted;
        several += u64::from(evicted.len() > 1);
        assert!(evicted.is_sorted_by_key(|e| e.location), "oldest first");
    }
    assert!(several > 0 || cfg!(miri));
    assert!(index.len() > index.slots() * 97 / 100);
}

#[test]
fn a_fourth_entry_with_the_tag_drops_the_oldest() {
    let index = Index::new(100);
    let hash = 0x1234_5678_9abc_def0;
    for location in [7, 5, 6] {
        assert!(insert(&index, hash, location).evicted.is_empty());
    }
    let gone = |units| Evicted { location: Location::new(units), reason: EvictionReason::TagLimit };
    assert_eq!(&*insert(&index, hash, 8).evicted, &[gone(5)]);
    assert_eq!(&*insert(&index, hash, 3).evicted, &[gone(3)], "out of order: not kept");
    assert!(insert(&index, hash, 7).evicted.is_empty(), "again: replaced");
    assert_eq!(found(&index, hash), locations(&[6, 7, 8]));
    assert_eq!(index.len(), 3);
}

#[test]
fn false_candidates_are_as_rare_as_documented() {
    let (slots, lookups) = if cfg!(miri) { (100, 1000) } else { (100_000, 2_000_000) };
    let index = Index::new(slots);
    fill(&index, index.slots() * 9 / 10, 1);
    let mut random = fastrand::Rng::with_seed(2);
    let false_ones = (0..lookups).filter(|_| !index.candidates(random.u64(..)).is_empty()).count();
    let expected = lookups as f64 * 16.0 * 0.9 / TAGS as f64;
    if !cfg!(miri) {
        assert!((false_ones as f64 - expected).abs() < 5.0 * expected.sqrt(), "{false_ones}");
    }
    assert!(false_ones * 1000 <= lookups.max(1000), "{false_ones}");
}

#[test]
fn takes_at_most_ten_bytes_per_object_at_90_percent() {
    for slots in if cfg!(miri) { vec![10_000] } else { vec![10_000, 70_000, 1 << 24, 100_000_000] }
    {
        let index = Index::new(slots);
        let objects = slots * 9 / 10;
        assert!(index.memory_bytes() <= 10 * objects, "{slots}: {}", index.memory_bytes());
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn reserves_memory_without_taking_it() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let index = Index::new(1 << 27);
    assert!(insert(&index, 1, 1).evicted.is_empty());
    assert!(resident() < before + (256 << 20), "{} of {}", resident(), index.memory_bytes());
    assert_eq!(index.table.buckets().as_ptr().align_offset(64), 0);
}

fn image(index: &Index, shard: usize) -> Vec<u8> {
    let mut image = vec![0; 8 * index.shard_slots() as usize];
    index.copy_shard(shard, &mut image);
    image
}

#[test]
fn a_copied_shard_loads_where_it_was() {
    let slots = if cfg!(miri) { 100 } else { 150_000 };
    let index = Index::new(slots);
    let (hashes, _) = fill(&index, slots * 9 / 10, 1);
    let len = index.len();
    let copy = Index::new(slots);
    for shard in 0..index.shard_count() {
        let image = image(&index, shard);
        let loaded = copy.load_shard(shard, &image, |_| true, ring_age);
        assert_eq!(loaded.evicted, 0);
        let again = copy.load_shard(shard, &image, |_| true, ring_age);
        assert_eq!(again, Loaded::default());
        assert_eq!(copy.load_shard(shard, &image[8..], |_| true, ring_age), Loaded::default());
    }
    assert_eq!(copy.len(), len);
    for &hash in &hashes {
        assert_eq!(found(&copy, hash), found(&index, hash));
    }
}

#[test]
fn loading_merges_and_leaves_out() {
    let slots = if cfg!(miri) { 100 } else { 10_000 };
    let index = Index::new(slots);
    let half = slots * 45 / 100;
    let (old, _) = fill(&index, half, 1);
    let image = image(&index, 0);
    let other = Index::new(slots);
    let mut random = fastrand::Rng::with_seed(9);
    let new: Vec<u64> = (0..half).map(|_| random.u64(..)).collect();
    for (n, &hash) in new.iter().enumerate() {
        assert!(insert(&other, hash, half + n as u64).evicted.is_empty());
    }
    assert!(insert(&other, old[1], 1).evicted.is_empty(), "in both");
    let before = other.len();
    let odd = |location: Location| location.units() % 2 == 1;
    let loaded = other.load_shard(0, &image, odd, ring_age);
    assert_eq!(loaded, Loaded { loaded: half / 2 - 1, evicted: 0 });
    assert_eq!(other.len(), before + loaded.loaded);
    for (n, &hash) in old.iter().enumerate() {
        assert_eq!(other.contains_at(hash, Location::new(n as u64)), n % 2 == 1);
    }
    for (n, &hash) in new.iter().enumerate() {
        assert!(other.contains_at(hash, Location::new(half + n as u64)));
    }
}

#[test]
fn entries_are_dropped_by_location_with_what_is_older_of_their_families() {
    let index = Index::new(if cfg!(miri) { 100 } else { 70_000 });
    let count = index.slots() / 2;
    let (hashes, _) = fill(&index, count, 1);
    let (older, newer) = (Location::new(count), Location::new(count + 1));
    assert!(insert(&index, hashes[20], older.units()).evicted.is_empty());
    assert!(insert(&index, hashes[0], newer.units()).evicted.is_empty());
    let gone = |location: Location| location.units() < 10 || location == older;
    let shards = 0..index.shard_count();
    let dropped: u64 = shards.map(|shard| index.drop_where(shard, gone, ring_age)).sum();
    assert_eq!(dropped, 11);
    for (n, &hash) in hashes.iter().enumerate() {
        let stays = n >= 10 && n != 20;
        assert_eq!(index.contains_at(hash, Location::new(n as u64)), stays, "{n}");
        assert!(stays || index.has_dropped(hash));
    }
    assert!(!index.contains_at(hashes[20], older) && index.contains_at(hashes[0], newer));
}

#[test]
fn damaged_words_are_left_out_of_a_loaded_shard() {
    let index = Index::new(8);
    let mut image = vec![0u8; 64];
    image[..8].copy_from_slice(&77u64.to_le_bytes()); // no tag
    image[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(index.load_shard(0, &image, |_| true, ring_age).loaded, 1);
    assert_eq!((tag(77), freq(u64::MAX), index.len()), (0, FREQ_MAX, 1));
}

#[test]
fn tags_and_buckets_are_spread_evenly() {
    let geometry = Geometry::for_slots(1 << 20);
    let mut random = fastrand::Rng::with_seed(1);
    let draws = if cfg!(miri) { 100 } else { 100_000 };
    let mut tags = HashSet::new();
    let mut shards = vec![0u32; geometry.shards];
    for _ in 0..draws {
        let (shard, pair) = geometry.locate(random.u64(..));
        shards[shard] += 1;
        tags.insert(pair.tag());
    }
    if !cfg!(miri) {
        assert!(tags.len() > 30_000, "{}", tags.len());
        assert!(shards.iter().all(|&n| n > 5_800 && n < 6_700), "{shards:?}");
    }
}

/// Sixteen gibibytes leave ten bits: of 50,000 lookups of other keys some twenty would be misled by
/// the tag alone, and creates would take as many along.
#[test]
fn keys_of_one_tag_are_told_apart_by_what_small_volumes_leave() {
    let count = if cfg!(miri) { 200 } else { 60_000 };
    let misled = |index: Index| {
        let (hashes, _) = fill(&index, count, 9);
        let mut random = fastrand::Rng::with_seed(10);
        let misled = (0..50_000).filter(|_| !index.candidates(random.u64(..)).is_empty()).count();
        for &hash in &hashes {
            assert!(!index.candidates(hash).is_empty());
        }
        misled
    };
    let small = misled(Index::new(count + count / 9).with_locations_below(1 << 28));
    let large = misled(Index::new(count + count / 9));
    assert!(small <= 1, "{small}");
    assert!(large >= 10 || cfg!(miri), "{large}");
}

#[test]
fn keys_that_differ_in_what_volumes_leave_live_beside_each_other() {
    let index = Index::new(100).counting(4, 250).with_locations_below(1000);
    let one = 0x0123_4567_89ab_cdef;
    let other = one ^ 1 << 32;
    assert_eq!(index.geometry.locate(one).1.tag(), index.geometry.locate(other).1.tag());
    let at = Location::new(999);
    assert!(index.insert(one, at, class(3), 2, ring_age).evicted.is_empty());
    assert!(index.insert(other, at, class(3), 1, ring_age).evicted.is_empty());
    assert_eq!(index.units_in(3), 6);
    assert_eq!((index.freq(one, at), index.freq(other, at)), (Some(2), Some(1)));
    assert_eq!(&*index.remove_all(one, ring_age), &[at]);
    assert_eq!((index.units_in(3), index.units_in(0)), (3, 0));
    assert_eq!(found(&index, other), locations(&[999]));
    assert_eq!((index.freq(other, at), index.len()), (Some(1), 1));
}

#[test]
fn what_was_dropped_is_remembered_until_a_later_checkpoint_is_complete() {
    let index = Index::new(8);
    let mut random = fastrand::Rng::with_seed(3);
    let hashes: Vec<u64> = (0..2000).map(|_| random.u64(..)).collect();
    for (n, &hash) in hashes.iter().enumerate() {
        let evicted = insert(&index, hash, n as u64).evicted;
        assert_eq!(evicted.is_empty(), n < 8, "one bucket of eight slots");
    }
    assert!(hashes[..1992].iter().all(|&hash| index.has_dropped(hash)), "evicted");
    index.checkpoint_begins();
    index.checkpoint_done();
    assert!(!hashes.iter().any(|&hash| index.has_dropped(hash)), "not in the checkpoint");

    let (removed, kept) = (hashes[1999], hashes[1998]);
    assert_eq!(index.remove_all(removed, ring_age).len(), 1);
    assert!(index.has_dropped(removed) && !index.has_dropped(kept));
    index.checkpoint_begins();
    assert!(index.has_dropped(removed), "the checkpoint may fail");
    assert_eq!(index.drop_at(kept, Location::new(1998)), Some(0));
    index.checkpoint_begins();
    assert!(index.has_dropped(removed) && index.has_dropped(kept), "it did: another begins");
    assert_eq!(index.drop_at(hashes[1997], Location::new(1997)), Some(0));
    index.checkpoint_done();
    assert!(index.has_dropped(removed) && index.has_dropped(kept), "the one before has them");
    assert!(index.has_dropped(hashes[1997]), "dropped after it began");
    index.checkpoint_begins();
    index.checkpoint_done();
    assert!(!index.has_dropped(removed) && !index.has_dropped(kept));
    assert!(index.has_dropped(hashes[1997]), "only one lacks it");
    index.checkpoint_begins();
    index.checkpoint_done();
    assert!(!index.has_dropped(hashes[1997]));
}

#[test]
fn what_only_an_older_checkpoint_has_is_told_until_a_later_one_is_complete() {
    let index = Index::new(8);
    (0..8).for_each(|n| assert!(insert(&index, hash_of(n), n).evicted.is_empty()));
    index.remove_all(hash_of(3), ring_age);
    index.checkpoint_begins();
    assert!(!index.checkpoint_lacks(), "the journal tells what was removed");
    index.checkpoint_done();
    let (_, pushed_out) = (insert(&index, hash_of(8), 8), insert(&index, hash_of(9), 9).evicted);
    assert!(!pushed_out.is_empty() && !index.checkpoint_lacks());
    index.checkpoint_begins();
    assert!(index.checkpoint_lacks());
    index.checkpoint_begins();
    assert!(index.checkpoint_lacks(), "the first one failed");
    index.drop_unknown();
    index.checkpoint_done();
    assert!(!index.checkpoint_lacks());
    index.checkpoint_begins();
    assert!(index.checkpoint_lacks(), "what is unknown since it began");
    index.checkpoint_done();
    assert!(!index.checkpoint_lacks());
}

/// Of keys with different tags.
fn hash_of(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn of_unknown_entries_any_may_have_been_dropped() {
    let index = Index::new(200_000);
    let mut random = fastrand::Rng::with_seed(3);
    let hashes: Vec<u64> = (0..10_000).map(|_| random.u64(..)).collect();
    index.drop_unknown();
    index.checkpoint_begins();
    assert!(hashes.iter().all(|hash| index.has_dropped(*hash)), "in each shard, each family");
    index.checkpoint_done();
    assert!(!hashes.iter().any(|hash| index.has_dropped(*hash)));
}

#[test]
fn an_entry_removed_with_its_record_is_not_dropped() {
    let index = Index::new(100);
    let _ = insert(&index, 7, 7);
    assert_eq!(index.remove_at(7, Location::new(7)), Some(0));
    assert!(!index.has_dropped(7));
    assert!(index.remove_all(7, ring_age).is_empty());
    assert!(!index.has_dropped(7), "there was nothing to drop");
    index.note_dropped(7);
    assert!(index.has_dropped(7), "its record may be there all the same");
}

#[test]
fn an_index_for_which_there_is_no_memory_is_refused() {
    for slots in [1 << 50, 1 << 60, u64::MAX] {
        assert!(Index::try_new(slots).is_none(), "{slots}");
    }
    for slots in [1, 64, 65_536, 65_537, 1_000_000] {
        assert_eq!(Index::slots_for(slots), Index::new(slots).slots());
    }
}
