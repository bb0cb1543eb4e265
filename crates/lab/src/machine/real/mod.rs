//! A real machine below the same designs: a directory for files, a memory-mapped file, and a file
//! or device for blocks, opened past the page cache where the system can.
//!
//! Owns what it made inside the directory it was given, and removes it when dropped. Invariants: it
//! touches nothing outside that directory and the device named; contents are a fixed pattern;
//! requests are played one after the other, each timed by the wall clock. What the system sent to
//! its disks is taken from `/proc/self/io`. Threads: one user.
//!
//! Deviations from the modelled machine: one client, as fast as it can; the system's own caches are
//! as large as they are; kinds of disk requests cannot be told apart, so that counts are those of
//! the system; buffered device access goes to the block file through the page cache.

mod memory;
mod place;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use self::memory::{Aligned, Mapping};
pub use self::place::RealPlace;
use super::{Action, DirId, FileId, ResponseTimes};
use crate::design::{Design, DesignInputs, Entry, Outcome};
use crate::disk::Direction;
use crate::request::{Catalogue, Op};
use crate::requests::Requests;

/// Alignment of direct I/O: transfers are widened to it.
const DIRECT_BYTES: u64 = 4_096;

/// Why a run on real disks failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RealError {
    /// The system refused something.
    #[error("{what} {path}: {cause}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A design that keeps files was to run on a device.
    #[error(
        "{design} needs a directory for its files, and {path} is none: give one, or leave it out"
    )]
    NeedsDirectory {
        /// Its name.
        design: &'static str,
        /// The place.
        path: PathBuf,
    },
    /// The shipped store did not open.
    #[error("cannot open a store on {path}: {cause}")]
    Store {
        /// Where.
        path: PathBuf,
        /// Why not.
        cause: damelo::OpenError,
    },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RealError {
    let path = path.to_owned();
    move |cause| RealError::Io { what, path, cause }
}

/// Where a real machine works.
#[derive(Debug, Clone)]
pub struct RealConfig {
    /// Where. In a directory blocks lie in a file that is made.
    pub place: RealPlace,
    /// Size of the mapped file and of a block file that is made.
    pub size_bytes: u64,
    /// A run ends when the whole file system is on its disk, others' files included; without, when
    /// the system has taken everything.
    pub flush: bool,
}

/// What the system counted, from `/proc/self/io`: bytes sent to and fetched from disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SystemIo {
    /// Bytes that had to come from a disk.
    pub read_bytes: u64,
    /// Bytes that went, or will go, to a disk.
    pub write_bytes: u64,
    /// System calls that read.
    pub read_calls: u64,
    /// System calls that wrote.
    pub write_calls: u64,
}

impl SystemIo {
    /// Now; zeros where the system does not tell.
    pub fn now() -> SystemIo {
        let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        SystemIo {
            read_bytes: field("read_bytes:"),
            write_bytes: field("write_bytes:"),
            read_calls: field("syscr:"),
            write_calls: field("syscw:"),
        }
    }

