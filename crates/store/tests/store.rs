//! Behaviour of a store on a real file, both I/O engines: what comes in comes out, restarts,
//! groups, deletes, large objects. Contents are derived from the key, so that a wrong byte is
//! noticed.

#[path = "store/opening.rs"]
mod opening;

use std::time::Duration;

use damelo::{
    ByteSize, Config, CreateOptions, GroupId, IoEngine, OpenError, Store, VolumeConfig,
    WriterOptions,
};
use tempfile::TempDir;

fn config(dir: &TempDir, engine: IoEngine) -> Config {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.io_engine = engine;
    config
}

fn value(key: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(key);
    (0..len).map(|_| rng.u8(..)).collect()
}

fn length(key: u64) -> usize {
    fastrand::Rng::with_seed(key ^ 0x55).usize(0..16_000)
}

fn name(key: u64) -> Vec<u8> {
    format!("http://host{}/object/{key}", key % 16).into_bytes()
}

#[expect(clippy::unwrap_used, reason = "a test helper")]
fn fill(store: &Store, count: u64) {
    for key in 0..count {
        let group = GroupId::new(key % 16);
        store.create(&name(key), group, &value(key, length(key))).wait().unwrap();
    }
}

#[expect(clippy::unwrap_used, reason = "a test helper")]
fn verify(store: &Store, count: u64) -> u64 {
    let mut hits = 0;
    for key in 0..count {
        if let Some(object) = store.read(&name(key)).wait().unwrap() {
            assert_eq!(&*object, value(key, length(key)), "object {key}");
            assert_eq!(object.key(), name(key));
            assert_eq!(object.group(), GroupId::new(key % 16));
            hits += 1;
        }
    }
    hits
}

fn each_io_engine(test: impl Fn(IoEngine)) {
    test(IoEngine::Threads);
    test(IoEngine::Auto);
}

#[test]
fn everything_created_is_there_from_memory_from_disk_and_after_reopening() {
    each_io_engine(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        fill(&store, 3000);
        assert_eq!(verify(&store, 3000), 3000);
        store.sync().unwrap();
        store.drop_memory();
        assert_eq!(verify(&store, 3000), 3000);
        store.close().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        assert!(!store.info().created);
        store.wait_recovered();
        assert_eq!(verify(&store, 3000), 3000);
        assert_eq!(store.entries().filter(Result::is_ok).count(), 3000);
    });
}

#[test]
fn a_group_read_in_order_costs_about_its_bytes_by_the_page_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    (0..16).for_each(|group| store.love(GroupId::new(group)));
    for group in 0..16 {
        for key in (0..4000).filter(|key| key % 16 == group) {
            store.create(&name(key), GroupId::new(group), &value(key, length(key))).wait().unwrap();
        }
    }
    store.sync().unwrap();
    store.drop_memory();
    let before = store.stats();
    for group in 0..16 {
        for key in (0..4000).filter(|key| key % 16 == group) {
            assert!(store.read(&name(key)).wait().unwrap().is_some());
        }
    }
    let after = store.stats();
    let reads = (after.object_reads + after.page_reads) - (before.object_reads + before.page_reads);
    let bytes: usize = (0..4000).map(|key| length(key) + 100).sum();
    assert!(
        reads < (bytes / 65_536) as u64 * 11 / 10,
        "{reads} reads for {bytes} bytes: {after:?}"
    );
}

#[test]
fn removed_and_purged_objects_stay_away_across_a_restart() {
    each_io_engine(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        fill(&store, 500);
        store.sync().unwrap();
        assert!(store.remove(&name(1)).unwrap());
        assert!(!store.remove(b"never there").unwrap());
        store.purge_group(GroupId::new(2)).unwrap();
        store.purge_prefix(b"http://host3/").unwrap();
        let gone = |store: &Store| {
            for key in 0..500 {
                let expected = key != 1 && key % 16 != 2 && key % 16 != 3;
                assert_eq!(store.read(&name(key)).wait().unwrap().is_some(), expected, "{key}");
            }
        };
        gone(&store);
        store.close().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        store.wait_recovered();
        gone(&store);
        store.create(&name(2), GroupId::new(2), b"again").wait().unwrap();
        assert_eq!(&*store.read(&name(2)).wait().unwrap().unwrap(), b"again");
        store.purge_all().unwrap();
        assert_eq!(verify(&store, 500), 0);
    });
}

