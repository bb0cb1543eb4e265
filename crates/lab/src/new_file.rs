//! A file that appears whole or not at all: it is written beside its name and moved there at the
//! end, so that a run that fails leaves what was there before, and one that reads what it replaces
//! reads the old bytes.
//!
//! What is no regular file (a pipe, `/dev/null`) is written directly. Where the file system can,
//! the file has no name before its end, so that nothing is left of a process that is killed;
//! elsewhere a hidden `.partial` is. Threads: one user.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// Before the umask, as of any new file.
const MODE: u32 = 0o666;

/// What a file is until its end.
enum Partial {
    Named(TempPath),
    /// Goes with the last that has it open.
    Nameless(File),
}

/// What moves the file to its name; dropped before, it takes the file away.
pub struct NewFile(Option<(Partial, PathBuf)>);

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
        // Said by the system itself: what comes next would name the partial file, which nobody
        // gave.
        dir.metadata()?;
        let mode = there.map_or(MODE, |there| there.permissions().mode());
        if let Ok(file) = nameless(dir, mode) {
            let partial = Partial::Nameless(file.try_clone()?);
            return Ok((file, NewFile(Some((partial, target)))));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".partial").permissions(Permissions::from_mode(mode));
        let made = builder.tempfile_in(dir).map_err(|error| io::Error::from(error.kind()))?;
        let (file, partial) = made.into_parts();
        Ok((file, NewFile(Some((Partial::Named(partial), target)))))
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
            Some((Partial::Named(partial), target)) => {
                partial.persist(target).map_err(|failed| failed.error)
            }
            Some((Partial::Nameless(file), target)) => {
                // A name may be given only where there is none yet.
                let name = name_beside(&file, &target)?;
                std::fs::rename(&name, target).inspect_err(|_| drop(std::fs::remove_file(&name)))
            }
            None => Ok(()),
        }
    }
}

/// Where the system lets one call open files by number.
const OPEN_FILES: &str = "/proc/self/fd";

/// A file in a directory's file system, without a name.
fn nameless(dir: &Path, mode: u32) -> io::Result<File> {
    if !Path::new(OPEN_FILES).is_dir() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut options = File::options();
    options.read(true).write(true).mode(mode & 0o7777).custom_flags(libc::O_TMPFILE).open(dir)
}

/// Gives a nameless file a hidden name beside `target`.
fn name_beside(file: &File, target: &Path) -> io::Result<PathBuf> {
    let from = CString::new(format!("{OPEN_FILES}/{}", file.as_raw_fd()))?;
    loop {
        let name = target.with_file_name(format!(".{:016x}.partial", fastrand::u64(..)));
        let to = CString::new(name.as_os_str().as_bytes())?;
        let here = libc::AT_FDCWD;
        // SAFETY: both are strings that end with a zero, and are only read.
        let linked = unsafe {
            libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        match linked {
            0 => return Ok(name),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::AlreadyExists => {}
            _ => return Err(io::Error::last_os_error()),
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
        let is_seen = usize::from(nameless(dir.path(), MODE).is_err());
        assert_eq!(names(dir.path()).len(), 2 + is_seen, "a file without a name leaves nothing");
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