    fn since(self, then: SystemIo) -> SystemIo {
        SystemIo {
            read_bytes: self.read_bytes.saturating_sub(then.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(then.write_bytes),
            read_calls: self.read_calls.saturating_sub(then.read_calls),
            write_calls: self.write_calls.saturating_sub(then.write_calls),
        }
    }
}

/// What a run on real disks did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RealReport {
    /// Requests played.
    pub requests: u64,
    /// Of them, reads.
    pub reads: u64,
    /// Reads that the cache answered.
    pub hits: u64,
    /// Requests whose objects the design would not keep.
    pub refused: u64,
    /// Requests without a body of their own for what was not stored: left out, and not among
    /// `requests`.
    pub bodiless_requests: u64,
    /// Actions of the design, by the wall clock.
    pub responses: ResponseTimes,
    /// Wall time until everything was on the disk, or taken by the system (`RealConfig::flush`).
    pub elapsed_ns: u64,
    /// What the system counted meanwhile.
    pub system: SystemIo,
    /// Actions that read, and that wrote: the machine's own count.
    pub actions: (u64, u64),
    /// Blocks bypass the page cache.
    pub direct: bool,
    /// The design's own counters.
    pub facts: Vec<(&'static str, u64)>,
}

/// Directories and files by the design's numbers, blocks, and the mapped file.
pub struct RealMachine {
    /// The directory that was made; `None` on a device.
    root: Option<PathBuf>,
    dirs: Vec<PathBuf>,
    files: Vec<Option<PathBuf>>,
    mapping: Option<Mapping>,
    blocks: Option<File>,
    config: RealConfig,
    direct: bool,
    buffer: Aligned,
    actions: (u64, u64),
    /// A design was prepared here.
    prepared: bool,
}

impl RealMachine {
    /// Makes a directory of its own in the one configured.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(config: RealConfig) -> Result<RealMachine, RealError> {
        let root = config.place.own_directory();
        if let Some(root) = &root {
            fs::create_dir(root).map_err(failed("cannot make", root))?;
        }
        Ok(RealMachine {
            dirs: root.iter().cloned().collect(),
            root,
            files: Vec::new(),
            mapping: None,
            blocks: None,
            config,
            direct: false,
            buffer: Aligned::default(),
            actions: (0, 0),
            prepared: false,
        })
    }

