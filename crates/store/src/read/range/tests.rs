//! A record of another key where the index said that the key's was, and one that has no place yet.

use super::*;
use crate::{ByteSize, Config, GroupId, Store, WriterOptions};

#[test]
fn another_key_s_record_ends_the_look_at_a_candidate_only_while_the_index_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(32 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.segment = Some(ByteSize::new(2 << 20));
    let store = Store::open(config).unwrap();
    let [key, other] = [b"key", b"two"];
    for key in [key, other] {
        store.create(key, GroupId::new(1), &vec![1; 400_000]).wait().unwrap();
    }
    store.sync().unwrap();
    let engine = store.engine();
    let (hash, their_hash) = (engine.hash(key), engine.hash(other));
    let [candidate] = engine.ordered_candidates(their_hash)[..] else { panic!("one record") };
    let look = || engine.resolve_candidate(hash, key, &candidate).unwrap();
    // As if the segment were another's by now, and the key's object kept elsewhere.
    assert!(matches!(look(), ByHead::LookAgain));
    engine.index_insert(hash, candidate.location, candidate.length_class);
    assert!(matches!(look(), ByHead::OtherKey));
    store.close().unwrap();
}

/// Nobody would find it by its place.
#[test]
fn no_head_is_kept_of_a_list_of_parts_that_waits_to_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(32 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.segment = Some(ByteSize::new(2 << 20));
    config.background = false;
    let store = Store::open(config).unwrap();
    let mut writer = store.writer(b"key", GroupId::new(1), WriterOptions::default()).unwrap();
    (0..20).for_each(|_| writer.write(&[1; 100_000]).wait().unwrap());
    writer.commit().wait().unwrap();
    let read_whole = || store.read(b"key").wait().unwrap_err();
    assert!(matches!(read_whole(), ReadError::TooLargeForMemory { length: 2_000_000, .. }));
    assert_eq!(store.engine().heads.bytes(), 0);
    store.sync().unwrap();
    assert!(matches!(read_whole(), ReadError::TooLargeForMemory { length: 2_000_000, .. }));
    assert!(store.engine().heads.bytes() > 0);
    store.close().unwrap();
}
