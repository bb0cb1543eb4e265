//! Large objects with replaced metadata, in segments that are reused: they stay while they are
//! asked for, and go like others if they are not.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod in_memory;

use std::sync::{Arc, Mutex};

use damelo::{ByteSize, Config, CreateOptions, GroupId, Store};
use in_memory::{Memory, State, Stopped};

/// With half a MiB less, new metadata is written again in the round in which its value's segment is
/// reused, and goes with that.
const DEVICE_BYTES: usize = (24 << 20) + (512 << 10);
const SEGMENT_BYTES: usize = 512 << 10;
/// Not in a page, and less than may be written again of a segment.
const BYTES: usize = 60_000;
const ROUNDS: usize = 5 * DEVICE_BYTES / SEGMENT_BYTES;

fn open(state: &Arc<Mutex<State>>, background: bool) -> Store {
    let mut config = Config::new("renewed", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(SEGMENT_BYTES as u64));
    config.reinsert_percent_max = 60;
    config.background = background;
    config.seed = Some(1);
    let store = Store::open_on(config, vec![Memory::device(state)], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

fn value(key: &str) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key.bytes().map(u64::from).sum());
    std::iter::repeat_with(|| rng.u8(..)).take(BYTES).collect()
}

/// On disk, with metadata that was replaced there.
fn make(store: &Store, key: &str) {
    let first = CreateOptions { metadata: b"first", ..CreateOptions::default() };
    store.create_with(key.as_bytes(), GroupId::new(1), &value(key), first).wait().unwrap();
    store.sync().unwrap();
    assert!(store.set_metadata(key.as_bytes(), b"new").wait().unwrap());
    store.sync().unwrap();
}

/// Asks for it from disk; true if it is there.
fn ask(store: &Store, key: &str) -> bool {
    store.drop_memory();
    let Some(object) = store.read(key.as_bytes()).wait().unwrap() else { return false };
    assert_eq!((&*object, object.metadata()), (&*value(key), &b"new"[..]), "{key}");
    true
}

/// Creates what nobody asks for, a segment of it.
fn pass_by(store: &Store, round: usize) {
    for n in 0..SEGMENT_BYTES / 20_000 {
        let key = format!("by/{round}/{n}");
        store.create(key.as_bytes(), GroupId::new(2), &[7; 20_000]).wait().unwrap();
    }
    store.sync().unwrap();
}

#[test]
fn what_is_asked_for_stays_with_its_new_metadata_and_the_rest_goes() {
    for background in [false, true] {
        let state = State::new(DEVICE_BYTES, false);
        let store = open(&state, background);
        make(&store, "asked");
        make(&store, "unasked");
        for round in 0..ROUNDS {
            pass_by(&store, round);
            assert!(ask(&store, "asked"), "{background}, round {round}");
        }
        assert!(!ask(&store, "unasked"), "{background}");
        store.close().unwrap();
        let store = open(&state, background);
        assert!(ask(&store, "asked"), "after reopening");
    }
}

/// Its new metadata is in pages, which come round at another time.
#[test]
fn what_is_renewed_again_and_again_stays() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, false);
    make(&store, "asked");
    for round in 0..ROUNDS {
        pass_by(&store, round);
        (0..30_u32).for_each(|n| {
            let key = format!("small/{round}/{n}");
            store.create(key.as_bytes(), GroupId::new(3), &[7; 4000]).wait().unwrap();
        });
        assert!(ask(&store, "asked"), "round {round}");
        if round % 7 == 0 {
            assert!(store.set_metadata(b"asked", b"new").wait().unwrap());
            // What waits in memory when its value's segment is reused goes with that.
            store.sync().unwrap();
        }
    }
}

/// In memory it lies put together, which is not what is on disk.
#[test]
fn what_is_in_memory_stays_on_disk() {
    let state = State::new(DEVICE_BYTES, false);
    let store = open(&state, false);
    make(&store, "asked");
    store.love(GroupId::new(1));
    assert!(ask(&store, "asked"));
    for round in 0..ROUNDS {
        pass_by(&store, round);
        // Pages come round, too, in which its new metadata is.
        (0..60_u32).for_each(|n| {
            let key = format!("small/{round}/{n}");
            store.create(key.as_bytes(), GroupId::new(3), &[7; 7000]).wait().unwrap();
        });
        let object = store.read(b"asked").wait().unwrap().expect("it is in memory");
        assert_eq!((&*object, object.metadata()), (&*value("asked"), &b"new"[..]));
    }
    store.sync().unwrap();
    assert!(ask(&store, "asked"));
    assert!(store.stats().hits_memory >= ROUNDS as u64);
}

#[test]
fn what_is_gone_does_not_come_back() {
    for background in [false, true] {
        let state = State::new(DEVICE_BYTES, false);
        let store = open(&state, background);
        for key in ["removed", "purged", "replaced", "copied"] {
            make(&store, key);
            assert!(ask(&store, key) && ask(&store, key));
        }
        store.remove(b"removed").unwrap();
        store.purge_prefix(b"purge").unwrap();
        let newest = CreateOptions { metadata: b"newest", ..CreateOptions::default() };
        store.create_with(b"replaced", GroupId::new(3), b"short", newest).wait().unwrap();
        for round in 0..2 * DEVICE_BYTES / SEGMENT_BYTES {
            pass_by(&store, round);
            store.drop_memory();
            for gone in ["removed", "purged"] {
                assert!(store.lookup(gone.as_bytes()).wait().unwrap().is_none(), "{gone}");
            }
            let found = store.read(b"replaced").wait().unwrap().unwrap();
            assert_eq!((&*found, found.metadata()), (&b"short"[..], &b"newest"[..]));
            assert!(ask(&store, "copied"), "round {round}");
        }
        // Also after a crash: nothing is closed.
        let left = state.lock().unwrap().copied();
        let store = open(&left, background);
        for gone in ["removed", "purged"] {
            assert!(store.lookup(gone.as_bytes()).wait().unwrap().is_none(), "{gone}");
        }
    }
}
