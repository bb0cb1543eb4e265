//! Operating system services beyond `std` for the device, and their fallbacks elsewhere.
//!
//! Owns: [`Mapping`], a shared mapping of a part of a file. Invariants: on targets other than Linux
//! every feature here reports itself as missing, and its caller falls back to plain buffered I/O.
//! Threads: any; the functions have no state.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that an ordinary user may still allocate on the file system of `path`; `None` if it does
/// not count any, as some in-memory file systems. An error if it takes none at all, as it is
/// mounted read-only: it may be full besides, as those of images are.
pub(super) fn free_bytes(path: &Path) -> io::Result<Option<u64>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut vfs = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string and the result has the right type.
    if unsafe { libc::statvfs(name.as_ptr(), vfs.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the structure.
    let vfs = unsafe { vfs.assume_init() };
    if vfs.f_flag & libc::ST_RDONLY != 0 {
        return Err(io::ErrorKind::ReadOnlyFilesystem.into());
    }
    #[allow(clippy::unnecessary_cast, reason = "the field types differ between targets")]
    let (blocks, free, bytes) = (vfs.f_blocks as u64, vfs.f_bavail as u64, vfs.f_frsize as u64);
    Ok(free_of(blocks, free, bytes))
}

/// Free bytes by the file system's block counts; `None` if it counts no blocks.
fn free_of(blocks: u64, free: u64, block_bytes: u64) -> Option<u64> {
    (blocks > 0).then(|| free.saturating_mul(block_bytes))
}

#[cfg(test)]
#[test]
fn a_file_system_without_a_size_is_not_full() {
    assert_eq!(free_of(0, 0, 4096), None);
    assert_eq!(free_of(10, 0, 4096), Some(0));
    assert_eq!(free_of(10, 2, 4096), Some(8192));
}

/// The largest file this process may make (`ulimit -f`). It must be known in advance: a write
/// beyond it raises a signal that ends the process.
pub(super) fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the result has the right type.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// True if both metadata are of the same file.
pub(super) fn same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// True for a directory where the system keeps its devices. A file made there would lie in memory,
/// in the place of a device that is missing or was meant otherwise.
pub(super) fn is_among_devices(dir: &Path) -> bool {
    let file_system = |path: &Path| fs::metadata(path).map(|meta| meta.dev());
    let (devices, shared_memory) = (Path::new("/dev"), Path::new("/dev/shm"));
    match (dir.canonicalize(), file_system(dir), file_system(devices), file_system(Path::new("/")))
    {
        (Ok(dir), Ok(its), Ok(of_devices), Ok(of_root)) => {
            let is_there = dir.starts_with(devices) && !dir.starts_with(shared_memory);
            is_there && its == of_devices && of_devices != of_root
        }
        _ => false,
    }
}

/// Opens the same file again, buffered, with flags of its own.
pub(super) fn reopen(file: &File, path: &Path) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if cfg!(target_os = "linux")
        && let Ok(again) = options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
    {
        return Ok(again);
    }
    let again = options.open(path)?;
    if same_file(&again.metadata()?, &file.metadata()?) {
        return Ok(again);
    }
    Err(io::Error::other(format!("{} was replaced while it is in use", path.display())))
}

#[cfg(target_os = "linux")]
pub(super) use linux::{
    Mapping, allocate, direct_align, has_holes, is_alive, is_write_protected, lock_holder,
    lock_holder_at, sector_bytes, seeks, set_direct, stores_never_fail,
};

#[cfg(not(target_os = "linux"))]
pub(super) use other::{
    Mapping, allocate, direct_align, has_holes, is_alive, is_write_protected, lock_holder,
    lock_holder_at, sector_bytes, seeks, set_direct, stores_never_fail,
};

#[cfg(target_os = "linux")]
mod linux {
    use std::fmt::Display;
    use std::fs::{self, File, Metadata};
    use std::io;
    use std::mem::MaybeUninit;
    use std::ops::Range;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::path::{Path, PathBuf};
    use std::ptr::{self, NonNull};

    // File systems known to let mapped pages be stored to whatever becomes of the disk, if their
    // blocks are allocated: tmpfs, and ext4 where it allocates late. XFS is none of them: once it
    // has shut down for an error, and where it is full and a block is shared with a reflinked copy,
    // a store to a page that was written out is a SIGBUS.
    const TMPFS: u64 = 0x0102_1994;
    const EXT4: u64 = 0xef53;

    /// Whether a block device is write-protected (`linux/fs.h`); not in `libc`.
    const BLKROGET: libc::Ioctl = libc::_IO(0x12, 94);

