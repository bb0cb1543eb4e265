//! Behaviour of a store on a real file, both I/O engines: what comes in comes out, restarts, groups,
//! deletes, large objects. Contents are derived from the key, so that a wrong byte is noticed.

use std::time::Duration;

use damelo::{
    ByteSize, Config, CreateOptions, GroupId, IoEngine, OpenError, Store, VolumeConfig,
    WriterOptions,
};
use tempfile::TempDir;

fn config(dir: &TempDir, engine: IoEngine) -> Config {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.engine = engine;
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

fn each_engine(test: impl Fn(IoEngine)) {
    test(IoEngine::Threads);
    test(IoEngine::Auto);
}

#[test]
fn a_refused_open_leaves_files_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let sized = |bytes: u64| Config::new(&path, ByteSize::new(bytes));
    let refused = |config: Config| Store::open(config).map(|_| ()).unwrap_err();

    let small = refused(sized(100 << 10));
    assert!(matches!(small, OpenError::TooSmall { .. }), "{small}");
    assert!(!path.exists(), "made for nothing");
    let mut config = sized(64 << 20);
    (config.page, config.segment) = (Some(ByteSize::new(1 << 20)), Some(ByteSize::new(1 << 20)));
    let setting = refused(config);
    assert!(matches!(setting, OpenError::Setting { setting: "segment", .. }), "{setting}");
    assert!(setting.to_string().contains("to 64MiB"), "{setting}");
    let mut config = sized(64 << 20);
    let (orphan, size) = (dir.path().join("none").join("second"), config.volumes[0].size);
    config.volumes.push(VolumeConfig { path: orphan, size });
    refused(config);
    assert!(!path.exists(), "made for a store whose second volume cannot be");

    for objects in [0, 1 << 20, 1_000_000_000_000, u64::MAX] {
        let mut config = sized(64 << 20);
        config.objects_max = Some(objects);
        let refusal = refused(config);
        let OpenError::Setting { setting: "objects_max", value, .. } = &refusal else {
            panic!("{objects}: {refusal}");
        };
        assert_eq!(*value, objects.to_string());
        assert!(!path.exists(), "made for an index of {objects}");
    }
    for (depth, groups) in [(0, 1), (4097, 1), (64, usize::MAX)] {
        let mut config = sized(64 << 20);
        (config.queue_depth, config.groups_tracked_max) = (depth, groups);
        let refusal = refused(config);
        assert!(matches!(refusal, OpenError::Setting { .. }), "{depth}, {groups}: {refusal}");
    }

    std::fs::write(&path, "").unwrap();
    refused(sized(100 << 10));
    assert_eq!(std::fs::read(&path).unwrap(), b"", "was empty");
    std::fs::write(&path, "letter").unwrap();
    let other = refused(sized(64 << 20)).to_string();
    assert!(other.contains("6 bytes") || other.contains("not a Damelo store"), "{other}");
    assert_eq!(std::fs::read(&path).unwrap(), b"letter");

    std::fs::remove_file(&path).unwrap();
    let text = small.to_string();
    let enough = text.split(": ").last().and_then(|rest| rest.split(' ').next()).unwrap();
    Store::open(sized(enough.parse::<ByteSize>().unwrap().bytes())).unwrap().close().unwrap();
    assert!(path.exists());
}

#[test]
fn memory_for_too_few_pages_is_refused_rather_than_exceeded() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    config.page = Some(ByteSize::new(1 << 20));
    let path = config.volumes[0].path.clone();
    let refused = |config: &Config| Store::open(config.clone()).map(|_| ()).unwrap_err();
    let about_memory = |e: &OpenError| matches!(e, OpenError::Setting { setting: "memory", .. });
    let error = refused(&config);
    assert!(about_memory(&error) && error.to_string().contains("at least 16MiB"), "{error}");
    assert!(!path.exists());
    config.memory = ByteSize::new(16 << 20);
    Store::open(config.clone()).unwrap().close().unwrap();
    (config.page, config.memory) = (None, ByteSize::new(8 << 20));
    assert!(about_memory(&refused(&config)), "the store's own pages count");
    assert!(path.exists());
}

