//! What opening a store makes, refuses and leaves as it was.

use super::*;

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
    for bytes in [0, (1 << 40) + 1, u64::MAX] {
        let mut config = sized(64 << 20);
        config.object_bytes_max = ByteSize::new(bytes);
        let refusal = refused(config);
        assert!(
            matches!(refusal, OpenError::Setting { setting: "object_bytes_max", .. }),
            "{bytes}: {refusal}"
        );
        assert!(!path.exists(), "made, but never to be opened again");
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
fn a_file_that_was_cut_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let open = || Store::open(Config::new(&path, ByteSize::new(64 << 20)));
    open().unwrap().close().unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(31 << 20).unwrap();
    let refusal = open().map(drop).unwrap_err();
    assert!(matches!(refusal, OpenError::Cut { .. }), "{refusal}");
    let said = refusal.to_string();
    assert!(said.contains("31MiB of the store's 64MiB") && said.contains("--force"), "{said}");
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
    let is_missing: fn(&OpenError) -> bool =
        |error| matches!(error, OpenError::VolumeMissing { path } if path.ends_with("second"));
    both(&paths, is_missing);
    // Emptied, and with its length again but nothing in it.
    for length in [0, 64 << 20] {
        std::fs::File::create(second).unwrap().set_len(length).unwrap();
        both(&paths, is_missing);
    }
    std::fs::File::create(first).unwrap();
    both(&paths[..1], |error| matches!(error, OpenError::Missing { .. }));
}

/// Consent to overwrite other data is none to lose a store, nor to make one where it must exist.
#[test]
fn by_force_a_store_is_neither_lost_to_a_missing_volume_nor_made_where_it_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let alone = config.clone();
    let (first, second) = (config.volumes[0].path.clone(), dir.path().join("second"));
    config.volumes.push(VolumeConfig { path: second.clone(), ..config.volumes[0].clone() });
    let store = Store::open(config.clone()).unwrap();
    fill(&store, 100);
    store.close().unwrap();
    let store_before = std::fs::read(&first).unwrap();
    config.force = true;
    let refused = |config: &Config| {
        let refusal = Store::open(config.clone()).map(drop).unwrap_err();
        assert!(std::fs::read(&first).unwrap() == store_before, "lost: {refusal}");
        refusal
    };
    let is_missing =
        |error: &OpenError| matches!(error, OpenError::VolumeMissing { path } if *path == second);
    std::fs::remove_file(&second).unwrap();
    let gone = refused(&config);
    assert!(is_missing(&gone) && gone.to_string().contains("bring it back"), "{gone}");
    assert!(!second.exists(), "made for nothing");
    // A mount point without its disk has less room than the disk, and none of its directories.
    let volume = config.volumes[1].clone();
    config.volumes[1].size = Some(ByteSize::new(1 << 60));
    assert!(is_missing(&refused(&config)));
    config.volumes[1].path = dir.path().join("no directory").join("second");
    let gone = refused(&config);
    assert!(matches!(gone, OpenError::VolumeMissing { .. }), "{gone}");
    config.volumes[1] = volume;
    for byte in [0, 7] {
        std::fs::write(&second, vec![byte; 64 << 20]).unwrap();
        for must_exist in [false, true] {
            config.must_exist = must_exist;
            let other = refused(&config);
            assert!(is_missing(&other), "{other}");
        }
    }

    let mut config = alone;
    config.volumes[0].path = second.clone();
    (config.must_exist, config.force) = (true, true);
    let error = Store::open(config.clone()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    assert!(std::fs::read(&second).unwrap().iter().all(|byte| *byte == 7), "made all the same");

    // A store of one volume gets no second one.
    config.must_exist = false;
    Store::open(config.clone()).unwrap().close().unwrap();
    config
        .volumes
        .push(VolumeConfig { path: dir.path().join("third"), ..config.volumes[0].clone() });
    let more = Store::open(config).map(drop).unwrap_err();
    assert!(matches!(more, OpenError::VolumeCount { expected: 1, named: 2, .. }), "{more}");
    assert!(more.to_string().contains("keeps the volumes"), "{more}");
}

/// A link to itself stands for a directory that this user may not search, which root always may.
#[test]
fn what_cannot_be_looked_at_is_not_said_to_hold_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    config.must_exist = true;
    let looped = dir.path().join("looped");
    std::os::unix::fs::symlink(&looped, &looped).unwrap();
    let sound = std::mem::replace(&mut config.volumes[0].path, looped.clone());
    let checked = || damelo::check::check_volumes(std::slice::from_ref(&looped), &mut |_| {});
    let alone =
        [Store::open(config.clone()).map(drop).unwrap_err(), checked().map(drop).unwrap_err()];
    config.must_exist = false;
    config.volumes.insert(0, VolumeConfig { path: sound, ..config.volumes[0].clone() });
    let second = Store::open(config).map(drop).unwrap_err();
    for refused in alone.into_iter().chain([second]) {
        assert!(matches!(refused, OpenError::Device(_)), "{refused}");
        assert!(refused.to_string().contains("cannot look at it"), "{refused}");
    }
}