    fn check(result: libc::c_int) -> io::Result<()> {
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Allocates the blocks of the first `bytes` of a file and makes it that long.
    pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
        let len = libc::off64_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        loop {
            // SAFETY: a system call without pointers.
            match check(unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, len) }) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Makes a descriptor bypass the page cache.
    pub(crate) fn set_direct(file: &File) -> io::Result<()> {
        let fd = file.as_raw_fd();
        // SAFETY: system calls without pointers.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            check(flags)?;
            check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_DIRECT))
        }
    }

    /// The alignment that direct I/O needs; 0 if there is no direct I/O, `None` if the kernel does
    /// not report it (before 6.1).
    pub(crate) fn direct_align(file: &File) -> Option<u32> {
        let mut stat = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the path is an empty C string, the result has the right type.
        let result = unsafe {
            let (fd, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
            libc::statx(fd, c"".as_ptr(), flags, libc::STATX_DIOALIGN, stat.as_mut_ptr())
        };
        // SAFETY: the structure is plain integers and started as zeros.
        let stat = unsafe { stat.assume_init() };
        let told = result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
        told.then(|| match (stat.stx_dio_offset_align, stat.stx_dio_mem_align) {
            (0, _) | (_, 0) => 0,
            (offset, memory) => offset.max(memory),
        })
    }

    /// Logical sector size of a block device.
    pub(crate) fn sector_bytes(file: &File) -> io::Result<u32> {
        let mut size: libc::c_int = 0;
        // SAFETY: BLKSSZGET stores one int.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &raw mut size) })?;
        u32::try_from(size).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// True if a block device takes no writes; opening it for them succeeds all the same.
    pub(crate) fn is_write_protected(file: &File) -> bool {
        let mut set: libc::c_int = 0;
        // SAFETY: BLKROGET stores one int.
        let told = check(unsafe { libc::ioctl(file.as_raw_fd(), BLKROGET, &raw mut set) });
        told.is_ok() && set != 0
    }

    /// Disks that lie one upon the other, at most: volumes on RAID on encrypted disks are three.
    const STACKED_MAX: u32 = 16;

    /// Vendors of virtual SCSI disks, as the system shows them.
    const VIRTUAL: [&str; 3] = ["VMware", "Msft", "QEMU"];

    /// Whether a disk under a file or block device has seeks, as far as the report is credible:
    /// virtual disks report seeks by default, and NVMe never has them.
    pub(crate) fn seeks(meta: &Metadata) -> bool {
        let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
        disk_of(device).is_some_and(|dir| disk_seeks(dir, STACKED_MAX))
    }

    /// The same of a disk or partition as the system describes it. LVM, LUKS and RAID repeat what
    /// the disks below them report, which are asked themselves.
    fn disk_seeks(mut dir: PathBuf, stacked_max: u32) -> bool {
        if dir.join("partition").exists() {
            dir.pop();
        }
        let below = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
        let below: Vec<PathBuf> =
            below.filter_map(|disk| fs::canonicalize(disk.path()).ok()).collect();
        if !below.is_empty() && stacked_max > 0 {
            return below.into_iter().any(|disk| disk_seeks(disk, stacked_max - 1));
        }
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let said = |file| fs::read_to_string(dir.join(file)).unwrap_or_default().trim().to_owned();
        let is_virtual = || VIRTUAL.contains(&said("device/vendor").as_str());
        let is_flash = ["vd", "xvd", "nvme"].iter().any(|p| name.starts_with(p)) || is_virtual();
        !is_flash && said("queue/rotational") == "1"
    }

    /// The process that holds a file's lock, if the system reports it.
    pub(crate) fn lock_holder(file: &File) -> Option<u32> {
        let by_metadata = || file.metadata().ok().and_then(|meta| lock_holder_at(&meta));
        // Overlays and btrfs give out other numbers than the system locks their files by.
        locked_as(file).and_then(|wanted| holder_of(&wanted)).or_else(by_metadata)
    }

    /// The same of a file that cannot be opened.
    pub(crate) fn lock_holder_at(meta: &Metadata) -> Option<u32> {
        holder_of(&lock_name(libc::major(meta.dev()), libc::minor(meta.dev()), &meta.ino()))
    }

    /// What the list of locks calls a file.
    fn lock_name(major: u32, minor: u32, inode: &dyn Display) -> String {
        format!("{major:02x}:{minor:02x}:{inode}")
    }

    /// The same by what the system says of an open file (the inode since Linux 5.14), and of the
    /// mount that it is on.
    fn locked_as(file: &File) -> Option<String> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (mount, inode) = (field("mnt_id:")?, field("ino:")?);
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        // 36 35 98:0 /root /mount/point ...
        let device = mounts.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == mount).then(|| words.nth(1)).flatten()
        });
        let (major, minor) = device?.split_once(':')?;
        Some(lock_name(major.parse().ok()?, minor.parse().ok()?, &inode))
    }

    fn holder_of(wanted: &str) -> Option<u32> {
        let locks = fs::read_to_string(PathBuf::from("/proc/locks")).ok()?;
        // 1: FLOCK  ADVISORY  WRITE 1234 fd:00:56789 0 EOF
        locks.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|w| *w != "FLOCK").skip(3);
            let pid = words.next()?.parse().ok()?;
            (words.next()? == wanted && pid > 0).then_some(pid)
        })
    }

    /// False if a process has ended, even if its parent has not reaped it.
    pub(crate) fn is_alive(pid: u32) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        // 1234 (name, which may have spaces and parentheses) S ...
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        !matches!(state, Some('Z' | 'X'))
    }

    /// True if a range of a file is not wholly written: it has holes, or blocks that are allocated
    /// but not yet written.
    pub(crate) fn has_holes(file: &File, offset: u64, len: u64) -> io::Result<bool> {
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        let from = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a system call without pointers. Nothing uses the file position it moves.
        let hole = unsafe { libc::lseek64(file.as_raw_fd(), from, libc::SEEK_HOLE) };
        // If the system cannot tell, assume holes.
        Ok(u64::try_from(hole).map_or(true, |hole| hole < offset + len))
    }

    /// True if storing to a mapping of allocated blocks cannot fail, neither for want of room nor
    /// because the disk fails.
    pub(crate) fn stores_never_fail(file: &File) -> bool {
        let Ok(meta) = file.metadata() else { return false };
        if meta.file_type().is_block_device() {
            return true;
        }
        let mut fs = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the result has the right type.
        if unsafe { libc::fstatfs(file.as_raw_fd(), fs.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: the call succeeded, so it filled the structure.
        let fs = unsafe { fs.assume_init() };
        #[allow(clippy::unnecessary_cast, reason = "the field type differs between targets")]
        match fs.f_type as u64 & 0xffff_ffff {
            TMPFS => true,
            EXT4 => allocates_late(&meta),
            _ => false,
        }
    }

    /// Whether the ext4 that has a file allocates late, as it does unless it is mounted as ext2 or
    /// ext3, or to journal data. Otherwise it begins a transaction for a store to a page that was
    /// written out, and has none to give once it has shut down for an error: that is a SIGBUS.
    fn allocates_late(meta: &Metadata) -> bool {
        let Some(disk) = disk_of(meta.dev()) else { return false };
        let Some(name) = disk.file_name() else { return false };
        let options = Path::new("/proc/fs/ext4").join(name).join("options");
        fs::read_to_string(options).is_ok_and(|text| text.lines().any(|word| word == "delalloc"))
    }

    /// Where the system describes a disk or partition.
    fn disk_of(device: libc::dev_t) -> Option<PathBuf> {
        let link = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
        fs::canonicalize(link).ok()
    }

    /// A shared mapping of a part of a file, of which parts are resident and locked.
    pub(crate) struct Mapping {
        base: NonNull<u8>,
        len: usize,
    }

    // SAFETY: the memory belongs to the process, not to a thread; no reference to it is ever made,
    // and stores from several threads go to disjoint ranges (see `journal.rs`).
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Maps; `None` if the system refuses.
        pub(crate) fn new(file: &File, offset: u64, len: u64) -> Option<Mapping> {
            let bytes = usize::try_from(len).ok()?;
            let at = libc::off64_t::try_from(offset).ok()?;
            // SAFETY: a system call without pointers.
            let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
            if page == 0 || !offset.is_multiple_of(page) || !len.is_multiple_of(page) {
                // A larger page would cover neighbouring blocks.
                return None;
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED;
            // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
            let base = unsafe {
                libc::mmap64(ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), at)
            };
            if base == libc::MAP_FAILED {
                return None;
            }
            Some(Mapping { base: NonNull::new(base.cast())?, len: bytes })
        }

        /// Makes whole pages resident, and keeps them so; false if the system refuses.
        pub(crate) fn lock(&self, range: Range<u64>) -> bool {
            let (at, bytes) = self.within(range);
            // SAFETY: the range lies within the mapping.
            unsafe { libc::mlock(self.base.as_ptr().add(at).cast(), bytes) == 0 }
        }

        /// Lets the system take the pages again. What was stored is the file's all the same.
        pub(crate) fn unlock(&self, range: Range<u64>) {
            let (at, bytes) = self.within(range);
            // SAFETY: the range lies within the mapping. Unlocking such a range cannot fail but for
            // the number of mappings, and then the pages stay.
            unsafe { libc::munlock(self.base.as_ptr().add(at).cast(), bytes) };
        }

        /// Where a range begins, and its bytes.
        fn within(&self, range: Range<u64>) -> (usize, usize) {
            let [start, end] =
                [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            assert!(start <= end && end <= self.len, "in range");
            (start, end - start)
        }

        /// Copies bytes to where the mapping is locked. Concurrent stores must use disjoint ranges.
        pub(crate) fn store(&self, offset: u64, bytes: &[u8]) {
            let (at, _) = self.within(offset..offset.saturating_add(bytes.len() as u64));
            // SAFETY: the range was checked to lie within the mapping, which lives as long as
            // `self`, is resident there, and never overlaps a Rust object such as `bytes`. Nobody
            // reads it through a pointer, and concurrent stores are disjoint.
            unsafe {
                let to = self.base.as_ptr().add(at);
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the range was mapped by `new`, and nothing refers to it any more. Unmapping
            // such a range cannot fail.
            unsafe {
                libc::munmap(self.base.as_ptr().cast(), self.len);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A disk as the system describes it.
        fn disk(sys: &Path, name: &str, seeks: &str, vendor: &str) -> PathBuf {
            let dir = sys.join(name);
            fs::create_dir_all(dir.join("queue")).unwrap();
            fs::create_dir_all(dir.join("device")).unwrap();
            fs::write(dir.join("queue/rotational"), seeks).unwrap();
            fs::write(dir.join("device/vendor"), vendor).unwrap();
            dir
        }

        /// One that lies on others.
        fn upon(sys: &Path, name: &str, below: &[&Path]) -> PathBuf {
            let dir = disk(sys, name, "1\n", "");
            fs::create_dir(dir.join("slaves")).unwrap();
            for one in below {
                let link = dir.join("slaves").join(one.file_name().unwrap());
                std::os::unix::fs::symlink(one, link).unwrap();
            }
            dir
        }

        fn partition(disk: &Path, name: &str) -> PathBuf {
            let dir = disk.join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("partition"), "1\n").unwrap();
            dir
        }

        #[test]
        fn what_lies_on_disks_has_seeks_if_one_of_them_has() {
            let root = tempfile::tempdir().unwrap();
            let sys = fs::canonicalize(root.path()).unwrap();
            let (arm, flash) =
                (disk(&sys, "sda", "1\n", "ATA     "), disk(&sys, "sdb", "0\n", "ATA"));
            let (nvme, guest) = (disk(&sys, "nvme0n1", "1\n", ""), disk(&sys, "vda", "1\n", ""));
            let virtual_disk = disk(&sys, "sdc", "1\n", "VMware  \n");
            let on_part = upon(&sys, "dm-0", &[&partition(&guest, "vda1")]);
            let encrypted = upon(&sys, "dm-1", &[&on_part]);
            let raid = upon(&sys, "md0", &[&flash, &arm]);
            let all = [
                (&arm, true),
                (&flash, false),
                (&nvme, false),
                (&virtual_disk, false),
                (&on_part, false),
                (&encrypted, false),
                (&raid, true),
                (&partition(&arm, "sda2"), true),
                (&partition(&raid, "md0p1"), true),
                (&upon(&sys, "dm-2", &[&raid]), true),
                (&upon(&sys, "dm-3", &[]), true),
            ];
            for (dir, expected) in all {
                assert_eq!(disk_seeks(dir.clone(), STACKED_MAX), expected, "{}", dir.display());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::fs::{File, Metadata};
    use std::io;
    use std::ops::Range;

    fn missing<T>() -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn allocate(_: &File, _: u64) -> io::Result<()> {
        missing()
    }

    pub(crate) fn set_direct(_: &File) -> io::Result<()> {
        missing()
    }

    pub(crate) fn direct_align(_: &File) -> Option<u32> {
        Some(0)
    }

    pub(crate) fn sector_bytes(_: &File) -> io::Result<u32> {
        missing()
    }

    pub(crate) fn is_write_protected(_: &File) -> bool {
        false
    }

    pub(crate) fn seeks(_: &Metadata) -> bool {
        false
    }

    pub(crate) fn lock_holder(_: &File) -> Option<u32> {
        None
    }

    pub(crate) fn lock_holder_at(_: &Metadata) -> Option<u32> {
        None
    }

    pub(crate) fn is_alive(_: u32) -> bool {
        true
    }

    pub(crate) fn has_holes(_: &File, _: u64, _: u64) -> io::Result<bool> {
        Ok(true)
    }

    pub(crate) fn stores_never_fail(_: &File) -> bool {
        false
    }

    /// Never constructed.
    pub(crate) enum Mapping {}

    impl Mapping {
        pub(crate) fn new(_: &File, _: u64, _: u64) -> Option<Mapping> {
            None
        }

        pub(crate) fn lock(&self, _: Range<u64>) -> bool {
            match *self {}
        }

        pub(crate) fn unlock(&self, _: Range<u64>) {
            match *self {}
        }

        pub(crate) fn store(&self, _: u64, _: &[u8]) {
            match *self {}
        }
    }
}