#[test]
fn a_check_wants_all_volumes_of_one_store_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let second = VolumeConfig { path: dir.path().join("second"), ..config.volumes[0].clone() };
    config.volumes.push(second);
    let paths: Vec<_> = config.volumes.iter().map(|volume| volume.path.clone()).collect();
    let store = Store::open(config).unwrap();
    fill(&store, 100);
    store.close().unwrap();
    let check = |paths: &[std::path::PathBuf]| damelo::check::check_volumes(paths, &mut |_| {});
    assert_eq!(check(&paths).unwrap().damaged_total, 0);
    let opened = |paths: &[std::path::PathBuf]| {
        let mut config = Config::existing(&paths[0]);
        let volume = |path: &std::path::PathBuf| VolumeConfig { path: path.clone(), size: None };
        config.volumes = paths.iter().map(volume).collect();
        Store::open(config).map(drop)
    };
    let both = |some: &[std::path::PathBuf], expected: fn(&OpenError) -> bool| {
        for error in [check(some).map(drop).unwrap_err(), opened(some).unwrap_err()] {
            assert!(expected(&error), "{some:?}: {error}");
        }
    };
    let (first, second) = (&paths[0], &paths[1]);
    let twice = |e: &_| matches!(e, OpenError::NamedTwice { .. });
    both(&[first.clone(), first.clone()], twice);
    both(&[first.clone(), dir.path().join(".").join(first.file_name().unwrap())], twice);
    let reversed = [second.clone(), first.clone()];
    both(&reversed, |error| matches!(error, OpenError::WrongVolume { .. }));
    for one in [first, second] {
        both(std::slice::from_ref(one), |error| {
            matches!(error, OpenError::VolumeCount { expected: 2, named: 1, .. })
        });
    }
    std::fs::remove_file(second).unwrap();
    both(
        &paths,
        |error| matches!(error, OpenError::VolumeMissing { path } if path.ends_with("second")),
    );
}

#[test]
fn a_new_store_takes_no_more_of_what_is_there_than_was_declared() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let path = config.volumes[0].path.clone();
    std::fs::write(&path, vec![7; 32 << 20]).unwrap();
    config.volumes[0].size = Some(ByteSize::new(16 << 20));
    config.force = true;
    let store = Store::open(config).unwrap();
    assert_eq!(store.info().volumes[0].size_bytes, 16 << 20);
    fill(&store, 2000);
    store.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[16 << 20..].iter().all(|byte| *byte == 7), "written beyond what was declared");
    let again = Store::open(Config::existing(&path)).unwrap();
    again.wait_recovered();
    assert!(verify(&again, 2000) > 0);
}

#[test]
fn a_store_made_anew_has_nothing_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let path = config.volumes[0].path.clone();
    for (size, before) in [(64_u64 << 20, 0), (64 << 20, 500), (32 << 20, 500), (48 << 20, 500)] {
        config.volumes[0].size = Some(ByteSize::new(size));
        let store = Store::open(config.clone()).unwrap();
        assert!(store.info().created);
        assert_eq!(verify(&store, before), 0, "made anew with {size} bytes");
        fill(&store, 500);
        store.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
        let kept = Store::open(Config::existing(&path)).unwrap();
        kept.wait_recovered();
        assert!(verify(&kept, 500) > 0, "without the option a store stays");
        kept.close().unwrap();
        config.anew = true;
    }
}

