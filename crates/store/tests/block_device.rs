//! A store on a block device: a loop device, where the system lets this user make one. Elsewhere
//! the test says why it is skipped, and passes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use damelo::{ByteSize, Config, GroupId, OpenError, Store};

const DEVICE_BYTES: u64 = 64 << 20;
const OBJECTS: u32 = 500;
/// Names the device for the child that is killed.
const CHILD: &str = "DAMELO_TEST_BLOCK_DEVICE";

/// A file as a block device. Goes when dropped.
struct LoopDevice {
    path: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    /// Or why there is none.
    fn new(bytes: u64) -> Result<LoopDevice, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        LoopDevice::on(file, &[])
    }

    fn on(file: tempfile::NamedTempFile, how: &[&str]) -> Result<LoopDevice, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(how)
            .arg(file.path())
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let device = LoopDevice { path, _file: file };
        match std::fs::File::open(&device.path) {
            Ok(_) => Ok(device),
            Err(error) => Err(format!("{}: {error}", device.path.display())),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // It stays behind if that fails, which is said by losetup itself.
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

fn device(bytes: u64) -> Option<LoopDevice> {
    LoopDevice::new(bytes)
        .inspect_err(|reason| eprintln!("SKIPPED: no loop device to be had: {reason}"))
        .ok()
}

fn config(path: &Path) -> Config {
    let mut config = Config::new(path, ByteSize::new(DEVICE_BYTES));
    config.memory = ByteSize::new(4 << 20);
    config
}

fn value(object: u32) -> Vec<u8> {
    vec![object as u8; 3_000]
}

fn create(store: &Store, object: u32) {
    let group = GroupId::new(u64::from(object / 20));
    store.create(&object.to_le_bytes(), group, &value(object)).wait().unwrap();
}

fn assert_has_all(store: &Store) {
    for object in 0..OBJECTS {
        let found = store.read(&object.to_le_bytes()).wait().unwrap();
        assert_eq!(found.as_deref(), Some(&value(object)[..]), "{object}");
    }
}

#[test]
fn what_is_on_a_device_is_kept() {
    let Some(device) = device(DEVICE_BYTES) else { return };
    let foreign = [0x5a; 4096];
    let raw = || std::fs::File::options().read(true).write(true).open(&device.path).unwrap();
    raw().write_all(&foreign).unwrap();
    let refused = Store::open(config(&device.path)).unwrap_err();
    assert!(matches!(refused, OpenError::NotOurs { .. }), "{refused}");
    let mut there = [0; 4096];
    std::io::Read::read_exact(&mut raw(), &mut there).unwrap();
    assert!(there == foreign, "nothing was written");

    let mut forced = config(&device.path);
    forced.force = true;
    let store = Store::open(forced).unwrap();
    let second = Store::open(config(&device.path)).unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    (0..OBJECTS).for_each(|object| create(&store, object));
    store.close().unwrap();

    let store = Store::open(Config::existing(&device.path)).unwrap();
    assert_has_all(&store);
    store.close().unwrap();
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let Some(device) = device(1 << 20) else { return };
    let refused = Store::open(config(&device.path)).unwrap_err();
    assert!(matches!(refused, OpenError::SmallerThanDeclared { .. }), "{refused}");
    let mut config = config(&device.path);
    config.volumes[0].size = None;
    let refused = Store::open(config).unwrap_err();
    assert!(matches!(refused, OpenError::TooSmall { .. }), "{refused}");
}

#[test]
fn a_device_without_a_medium_is_said_to_be_one() {
    let Some(device) = device(DEVICE_BYTES) else { return };
    device._file.as_file().set_len(0).unwrap();
    let refreshed = Command::new("losetup").arg("--set-capacity").arg(&device.path).status();
    if !refreshed.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: the size of a loop device cannot be changed");
    }
    let refused = Store::open(config(&device.path)).unwrap_err();
    assert!(refused.to_string().contains("nothing in it"), "{refused}");
}

#[test]
fn a_write_protected_device_is_refused_and_can_be_checked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = Store::open(config(file.path())).unwrap();
    (0..OBJECTS).for_each(|object| create(&store, object));
    store.close().unwrap();
    let device = match LoopDevice::on(file, &["--read-only"]) {
        Ok(device) => device,
        Err(reason) => return eprintln!("SKIPPED: no loop device to be had: {reason}"),
    };
    for forced in [false, true] {
        let mut config = config(&device.path);
        config.anew = forced;
        let refused = Store::open(config).unwrap_err();
        assert!(refused.to_string().contains("write-protected"), "{refused}");
    }
    let report =
        damelo::check::check_volumes(std::slice::from_ref(&device.path), &mut |_| {}).unwrap();
    assert_eq!(report.damaged_total, 0, "{report:?}");
}

#[test]
fn a_store_on_a_device_survives_a_kill() {
    let Some(device) = device(DEVICE_BYTES) else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "creates_until_it_is_killed", "--ignored", "--nocapture"])
        .env(CHILD, &device.path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let synced = lines.map_while(Result::ok).any(|line| line.contains("synced"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(synced, "the child ended early");
    let store = Store::open(Config::existing(&device.path)).unwrap();
    assert_has_all(&store);
    store.close().unwrap();
}

/// The child of the test above.
#[test]
#[ignore = "started by another test, which kills it"]
fn creates_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = Store::open(config(Path::new(&path))).unwrap();
    (0..OBJECTS).for_each(|object| create(&store, object));
    store.sync().unwrap();
    println!("synced");
    // Some more on its way, fewer than would push out the others.
    (OBJECTS..2 * OBJECTS).for_each(|object| create(&store, object));
    loop {
        std::thread::park();
    }
}
