//! Opens or makes the file or block device of a store, and explains errors clearly.
//!
//! Owns: nothing once it returns; the lock and the descriptor pass to the device. Invariants: a
//! file is changed only under its lock; contents are never examined (the caller decides whether
//! they are a store's); a file made here is removed again if opening fails. Threads: blocking calls
//! on the calling thread; the driver's threads start at the end.

use std::fmt;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::file::FileDevice;
use super::open_error::DeviceOpenError;
use super::{Device, DeviceInfo, sys};

/// Sizes of new files are rounded up to this.
const SIZE_ALIGN: u64 = 4096;

/// Alignment for direct I/O when the system does not report it: sufficient for every disk.
const BLOCK_BYTES: u32 = 4096;

/// Retry limit: how often the file may appear, vanish or be replaced while it is opened.
const TRIES: u32 = 5;

/// What performs disk I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IoEngine {
    /// `io_uring` where the system permits it, otherwise threads.
    #[default]
    Auto,
    /// `io_uring`; opening fails where the system does not permit it.
    IoUring,
    /// A pool of threads that call `pread` and `pwrite`.
    Threads,
}

/// How long to wait for a lock whose holder is dead (a busy kernel may take long to release it) or
/// unknown, and the time between two attempts.
const GRACE_DEAD: Duration = Duration::from_secs(15);
const GRACE_UNKNOWN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// Options for opening a device.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// A regular file (made if missing) or a block device.
    pub path: PathBuf,
    /// Size to make if the file does not exist or is empty, rounded up to 4096 bytes. Ignored for
    /// block devices and, without `anew`, for files with content.
    pub create_bytes: Option<u64>,
    /// The user's consent to overwrite the device's contents. It is for the caller, who checks
    /// contents; here it relaxes nothing, neither the lock nor the exclusive use of a block device.
    pub force: bool,
    /// Empties a file and makes it anew if its size is not the one to make.
    pub anew: bool,
    /// Whether the device is to be written: one that cannot be is refused. If not, what this user
    /// may only read is opened for that.
    pub writes: bool,
    /// What performs the I/O.
    pub io_engine: IoEngine,
    /// Bypass the page cache where the file system supports it.
    pub direct: bool,
    /// I/Os in flight at the device (at most 8 on a disk with seeks; the rest waits in the
    /// elevator).
    pub queue_depth: u32,
    /// Whether the disk has seeks; `None` asks the system.
    pub seeks: Option<bool>,
}

impl OpenOptions {
    /// Opens an existing file or device with the defaults: no creation, the best `io_engine` that
    /// there is, direct I/O, 64 I/Os in flight.
    pub fn new(path: impl Into<PathBuf>) -> OpenOptions {
        OpenOptions {
            path: path.into(),
            create_bytes: None,
            force: false,
            anew: false,
            writes: true,
            io_engine: IoEngine::Auto,
            direct: true,
            queue_depth: 64,
            seeks: None,
        }
    }
}