#[test]
fn large_objects_stream_in_and_out_in_little_memory() {
    each_io_engine(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        let big = value(7, 20 << 20);
        let options = WriterOptions { metadata: b"meta".to_vec(), ..Default::default() };
        let mut writer = store.writer(b"big", GroupId::new(1), options).unwrap();
        for piece in big.chunks(100_000) {
            writer.write(piece).wait().unwrap();
        }
        writer.commit().wait().unwrap();
        for round in 0..2 {
            let mut reader = store.reader(b"big").wait().unwrap().unwrap();
            assert_eq!(reader.info().length_bytes, big.len() as u64);
            assert_eq!(&*reader.info().metadata, b"meta");
            let mut at = 0;
            while let Some(piece) = reader.next().wait().unwrap() {
                assert_eq!(&piece[..], &big[at..at + piece.len()], "round {round} at {at}");
                at += piece.len();
            }
            assert_eq!(at, big.len());
            let range = store.read_range(b"big", 1_000_001..1_900_000).wait().unwrap().unwrap();
            assert_eq!(&*range, &big[1_000_001..1_900_000]);
            store.sync().unwrap();
            store.drop_memory();
        }
        assert!(store.read(b"big").wait().is_err(), "too large for one piece");
        let abandoned = store.writer(b"other", GroupId::new(1), WriterOptions::default()).unwrap();
        drop(abandoned);
        assert!(store.read(b"other").wait().unwrap().is_none());
        store.close().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        let range = store.read_range(b"big", 5..10).wait().unwrap().unwrap();
        assert_eq!(&*range, &big[5..10]);
    });
}

#[test]
fn bytes_created_are_those_of_values_also_of_values_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    let group = GroupId::new(1);
    store.create(b"small", group, &[1; 1_000]).wait().unwrap();
    store.create(b"in parts", group, &vec![2; 3 << 20]).wait().unwrap();
    let mut writer = store.writer(b"streamed", group, WriterOptions::default()).unwrap();
    writer.write(&vec![3; 5 << 20]).wait().unwrap();
    writer.commit().wait().unwrap();
    let (bytes, stats) = (1_000 + (8 << 20), store.stats());
    assert_eq!((stats.creates, stats.create_bytes), (3, bytes));
    let of_group = store.group_stats(group).unwrap();
    assert_eq!((of_group.objects_created, of_group.bytes_created), (3, bytes));
    // New metadata is no new value.
    store.sync().unwrap();
    store.set_metadata(b"streamed", b"metadata").wait().unwrap();
    assert_eq!(store.stats().create_bytes, bytes);
}

#[test]
fn a_streamed_object_is_whole_whatever_length_was_declared() {
    const EXPIRES: u64 = 4_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    let sizes = [0, 1, 4_000, 70_000, 300_000, 1 << 20, (1 << 20) + 1, 2_300_000];
    let declared = |size: usize| [None, Some(size), Some(size / 2), Some(size + 70_000)];
    let cases: Vec<_> = sizes
        .iter()
        .flat_map(|&size| declared(size).map(|length| (size, length)))
        .flat_map(|(size, length)| [0, 5_000].map(|metadata| (size, length, metadata)))
        .collect();
    for (key, &(size, length, metadata)) in cases.iter().enumerate() {
        let key = key as u64;
        let bytes = value(key, size);
        let length = length.map(|length| length as u64);
        let options =
            WriterOptions { metadata: value(key, metadata), length, ..Default::default() };
        let mut writer = store.writer(&name(key), GroupId::new(1), options).unwrap();
        for piece in bytes.chunks(30_001) {
            writer.write(piece).wait().unwrap();
        }
        if key % 5 == 4 {
            writer.set_metadata(value(key, 77));
            writer.set_expires(Some(EXPIRES));
        }
        writer.commit().wait().unwrap();
    }
    for round in 0..3 {
        for (key, &case) in cases.iter().enumerate() {
            let (size, _, metadata) = case;
            let key = key as u64;
            let mut reader = store.reader(&name(key)).wait().unwrap().expect("it was stored");
            let is_changed = key % 5 == 4;
            let metadata = if is_changed { 77 } else { metadata };
            assert_eq!(&reader.info().metadata[..], value(key, metadata), "{case:?} {round}");
            let expires = is_changed.then_some(EXPIRES);
            assert_eq!(reader.info().expires_unix_s, expires, "{case:?} {round}");
            let mut read = Vec::new();
            while let Some(piece) = reader.next().wait().unwrap() {
                read.extend_from_slice(&piece);
            }
            assert!(read == value(key, size), "{case:?}, round {round}");
        }
        store.sync().unwrap();
        store.drop_memory();
        if round == 1 {
            store.close().unwrap();
            store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
        }
    }
}