    /// A design that works on this machine. One that does its own I/O gets the device, or a file of
    /// its own; it must be dropped before the machine is.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn design(
        &self,
        entry: &Entry,
        inputs: &DesignInputs<'_>,
    ) -> Result<Box<dyn Design>, RealError> {
        self.config.place.check(entry)?;
        let Some(make) = entry.make_real else { return Ok((entry.make)(inputs)) };
        let path = self.blocks_path("store");
        make(inputs, &path).map_err(|cause| RealError::Store { path, cause })
    }

    /// The device, or a file of that name in our directory.
    fn blocks_path(&self, name: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(name),
            None => self.config.place.path().to_owned(),
        }
    }

    /// The directory for files.
    fn root(&self) -> Result<&Path, RealError> {
        let path = || self.config.place.path().to_owned();
        let needed = || RealError::NeedsDirectory { design: "the design", path: path() };
        self.root.as_deref().ok_or_else(needed)
    }

    fn file(&self, file: FileId) -> Option<&PathBuf> {
        self.files.get(file as usize)?.as_ref()
    }

    /// Does one action; what a file or place does not hold is an error.
    fn perform(&mut self, action: Action) -> Result<(), RealError> {
        match action {
            Action::MakeDir { dir, parent } => self.make_dir(dir, parent),
            Action::LookMissing { dir } => {
                self.root()?;
                let path = self.dirs[dir as usize].join("missing");
                assert!(fs::metadata(path).is_err(), "nobody makes that name");
                Ok(())
            }
            Action::Create { dir, file, bytes } => self.create(dir, file, bytes),
            Action::ReadFile { file, offset, bytes } => self
                .on_file(file, |f, buffer| f.read_exact_at(buffer.slice(bytes as usize), offset)),
            Action::WriteFile { file, offset, bytes } => {
                self.on_file(file, |f, buffer| f.write_all_at(buffer.slice(bytes as usize), offset))
            }
            Action::Remove { file } => {
                let path = self.files.get_mut(file as usize).and_then(Option::take);
                path.map_or(Ok(()), |path| {
                    fs::remove_file(&path).map_err(failed("cannot remove", &path))
                })
            }
            Action::ReadMapped { offset, bytes } => {
                self.mapped(|mapping, buffer| mapping.read(offset, buffer.slice(bytes as usize)))
            }
            Action::WriteMapped { offset, bytes } => {
                self.mapped(|mapping, buffer| mapping.write(offset, buffer.slice(bytes as usize)))
            }
            Action::Block { direction, offset, bytes, .. } => {
                self.block(direction, offset, bytes, true)
            }
            Action::Buffered { direction, offset, bytes, .. } => {
                self.block(direction, offset, bytes, false)
            }
            Action::Pause { us } => {
                std::thread::sleep(std::time::Duration::from_micros(u64::from(us)));
                Ok(())
            }
        }
    }

    fn make_dir(&mut self, dir: DirId, parent: DirId) -> Result<(), RealError> {
        self.root()?;
        assert_eq!(dir as usize, self.dirs.len(), "directories are numbered in order");
        let path = self.dirs[parent as usize].join(format!("d{dir}"));
        fs::create_dir(&path).map_err(failed("cannot make", &path))?;
        self.dirs.push(path);
        Ok(())
    }

    fn create(&mut self, dir: DirId, file: FileId, bytes: u64) -> Result<(), RealError> {
        self.root()?;
        let path = self.dirs[dir as usize].join(format!("f{file}"));
        let made = File::create(&path).map_err(failed("cannot make", &path))?;
        let mut done = 0;
        while done < bytes {
            let here = (bytes - done).min(1 << 20);
            let buffer = self.buffer.slice(here as usize);
            made.write_all_at(buffer, done).map_err(failed("cannot write", &path))?;
            done += here;
        }
        let index = file as usize;
        if self.files.len() <= index {
            self.files.resize(index + 1, None);
        }
        self.files[index] = Some(path);
        Ok(())
    }

    /// Opens a file by its name, as the modelled file system does each time.
    fn on_file(
        &mut self,
        file: FileId,
        work: impl FnOnce(&File, &mut Aligned) -> io::Result<()>,
    ) -> Result<(), RealError> {
        let path = self.file(file).cloned().unwrap_or_default();
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let opened = opened.map_err(failed("cannot open", &path))?;
        work(&opened, &mut self.buffer).map_err(failed("cannot read or write", &path))
    }

    /// Does something to the mapped file, which is made for the first time.
    fn mapped(
        &mut self,
        work: impl FnOnce(&mut Mapping, &mut Aligned) -> io::Result<()>,
    ) -> Result<(), RealError> {
        let path = self.root()?.join("mapped");
        if self.mapping.is_none() {
            let file = new_file(&path, self.config.size_bytes)?;
            let mapping = Mapping::new(&file, self.config.size_bytes as usize);
            self.mapping = Some(mapping.map_err(failed("cannot map", &path))?);
        }
        let mapping = self.mapping.as_mut().expect("mapped just above");
        work(mapping, &mut self.buffer).map_err(failed("cannot read or write", &path))
    }

    fn open_blocks(&mut self, direct: bool) -> Result<(), RealError> {
        let path = self.blocks_path("blocks");
        if self.root.is_some() {
            new_file(&path, self.config.size_bytes)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // Some file systems refuse to bypass the page cache; then blocks go through it.
        let past = if direct {
            options.clone().custom_flags(libc::O_DIRECT).open(&path).ok()
        } else {
            None
        };
        self.direct = past.is_some();
        let file = past.map_or_else(|| options.open(&path), Ok);
        self.blocks = Some(file.map_err(failed("cannot open", &path))?);
        Ok(())
    }

    fn block(
        &mut self,
        direction: Direction,
        offset: u64,
        bytes: u32,
        direct: bool,
    ) -> Result<(), RealError> {
        if self.blocks.is_none() {
            self.open_blocks(direct)?;
        }
        let start = offset / DIRECT_BYTES * DIRECT_BYTES;
        let end = (offset + u64::from(bytes)).next_multiple_of(DIRECT_BYTES);
        let buffer = self.buffer.slice((end - start) as usize);
        let file = self.blocks.as_ref().expect("opened just above");
        let result = match direction {
            Direction::Read => file.read_exact_at(buffer, start),
            Direction::Write => file.write_all_at(buffer, start),
        };
        result.map_err(failed("cannot read or write blocks of", self.config.place.path()))
    }

    fn flush(&mut self) -> Result<(), RealError> {
        if !self.config.flush {
            return Ok(());
        }
        let place = self.config.place.path();
        if let Some(mapping) = &self.mapping {
            mapping.flush().map_err(failed("cannot flush the mapped file in", place))?;
        }
        if let Some(blocks) = &self.blocks {
            blocks.sync_data().map_err(failed("cannot flush blocks of", place))?;
        }
        // A device has nothing but blocks.
        let Some(root) = &self.root else { return Ok(()) };
        let directory = File::open(root).map_err(failed("cannot open", root))?;
        use std::os::fd::AsRawFd;
        // SAFETY: a plain system call on a descriptor that is open.
        match unsafe { libc::syncfs(directory.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(failed("cannot flush", root)(io::Error::last_os_error())),
        }
    }
}

impl Drop for RealMachine {
    fn drop(&mut self) {
        self.mapping = None;
        // Nothing can be done about what cannot be removed; its name says whose it is.
        if let Some(root) = &self.root {
            let _ = fs::remove_dir_all(root);
        }
    }
}

fn new_file(path: &Path, size_bytes: u64) -> Result<File, RealError> {
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = options.map_err(failed("cannot make", path))?;
    file.set_len(size_bytes).map_err(failed("cannot size", path))?;
    Ok(file)
}

fn counts(action: &Action) -> (u64, u64) {
    match action {
        Action::ReadFile { .. } | Action::ReadMapped { .. } => (1, 0),
        Action::Block { direction, .. } | Action::Buffered { direction, .. } => match direction {
            Direction::Read => (1, 0),
            Direction::Write => (0, 1),
        },
        Action::Create { .. } | Action::WriteFile { .. } | Action::WriteMapped { .. } => (0, 1),
        _ => (0, 0),
    }
}

/// Plays `requests` through a design on real disks, one after the other. Runs on one machine follow
/// each other; the design's [`Design::prepare`] belongs to the first.
///
/// # Errors
/// See [`RealError`].
pub fn run_real<'a>(
    design: &mut dyn Design,
    machine: &mut RealMachine,
    requests: impl Into<Requests<'a>>,
    names: &Catalogue,
) -> Result<RealReport, RealError> {
    run_all(design, machine, requests.into(), names)
}

