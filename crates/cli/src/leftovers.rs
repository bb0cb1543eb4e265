//! Cleans up after interrupted benchmarks and runs of the lab: gigabytes of temporary store, a tree
//! of files, a cgroup. Every temporary object is registered here while it exists; Ctrl-C and
//! SIGTERM remove it and end the process. Normal ends use `Drop`.
//!
//! Invariant: once removal has begun, nothing is registered or forgotten any more. So no thread
//! gets past the place where it would, with a failure, say, because its files are gone, and ends
//! the process before removal is done.
//!
//! Threads: [`watch`] runs before any other thread is started, and starts the one that waits for
//! signals.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use damelo_http_proxy::say;
use damelo_lab::machine::RealPlace;

use crate::failure::Failure;
use crate::signals;

/// Longest wait for children in a cgroup to remove their files and end.
const CHILDREN_END_MAX: Duration = Duration::from_secs(30);

static REGISTERED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A registered file or directory; forgotten on drop, which must come after its removal.
#[derive(Debug)]
pub(crate) struct Leftover {
    path: PathBuf,
}

impl Leftover {
    /// Registers a path, which need not be there yet.
    pub(crate) fn new(path: &Path) -> Leftover {
        registered().push(path.to_owned());
        Leftover { path: path.to_owned() }
    }
}

/// The place of the lab's machines, which make their directories there, one after the other: in one
/// that is made once. So none of them makes another when removal has begun.
#[derive(Debug)]
pub(crate) struct OwnPlace {
    place: RealPlace,
    /// Absent on a device.
    leftover: Option<Leftover>,
}

impl OwnPlace {
    /// Makes a directory at this place, unless it is a device.
    pub(crate) fn at(place: &RealPlace) -> Result<OwnPlace, Failure> {
        let Some(path) = place.own_directory() else {
            return Ok(OwnPlace { place: place.clone(), leftover: None });
        };
        let leftover = Some(Leftover::new(&path));
        fs::create_dir(&path)
            .map_err(|source| Failure::io(format!("make {}", path.display()), source))?;
        Ok(OwnPlace { place: RealPlace::Directory(path), leftover })
    }

    pub(crate) fn place(&self) -> &RealPlace {
        &self.place
    }
}

impl Drop for OwnPlace {
    fn drop(&mut self) {
        if let Some(leftover) = &self.leftover {
            // Empty: the machines have removed what they made.
            let _ = fs::remove_dir(&leftover.path);
        }
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let mut paths = registered();
        if let Some(at) = paths.iter().position(|path| *path == self.path) {
            paths.swap_remove(at);
        }
    }
}

fn registered() -> MutexGuard<'static, Vec<PathBuf>> {
    // No panic can leave the list of paths inconsistent, so poisoning is ignored.
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a signal removes every registered path and ends the process.
pub(crate) fn watch() -> Result<(), Failure> {
    let failed = |source| Failure::io("wait for signals", source);
    let set = signals::block().map_err(failed)?;
    let wait = move || {
        let signal = signals::wait(&set);
        // Held until the process has ended.
        let paths = registered();
        if !paths.is_empty() {
            say(format_args!("damelo: removing what was temporary"));
        }
        paths.iter().for_each(|path| remove(path));
        signals::end_by(signal);
    };
    thread::Builder::new().name("damelo-signals".to_owned()).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Removes a registered path. Errors are ignored, because the process ends next.
fn remove(path: &Path) {
    if path.starts_with("/sys/fs/cgroup") {
        remove_cgroup(path);
    } else if path.is_dir() {
        // Other threads may still create files by this path: after the rename that fails.
        let aside = path.with_extension("removing");
        let _ = fs::rename(path, &aside);
        let _ = fs::remove_dir_all(&aside);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// Ends the children in the cgroup with SIGTERM, waits for them, and removes the cgroup.
fn remove_cgroup(dir: &Path) {
    let members = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for process in members.lines().filter_map(|line| line.parse().ok()) {
        // SAFETY: kill touches no memory; the cgroup is ours and holds only our children.
        unsafe { libc::kill(process, libc::SIGTERM) };
    }
    let start = Instant::now();
    while fs::remove_dir(dir).is_err() && dir.exists() && start.elapsed() < CHILDREN_END_MAX {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has a child end when this process does, as [`end_with_parent`]; the thread that starts it must
/// live as long.
pub(crate) fn ending_with_us(child: &mut Command) -> &mut Command {
    let before = || {
        end_with_parent();
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
    unsafe { child.pre_exec(before) }
}

/// Sends this process a signal when its parent ends, so that no child outlives a benchmark.
pub(crate) fn end_with_parent() {
    // SAFETY: prctl with these arguments only sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}