#[test]
fn metadata_is_replaced_for_objects_of_every_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    for (key, size) in [(1_u64, 10), (2, 30_000), (3, 200_000), (4, 900_000), (5, 5 << 20)] {
        let bytes = value(key, size);
        let options = CreateOptions { metadata: b"old", ..Default::default() };
        store.create_with(&name(key), GroupId::new(1), &bytes, options).wait().unwrap();
        for round in 0..3 {
            let new = format!("new {round}");
            assert!(store.set_metadata(&name(key), new.as_bytes()).wait().unwrap(), "{size}");
            if round == 1 {
                store.sync().unwrap();
                store.drop_memory();
            }
            let info = store.lookup(&name(key)).wait().unwrap().unwrap();
            assert_eq!((&info.metadata[..], info.length_bytes), (new.as_bytes(), size as u64));
            let mut reader = store.reader(&name(key)).wait().unwrap().unwrap();
            let mut all = Vec::new();
            while let Some(piece) = reader.next().wait().unwrap() {
                all.extend_from_slice(&piece);
            }
            assert!(all == bytes, "{size} round {round}");
        }
    }
    assert!(!store.set_metadata(b"none", b"x").wait().unwrap());
    store.sync().unwrap();
    let mut listed: Vec<u64> = store.entries().map(|entry| entry.unwrap().length_bytes).collect();
    listed.sort_unstable();
    assert_eq!(listed, [10, 30_000, 200_000, 900_000, 5 << 20], "the values' lengths");
}

#[test]
fn a_reader_reads_nothing_twice_wherever_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    let bytes = value(1, 900_000);
    store.create(&name(1), GroupId::new(1), &bytes).wait().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    for range in [0..900_000, 100..900_000, 70_001..800_000, 500_000..500_100] {
        let before = store.stats().disk_read_bytes;
        let mut reader = store.reader(&name(1)).wait().unwrap().unwrap();
        reader.select(range.start as u64..range.end as u64);
        let mut all = Vec::new();
        while let Some(piece) = reader.next().wait().unwrap() {
            all.extend_from_slice(&piece);
        }
        assert!(all == bytes[range.clone()], "{range:?}");
        // Its chunks of 64 KiB, parts of blocks of each piece, and the head.
        let chunks = range.end.div_ceil(64 << 10) - range.start / (64 << 10);
        let most = (chunks as u64 * (64 << 10)) + (5 * 4096) + 8192;
        let read = store.stats().disk_read_bytes - before;
        assert!(read <= most, "{read} bytes of {range:?}, {most} would do");
    }
}

#[test]
fn objects_that_lost_a_part_are_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    for key in 0..20 {
        store.create(&name(key), GroupId::new(key), &value(key, 6 << 20)).wait().unwrap();
    }
    store.sync().unwrap();
    store.drop_memory();
    let listed: Vec<Vec<u8>> = store.entries().map(|entry| entry.unwrap().key).collect();
    let there = |key: &u64| store.length(&name(*key)).wait().unwrap().is_some();
    let found: Vec<u64> = (0..20).filter(there).collect();
    assert!((3..10).contains(&found.len()), "the ring came round: {found:?}");
    assert_eq!(listed.len(), found.len(), "{listed:?}");
    assert!(found.iter().all(|key| listed.contains(&name(*key))), "{listed:?} {found:?}");
}

#[test]
fn a_ring_that_wraps_keeps_what_is_used_and_never_lies() {
    each_io_engine(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir, engine);
        config.volumes[0].size = Some(ByteSize::new(16 << 20));
        let store = Store::open(config).unwrap();
        for key in 0..8000_u64 {
            let bytes = value(key, length(key));
            store.create(&name(key), GroupId::new(key % 16), &bytes).wait().unwrap();
            let hot = key % 50;
            if let Some(object) = store.read(&name(hot)).wait().unwrap() {
                assert_eq!(&*object, value(hot, length(hot)));
            }
        }
        store.sync().unwrap();
        let stats = store.stats();
        assert!(stats.segments_reused > 10, "{stats:?}");
        assert!(stats.reinserted_objects > 0, "{stats:?}");
        assert!(stats.write_amplification() < 1.25, "{}", stats.write_amplification());
        store.drop_memory();
        let kept = verify(&store, 8000);
        assert!(kept > 500, "{kept} kept: {stats:?}");
    });
}

