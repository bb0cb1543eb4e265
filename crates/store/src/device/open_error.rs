//! Errors of opening a file or block device, with messages that tell the user what to do.
//!
//! Owns nothing. Threads: any.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::sys;

/// The reason why a device could not be opened. The messages tell the user what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceOpenError {
    /// The file does not exist, and no size was given to make it.
    #[error("{}: does not exist; give a size to create it, or correct the path", path.display())]
    NotFound {
        /// The file asked for.
        path: PathBuf,
    },
    /// A path among the system's devices where there is none, or a device without a medium.
    #[error("{}: there is no such block device, or nothing in it; correct the path, or attach it",
            path.display())]
    NoDevice {
        /// The device asked for.
        path: PathBuf,
    },
    /// The directory of the file does not exist.
    #[error("{}: the directory {} does not exist; create it first", path.display(), parent.display())]
    ParentMissing {
        /// The file asked for.
        path: PathBuf,
        /// Its directory.
        parent: PathBuf,
    },
    /// The path is a directory.
    #[error("{}: is a directory; give the path of a file in it, or of a block device", path.display())]
    IsDirectory {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is a pipe, socket or character device.
    #[error("{}: is neither a regular file nor a block device; give the path of one", path.display())]
    NotStorage {
        /// The path asked for.
        path: PathBuf,
    },
    /// The system denies access.
    #[error("{}: permission denied; let this user read and write it and search its directory", path.display())]
    Permission {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file system is mounted read-only.
    #[error("{}: is on a read-only file system; remount it for writing or use another", path.display())]
    ReadOnly {
        /// The path asked for.
        path: PathBuf,
    },
    /// The block device takes no writes.
    #[error("{}: the block device is write-protected; lift that (`blockdev --setrw`), or use another",
            path.display())]
    WriteProtected {
        /// The device asked for.
        path: PathBuf,
    },
    /// The file has, or would have, a size of zero.
    #[error("{}: the size is zero; give a size to make it", path.display())]
    SizeZero {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file has content, but less than one block.
    #[error("{}: holds {bytes} bytes, which are no store; remove it or give another path", path.display())]
    TooShort {
        /// The path asked for.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file system has too little room.
    #[error("{}: needs {} but only {} are available on its file system; free some space or give a \
             smaller size", path.display(), Bytes(*needed), Bytes(*available))]
    NoRoom {
        /// The file asked for.
        path: PathBuf,
        /// Bytes asked for.
        needed: u64,
        /// Bytes that are free to this user.
        available: u64,
    },
    /// The user's quota has too little room.
    #[error("{}: needs {}, more than the disk quota allows; raise it or give a smaller size",
            path.display(), Bytes(*needed))]
    Quota {
        /// The file asked for.
        path: PathBuf,
        /// Bytes asked for.
        needed: u64,
    },
    /// Larger than the file system or `ulimit -f` permits.
    #[error("{}: {} is larger than a file may be here; raise `ulimit -f` or give a smaller size",
            path.display(), Bytes(*needed))]
    TooLarge {
        /// The file asked for.
        path: PathBuf,
        /// Bytes asked for.
        needed: u64,
    },
    /// Another process, or this one, has it open.
    #[error("{}: is in use by {}; stop it (in this process: drop every handle, writer and reader of \
             the store) or use another file", path.display(), Holder(*pid))]
    Locked {
        /// The file asked for.
        path: PathBuf,
        /// The process that holds the lock, if the system tells.
        pid: Option<u32>,
    },
    /// A block device that is mounted, part of a RAID, or otherwise claimed.
    #[error("{}: the block device is mounted or otherwise in use; unmount it, or use another",
            path.display())]
    InUse {
        /// The device asked for.
        path: PathBuf,
    },
    /// The engine could not start.
    #[error("{}: cannot start the I/O engine; set `io_engine` to `auto` or `threads`",
            path.display())]
    IoEngine {
        /// The path asked for.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any other error of the system.
    #[error("{}: cannot {doing}", path.display())]
    Io {
        /// The path asked for.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A number of bytes, displayed for people.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB")];
        let small = [(1u64 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().chain(&small).find(|(size, _)| self.0 >= *size) {
            Some((size, unit)) => {
                write!(f, "{:.1} {unit} ({} bytes)", self.0 as f64 / *size as f64, self.0)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// The process that holds a lock, if known.
pub(super) struct Holder(pub(super) Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) if pid == std::process::id() => write!(f, "this process ({pid}) already"),
            Some(pid) if sys::is_alive(pid) => write!(f, "process {pid}"),
            // The lock is of the open file, which a child shares until it ends or executes another
            // program.
            Some(pid) => write!(f, "a child that process {pid} forked before it ended"),
            None => write!(f, "another process"),
        }
    }
}
