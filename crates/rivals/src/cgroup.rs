//! Cgroups (version 1) for children: a memory limit and a limit on disk reads. Every group is made
//! below the one this process is already in, and removed when its child has ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One group of one controller, removed on drop.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

/// Where this process is in a controller's hierarchy.
fn own_group(controller: &str) -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let found = parts.nth(1)?.split(',').any(|name| name == controller);
        found.then(|| parts.next().map(str::to_owned)).flatten()
    })?;
    let root = Path::new("/sys/fs/cgroup").join(controller);
    Some(root.join(own.trim_start_matches('/')))
}

impl Group {
    fn make(controller: &str) -> io::Result<Group> {
        let own = own_group(controller)
            .ok_or_else(|| io::Error::other(format!("no version 1 {controller} cgroup")))?;
        let path = own.join(format!("damelo-rivals-{}", std::process::id()));
        match fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(Group { path }),
        }
    }

    /// A group with at most so much memory.
    ///
    /// # Errors
    /// Without version 1 cgroups or the right to change them.
    pub fn with_memory(bytes: u64) -> io::Result<Group> {
        let group = Group::make("memory")?;
        group.write("memory.limit_in_bytes", &bytes.to_string())?;
        Ok(group)
    }

    /// A group for [`Group::hold_reads`].
    ///
    /// # Errors
    /// Without version 1 cgroups or the right to change them.
    pub fn with_reads() -> io::Result<Group> {
        Group::make("blkio")
    }

    /// Lets so many reads a second through to a device; 0 lifts the limit.
    ///
    /// # Errors
    /// If the kernel has no throttling.
    pub fn hold_reads(&self, device: (u32, u32), per_second: u64) -> io::Result<()> {
        let rule = format!("{}:{} {per_second}", device.0, device.1);
        self.write("blkio.throttle.read_iops_device", &rule)
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    /// Moves this process in.
    ///
    /// # Errors
    /// Whatever the kernel reports.
    pub fn enter(&self) -> io::Result<()> {
        self.write("cgroup.procs", &std::process::id().to_string())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The group at a path that another process made; not removed on drop by this one.
    pub fn borrowed(path: &Path) -> std::mem::ManuallyDrop<Group> {
        std::mem::ManuallyDrop::new(Group { path: path.to_owned() })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A child that has just ended may still be counted in for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("could not remove cgroup {}", self.path.display());
    }
}