#[test]
fn replaced_objects_are_new_for_readers_old_for_guards() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    store.create(b"k", GroupId::new(1), b"one").wait().unwrap();
    let old = store.read(b"k").wait().unwrap().unwrap();
    for size in [3, 100_000, 2 << 20, 5] {
        let bytes = value(size as u64, size);
        store.create(b"k", GroupId::new(1), &bytes).wait().unwrap();
        store.sync().unwrap();
        store.drop_memory();
        let mut reader = store.reader(b"k").wait().unwrap().unwrap();
        assert_eq!(reader.info().length_bytes, size as u64);
        let first = reader.next().wait().unwrap().unwrap();
        assert_eq!(&first[..], &bytes[..first.len()]);
    }
    assert_eq!(&*old, b"one");
    drop(store);
    assert_eq!(bytes::Bytes::from(old), "one");
}

#[test]
fn metadata_and_value_leave_a_guard_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    for (metadata, value) in [("meta", "value"), ("", "value"), ("meta", ""), ("", "")] {
        let options = CreateOptions { metadata: metadata.as_bytes(), ..Default::default() };
        let group = GroupId::new(1);
        store.create_with(b"k", group, value.as_bytes(), options).wait().unwrap();
        let parts = store.read(b"k").wait().unwrap().unwrap().into_parts();
        store.remove(b"k").unwrap();
        store.sync().unwrap();
        assert_eq!(parts, (metadata.into(), value.into()), "they outlive the object");
    }
}

#[test]
fn many_hints_at_once_reach_what_is_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Auto);
    config.page = Some(ByteSize::new(16 << 10));
    let store = Store::open(config).unwrap();
    // A page for each, most of it filled by one object.
    for key in 0..200 {
        store.create(&name(key), GroupId::new(key), &value(key, 7_000)).wait().unwrap();
        store.create(&name(1000 + key), GroupId::new(key), &value(key, 7_000)).wait().unwrap();
    }
    store.sync().unwrap();
    assert_eq!(store.stats().queue_frames[3], 0);
    (0..200).for_each(|group| store.love(GroupId::new(group)));
    (0..100).for_each(|group| store.neutral(GroupId::new(group)));
    let settled = || (90..=110).contains(&store.stats().queue_frames[3]);
    let begun = std::time::Instant::now();
    while !settled() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(settled(), "{:?}", store.stats().queue_frames);
}

#[test]
fn expired_objects_are_misses() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Auto)).unwrap();
    let options = CreateOptions { expires_unix_s: Some(1), ..Default::default() };
    store.create_with(b"old", GroupId::new(1), b"x", options).wait().unwrap();
    assert!(store.read(b"old").wait().unwrap().is_none());
    assert!(store.stats().misses_expired > 0);
}

#[test]
fn guards_that_hold_all_memory_make_others_wait_or_be_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Auto);
    config.when_memory_full = damelo::WhenMemoryFull::Refuse;
    config.memory_wait = Duration::from_millis(200);
    let store = Store::open(config).unwrap();
    let mut guards = Vec::new();
    let mut refused = false;
    for key in 0..400_u64 {
        let made = store.create(&name(key), GroupId::new(key), &value(key, 30_000)).wait();
        match made {
            Ok(()) => guards.extend(store.read(&name(key)).wait().unwrap()),
            Err(error) => {
                assert_eq!(error, damelo::CreateError::MemoryFull);
                refused = true;
                break;
            }
        }
    }
    assert!(refused);
    assert!(store.stats().memory_used_bytes <= 8 << 20);
    for (key, guard) in guards.iter().enumerate() {
        assert_eq!(&**guard, value(key as u64, 30_000));
    }
    guards.clear();
    store.create(b"now", GroupId::new(1), b"fits").wait().unwrap();
}