/// An open device.
pub struct Opened {
    /// The device; locked until it and all its journals are dropped.
    pub device: Arc<dyn Device>,
    /// True if the file was made, or was empty and has been filled, just now: it is all zeros.
    pub created: bool,
    /// Problems found while opening, as log messages without the path.
    pub warnings: Vec<String>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("device", self.device.info())
            .field("created", &self.created)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// Opens a file or block device, making the file if need be.
///
/// # Errors
/// See [`DeviceOpenError`].
pub fn open(options: &OpenOptions) -> Result<Opened, DeviceOpenError> {
    let (opened, undo) = open_undoable(options)?;
    if let Some(undo) = undo {
        undo.keep();
    }
    Ok(opened)
}

/// As [`open`], for a caller that may still find the device unusable and then undoes the changes.
pub(crate) fn open_undoable(
    options: &OpenOptions,
) -> Result<(Opened, Option<UndoOnDrop>), DeviceOpenError> {
    let path = options.path.as_path();
    let mut warnings = Vec::new();
    let Target { undo, file, meta, created } = acquire(options, &mut warnings)?;
    let info = inspect(options, &file, &meta, &mut warnings)?;
    let (device, refused) =
        FileDevice::start(file, path.to_path_buf(), info, options.io_engine, options.queue_depth)
            .map_err(|source| DeviceOpenError::IoEngine { path: path.to_path_buf(), source })?;
    if cfg!(target_os = "linux")
        && let Some(e) = refused
    {
        let text = format!("io_uring is not available ({e}), using threads: less I/O per second");
        warnings.push(text);
    }
    Ok((Opened { device: Arc::new(device), created, warnings }, undo))
}

/// Size of a volume that is to be made anew: the declared size for a file, the device's own for a
/// device. Checks that this size is possible, and changes nothing.
pub(crate) fn bytes_anew(path: &Path, declared: Option<u64>) -> Result<u64, DeviceOpenError> {
    let there = match fs::metadata(path) {
        Ok(meta) if !meta.is_file() || meta.len() > 0 => true,
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(describe(path, "look at it", e));
        }
        _ => false,
    };
    if !there {
        let bytes = declared.unwrap_or(0);
        return planned(path, bytes, 0).map(|_| bytes);
    }
    let Target { file, meta, .. } = acquire(&OpenOptions::new(path), &mut Vec::new())?;
    let has_bytes = size_of(&file, &meta, path)?;
    match declared {
        Some(bytes) if meta.is_file() => planned(path, bytes, meta.blocks() * 512).map(|_| bytes),
        _ => Ok(has_bytes),
    }
}

/// An open and locked file with content.
struct Target {
    undo: Option<UndoOnDrop>,
    file: File,
    meta: Metadata,
    created: bool,
}

/// Undoes the changes to a file when dropped, unless told to keep them: removes a file that was
/// made, empties one that was empty or was emptied.
pub(crate) struct UndoOnDrop {
    path: PathBuf,
    meta: Metadata,
    /// Holds the lock until the file is removed, so that no other process starts to use it.
    held: File,
    was_there: bool,
    armed: bool,
}

impl UndoOnDrop {
    fn new(path: &Path, file: &File, was_there: bool) -> Result<UndoOnDrop, DeviceOpenError> {
        let meta = file.metadata().map_err(|e| describe(path, "look at it", e))?;
        let held = file.try_clone().map_err(|e| describe(path, "open it again", e))?;
        Ok(UndoOnDrop { path: path.to_path_buf(), meta, held, was_there, armed: true })
    }

    /// Keeps the file as it is now.
    pub(crate) fn keep(mut self) {
        self.armed = false;
    }
}

impl Drop for UndoOnDrop {
    fn drop(&mut self) {
        let still_ours = || fs::metadata(&self.path).is_ok_and(|m| sys::same_file(&m, &self.meta));
        // A device that failed to start has released the lock already, so it is taken again first.
        if self.armed && self.held.try_lock().is_ok() && still_ours() {
            // An error is being returned already; a file left behind holds no objects.
            let _ = match self.was_there {
                true => self.held.set_len(0),
                false => fs::remove_file(&self.path),
            };
        }
    }
}

fn acquire(options: &OpenOptions, warnings: &mut Warnings) -> Result<Target, DeviceOpenError> {
    let path = options.path.as_path();
    let (begin, mut tries) = (Instant::now(), 0);
    while tries < TRIES {
        let attempt = match fs::metadata(path) {
            Ok(meta) => open_existing(options, &meta, warnings),
            Err(e) if e.kind() == io::ErrorKind::NotFound => create(options, warnings),
            Err(e) => Err(describe(path, "look at it", e)),
        };
        match attempt {
            Ok(Some(target)) => return Ok(target),
            // The file appeared or vanished meanwhile: try again.
            Ok(None) => tries += 1,
            Err(e) if grace(&e).is_some_and(|most| begin.elapsed() < most) => thread::sleep(PAUSE),
            Err(e) => return Err(e),
        }
    }
    let source = io::Error::other("it keeps appearing and vanishing, or is a dangling link");
    Err(DeviceOpenError::Io { path: path.to_path_buf(), doing: "open it", source })
}

