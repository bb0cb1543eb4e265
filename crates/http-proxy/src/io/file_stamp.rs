//! What a file is known by, so that a change of it is seen without reading it. No threads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// What shows that a file is another one, or has other contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: SystemTime,
    bytes: u64,
    /// Time and length of a file that was renamed into place may be those of the former: a tool that
    /// restores both, or a clock of whole seconds, is enough.
    inode: u64,
}

/// What the file is known by now; `None` if it is not there.
pub(crate) fn file_stamp(path: &Path) -> Option<FileStamp> {
    let metadata = fs::metadata(path).ok()?;
    let (modified, bytes, inode) = (metadata.modified().ok()?, metadata.len(), metadata.ino());
    Some(FileStamp { modified, bytes, inode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

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