/// Nothing is lost for a store that cannot be made: of no volume, whichever it is that cannot be.
#[test]
fn a_store_that_cannot_be_made_anew_leaves_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let made = config(&dir, IoEngine::Threads);
    let path = made.volumes[0].path.clone();
    let store = Store::open(made.clone()).unwrap();
    fill(&store, 500);
    store.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = made.clone();
        config.anew = true;
        change(&mut config);
        let error = Store::open(config).map(|_| ()).unwrap_err();
        assert!(std::fs::read(&path).unwrap() == before, "changed before {error}");
        error
    };
    let small = refused(&|config| config.volumes[0].size = Some(ByteSize::new(1 << 20)));
    assert!(matches!(small, OpenError::TooSmall { .. }), "{small}");
    let huge = refused(&|config| config.volumes[0].size = Some(ByteSize::new(1 << 62)));
    assert!(matches!(huge, OpenError::Device(_)), "{huge}");
    let both = refused(&|config| config.must_exist = true);
    assert!(matches!(both, OpenError::Setting { setting: "anew", .. }), "{both}");
    let second = |size| VolumeConfig { path: dir.path().join("second"), size: Some(size) };
    let (small, enough) = (ByteSize::new(100 << 10), ByteSize::new(32 << 20));
    refused(&|config| {
        config.volumes[0].size = Some(enough);
        config.volumes.push(second(small));
    });
    assert!(!dir.path().join("second").exists());
    let mut other = Config::new(dir.path().join("second"), enough);
    other.memory = ByteSize::new(8 << 20);
    let used = Store::open(other).unwrap();
    refused(&|config| {
        config.volumes[0].size = Some(enough);
        config.volumes.push(second(enough));
    });
    used.close().unwrap();
}

#[test]
fn a_volume_that_is_smaller_than_declared_is_refused_and_a_store_of_another_size_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let path = config.volumes[0].path.clone();
    // A file of zeros is as good as an empty device, another's only with force.
    for (bytes, force) in [(0, false), (7, true)] {
        std::fs::write(&path, vec![bytes; 32 << 20]).unwrap();
        config.force = force;
        let error = Store::open(config.clone()).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::SmallerThanDeclared { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("32MiB") && text.contains("64MiB"), "{text}");
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == bytes), "touched");
    }
    config.force = false;
    std::fs::remove_file(&path).unwrap();
    let store = Store::open(config.clone()).unwrap();
    let about_size = |store: &Store| store.info().warnings.iter().any(|w| w.contains("declared"));
    assert!(!about_size(&store));
    store.close().unwrap();
    config.volumes[0].size = Some(ByteSize::new(128 << 20));
    let warnings = Store::open(config).unwrap().info().warnings;
    let told = |text: &String| text.contains("64MiB") && text.contains("128MiB");
    assert!(warnings.iter().any(told), "{warnings:?}");
    assert!(!about_size(&Store::open(Config::existing(&path)).unwrap()));
}

#[test]
fn everything_created_is_there_from_memory_from_disk_and_after_reopening() {
    each_engine(|engine| {
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
    each_engine(|engine| {
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
        gone(&store);
        store.create(&name(2), GroupId::new(2), b"again").wait().unwrap();
        assert_eq!(&*store.read(&name(2)).wait().unwrap().unwrap(), b"again");
        store.purge_all().unwrap();
        assert_eq!(verify(&store, 500), 0);
    });
}

#[test]
fn large_objects_stream_in_and_out_in_little_memory() {
    each_engine(|engine| {
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
fn a_streamed_object_is_whole_whatever_length_was_declared() {
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
        }
        writer.commit().wait().unwrap();
    }
    for round in 0..3 {
        for (key, &case) in cases.iter().enumerate() {
            let (size, _, metadata) = case;
            let key = key as u64;
            let mut reader = store.reader(&name(key)).wait().unwrap().expect("it was stored");
            let metadata = if key % 5 == 4 { 77 } else { metadata };
            assert_eq!(&reader.info().metadata[..], value(key, metadata), "{case:?} {round}");
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
    each_engine(|engine| {
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
    each_engine(|engine| {
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
    let looked_at = store.recovery().segments_total;
    assert!(looked_at <= 2, "{looked_at} segments were looked at");
    assert_eq!(&*store.read(b"large").wait().unwrap().unwrap(), value(1, 100_000));
    store.create(b"next", GroupId::new(1), &value(2, 100_000)).wait().unwrap();
    store.sync().unwrap();
    assert_eq!(store.stats().segments_continued, 0, "the pages' one rests still");
}

#[test]
fn a_sync_ends_though_the_thread_that_asks_for_it_holds_all_memory() {
    each_engine(|engine| {
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
