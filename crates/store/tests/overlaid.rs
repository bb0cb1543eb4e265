//! A store on an overlay over another file system: its file has other numbers than the system locks
//! it by. Needs a user who may mount; elsewhere the test says why it is skipped, and passes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

use std::path::{Path, PathBuf};
use std::process::Command;

use damelo::device::DeviceOpenError;
use damelo::{ByteSize, Config, OpenError, Store};

/// An overlay with a tmpfs of its own for each layer. Goes when dropped.
struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    /// Or why there is none.
    fn new() -> Result<Overlay, String> {
        let dir = tempfile::tempdir().unwrap();
        mount("tmpfs", "size=64M", dir.path())?;
        let overlay = Overlay { dir };
        let [lower, upper, work, merged] =
            ["lower", "upper", "work", "merged"].map(|name| overlay.dir.path().join(name));
        for dir in [&lower, &upper, &work, &merged] {
            std::fs::create_dir(dir).unwrap();
        }
        mount("tmpfs", "size=1M", &lower)?;
        let (lower, upper, work) = (lower.display(), upper.display(), work.display());
        mount("overlay", &format!("lowerdir={lower},upperdir={upper},workdir={work}"), &merged)?;
        Ok(overlay)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("merged")
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // What stays behind is said by umount itself.
        let _ = Command::new("umount").arg("--recursive").arg(self.dir.path()).status();
    }
}

fn mount(kind: &str, options: &str, at: &Path) -> Result<(), String> {
    let mut command = Command::new("mount");
    let output = command.args(["-t", kind, "-o", options, kind]).arg(at).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}")) }
}

#[test]
fn who_has_a_store_on_an_overlay_open_is_said() {
    let overlay = match Overlay::new() {
        Ok(overlay) => overlay,
        Err(reason) => return eprintln!("SKIPPED: no overlay to be had: {reason}"),
    };
    let mut config = Config::new(overlay.path().join("store"), ByteSize::new(16 << 20));
    config.memory = ByteSize::new(4 << 20);
    let store = Store::open(config.clone()).unwrap();
    match Store::open(config).map(drop).unwrap_err() {
        OpenError::Device(DeviceOpenError::Locked { pid, .. }) => {
            assert_eq!(pid, Some(std::process::id()));
        }
        other => panic!("{other}"),
    }
    store.close().unwrap();
}