/// How long to wait for a lock that the kernel has not released yet: some milliseconds after the
/// death of a process with an io_uring.
fn grace(e: &DeviceOpenError) -> Option<Duration> {
    match e {
        DeviceOpenError::Locked { pid: Some(pid), .. } => {
            (!sys::is_alive(*pid)).then_some(GRACE_DEAD)
        }
        DeviceOpenError::Locked { pid: None, .. } | DeviceOpenError::InUse { .. } => {
            Some(GRACE_UNKNOWN)
        }
        _ => None,
    }
}

type Warnings = Vec<String>;

/// Makes a file. `None` if one exists by now.
fn create(
    options: &OpenOptions,
    warnings: &mut Warnings,
) -> Result<Option<Target>, DeviceOpenError> {
    let path = options.path.as_path();
    let parent = parent_of(path);
    if !parent.is_dir() {
        let path = path.to_path_buf();
        return Err(DeviceOpenError::ParentMissing { path, parent: parent.to_path_buf() });
    }
    let Some(bytes) = options.create_bytes else {
        return Err(DeviceOpenError::NotFound { path: path.to_path_buf() });
    };
    no_device(path)?;
    let bytes = planned(path, bytes, 0)?;
    let mut how = fs::OpenOptions::new();
    let file = match how.read(true).write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(e) => return Err(describe(path, "create it", e)),
    };
    lock(&file, path)?;
    let undo = UndoOnDrop::new(path, &file, false)?;
    reserve(&file, path, bytes, warnings)?;
    if let Err(e) = File::open(parent).and_then(|dir| dir.sync_all()) {
        warnings.push(format!("cannot sync its directory: {e}"));
    }
    let meta = file.metadata().map_err(|e| describe(path, "look at it", e))?;
    Ok(Some(Target { undo: Some(undo), file, meta, created: true }))
}

/// Refuses a path where there is nothing, if that would be a device.
pub(crate) fn no_device(path: &Path) -> Result<(), DeviceOpenError> {
    match sys::is_among_devices(parent_of(path)) && fs::metadata(path).is_err() {
        true => Err(DeviceOpenError::NoDevice { path: path.to_path_buf() }),
        false => Ok(()),
    }
}

/// Opens an existing file or device. `None` if it is gone by now.
fn open_existing(
    options: &OpenOptions,
    seen: &Metadata,
    warnings: &mut Warnings,
) -> Result<Option<Target>, DeviceOpenError> {
    let path = options.path.as_path();
    let raw = seen.file_type().is_block_device();
    if seen.is_dir() {
        return Err(DeviceOpenError::IsDirectory { path: path.to_path_buf() });
    }
    if !raw && !seen.is_file() {
        return Err(DeviceOpenError::NotStorage { path: path.to_path_buf() });
    }
    let file = match open_file(options, raw) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if raw && e.raw_os_error() == Some(libc::EBUSY) => {
            return Err(busy(path, seen));
        }
        Err(e) => return Err(describe(path, "open it", e)),
    };
    if raw && options.writes && sys::is_write_protected(&file) {
        return Err(DeviceOpenError::WriteProtected { path: path.to_path_buf() });
    }
    lock(&file, path)?;
    let meta = file.metadata().map_err(|e| describe(path, "look at it", e))?;
    if !sys::same_file(&meta, seen) || meta.nlink() == 0 {
        return Ok(None);
    }
    let wanted = match options.create_bytes {
        Some(bytes) if options.anew && !raw => planned(path, bytes, meta.blocks() * 512)?,
        _ => meta.len(),
    };
    if raw || (meta.len() > 0 && meta.len() == wanted) {
        let beyond = |limit: &u64| !raw && meta.len() > *limit;
        if sys::file_size_limit().as_ref().is_some_and(beyond) {
            return Err(DeviceOpenError::TooLarge { path: path.to_path_buf(), needed: meta.len() });
        }
        if !raw && meta.blocks().saturating_mul(512) < meta.len() {
            warnings.push("is sparse, its space is not reserved".to_owned());
        }
        return Ok(Some(Target { undo: None, file, meta, created: false }));
    }
    let bytes = planned(path, options.create_bytes.unwrap_or(0), meta.blocks() * 512)?;
    grow(&file, path, meta.len(), bytes)?;
    file.set_len(0).map_err(|e| describe(path, "empty it", e))?;
    let undo = UndoOnDrop::new(path, &file, true)?;
    reserve(&file, path, bytes, warnings)?;
    let meta = file.metadata().map_err(|e| describe(path, "look at it", e))?;
    Ok(Some(Target { undo: Some(undo), file, meta, created: true }))
}

