//! A stamp that changes with a file, so that changes are noticed without reading it. No threads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Metadata that differs if the file was replaced or modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: SystemTime,
    bytes: u64,
    /// A file renamed into place may have its predecessor's time and length, if a tool restores
    /// both or the file system counts whole seconds.
    inode: u64,
}

/// The file's current stamp; `None` if there is no file.
pub(crate) fn file_stamp(path: &Path) -> Option<FileStamp> {
    let metadata = fs::metadata(path).ok()?;
    let (modified, bytes, inode) = (metadata.modified().ok()?, metadata.len(), metadata.ino());
    Some(FileStamp { modified, bytes, inode })
}

/// The failure to use a file, or several, that was reported last, with the stamps of the files that
/// it is about: what stays as it is is reported once.
#[derive(Debug, Default)]
pub(crate) struct Reported<S>(Option<(S, String)>);

impl<S: PartialEq> Reported<S> {
    /// Notes a failure; returns whether it was not reported yet.
    pub(crate) fn is_new(&mut self, stamps: S, error: &impl ToString) -> bool {
        let failure = Some((stamps, error.to_string()));
        let is_new = self.0 != failure;
        self.0 = failure;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_failure_is_new_when_the_file_or_what_is_wrong_with_it_has_changed() {
        let mut reported = Reported::default();
        let told = [(1, "a"), (1, "a"), (2, "a"), (2, "b"), (2, "b"), (1, "a")];
        let new = told.map(|(stamp, error)| reported.is_new(stamp, &error));
        assert_eq!(new, [true, false, true, true, false, true]);
    }

    #[test]
    fn a_file_renamed_into_place_is_another_one_whatever_its_length_and_time() {
        let home = tempfile::tempdir().unwrap();
        let (path, new) = (home.path().join("chain.pem"), home.path().join("new"));
        assert_eq!(file_stamp(&path), None);
        fs::write(&path, "old").unwrap();
        let before = file_stamp(&path).unwrap();
        assert_eq!(file_stamp(&path), Some(before));
        fs::write(&new, "new").unwrap();
        File::options().write(true).open(&new).unwrap().set_modified(before.modified).unwrap();
        fs::rename(&new, &path).unwrap();
        let after = file_stamp(&path).unwrap();
        assert_eq!((after.modified, after.bytes), (before.modified, before.bytes));
        assert_ne!(after, before);
    }
}
