//! A record of another key where the index said that the key's was.

use super::*;
use crate::{ByteSize, Config, GroupId, Store};

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
