//! A modelled machine: disks, a file system, a mapped file, and clients that wait for them in
//! virtual time.
//!
//! Owns lowering of actions to disk requests ([`Machine`]) and playing them ([`run`]). Invariants:
//! the same design, requests and machine give the same report; time never goes back; what a design
//! did before it was asked for a request is done before. Threads: one user.

mod plan;
mod real;
mod report;
mod run;
#[cfg(test)]
mod tests;

pub use plan::{Action, DirId, FileId, KINDS, Kind, Plan, Step};
pub use real::{RealConfig, RealError, RealMachine, RealPlace, RealReport, SystemIo, run_real};
pub use report::{IoCounts, MAP_PARTS, Report, ResponseTimes};
pub use run::{Pace, RunOptions, run};

use crate::disk::{Direction, Disk, Drive, SECTOR_BYTES, Scheduler};
use crate::fs::{BufferCache, Ffs, FfsParams, FsFull, WriteMode};
use crate::vm::{Mapped, VmParams};

/// What can go wrong while a design runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// See [`FsFull`].
    #[error(transparent)]
    FsFull(#[from] FsFull),
    /// The machine lacks what the design works on.
    #[error("the machine has no {what}, which the design uses; add one to its configuration")]
    Missing {
        /// A file system, a mapped file, a device.
        what: &'static str,
    },
    /// The design went beyond the drive.
    #[error("{name} ends at {size_bytes} bytes, the design wants {end_bytes}; use a larger drive")]
    BeyondDisk {
        /// Which part.
        name: &'static str,
        /// Size of the drive.
        size_bytes: u64,
        /// Where the access ends.
        end_bytes: u64,
    },
    /// A request comes later than virtual time goes, which is in nanoseconds.
    #[error(
        "request {number} comes {seconds} s after the trace begins, and virtual time ends before that; see that \
         the trace's times are seconds, or play it as fast as it is served"
    )]
    TooLate {
        /// Which, from 1.
        number: usize,
        /// When.
        seconds: u64,
    },
}

/// Memory for blocks of a device that is used through the system's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferedParams {
    /// Memory for blocks.
    pub memory_bytes: u64,
    /// Block of the cache.
    pub block_bytes: u32,
    /// What is dirty is written at least this often, in seconds.
    pub sync_period_s: u32,
    /// Longest disk request made of adjacent blocks.
    pub cluster_bytes: u32,
}

impl BufferedParams {
    /// Linux 2.2: blocks of 1 KB, dirty ones written after 30 s, requests of up to 64 KB.
    pub fn linux_2_2(memory_bytes: u64) -> BufferedParams {
        BufferedParams {
            memory_bytes,
            block_bytes: 1 << 10,
            sync_period_s: 30,
            cluster_bytes: 64 << 10,
        }
    }
}

/// Where the mapped file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MappedOn {
    /// On a disk of its own, with an arm of its own, as in Maltzahn §4.
    #[default]
    OwnDisk,
    /// On that of the files, behind them.
    FilesDisk {
        /// They leave it so much at least.
        bytes: u64,
    },
}

/// What a machine is made of. Parts that a design does not use cost nothing.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// The kind of every disk: one for files, one for the mapped file if it has its own, one for
    /// the raw device.
    pub drive: Drive,
    /// Order in which each disk serves.
    pub scheduler: Scheduler,
    /// The file system.
    pub files: FfsParams,
    /// The mapped file.
    pub mapped: VmParams,
    /// Where that lies.
    pub mapped_on: MappedOn,
    /// Buffers of the raw device.
    pub buffered: BufferedParams,
}

impl MachineConfig {
    /// A machine with one kind of disk and usual parts.
    pub fn new(drive: Drive) -> MachineConfig {
        MachineConfig {
            drive,
            scheduler: Scheduler::OneWayElevator,
            files: FfsParams::ufs_8k(),
            mapped: VmParams::default(),
            mapped_on: MappedOn::OwnDisk,
            buffered: BufferedParams::linux_2_2(128 << 20),
        }
    }