#[test]
fn what_is_synced_after_a_clean_reopen_survives_the_next_crash() {
    // The clean checkpoint of the first life must not speak for the second one.
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    config.checkpoint_period = Duration::ZERO;
    let store = Store::open(config.clone()).unwrap();
    fill(&store, 200);
    store.close().unwrap();
    let store = Store::open(config.clone()).unwrap();
    store.wait_recovered();
    for key in 200..400 {
        store.create(&name(key), GroupId::new(key % 16), &value(key, length(key))).wait().unwrap();
    }
    store.sync().unwrap();
    // What a crash leaves behind is what is on disk now.
    let copy = dir.path().join("after-crash");
    std::fs::copy(dir.path().join("store"), &copy).unwrap();
    drop(store);
    config.volumes[0].path = copy;
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    assert_eq!(verify(&store, 400), 400);
}

#[test]
fn opening_and_writing_often_uses_up_no_segments() {
    each_io_engine(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir, engine);
        config.checkpoint_period = Duration::ZERO;
        let large = 200_000;
        let mut continued = 0;
        for life in 0..60 {
            let store = Store::open(config.clone()).unwrap();
            let length = if life % 4 == 0 { large } else { 500 };
            store.create(&name(life), GroupId::new(1), &value(life, length)).wait().unwrap();
            store.sync().unwrap();
            continued += store.stats().segments_continued;
            if life == 58 {
                // A crash in a life that goes on where another ended.
                let copy = dir.path().join("after-crash");
                std::fs::copy(dir.path().join("store"), &copy).unwrap();
                drop(store);
                config.volumes[0].path = copy;
            } else {
                store.close().unwrap();
            }
        }
        let store = Store::open(config).unwrap();
        store.wait_recovered();
        for life in 0..60 {
            let object = store.read(&name(life)).wait().unwrap().expect("nothing is forgotten");
            assert_eq!(&*object, value(life, if life % 4 == 0 { large } else { 500 }));
        }
        let used = store.stats().segments - store.stats().segments_free;
        // 3 MB in segments of 1 MiB, and two that the crash left.
        assert!(used <= 8, "{used} segments in use");
        assert!(continued >= 50, "{continued}");
    });
}

/// Else every open, and every recovery after a crash, would look at all that was written since.
#[test]
fn a_segment_that_many_others_passed_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Auto);
    config.segment = Some(ByteSize::new(256 << 10));
    let store = Store::open(config.clone()).unwrap();
    store.create(b"large", GroupId::new(1), &value(1, 100_000)).wait().unwrap();
    store.close().unwrap();
    // Pages alone, and twice as much as may pass.
    let store = Store::open(config.clone()).unwrap();
    for key in 0..1_000 {
        store.create(&name(key), GroupId::new(key % 16), &value(key, 8_000)).wait().unwrap();
    }
    store.close().unwrap();
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    let looked_at = store.recovery().segments_wanted;
    assert!(looked_at <= 2, "{looked_at} segments were looked at");
    assert_eq!(&*store.read(b"large").wait().unwrap().unwrap(), value(1, 100_000));
    store.create(b"next", GroupId::new(1), &value(2, 100_000)).wait().unwrap();
    store.sync().unwrap();
    assert_eq!(store.stats().segments_continued, 0, "the pages' one rests still");
}

#[test]
fn a_sync_ends_though_the_thread_that_asks_for_it_holds_all_memory() {
    each_io_engine(|engine| {
        let dir = tempfile::tempdir().unwrap();
        // With time to write, which a slow disk may need.
        let store = Store::open(config(&dir, engine)).unwrap();
        fill(&store, 1200);
        store.close().unwrap();
        let mut config = config(&dir, engine);
        config.memory_wait = Duration::from_millis(50);
        let store = Store::open(config).unwrap();
        let mut held = Vec::new();
        let mut created = 0;
        // Hold whatever comes in, until reads and creates are refused.
        for key in 0..1200 {
            let Ok(object) = store.read(&name(key)).wait() else { break };
            held.extend(object);
        }
        for key in 2000..2400 {
            let (key, value) = (name(key), value(key, 5_000));
            if store.create(&key, GroupId::new(1), &value).wait().is_err() {
                break;
            }
            created += 1;
        }
        store.sync().unwrap();
        drop(held);
        for key in 2000..2000 + created {
            let object = store.read(&name(key)).wait().unwrap().expect("it was synced");
            assert_eq!(&*object, value(key, 5_000));
        }
    });
}