fn run_all(
    design: &mut dyn Design,
    machine: &mut RealMachine,
    requests: Requests<'_>,
    names: &Catalogue,
) -> Result<RealReport, RealError> {
    let mut actions = Vec::new();
    if !std::mem::replace(&mut machine.prepared, true) {
        design.prepare(&mut actions);
        for action in actions.drain(..) {
            machine.perform(action)?;
        }
    }
    machine.flush()?;
    let (begun, before) = (Instant::now(), SystemIo::now());
    let mut report = RealReport::default();
    machine.actions = (0, 0);
    for request in requests.iter() {
        let from = Instant::now();
        let outcome = design.request(&request, names, &mut actions);
        for action in actions.drain(..) {
            let (reads, writes) = counts(&action);
            machine.actions.0 += reads;
            machine.actions.1 += writes;
            machine.perform(action)?;
        }
        if outcome == Outcome::LeftOut {
            report.bodiless_requests += 1;
            continue;
        }
        report.responses.add(from.elapsed().as_nanos() as u64);
        report.requests += 1;
        report.reads += u64::from(request.op == Op::Read);
        report.refused += u64::from(outcome == Outcome::Refused);
        report.hits += u64::from(outcome == Outcome::Hit && request.op == Op::Read);
    }
    design.finish(&mut actions);
    for action in actions.drain(..) {
        machine.perform(action)?;
    }
    machine.flush()?;
    report.elapsed_ns = begun.elapsed().as_nanos() as u64;
    report.system = SystemIo::now().since(before);
    report.actions = machine.actions;
    report.direct = machine.direct;
    report.facts = design.facts();
    Ok(report)
}
