//! Journal areas: mapped or not, reopened, and after a `kill -9` of the process that wrote.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use super::super::file::Core;
use super::super::journal::FileJournal;
use super::*;

#[test]
fn a_journal_survives_reopening_and_leaves_its_neighbours_alone() {
    each_io_engine(MIB, |device, path| {
        let mut rng = fastrand::Rng::with_seed(4);
        let (at, len) = (8 * BLOCK as u64, 16 * BLOCK as u64);
        let around = [Aligned::filled(&mut rng, BLOCK), Aligned::filled(&mut rng, BLOCK)];
        let places = [at - BLOCK as u64, at + len];
        let mut model = vec![0; len as usize];
        let journal = device.journal(at, len).unwrap();
        for n in 0..200 {
            let offset = rng.usize(0..model.len() - 100);
            let bytes: Vec<u8> = (0..rng.usize(0..100)).map(|_| rng.u8(..)).collect();
            journal.write(offset as u64, &bytes).unwrap();
            model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            if n % 50 == 0 {
                journal.sync().unwrap();
                device.write_at(places[0], &around[0]).unwrap();
                device.write_at(places[1], &around[1]).unwrap();
            }
        }
        assert!(journal.read_all().unwrap() == model);
        for (offset, n) in [(len, 1), (len - 1, 2), (u64::MAX, 1)] {
            let e = journal.write(offset, &vec![0; n]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
        }
        drop((journal, device));
        let device = open(&options(path, MIB)).unwrap().device;
        assert!(device.journal(at, len).unwrap().read_all().unwrap() == model);
        for (place, expected) in places.iter().zip(&around) {
            let mut block = Aligned::new(BLOCK);
            device.read_at(*place, &mut block).unwrap();
            assert!(block[..] == expected[..]);
        }
        for (at, len) in [(0, 0), (512, 4096), (0, 100), (MIB, 4096), (MIB - 4096, 8192)] {
            assert!(device.journal(at, len).is_err(), "{at} {len}");
        }
    });
}

/// The system tells an open file once of what it could not write back.
#[test]
fn a_journal_has_an_open_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    std::fs::write(&path, vec![0; MIB as usize]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let core = Arc::new(Core::new(file, path, 1));
    let journal = FileJournal::open(&core, MIB, 4096, 8192).unwrap();
    (&core.file).seek(SeekFrom::Start(17)).unwrap();
    let at = journal.file().stream_position().unwrap();
    assert_ne!(at, 17, "where one open file is, the other is not");
}

#[test]
fn a_journal_without_mapping_reads_what_one_with_mapping_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let core = Arc::new(Core::new(file, path, 1));
    let mut journal = FileJournal::open(&core, MIB, 4096, 8192).unwrap();
    eprintln!("journal is mapped: {}", journal.is_mapped());
    journal.write(10, b"mapped").unwrap();
    journal.unmap();
    assert!(!journal.is_mapped());
    journal.write(20, b"plain").unwrap();
    journal.sync().unwrap();
    let all = journal.read_all().unwrap();
    assert_eq!((&all[10..16], &all[20..25], all.len()), (&b"mapped"[..], &b"plain"[..], 8192));
}

/// Of a long area only pieces are locked, and all of it can be written wherever they are.
#[test]
fn a_long_journal_locks_little_and_holds_what_was_written() {
    let len = 9 * MIB + 3 * BLOCK as u64;
    for dir in ["/dev/shm", "."] {
        let Ok(dir) = tempfile::tempdir_in(dir) else { continue };
        let path = dir.path().join("device");
        std::fs::write(&path, vec![0; len as usize + BLOCK]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let core = Arc::new(Core::new(file, path, 1));
        let journal = FileJournal::open(&core, len + BLOCK as u64, BLOCK as u64, len).unwrap();
        let mut model = vec![0; len as usize];
        let mut rng = fastrand::Rng::with_seed(3);
        let mut write = |at: u64, bytes: usize| {
            let bytes: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
            journal.write(at, &bytes).unwrap();
            let at = at as usize;
            model[at..at + bytes.len()].copy_from_slice(&bytes);
            journal.locked_pieces().map(|locked| assert!(locked.len() <= 4, "{locked:?}"))
        };
        // Both copies, one beside the other, with what lies across the ends of pieces.
        for at in (0..len / 2 - 8192).step_by(8000) {
            let before = journal.locked_pieces();
            let is_in_pieces = write(at, 32).is_some() && write(len / 2 + at, 8192).is_some();
            assert_eq!(is_in_pieces, journal.is_mapped());
            assert_eq!(journal.locked_pieces(), before, "who writes makes nothing ready");
            for ahead in [0, MIB / 2] {
                [at, len / 2 + at].iter().for_each(|at| journal.prepare((at + ahead).min(len - 1)));
            }
        }
        if let Some(locked) = journal.locked_pieces() {
            assert!(
                locked.ends_with(&[8, 4, 9]),
                "of the last two records, and behind: {locked:?}"
            );
        }
        write(len - 32, 32);
        write(5, 3 * MIB as usize);
        journal.refuse_locks();
        for number in 0..9 {
            write(number * MIB + 999, 32);
        }
        assert!(journal.read_all().unwrap() == model);
        journal.sync().unwrap();
        drop(journal);
        let again = FileJournal::open(&core, len + BLOCK as u64, BLOCK as u64, len).unwrap();
        assert!(again.read_all().unwrap() == model);
    }
}

const CHILD: &str = "DAMELO_TEST_JOURNAL_CHILD";

#[test]
fn a_journal_survives_the_death_of_the_process() {
    if let Some(path) = std::env::var_os(CHILD) {
        let device = open(&options(Path::new(&path), MIB)).unwrap().device;
        let journal = device.journal(0, 65536).unwrap();
        journal.write(12345, b"acknowledged").unwrap();
        // SAFETY: sends a signal to this process, which ends it on the spot.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        unreachable!();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let thread = std::thread::current();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", thread.name().unwrap()])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    let device = open(&options(&path, MIB)).unwrap().device;
    let all = device.journal(0, 65536).unwrap().read_all().unwrap();
    assert_eq!(&all[12345..12357], b"acknowledged");
}