fn open_file(options: &OpenOptions, raw: bool) -> io::Result<File> {
    let mut how = fs::OpenOptions::new();
    how.read(true).write(true).custom_flags(if raw { libc::O_EXCL } else { 0 });
    let opened = how.open(&options.path);
    let is_refused = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    };
    match opened {
        Err(e) if !options.writes && is_refused(&e) => how.write(false).open(&options.path),
        opened => opened,
    }
}

/// The error of a busy block device. An exclusive open also fails when another store has the device
/// open.
fn busy(path: &Path, seen: &Metadata) -> DeviceOpenError {
    let path = path.to_path_buf();
    match sys::lock_holder_at(seen) {
        Some(pid) => DeviceOpenError::Locked { path, pid: Some(pid) },
        None => DeviceOpenError::InUse { path },
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

fn lock(file: &File, path: &Path) -> Result<(), DeviceOpenError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(DeviceOpenError::Locked { path: path.to_path_buf(), pid: sys::lock_holder(file) })
        }
        Err(TryLockError::Error(e)) => Err(describe(path, "lock it", e)),
    }
}

/// The size that a file will get, after checking that there is room for it. Nothing is written
/// before, since filling a file system and then failing would disturb its other users. The file has
/// `own_bytes` already.
fn planned(path: &Path, bytes: u64, own_bytes: u64) -> Result<u64, DeviceOpenError> {
    let owned = || path.to_path_buf();
    if bytes == 0 {
        return Err(DeviceOpenError::SizeZero { path: owned() });
    }
    let most = sys::file_size_limit().unwrap_or(u64::MAX).min(i64::MAX as u64);
    let needed = match bytes.checked_next_multiple_of(SIZE_ALIGN) {
        Some(needed) if needed <= most => needed,
        _ => return Err(DeviceOpenError::TooLarge { path: owned(), needed: bytes }),
    };
    // A file may be mounted by itself, below a directory that is read-only.
    let place = if path.exists() { path } else { parent_of(path) };
    let free = sys::free_bytes(place).map_err(|e| describe(path, "ask for free space", e))?;
    let available = free.map_or(u64::MAX, |free| free.saturating_add(own_bytes));
    if needed > available {
        return Err(DeviceOpenError::NoRoom { path: owned(), needed, available });
    }
    Ok(needed)
}

/// Shows that a file can have its new size before what is in it is lost: some file systems have
/// less room than they say. What it grew by goes with the rest.
fn grow(file: &File, path: &Path, has: u64, bytes: u64) -> Result<(), DeviceOpenError> {
    if has == 0 || bytes <= has {
        return Ok(());
    }
    match sys::allocate(file, bytes) {
        Err(e) if e.kind() != io::ErrorKind::Unsupported => {
            // An error is being returned already; the store in the file does not mind more behind.
            let _ = file.set_len(has);
            Err(not_reserved(path, bytes, e))
        }
        _ => Ok(()),
    }
}

/// Gives an empty file its size and, if the file system supports it, allocates its blocks.
fn reserve(
    file: &File,
    path: &Path,
    bytes: u64,
    warnings: &mut Warnings,
) -> Result<(), DeviceOpenError> {
    let refused = match sys::allocate(file, bytes) {
        Ok(()) => None,
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {
            let text = "the file system cannot reserve space; writes fail if it fills up";
            warnings.push(text.to_owned());
            file.set_len(bytes).err()
        }
        Err(e) => Some(e),
    };
    match refused {
        None => file.sync_all().map_err(|e| describe(path, "sync it", e)),
        Some(e) => Err(not_reserved(path, bytes, e)),
    }
}

