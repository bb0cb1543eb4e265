//! Where designs run for real: a directory, or a file or block device whose contents are lost.
//!
//! Invariant: a place is what it was found to be; nothing is made by looking. Threads: none.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{RealError, failed};
use crate::design::Entry;

/// A place that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealPlace {
    /// Files and the mapped file are made in a new directory inside it.
    Directory(PathBuf),
    /// A file or block device for blocks. What it holds is overwritten.
    Device(PathBuf),
}

impl RealPlace {
    /// What there is at a path.
    ///
    /// # Errors
    /// There is nothing, or something that holds no blocks.
    pub fn of(path: &Path) -> Result<RealPlace, RealError> {
        let meta = fs::metadata(path).map_err(failed("cannot run on", path))?;
        if meta.is_dir() {
            return Ok(RealPlace::Directory(path.to_owned()));
        }
        if meta.is_file() || meta.file_type().is_block_device() {
            return Ok(RealPlace::Device(path.to_owned()));
        }
        let cause = io::Error::other("it is no directory, file or block device");
        Err(failed("cannot run on", path)(cause))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            RealPlace::Directory(path) | RealPlace::Device(path) => path,
        }
    }

    /// What a machine of this process makes there for itself, and removes; none on a device.
    pub fn own_directory(&self) -> Option<PathBuf> {
        match self {
            RealPlace::Directory(path) => {
                Some(path.join(format!("damelo-lab-{}", std::process::id())))
            }
            RealPlace::Device(_) => None,
        }
    }

    /// Bytes that a cache may take there: the size of a device, else what is free.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn space_bytes(&self) -> Result<u64, RealError> {
        let path = self.path();
        let look = || -> io::Result<u64> {
            let meta = fs::metadata(path)?;
            if meta.file_type().is_block_device() {
                return File::open(path)?.seek(SeekFrom::End(0));
            }
            let own_bytes = if meta.is_file() { meta.len() } else { 0 };
            Ok(free_bytes(path)?.saturating_add(own_bytes))
        };
        look().map_err(failed("cannot find the room on", path))
    }

    /// That a design finds there what it works on.
    ///
    /// # Errors
    /// It needs a directory, and this is none.
    pub fn check(&self, entry: &Entry) -> Result<(), RealError> {
        match self {
            RealPlace::Device(path) if !entry.on_blocks => {
                Err(RealError::NeedsDirectory { design: entry.name, path: path.clone() })
            }
            _ => Ok(()),
        }
    }
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with a zero byte, and the result is memory of ours.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and so filled it; all zeroes would be valid too.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
