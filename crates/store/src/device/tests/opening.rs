//! Opening: the lock, what is refused and how that is said, what is kept of a file that is there.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use super::*;

#[test]
fn the_lock_keeps_others_out_until_the_last_user_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let first = open(&options(&path, MIB)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let journal = first.device.journal(0, 4096).unwrap();
    for _ in 0..2 {
        match open(&options(&path, MIB)).unwrap_err() {
            DeviceOpenError::Locked { pid, .. } => {
                assert!(pid.is_none_or(|p| p == std::process::id()), "{pid:?}");
            }
            e => panic!("{e}"),
        }
    }
    drop(first);
    open(&options(&path, MIB)).unwrap_err();
    drop(journal);
    let second = open(&options(&path, 2 * MIB)).unwrap();
    assert!(!second.created);
    assert_eq!(second.device.info().size_bytes, MIB, "a file with content keeps its size");
}

#[test]
fn errors_of_opening_say_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let fails = |how: &OpenOptions| {
        let e = open(how).unwrap_err();
        assert!(e.to_string().contains(&*how.path.to_string_lossy()), "{e}");
        eprintln!("{e}");
        e
    };
    let absurd = fails(&options(&path, 1 << 60));
    match absurd {
        DeviceOpenError::NoRoom { needed, available, .. } => {
            assert!(needed == 1 << 60 && available < needed);
        }
        // If there is a limit on the size of files.
        e => assert!(matches!(e, DeviceOpenError::TooLarge { .. }), "{e}"),
    }
    assert!(matches!(fails(&options(&path, u64::MAX)), DeviceOpenError::TooLarge { .. }));
    assert!(matches!(fails(&options(&path, 0)), DeviceOpenError::SizeZero { .. }));
    assert!(matches!(fails(&OpenOptions::new(&path)), DeviceOpenError::NotFound { .. }));
    assert!(!path.exists(), "no failure leaves a file");
    assert!(matches!(fails(&options(dir.path(), MIB)), DeviceOpenError::IsDirectory { .. }));
    let orphan = path.join("below").join("it");
    assert!(matches!(fails(&options(&orphan, MIB)), DeviceOpenError::ParentMissing { .. }));
    let null = Path::new("/dev/null");
    assert!(matches!(fails(&options(null, MIB)), DeviceOpenError::NotStorage { .. }));
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    assert!(matches!(fails(&options(&dir.path().join("link"), MIB)), DeviceOpenError::Io { .. }));

    File::create(&path).unwrap();
    fails(&options(&path, 1 << 60));
    assert!(matches!(fails(&OpenOptions::new(&path)), DeviceOpenError::SizeZero { .. }));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "an empty file stays as it was");
    assert!(matches!(fails(&options(&path.join("x"), MIB)), DeviceOpenError::ParentMissing { .. }));
    let filled = open(&options(&path, MIB + 1)).unwrap();
    assert!(filled.created);
    assert_eq!(filled.device.info().size_bytes, MIB + 4096);
}

/// A child of `fork` keeps the lock of a process that was killed.
#[test]
#[cfg(target_os = "linux")]
fn a_lock_of_a_process_that_has_ended_is_said_to_be_a_child_s() {
    let mut process = std::process::Command::new("true").spawn().unwrap();
    process.wait().unwrap();
    let said = |pid| DeviceOpenError::Locked { path: "x".into(), pid: Some(pid) }.to_string();
    assert!(said(process.id()).contains("a child that process"), "{}", said(process.id()));
    assert!(!said(1).contains("child"), "{}", said(1));
}

/// A file there would lie in memory, and be gone with the next start of the system.
#[test]
fn no_file_is_made_in_place_of_a_device() {
    let on = |path: &str| fs::metadata(path).map(|meta| meta.dev()).ok();
    if on("/dev") == on("/") {
        eprintln!("SKIPPED: /dev is no file system of its own");
        return;
    }
    let missing = Path::new("/dev/damelo-test-no-such-device");
    let refusal = open(&options(missing, MIB)).map(drop).unwrap_err();
    assert!(matches!(refusal, DeviceOpenError::NoDevice { .. }), "{refusal}");
    assert!(!missing.exists());
}

#[test]
fn contents_stay_and_a_sparse_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[9; BLOCK], 0).unwrap();
    file.set_len(MIB).unwrap();
    let opened = open(&options(&path, MIB)).unwrap();
    assert!(!opened.created);
    assert!(opened.warnings.iter().any(|w| w.starts_with("is sparse")), "{:?}", opened.warnings);
    let mut block = Aligned::new(BLOCK);
    opened.device.read_at(0, &mut block).unwrap();
    assert!(block.iter().all(|b| *b == 9));
    let before = file.metadata().unwrap().blocks();
    let journal = opened.device.journal(MIB / 2, MIB / 4).unwrap();
    assert!(file.metadata().unwrap().blocks() >= before + MIB / 4 / 512, "allocated");
    assert!(journal.read_all().unwrap().iter().all(|b| *b == 0));
}