    /// Gives the system so much memory for each of what it keeps: blocks of files, mapped pages,
    /// blocks of a device.
    #[must_use]
    pub fn with_system_memory(mut self, bytes: u64) -> MachineConfig {
        self.files.buffer_cache_bytes = bytes;
        self.mapped.memory_bytes = bytes;
        self.buffered.memory_bytes = bytes;
        self
    }
}

/// A file system takes at most so much of its disk: the tables of all its groups are in memory.
const FILES_BYTES_MAX: u64 = 256 << 30;

const DISK_FILES: u8 = 0;
const DISK_MAPPED: u8 = 1;
const DISK_RAW: u8 = 2;

/// The state of a machine.
#[derive(Debug)]
pub struct Machine {
    disks: [Disk; 3],
    files: Ffs,
    mapped: Mapped,
    buffered: BufferCache,
    buffered_params: BufferedParams,
    next_sync_ns: u64,
    files_used: bool,
    /// When the last run ended; the next begins there.
    now_ns: u64,
    prepared: bool,
}

impl Machine {
    /// A machine at time 0, everything empty.
    ///
    /// # Panics
    /// If what a mapped file leaves of the disk has no room for files.
    pub fn new(config: &MachineConfig) -> Machine {
        let disk = || Disk::new(config.drive.clone(), config.scheduler);
        let buffered = config.buffered;
        let size_bytes = config.drive.size_bytes() / SECTOR_BYTES * SECTOR_BYTES;
        let (mapped_disk, mapped_at_bytes) = match config.mapped_on {
            MappedOn::OwnDisk => (DISK_MAPPED, 0),
            MappedOn::FilesDisk { bytes } => {
                let left_bytes = size_bytes.saturating_sub(bytes.next_multiple_of(SECTOR_BYTES));
                (DISK_FILES, left_bytes.min(FILES_BYTES_MAX))
            }
        };
        let files_bytes = if mapped_at_bytes > 0 { mapped_at_bytes } else { size_bytes };
        Machine {
            disks: [disk(), disk(), disk()],
            files: Ffs::new(config.files, files_bytes.min(FILES_BYTES_MAX), DISK_FILES),
            mapped: Mapped::new(config.mapped, mapped_disk, mapped_at_bytes / SECTOR_BYTES),
            buffered: BufferCache::new(
                buffered.memory_bytes,
                buffered.block_bytes,
                buffered.cluster_bytes,
                DISK_RAW,
            ),
            buffered_params: buffered,
            next_sync_ns: u64::from(buffered.sync_period_s) * 1_000_000_000,
            files_used: false,
            now_ns: 0,
            prepared: false,
        }
    }

    /// The file system.
    pub fn files(&self) -> &Ffs {
        &self.files
    }