/// A page holds objects of up to half its size, which are not cut into chunks: with large pages
/// these are larger than what is otherwise read whole.
#[test]
fn large_objects_in_large_pages_are_found_by_every_operation() {
    for (page, lengths) in
        [(1 << 20, [270_000, 400_000, 523_000]), (512 << 10, [250_000, 258_000, 261_000])]
    {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir, IoEngine::Auto);
        config.memory = ByteSize::new(32 << 20);
        config.page = Some(ByteSize::new(page));
        let store = Store::open(config).unwrap();
        for length in lengths {
            let bytes = value(length as u64, length);
            store.create(&name(1), GroupId::new(1), &bytes).wait().unwrap();
            store.sync().unwrap();
            store.drop_memory();
            let info = store.lookup(&name(1)).wait().unwrap();
            assert_eq!(info.map(|info| info.length_bytes), Some(length as u64));
            store.drop_memory();
            let part = store.read_range(&name(1), 1_000..2_000).wait().unwrap();
            assert_eq!(part.as_deref(), Some(&bytes[1_000..2_000]), "{length} of {page}");
            store.drop_memory();
            let mut reader = store.reader(&name(1)).wait().unwrap().unwrap();
            let piece = reader.next().wait().unwrap().unwrap();
            assert!(bytes.starts_with(&piece) && !piece.is_empty());
            drop((reader, piece));
            store.drop_memory();
            assert!(store.set_metadata(&name(1), b"new").wait().unwrap());
            assert_eq!(store.read(&name(1)).wait().unwrap().as_deref(), Some(&bytes[..]));
        }
    }
}

/// Small, in one record, in parts; in memory and on disk.
#[test]
fn new_metadata_can_come_with_a_new_expiry() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    let store = Store::open(config.clone()).unwrap();
    let expires = |store: &Store, key: &[u8]| {
        let info = store.lookup(key).wait().unwrap();
        info.map(|info| (info.metadata.to_vec(), info.expires_unix_s))
    };
    let (soon, later) = (4_000_000_000, 4_100_000_000);
    for (length, key) in [(100_usize, b"small"), (300_000, b"whole"), (2 << 20, b"parts")] {
        let options = CreateOptions { metadata: b"old", expires_unix_s: Some(soon) };
        let value = vec![7; length];
        store.create_with(key, GroupId::new(1), &value, options).wait().unwrap();
        assert!(store.set_metadata_with(key, b"new", Some(later)).wait().unwrap());
        assert_eq!(expires(&store, key), Some((b"new".to_vec(), Some(later))), "{length}");
        store.sync().unwrap();
        store.drop_memory();
        assert_eq!(expires(&store, key), Some((b"new".to_vec(), Some(later))), "{length}");
        assert!(store.set_metadata(key, b"kept").wait().unwrap());
        assert_eq!(expires(&store, key), Some((b"kept".to_vec(), Some(later))), "{length}");
        assert!(store.set_metadata_with(key, b"never", None).wait().unwrap());
        assert_eq!(store.length(key).wait().unwrap(), Some(length as u64));
    }
    store.close().unwrap();
    let store = Store::open(config).unwrap();
    store.wait_recovered();
    for key in [b"small", b"whole", b"parts"] {
        assert_eq!(expires(&store, key), Some((b"never".to_vec(), None)));
        assert!(store.set_metadata_with(key, b"past", Some(1)).wait().unwrap());
        assert_eq!(expires(&store, key), None, "it has expired");
        assert!(!store.set_metadata_with(key, b"back", None).wait().unwrap(), "it is gone");
    }
}

/// A segment may be reused between the look at its records and the look at the index.
#[test]
fn a_listing_beside_creates_has_nothing_that_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(16 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.flush_period = std::time::Duration::from_millis(5);
    config.reinsert_percent_max = 0;
    let store = Store::open(config).unwrap();
    let (group, value) = (GroupId::new(1), vec![7; 3_000]);
    let key = |old: bool, n: u32| format!("{}{n}", if old { "old" } else { "new" });
    let keys = 8_000;
    for n in 0..keys {
        store.create(key(true, n).as_bytes(), group, &value).wait().unwrap();
    }
    store.sync().unwrap();
    for n in 0..keys {
        store.remove(key(true, n).as_bytes()).unwrap();
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..keys {
                store.create(key(false, n).as_bytes(), group, &value).wait().unwrap();
                if n % 20 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        while !writer.is_finished() {
            let listed = store.entries().map(Result::unwrap);
            let removed: Vec<_> = listed.filter(|entry| entry.key.starts_with(b"old")).collect();
            assert!(removed.is_empty(), "{} that were removed", removed.len());
        }
    });
}
