//! A file that appears whole or not at all: it is written beside its name and moved there at the end, so that a
//! run that fails leaves what was there before, and one that reads what it replaces reads the old bytes.
//!
//! What is no regular file (a pipe, `/dev/null`) is written directly. Threads: one user.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// Before the umask, as of any new file.
const MODE: u32 = 0o666;

/// What moves the file to its name; dropped before, it takes the file away.
pub struct NewFile(Option<(TempPath, PathBuf)>);

impl NewFile {
    /// Begins a file that is to lie at `path`: where to write, and what ends it.
    ///
    /// # Errors
    /// When there is no such directory, or nothing may be written there.
    pub fn begin(path: &Path) -> io::Result<(File, NewFile)> {
        let there = path.metadata();
        if there.as_ref().is_ok_and(|there| !there.is_file()) {
            return Ok((File::options().write(true).open(path)?, NewFile(None)));
        }
        // The file that a link leads to is replaced, not the link.
        let target = if there.is_ok() { path.canonicalize()? } else { path.to_owned() };
        let dir = match target.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        // Said by the system itself: what comes next would name the partial file, which nobody gave.
        dir.metadata()?;
        let mode = there.map_or(MODE, |there| there.permissions().mode());
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".partial").permissions(Permissions::from_mode(mode));
        let made = builder.tempfile_in(dir).map_err(|error| io::Error::from(error.kind()))?;
        let (file, partial) = made.into_parts();
        Ok((file, NewFile(Some((partial, target)))))
    }

    /// That a file can be begun at `path`; what is no regular file is not touched for that.
    ///
    /// # Errors
    /// As of [`NewFile::begin`].
    pub fn check(path: &Path) -> io::Result<()> {
        let is_special = |kind: std::fs::FileType| !kind.is_file() && !kind.is_dir();
        if path.metadata().is_ok_and(|there| is_special(there.file_type())) {
            return Ok(());
        }
        NewFile::begin(path).map(|_| ())
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn keep(self) -> io::Result<()> {
        match self.0 {
            Some((partial, target)) => partial.persist(target).map_err(|failed| failed.error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().display().to_string()).collect()
    }

    #[test]
    fn a_file_is_replaced_at_the_end_and_not_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("t"), dir.path().join("link"));
        std::fs::write(&path, "old").expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let read = || std::fs::read_to_string(&path).expect("read");
        let (mut file, new) = NewFile::begin(&path).expect("begun");
        file.write_all(b"half").expect("written");
        drop((file, new));
        assert_eq!((read().as_str(), names(dir.path()).len()), ("old", 2));
        let (mut file, new) = NewFile::begin(&link).expect("begun");
        file.write_all(b"new").expect("written");
        assert_eq!(read(), "old");
        new.keep().expect("moved");
        assert_eq!((read().as_str(), names(dir.path()).len()), ("new", 2));
        assert!(link.symlink_metadata().expect("there").is_symlink());
    }

    #[test]
    fn what_cannot_be_written_says_why_and_names_no_other_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let why = |path: &Path| NewFile::check(path).expect_err("no file").to_string();
        assert!(NewFile::check(&dir.path().join("t")).is_ok() && names(dir.path()).is_empty());
        assert!(NewFile::check(Path::new("/dev/null")).is_ok());
        assert_eq!(why(&dir.path().join("no/t")), "No such file or directory (os error 2)");
        assert!(why(dir.path()).contains("Is a directory"));
        let (mut null, new) = NewFile::begin(Path::new("/dev/null")).expect("a device");
        null.write_all(b"x").expect("written");
        new.keep().expect("nothing to do");
    }
}
