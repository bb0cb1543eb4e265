//! Tests of the ledger on stores of files: over restarts, with losses, from many threads, and the
//! bytes that it writes.

use damelo::{ByteSize, Config, GroupId};

use super::super::stamp::{Stamp, TagId};
use super::*;

fn open_store(path: &std::path::Path) -> Store {
    let mut config = Config::new(path, ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    store
}

fn standing(ledger: &Ledger, moment: Moment, tag: u64) -> Standing {
    let stamp = Stamp { moment, tags: vec![TagId(tag)] };
    ledger.judge(&Subject { stamp: &stamp, url: b"http://a/", url_hash: 0, group: 0 }).0
}

#[test]
fn marks_and_their_ledger_outlive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut store = open_store(&path);
    let first = Ledger::open(store.clone()).unwrap().now().unwrap();
    for round in 1..6 {
        let ledger = Ledger::open(store.clone()).unwrap();
        let now = ledger.now().unwrap();
        assert_eq!(now.ledger, first.ledger, "round {round}");
        assert_eq!(standing(&ledger, now, round), Standing::Untouched);
        assert!(ledger.is_clear(now));
        ledger.purge(vec![Scope::Tag(TagId(round))], PurgeKind::Hard, 0).unwrap();
        for earlier in 1..=round {
            assert_eq!(standing(&ledger, first, earlier), Standing::Gone);
            assert!(!ledger.is_clear(first));
        }
        assert_eq!(standing(&ledger, first, round + 1), Standing::Untouched);
        assert_eq!(standing(&ledger, now, round), Standing::Gone);
        drop(ledger);
        store.close().unwrap();
        store = open_store(&path);
    }
}

/// Who is called at night has to know which disk it is.
#[test]
fn volumes_that_failed_are_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
    let mut config = Config::new(&one, ByteSize::new(64 << 20));
    let mut second = config.volumes[0].clone();
    second.path.clone_from(&two);
    config.volumes.push(second);
    config.memory = ByteSize::new(8 << 20);
    config.volume_errors_max = 1;
    let store = Store::open(config).unwrap();
    let keys: Vec<String> = (0..400).map(|number| format!("key {number}")).collect();
    for key in &keys {
        store.create(key.as_bytes(), copies::group(), &[7; 64 << 10]).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    std::fs::OpenOptions::new().write(true).open(&two).unwrap().set_len(1 << 20).unwrap();
    for key in &keys {
        let _ = store.read(key.as_bytes()).wait();
    }
    let told = volumes_out(&store.info());
    let begin =
        format!("1 of the store's 2 volumes failed: {}: out of service: 1 I/O", two.display());
    assert!(told.starts_with(&begin) && !told.contains("/one"), "{told}");
}

#[test]
fn lost_marks_make_everything_older_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(&directory.path().join("store"));
    let ledger = Ledger::open(store.clone()).unwrap();
    let before = ledger.now().unwrap();
    ledger.purge(vec![Scope::Tag(TagId(1))], PurgeKind::Hard, 0).unwrap();
    let gone = Arc::downgrade(&ledger);
    drop(ledger);
    // Its thread may be at work, and writes anew what it does not find.
    while gone.strong_count() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(marks_lost(0), None, "a new store has lost nothing");
    for entry in store.entries() {
        store.remove(&entry.unwrap().key).unwrap();
    }
    store.create(b"of before", GroupId::of("site"), b"value").wait().unwrap();
    store.sync().unwrap();
    let told = marks_lost(store.stats().index_objects).expect("something is lost");
    assert!(told.contains("what was stored before (objects: 1) counts as purged"), "{told}");
    let ledger = Ledger::open(store).unwrap();
    assert_ne!(ledger.now().unwrap().ledger, before.ledger);
    assert_eq!(standing(&ledger, before, 2), Standing::Gone);
}

