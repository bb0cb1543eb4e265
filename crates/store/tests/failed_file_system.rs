//! A store whose file system fails as a whole, as XFS and ext4 do for an error of their disk: it
//! goes on with errors, and the process lives. And one whose file system is full before it says so.
//! Needs the tools of these file systems (`xfs_io` for both) and a user who may mount; elsewhere
//! the tests say why they are skipped, and pass.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use damelo::device::DeviceOpenError;
use damelo::{ByteSize, Config, GroupId, OpenError, PurgeError, Store};

/// The smallest that `mkfs.xfs` makes.
const FILE_SYSTEM_BYTES: u64 = 300 << 20;
const STORE_BYTES: u64 = 64 << 20;
/// More than fill pages of the journal.
const REMOVES: u32 = 500;
/// Names the store for the child whose file system fails.
const CHILD: &str = "DAMELO_TEST_FAILED_FILE_SYSTEM";

/// A file system in a file, mounted. Goes when dropped.
struct Mounted {
    dir: tempfile::TempDir,
    _file: tempfile::NamedTempFile,
}

impl Mounted {
    /// Or why there is none.
    fn new(kind: &str, options: &str, bytes: u64) -> Result<Mounted, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(file.path()))?;
        let dir = tempfile::tempdir().unwrap();
        let options = format!("loop,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(file.path()).arg(dir.path()))?;
        Ok(Mounted { dir, _file: file })
    }

    /// Takes all that is free, of an ext4 also what it keeps for itself.
    fn fill_up(&self) -> Result<(), String> {
        let mut find = Command::new("findmnt");
        let source = find.args(["-no", "SOURCE"]).arg(self.dir.path()).output();
        let source = source.map_err(|error| format!("{find:?}: {error}"))?.stdout;
        let disk = String::from_utf8_lossy(&source).trim().replace("/dev/", "");
        let reserved = Path::new("/sys/fs/ext4").join(disk).join("reserved_clusters");
        std::fs::write(&reserved, "0").map_err(|error| format!("{reserved:?}: {error}"))?;
        let mut fill = File::create(self.dir.path().join("fill")).unwrap();
        for block in [1 << 20, 4096] {
            while fill.write_all(&vec![0; block]).is_ok() {}
        }
        // What waits is written, and its blocks are taken.
        fill.sync_all().map_err(|error| error.to_string())
    }

    fn shut_down(&self) -> Result<(), String> {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.dir.path()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It stays behind if that fails, which is said by umount itself.
        let _ = Command::new("umount").arg(self.dir.path()).status();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", said())) }
}

fn mounted(kind: &str, options: &str, bytes: u64) -> Option<Mounted> {
    Mounted::new(kind, options, bytes)
        .inspect_err(|reason| eprintln!("SKIPPED: no {kind} ({options}) to be had: {reason}"))
        .ok()
}

/// The blocks that count as free are not all to be had: XFS needs some for itself.
#[test]
fn a_store_is_not_lost_to_one_for_which_there_is_no_room_after_all() {
    let Some(mounted) = mounted("xfs", "rw", FILE_SYSTEM_BYTES) else { return };
    let path = mounted.dir.path().join("store");
    let mut config = Config::new(&path, ByteSize::new(STORE_BYTES));
    config.memory = ByteSize::new(4 << 20);
    let store = Store::open(config.clone()).unwrap();
    store.create(b"key", GroupId::new(1), b"value").wait().unwrap();
    store.close().unwrap();
    let anew = |bytes: u64| {
        let mut config = config.clone();
        config.anew = true;
        config.volumes[0].size = Some(ByteSize::new(bytes));
        match Store::open(config).map(drop).unwrap_err() {
            OpenError::Device(DeviceOpenError::NoRoom { available, .. }) => available,
            other => panic!("{other}"),
        }
    };
    let available = anew(1 << 40);
    anew(available - available % 4096);
    assert_eq!(path.metadata().unwrap().len(), STORE_BYTES);
    let store = Store::open(Config::existing(&path)).unwrap();
    assert_eq!(store.read(b"key").wait().unwrap().as_deref(), Some(&b"value"[..]));
}

/// An image, say, has no room either, and freeing some would not help.
#[test]
fn a_store_that_is_to_be_made_where_nothing_can_be_written_is_refused_for_that() {
    let Some(mounted) = mounted("ext4", "ro", FILE_SYSTEM_BYTES) else { return };
    let config = Config::new(mounted.dir.path().join("store"), ByteSize::new(1 << 40));
    match Store::open(config).map(drop).unwrap_err() {
        OpenError::Device(DeviceOpenError::ReadOnly { .. }) => {}
        other => panic!("{other}"),
    }
}

#[test]
fn removes_fail_with_an_error_where_the_file_system_has_shut_down() {
    let kinds = [
        ("xfs", "rw"),
        ("ext2", "rw"),
        ("ext3", "rw"),
        ("ext4", "rw"),
        ("ext4", "nodelalloc"),
        ("ext4", "data=journal"),
    ];
    for (kind, options) in kinds {
        let Some(mounted) = mounted(kind, options, FILE_SYSTEM_BYTES) else { continue };
        outlives(&mounted, &format!("{kind} {options}"));
    }
}

/// Where ext4 has next to nothing left it does not allocate late.
#[test]
fn removes_are_made_where_an_ext4_that_is_full_has_shut_down() {
    let Some(mounted) = mounted("ext4", "rw", STORE_BYTES + (32 << 20)) else { return };
    outlives_with(&mounted, "ext4 that is full", || mounted.fill_up());
}

/// Has a process go on removing while its file system shuts down.
fn outlives(mounted: &Mounted, case: &str) {
    outlives_with(mounted, case, || Ok(()));
}

/// The same, with something that happens before.
fn outlives_with(mounted: &Mounted, case: &str, before: impl Fn() -> Result<(), String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "removes_once_it_is_told_to", "--ignored", "--nocapture"])
        .env(CHILD, mounted.dir.path().join("store"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let synced = lines.any(|line| line.contains("synced"));
    let shut_down = before().and_then(|()| mounted.shut_down());
    // The child goes on.
    drop(child.stdin.take());
    let removed = lines.any(|line| line.contains("removed"));
    let status = child.wait().unwrap();
    assert!(synced, "{case}: the child ended early: {status}");
    if let Err(reason) = shut_down {
        return eprintln!("SKIPPED: {case} cannot be shut down: {reason}");
    }
    assert!(removed && status.success(), "{case}: {status}");
}

/// The child of the tests above.
#[test]
#[ignore = "started by another test, which lets its file system fail"]
fn removes_once_it_is_told_to() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut config = Config::new(Path::new(&path), ByteSize::new(STORE_BYTES));
    config.memory = ByteSize::new(4 << 20);
    let store = Store::open(config).unwrap();
    let key = |n: u32| n.to_le_bytes();
    (0..REMOVES).for_each(|n| store.create(&key(n), GroupId::new(1), b"value").wait().unwrap());
    // Pages of the journal that were written out are those that a file system may refuse.
    store.sync().unwrap();
    println!("synced");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    for n in 0..REMOVES {
        // A record may still go to a page of the system that it has not looked at yet.
        let removed = store.remove(&key(n));
        assert!(matches!(removed, Ok(true) | Err(PurgeError::Journal(_))), "{removed:?}");
        assert!(store.read(&key(n)).wait().unwrap().is_none());
    }
    println!("removed");
}