/// No store can be made in its place, which is the advice for a file.
#[test]
#[expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]
fn a_device_that_is_not_there_is_said_to_be_one() {
    use std::os::unix::fs::MetadataExt;
    let on = |path: &str| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    if on("/dev") == on("/") {
        return eprintln!("SKIPPED: /dev is no file system of its own");
    }
    let path = std::path::PathBuf::from("/dev/damelo-test-no-such-device");
    let refused = Store::open(Config::existing(&path)).map(drop).unwrap_err();
    let checked = damelo::check::check_volumes(&[path], &mut |_| {}).map(drop).unwrap_err();
    for error in [refused, checked] {
        assert!(error.to_string().contains("no such block device"), "{error}");
    }
}

/// Root may write it all the same; others cannot.
#[test]
fn what_may_only_be_read_can_be_checked() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, IoEngine::Threads);
    let path = config.volumes[0].path.clone();
    let store = Store::open(config).unwrap();
    fill(&store, 100);
    store.close().unwrap();
    let check = || damelo::check::check_volumes(std::slice::from_ref(&path), &mut |_| {});
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(check().unwrap().damaged_total, 0);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let empty = check().map(drop).unwrap_err();
    assert!(matches!(empty, OpenError::Missing { .. }), "{empty}");
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

/// Some file systems leave the beginning to boot loaders, and mirrors write at the end.
#[test]
fn what_begins_with_zeros_is_overwritten_only_if_the_rest_is_zero_too() {
    const BYTES: u64 = 32 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let path = config.volumes[0].path.clone();
    config.volumes[0].size = Some(ByteSize::new(BYTES));
    // An image of a disc, ZFS, btrfs, something in the first megabytes, a RAID in the last sector.
    for at in [32_769, 16 << 10, (64 << 10) + 64, 3 << 20, BYTES - 512, BYTES - 1] {
        let mut before = vec![0; BYTES as usize];
        before[at as usize] = b'_';
        std::fs::write(&path, &before).unwrap();
        for must_exist in [false, true] {
            config.must_exist = must_exist;
            let refusal = Store::open(config.clone()).map(drop).unwrap_err();
            assert!(matches!(refusal, OpenError::NotOurs { .. }), "{at}: {refusal}");
            assert!(std::fs::read(&path).unwrap() == before, "{at}: touched");
        }
        config.must_exist = false;
        config.force = true;
        Store::open(config.clone()).unwrap().close().unwrap();
        config.force = false;
    }
    std::fs::write(&path, vec![0; BYTES as usize]).unwrap();
    assert!(Store::open(config).unwrap().info().created, "zeros are nothing");
}

/// What cannot be read as a store any more is other data.
#[test]
fn a_store_of_another_version_or_without_superblocks_is_overwritten_by_force() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let path = config.volumes[0].path.clone();
    for other_version in [false, true] {
        config.force = false;
        let store = Store::open(config.clone()).unwrap();
        fill(&store, 10);
        store.close().unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut copies = vec![0; 2 * damelo::format::BLOCK_BYTES as usize];
        file.read_exact_at(&mut copies, 0).unwrap();
        for copy in copies.chunks_exact_mut(damelo::format::BLOCK_BYTES as usize) {
            let (bytes, crc) = copy.split_last_chunk_mut::<4>().unwrap();
            bytes[8] += u8::from(other_version);
            *crc = (crc32c::crc32c(bytes) ^ u32::from(!other_version)).to_le_bytes();
        }
        file.write_all_at(&copies, 0).unwrap();
        let refusal = Store::open(config.clone()).map(drop).unwrap_err();
        let expected = match refusal {
            OpenError::Version { .. } => other_version,
            OpenError::Damaged { .. } => !other_version,
            _ => false,
        };
        assert!(expected, "{refusal}");
        config.force = true;
        let store = Store::open(config.clone()).unwrap();
        assert!(store.info().created);
        assert_eq!(verify(&store, 10), 0);
        store.close().unwrap();
    }
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
    let tiny = refused(&|config| config.volumes[0].size = Some(ByteSize::new(1000)));
    assert!(tiny.to_string().contains(": 1000B is too small"), "{tiny}");
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
fn a_store_with_another_index_than_declared_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    let warnings = |objects_max| {
        config.objects_max = objects_max;
        Store::open(config.clone()).unwrap().info().warnings
    };
    let told = |text: &String| text.contains("index for") && text.contains("declared");
    assert_eq!(
        [Some(20_000), Some(20_000), Some(40_000), None]
            .map(warnings)
            .map(|all| all.iter().any(told)),
        [false, false, true, false]
    );
}
