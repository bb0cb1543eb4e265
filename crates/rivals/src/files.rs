//! The rival that needs no code: one file per object in two-tier directories, with the kernel's
//! page cache as memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::contestant::{Contestant, Outcome, judge};
use crate::drive;
use crate::workload::Workload;

/// One file per object.
pub struct Files {
    root: PathBuf,
    workload: Workload,
}

impl Files {
    /// Makes the 26 x 26 directories under `root`.
    ///
    /// # Errors
    /// Whatever the file system reports.
    pub fn open(root: &Path, workload: Workload) -> io::Result<Files> {
        for first in 'a'..='z' {
            for second in 'a'..='z' {
                std::fs::create_dir_all(root.join(format!("{first}/{second}")))?;
            }
        }
        Ok(Files { root: root.to_owned(), workload })
    }

    fn path(&self, object: u64) -> PathBuf {
        let (first, second) = self.workload.directory(object);
        self.root.join(format!("{first}/{second}/{object:08}"))
    }
}

/// Reads a whole file with two reads and one allocation, without asking for its size first.
fn read_whole(path: &Path, expected: usize) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut value = Vec::with_capacity(expected + 1);
    file.read_to_end(&mut value)?;
    Ok(Some(value))
}

impl Contestant for Files {
    async fn create(&self, object: u64, value: &[u8]) -> Outcome {
        match File::create(self.path(object)).and_then(|mut file| file.write_all(value)) {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Failed,
        }
    }

    async fn read(&self, object: u64) -> Outcome {
        match read_whole(&self.path(object), self.workload.length(object)) {
            Ok(value) => judge(&self.workload, object, value.as_deref()),
            Err(_) => Outcome::Failed,
        }
    }

    async fn delete(&self, object: u64) -> Outcome {
        match std::fs::remove_file(self.path(object)) {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Failed,
        }
    }

    fn settle(&self) {
        drive::sync_file_systems();
    }

    /// The page cache belongs to the kernel; `child` drops it for every contestant alike.
    fn forget_memory(&self) {}
}
