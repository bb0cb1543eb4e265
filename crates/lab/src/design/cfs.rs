//! CFS: immutable, contiguous objects on a device, descriptors and a bitmap in memory, deletes
//! without I/O (McCormick and Ledlie 2000, §4).
//!
//! Owns the bitmap and the table of objects. Invariants: an object's blocks are contiguous and its
//! own; used blocks are those of objects. FIFO or elevator is the machine's scheduler (§5.3).
//! Threads: one user.
//!
//! Deviations: a caller waits for each read, and for each raw write; the paper's `create` and
//! `read` put it into a queue and return, and only `sync` waits (§4.2, §4.4), so that an elevator
//! may find several to put in order; what is stale is deleted without being read first (§5.1
//! deletes "the file just read"), as by every design here; an object is identified by its key, not
//! by the MD5 of its URL (as in §5.3 without MD5); a full device evicts the least recently used
//! objects until one fits, where the paper leaves replacement open (§6); compaction moves an object
//! when more than half of the 64 blocks to each side of it are free (the paper says "a certain
//! percentage").

use super::free_map::FreeMap;
use super::spec::{Parameter, Values, YES_NO, choice, size};
use super::wanted::Rules;
use super::{Cache, Changes, Design, DesignInputs, Served};
use crate::disk::{Direction, SECTOR_BYTES};
use crate::lru::Lru;
use crate::machine::{Action, Kind};
use crate::request::{Catalogue, Request};

/// How CFS runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CfsOptions {
    /// Bytes of a block, which belongs to one object (§4.4.1).
    pub block_bytes: u32,
    /// Space on the device.
    pub device_bytes: u64,
    /// Through the system's buffers (§4.5, as measured) or raw.
    pub buffered: bool,
    /// Move objects to the front as they are read (§6).
    pub compact: bool,
}

impl Default for CfsOptions {
    fn default() -> CfsOptions {
        CfsOptions { block_bytes: 1 << 10, device_bytes: 8 << 30, buffered: true, compact: false }
    }
}

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "block",
        default: "1KiB",
        values: Values::Range("512B", "1MiB"),
        about: "bytes of a block, which belongs to one object",
        set: |o, text| size(text, 512..=1 << 20).map(|bytes| o.cfs.block_bytes = bytes),
    },
    Parameter {
        name: "buffered",
        default: "yes",
        values: Values::OneOf(&["yes", "no"]),
        about: "yes: through the system's buffers; no: raw",
        set: |o, text| choice(text, &YES_NO).map(|yes| o.cfs.buffered = yes),
    },
    Parameter {
        name: "compact",
        default: "no",
        values: Values::OneOf(&["yes", "no"]),
        about: "yes: objects are moved to the front as they are read",
        set: |o, text| choice(text, &YES_NO).map(|yes| o.cfs.compact = yes),
    },
];

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let device_bytes = inputs.options.cache_bytes.min(inputs.space_bytes());
    let cache = Cfs::new(CfsOptions { device_bytes, ..inputs.options.cfs });
    Box::new(Served { cache, rules: inputs.rules(device_bytes) })
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    block: u64,
    bytes: u64,
}

const COMPACT_WINDOW_BLOCKS: u64 = 64;

/// The design.
pub struct Cfs {
    options: CfsOptions,
    blocks: FreeMap,
    objects: Lru<Stored>,
    moved: u64,
    evicted: u64,
}

impl Cfs {
    /// An empty device.
    ///
    /// # Panics
    /// If blocks are not whole sectors of 512 bytes.
    pub fn new(options: CfsOptions) -> Cfs {
        assert!(options.block_bytes.is_multiple_of(512) && options.block_bytes > 0, "sectors");
        let blocks = options.device_bytes / u64::from(options.block_bytes);
        Cfs { options, blocks: FreeMap::new(blocks), objects: Lru::new(), moved: 0, evicted: 0 }
    }

    /// The design, ready to run.
    pub fn design(options: CfsOptions) -> Box<dyn Design> {
        let rules = Rules { changes: Changes::Replace, object_bytes_max: options.device_bytes };
        Box::new(Served { cache: Cfs::new(options), rules })
    }

    fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.options.block_bytes))
    }

    fn transfer(&self, direction: Direction, block: u64, bytes: u64, out: &mut Vec<Action>) {
        let offset = block * u64::from(self.options.block_bytes);
        let bytes = (bytes.div_ceil(SECTOR_BYTES) * SECTOR_BYTES) as u32;
        out.push(if self.options.buffered {
            Action::Buffered { direction, kind: Kind::Data, offset, bytes }
        } else {
            let wait = direction == Direction::Read;
            Action::Block { direction, kind: Kind::Data, offset, bytes, wait }
        });
    }

    /// §6: if much around an object is free, it moves as far to the front as it can.
    fn compact(&mut self, key: u64, stored: Stored, out: &mut Vec<Action>) {
        let count = self.blocks_of(stored.bytes);
        let low = stored.block.saturating_sub(COMPACT_WINDOW_BLOCKS);
        let high = (stored.block + count + COMPACT_WINDOW_BLOCKS).min(self.blocks.blocks());
        let free = (low..high).filter(|&block| self.blocks.is_free(block)).count() as u64;
        if free * 2 <= high - low - count {
            return;
        }
        let Some(block) = self.blocks.find(0, count).filter(|&block| block < stored.block) else {
            return;
        };
        self.blocks.take(block, count);
        self.blocks.release(stored.block, count);
        self.transfer(Direction::Write, block, stored.bytes, out);
        self.moved += 1;
        if let Some(entry) = self.objects.peek_mut(key) {
            entry.block = block;
        }
    }
}

impl Cache for Cfs {
    fn size_of(&self, key: u64) -> Option<u64> {
        self.objects.peek(key).map(|stored| stored.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(stored) = self.objects.touch(request.key).copied() else { return };
        self.transfer(Direction::Read, stored.block, stored.bytes, out);
        if self.options.compact {
            self.compact(request.key, stored, out);
        }
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let bytes = request.size_bytes;
        let count = self.blocks_of(bytes);
        if count > self.blocks.blocks() || bytes > u64::from(u32::MAX / 2) {
            return false;
        }
        let block = loop {
            if let Some(block) = self.blocks.find(0, count) {
                break block;
            }
            let Some(oldest) = self.objects.oldest() else { return false };
            self.discard(oldest, out);
            self.evicted += 1;
        };
        self.blocks.take(block, count);
        self.objects.insert(request.key, Stored { block, bytes });
        self.transfer(Direction::Write, block, bytes, out);
        true
    }

    fn discard(&mut self, key: u64, _out: &mut Vec<Action>) {
        if let Some(stored) = self.objects.remove(key) {
            self.blocks.release(stored.block, self.blocks_of(stored.bytes));
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("objects", self.objects.len() as u64),
            ("free_blocks", self.blocks.free()),
            ("moved", self.moved),
            ("evicted", self.evicted),
        ]
    }
}