/// The error of a file that could not get this size.
fn not_reserved(path: &Path, bytes: u64, source: io::Error) -> DeviceOpenError {
    let owned = || path.to_path_buf();
    match source.kind() {
        io::ErrorKind::StorageFull => {
            let free = sys::free_bytes(parent_of(path)).ok().flatten();
            let available = free.unwrap_or(0).min(bytes - 1);
            DeviceOpenError::NoRoom { path: owned(), needed: bytes, available }
        }
        io::ErrorKind::QuotaExceeded => DeviceOpenError::Quota { path: owned(), needed: bytes },
        io::ErrorKind::FileTooLarge => DeviceOpenError::TooLarge { path: owned(), needed: bytes },
        _ => describe(path, "reserve its space", source),
    }
}

/// Size of a file or device; for a block device the system reports it only by seeking to the end.
fn size_of(file: &File, meta: &Metadata, path: &Path) -> Result<u64, DeviceOpenError> {
    if !meta.file_type().is_block_device() {
        return Ok(meta.len());
    }
    let mut end = file;
    end.seek(SeekFrom::End(0)).map_err(|e| describe(path, "find its size", e))
}

/// Determines size, alignment and kind of the device, and disables the page cache.
fn inspect(
    options: &OpenOptions,
    file: &File,
    meta: &Metadata,
    warnings: &mut Warnings,
) -> Result<DeviceInfo, DeviceOpenError> {
    let path = options.path.as_path();
    let raw = meta.file_type().is_block_device();
    let size = size_of(file, meta, path)?;
    let direct = if options.direct { go_direct(file, raw, warnings) } else { None };
    let block = direct.unwrap_or(1);
    let size_bytes = size - size % u64::from(block);
    if size_bytes == 0 {
        let path = path.to_path_buf();
        return Err(match size {
            0 if raw => DeviceOpenError::NoDevice { path },
            0 => DeviceOpenError::SizeZero { path },
            bytes => DeviceOpenError::TooShort { path, bytes },
        });
    }
    Ok(DeviceInfo {
        name: path.display().to_string(),
        size_bytes,
        block_bytes: block,
        direct: direct.is_some(),
        seeks: options.seeks.unwrap_or_else(|| sys::seeks(meta)),
        io_engine: "threads",
    })
}

/// Makes the descriptor bypass the page cache. Returns the alignment that direct I/O needs, or
/// `None` with a warning.
fn go_direct(file: &File, raw: bool, warnings: &mut Warnings) -> Option<u32> {
    let told = sys::direct_align(file);
    let block = match told {
        _ if raw => sys::sector_bytes(file).unwrap_or(BLOCK_BYTES),
        Some(align) => align,
        None => BLOCK_BYTES,
    };
    let usable = block.is_power_of_two() && block <= BLOCK_BYTES;
    if usable && sys::set_direct(file).is_ok() {
        return Some(block.max(512));
    }
    let text = "no direct I/O (O_DIRECT) here, using the page cache: slower, and more memory";
    warnings.push(text.to_owned());
    None
}

/// Maps a system error to a specific error.
fn describe(path: &Path, doing: &'static str, source: io::Error) -> DeviceOpenError {
    let owned = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::PermissionDenied => DeviceOpenError::Permission { path: owned },
        io::ErrorKind::ReadOnlyFilesystem => DeviceOpenError::ReadOnly { path: owned },
        io::ErrorKind::IsADirectory => DeviceOpenError::IsDirectory { path: owned },
        io::ErrorKind::NotADirectory => {
            let parent = parent_of(path).to_path_buf();
            DeviceOpenError::ParentMissing { path: owned, parent }
        }
        _ => DeviceOpenError::Io { path: owned, doing, source },
    }
}
