//! A record of another key where the index said that the key's was, and one that has no place yet.

use super::*;
use crate::read::disk::Look;
use crate::{ByteSize, Config, GroupId, Store, WriterOptions};

fn config_in(dir: &tempfile::TempDir) -> Config {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(32 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.segment = Some(ByteSize::new(2 << 20));
    config
}

#[test]
fn another_key_s_record_ends_the_look_at_a_candidate_only_while_the_index_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config_in(&dir)).unwrap();
    let [key, other] = [b"key", b"two"];
    for key in [key, other] {
        store.create(key, GroupId::new(1), &vec![1; 400_000]).wait().unwrap();
    }
    store.sync().unwrap();
    let engine = store.engine();
    let (hash, their_hash) = (engine.hash(key), engine.hash(other));
    let [candidate] = engine.ordered_candidates(their_hash)[..] else { panic!("one record") };
    let look = || engine.resolve_candidate(hash, key, &candidate, false).unwrap();
    // As if the segment were another's by now, and the key's object kept elsewhere.
    assert!(matches!(look(), Found::LookAgain));
    engine.index_insert(hash, candidate.location, candidate.length_class);
    assert!(matches!(look(), Found::OtherKey));
    store.close().unwrap();
}

/// A read that began while a store recovered from a crash, and whose I/O ended after that.
#[test]
fn what_was_deleted_before_a_crash_is_dead_to_a_read_that_outlasts_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config_in(&dir)).unwrap();
    let (small, large) = (b"small", b"large");
    store.create(small, GroupId::new(1), &[1; 1000]).wait().unwrap();
    store.create(large, GroupId::new(1), &vec![1; 400_000]).wait().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    let engine = store.engine();
    let chosen = [small, large].map(|key| {
        let hash = engine.hash(key);
        let [candidate] = engine.ordered_candidates(hash)[..] else { panic!("one record") };
        (hash, candidate)
    });
    let found = |was_loading| {
        let [(hash, candidate), (large_hash, large_candidate)] = chosen;
        let bytes = candidate.length_class.units() * UNIT_BYTES;
        let reads = &engine.counters.object_reads;
        let raw = engine.read_raw(candidate.location, bytes, reads).unwrap().unwrap();
        let look = Look { shared: false, whole_max: engine.piece_max(), was_loading };
        let by_head = engine.resolve_candidate(large_hash, large, &large_candidate, was_loading);
        (engine.accept(hash, small, &candidate, raw, look).unwrap(), by_head.unwrap())
    };
    assert!(matches!(
        found(false),
        (Found::Source(Source::Memory(_)), Found::Source(Source::Disk(_)))
    ));
    assert!(matches!(found(true), (Found::Source(_), Found::Source(_))), "nobody deleted them");
    store.drop_memory();
    // As recovery ends: what it knew of deletes is freed then.
    chosen.iter().for_each(|(hash, _)| assert_eq!(engine.forget(*hash), 1));
    assert!(matches!(found(true), (Found::LookAgain, Found::LookAgain)));
    store.close().unwrap();
}

/// Nobody would find it by its place.
#[test]
fn no_head_is_kept_of_a_list_of_parts_that_waits_to_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_in(&dir);
    config.memory = ByteSize::new(4 << 20);
    config.background = false;
    let store = Store::open(config).unwrap();
    let mut writer = store.writer(b"key", GroupId::new(1), WriterOptions::default()).unwrap();
    (0..20).for_each(|_| writer.write(&[1; 100_000]).wait().unwrap());
    writer.commit().wait().unwrap();
    let read_whole = || store.read(b"key").wait().unwrap_err();
    assert!(matches!(read_whole(), ReadError::TooLargeForMemory { length: 2_000_000, .. }));
    assert_eq!(store.engine().reads.heads.bytes(), 0);
    store.sync().unwrap();
    assert!(matches!(read_whole(), ReadError::TooLargeForMemory { length: 2_000_000, .. }));
    assert!(store.engine().reads.heads.bytes() > 0);
    store.close().unwrap();
}
