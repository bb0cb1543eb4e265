//! What a design does for one request, and what that makes the disks do.
//!
//! A design appends [`Action`]s: whole files, bytes of a mapped file, blocks of a device. A machine
//! lowers them to [`Step`]s: requests to disks. Invariant: steps keep the order of the actions; a
//! step that is not waited for may finish after the request. Threads: plain data.

use crate::disk::Direction;

/// A directory, numbered by the design; 0 is the root.
pub type DirId = u32;
/// A file, numbered by the design from 0 without large gaps.
pub type FileId = u32;

/// What a disk request moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Contents of files or objects.
    Data,
    /// Blocks of inodes.
    Inode,
    /// Contents of directories.
    Directory,
    /// Allocation maps and indirect blocks.
    Allocation,
    /// Pages of a mapped file.
    Page,
    /// The design's own tables: checkpoints, indexes.
    Table,
}

/// All kinds, in the order of [`Kind::index`].
pub const KINDS: [Kind; 6] =
    [Kind::Data, Kind::Inode, Kind::Directory, Kind::Allocation, Kind::Page, Kind::Table];

impl Kind {
    /// Position in [`KINDS`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name in reports.
    pub fn name(self) -> &'static str {
        ["data", "inode", "directory", "allocation", "page", "table"][self.index()]
    }
}

/// One thing a design does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Make a directory in another; its number is new.
    MakeDir {
        /// The new one.
        dir: DirId,
        /// Where.
        parent: DirId,
    },
    /// Look for a name that is not there.
    LookMissing {
        /// Where.
        dir: DirId,
    },
    /// Make a file and write all of it; its number is new or was removed.
    Create {
        /// Where.
        dir: DirId,
        /// The new file.
        file: FileId,
        /// Its length.
        bytes: u64,
    },
    /// Open a file by its name and read a part of it.
    ReadFile {
        /// Which.
        file: FileId,
        /// From where.
        offset: u64,
        /// How much.
        bytes: u64,
    },
    /// Open a file by its name and write a part of it in place (it may not grow).
    WriteFile {
        /// Which.
        file: FileId,
        /// From where.
        offset: u64,
        /// How much.
        bytes: u64,
    },
    /// Remove a file by its name.
    Remove {
        /// Which.
        file: FileId,
    },
    /// Read bytes of the mapped file.
    ReadMapped {
        /// From where.
        offset: u64,
        /// How much.
        bytes: u32,
    },
    /// Write bytes of the mapped file.
    WriteMapped {
        /// From where.
        offset: u64,
        /// How much.
        bytes: u32,
    },
    /// Read or write a part of the raw device.
    Block {
        /// Which way.
        direction: Direction,
        /// What it is.
        kind: Kind,
        /// Byte offset, a multiple of 512.
        offset: u64,
        /// Length, a multiple of 512, not 0.
        bytes: u32,
        /// The request waits for it.
        wait: bool,
    },
    /// Read or write a part of the device through the system's buffer cache.
    Buffered {
        /// Which way.
        direction: Direction,
        /// What it is.
        kind: Kind,
        /// Byte offset, a multiple of 512.
        offset: u64,
        /// Length, a multiple of 512, not 0.
        bytes: u32,
    },
    /// Time passes for another reason (fetching, computing), in microseconds.
    Pause {
        /// How long.
        us: u32,
    },
}

/// One request to one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which disk of the machine.
    pub disk: u8,
    /// Which way.
    pub direction: Direction,
    /// What it moves.
    pub kind: Kind,
    /// The request waits for it.
    pub wait: bool,
    /// First sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
}

/// The steps of one request, and how long it computes besides.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// Time that passes without the disks, in nanoseconds.
    pub pause_ns: u64,
}

impl Plan {
    /// Appends a step, joined to the one before if it continues it in every respect and the two
    /// together are no longer than `join_sectors_max`.
    pub fn push(&mut self, step: Step, join_sectors_max: u32) {
        if let Some(last) = self.steps.last_mut()
            && last.disk == step.disk
            && last.direction == step.direction
            && last.kind == step.kind
            && last.wait == step.wait
            && last.sector + u64::from(last.sectors) == step.sector
            && last.sectors + step.sectors <= join_sectors_max
        {
            last.sectors += step.sectors;
            return;
        }
        self.steps.push(step);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.steps.clear();
        self.pause_ns = 0;
    }
}