    /// Appends what the actions make the disks do.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn lower(&mut self, actions: &[Action], plan: &mut Plan) -> Result<(), MachineError> {
        for action in actions {
            self.lower_one(*action, plan)?;
        }
        Ok(())
    }

    fn lower_one(&mut self, action: Action, plan: &mut Plan) -> Result<(), MachineError> {
        match action {
            Action::MakeDir { .. }
            | Action::LookMissing { .. }
            | Action::Create { .. }
            | Action::ReadFile { .. }
            | Action::WriteFile { .. }
            | Action::Remove { .. } => self.lower_file(action, plan)?,
            Action::ReadMapped { offset, bytes } => {
                self.check_page_end(offset + u64::from(bytes))?;
                self.mapped.read(plan, offset, bytes);
            }
            Action::WriteMapped { offset, bytes } => {
                self.check_page_end(offset + u64::from(bytes))?;
                self.mapped.write(plan, offset, bytes);
            }
            Action::Block { direction, kind, offset, bytes, wait } => {
                self.check_raw_end(offset + u64::from(bytes))?;
                let (sector, sectors) = (offset / SECTOR_BYTES, bytes / SECTOR_BYTES as u32);
                assert!(offset % SECTOR_BYTES == 0 && sectors > 0, "{action:?} is of sectors");
                plan.steps.push(Step { disk: DISK_RAW, direction, kind, wait, sector, sectors });
            }
            Action::Buffered { direction, kind, offset, bytes } => {
                self.check_raw_end(offset + u64::from(bytes))?;
                self.lower_buffered((direction, kind), offset, bytes, plan);
            }
            Action::Pause { us } => plan.pause_ns += u64::from(us) * 1_000,
        }
        Ok(())
    }

    /// Of a mapped file whole pages move.
    fn check_page_end(&self, end_bytes: u64) -> Result<(), MachineError> {
        let room_bytes = self.disks[0].sectors() * SECTOR_BYTES - self.mapped.begins_bytes();
        check_end("the mapped file's part of its disk", room_bytes, self.mapped.page_end(end_bytes))
    }

    fn check_raw_end(&self, end_bytes: u64) -> Result<(), MachineError> {
        let size_bytes = self.disks[usize::from(DISK_RAW)].sectors() * SECTOR_BYTES;
        check_end("the raw disk", size_bytes, end_bytes)
    }

    fn lower_file(&mut self, action: Action, plan: &mut Plan) -> Result<(), FsFull> {
        self.files_used = true;
        match action {
            Action::MakeDir { dir, parent } => self.files.make_dir(plan, dir, parent)?,
            Action::LookMissing { dir } => self.files.look_missing(plan, dir),
            Action::Create { dir, file, bytes } => self.files.create(plan, dir, file, bytes)?,
            Action::ReadFile { file, offset, bytes } => {
                self.files.read(plan, file, offset, bytes);
            }
            Action::WriteFile { file, offset, bytes } => {
                self.files.write(plan, file, offset, bytes);
            }
            Action::Remove { file } => self.files.remove(plan, file),
            _ => {}
        }
        Ok(())
    }

    fn lower_buffered(
        &mut self,
        (direction, kind): (Direction, Kind),
        offset: u64,
        bytes: u32,
        plan: &mut Plan,
    ) {
        let block_bytes = u64::from(self.buffered_params.block_bytes);
        let block_sectors = block_bytes / SECTOR_BYTES;
        let disk_sectors = self.disks[usize::from(DISK_RAW)].sectors();
        let blocks = offset / block_bytes..=(offset + u64::from(bytes) - 1) / block_bytes;
        let blocks = blocks.map(|block| {
            let sector = block * block_sectors;
            // The last block may be shorter: a drive need not end where a block does.
            (sector, block_sectors.min(disk_sectors - sector) as u32)
        });
        match direction {
            Direction::Read => self.buffered.read_all(plan, kind, blocks),
            Direction::Write => blocks.for_each(|(sector, sectors)| {
                self.buffered.overwrite(plan, sector, sectors, kind, WriteMode::Late);
            }),
        }
    }

    /// Appends what the system does by itself at this time.
    pub(crate) fn tick(&mut self, plan: &mut Plan, now_ns: u64) {
        if self.files_used {
            self.files.tick(plan, now_ns);
        }
        self.mapped.tick(plan, now_ns);
        if now_ns >= self.next_sync_ns {
            self.buffered.flush(plan);
            let period_s = u64::from(self.buffered_params.sync_period_s);
            self.next_sync_ns = now_ns + period_s * 1_000_000_000;
        }
    }

    /// Starts writing all that is dirty anywhere.
    pub(crate) fn sync(&mut self, plan: &mut Plan) {
        self.files.sync(plan);
        self.mapped.clean(plan);
        self.buffered.flush(plan);
    }

    /// Writes what is dirty and forgets what is cached, so that what follows comes from the disks.
    pub(crate) fn drop_caches(&mut self, plan: &mut Plan) {
        self.sync(plan);
        self.files.drop_caches(plan);
        self.mapped.drop_all();
        self.buffered.drop_all();
    }
}

fn check_end(name: &'static str, size_bytes: u64, end_bytes: u64) -> Result<(), MachineError> {
    if end_bytes > size_bytes {
        return Err(MachineError::BeyondDisk { name, size_bytes, end_bytes });
    }
    Ok(())
}