/// The store forgets where on disk something lies, and has it in memory: only a restart shows.
#[test]
fn marks_outlive_the_process_where_the_index_is_too_small() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(directory.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.objects_max = Some(4096);
    let store = Store::open(config.clone()).unwrap();
    let ledger = Ledger::open(store.clone()).unwrap();
    let before = ledger.now().unwrap();
    for number in 0..20_000_u32 {
        let key = number.to_le_bytes();
        store.create(&key, GroupId::of(key), &[7; 100]).wait().unwrap();
        if number % 500 == 0 {
            store.sync().unwrap();
            Ledger::tend(&Arc::downgrade(&ledger)).unwrap();
        }
    }
    store.sync().unwrap();
    assert!(store.stats().evicted_index_full > 10_000);
    drop(ledger);
    store.close().unwrap();
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    let ledger = Ledger::open(store).unwrap();
    assert_eq!(ledger.now().unwrap().ledger, before.ledger);
    assert_eq!(standing(&ledger, before, 1), Standing::Untouched);
}

/// As by an answer to an unsafe method while the store recovers.
#[test]
fn what_is_purged_before_the_marks_are_found_stays_purged() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(&directory.path().join("store"));
    let ledger = Ledger::open(store).unwrap();
    ledger.purge(vec![Scope::Tag(TagId(1))], PurgeKind::Hard, 0).unwrap();
    let stored = ledger.now().unwrap();
    // As it was before the store had found anything.
    ledger.readable.store(false, Ordering::Release);
    *locks::write(&ledger.known) = Known::new(Marks::new(3));
    ledger.set(vec![Scope::Tag(TagId(2))], PurgeKind::Hard, 0);
    assert!(ledger.find(true));
    assert_eq!(standing(&ledger, stored, 1), Standing::Untouched, "stored after its purge");
    assert_eq!(standing(&ledger, stored, 2), Standing::Gone);
    assert_eq!(standing(&ledger, stored, 3), Standing::Untouched);
}

#[test]
fn many_purges_at_once_share_writes_and_all_hold() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open_store(&path);
    let ledger = Ledger::open(store.clone()).unwrap();
    let before = ledger.now().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let ledger = &ledger;
            scope.spawn(move || {
                for n in 0..20 {
                    let tag = TagId(thread * 100 + n);
                    ledger.purge(vec![Scope::Tag(tag)], PurgeKind::Hard, 0).unwrap();
                }
            });
        }
    });
    drop(ledger);
    store.close().unwrap();
    let ledger = Ledger::open(open_store(&path)).unwrap();
    for thread in 0..8 {
        for n in 0..20 {
            assert_eq!(standing(&ledger, before, thread * 100 + n), Standing::Gone);
        }
    }
    assert_eq!(standing(&ledger, before, 99), Standing::Untouched);
}

/// Bytes that purges of one tag each write to a store with this many marks, as it counts them, and
/// the bytes of all marks then.
fn bytes_of_purges(marks: u64, purges: u64) -> (u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(&directory.path().join("store"));
    let ledger = Ledger::open(store.clone()).unwrap();
    let tags = (0..marks).map(|tag| Scope::Tag(TagId(tag))).collect();
    ledger.purge(tags, PurgeKind::Hard, 0).unwrap();
    let before = store.stats().written_bytes;
    for tag in marks..marks + purges {
        ledger.purge(vec![Scope::Tag(TagId(tag))], PurgeKind::Hard, 0).unwrap();
    }
    let all = ledger.with_marks(|marks| marks.encode().len() as u64);
    (store.stats().written_bytes - before, all)
}

/// A count of bytes, not a time.
#[test]
fn a_purge_writes_a_small_part_of_the_marks() {
    let (written, all) = bytes_of_purges(90_000, 1000);
    println!("1,000 purges with {all} bytes of marks wrote {written} bytes");
    assert!(all > 1_000_000);
    assert!(written * 50 < all * 1000, "{written} bytes for 1,000 purges of {all} bytes of marks");
    let (written, all) = bytes_of_purges(0, 100);
    println!("100 purges with {all} bytes of marks wrote {written} bytes");
    assert!(written < 100 * 32_000, "{written} bytes for 100 purges, with hardly a mark");
}
