//! A memory limit for the file side of a comparison: a memory cgroup (v1 or v2) below this
//! process's own. It is removed on drop, which must come after the processes in it have ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::leftovers::Leftover;
use crate::output::say;

const V1_ROOT: &str = "/sys/fs/cgroup/memory";
const V2_ROOT: &str = "/sys/fs/cgroup";
/// Attempts to remove the group: the kernel releases its last process only some time after its end.
const REMOVE_TRIES: u32 = 50;

/// A cgroup that exists as long as this value.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    dir: PathBuf,
    _leftover: Leftover,
}

/// Why memory could not be limited.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    /// Neither version 1 nor 2 has a memory controller here.
    #[error("no memory cgroup is mounted here")]
    NoController,
    /// The group could not be created or set up.
    #[error("{path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl MemoryLimit {
    /// Creates a group whose processes share `limit_bytes` of memory, page cache included.
    pub(crate) fn new(limit_bytes: u64) -> Result<MemoryLimit, LimitError> {
        let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (parent, limit_file) = place(&memberships, Path::new(V1_ROOT), Path::new(V2_ROOT))
            .ok_or(LimitError::NoController)?;
        let dir = parent.join(format!("damelo-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|source| LimitError::Io { path: dir.clone(), source })?;
        let limit = MemoryLimit { _leftover: Leftover::new(&dir), dir };
        write(&limit.dir.join(limit_file), limit_bytes)?;
        Ok(limit)
    }

    /// The group's directory; a process enters it with [`enter`].
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        say(format_args!("damelo: warning: cannot remove {}", self.dir.display()));
    }
}

/// Puts this process into the group at `dir`.
pub(crate) fn enter(dir: &Path) -> Result<(), LimitError> {
    write(&dir.join("cgroup.procs"), u64::from(std::process::id()))
}

fn write(path: &Path, number: u64) -> Result<(), LimitError> {
    fs::write(path, number.to_string())
        .map_err(|source| LimitError::Io { path: path.to_owned(), source })
}

/// The directory in which new groups are created, and the name of the file that limits memory.
fn place(memberships: &str, v1: &Path, v2: &Path) -> Option<(PathBuf, &'static str)> {
    // In a container the path is the host's; then the mount's root is this process's group.
    let below = |root: &Path, path: &str| {
        let own = root.join(path.trim_start_matches('/'));
        if own.is_dir() { own } else { root.to_owned() }
    };
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.split(',').any(|name| name == "memory") {
            return Some((below(v1, path), "memory.limit_in_bytes"));
        }
    }
    let path = memberships.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = below(v2, path);
    own.join("cgroup.controllers").is_file().then_some((own, "memory.max"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_is_preferred_where_it_has_memory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let text = "5:devices:/\n4:memory:/a/b\n0::/\n";
        let (dir, file) = place(text, root.path(), Path::new("/nowhere")).unwrap();
        assert_eq!((dir, file), (root.path().join("a/b"), "memory.limit_in_bytes"));
    }

    #[test]
    fn version_two_needs_its_files() {
        let root = tempfile::tempdir().unwrap();
        assert!(place("0::/\n", Path::new("/nowhere"), root.path()).is_none());
        fs::write(root.path().join("cgroup.controllers"), "memory\n").unwrap();
        let (dir, file) = place("0::/gone\n", Path::new("/nowhere"), root.path()).unwrap();
        assert_eq!((dir.as_path(), file), (root.path(), "memory.max"));
        assert!(place("", root.path(), root.path()).is_none());
    }
}
