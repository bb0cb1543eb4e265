//! UCFS: a hot, medium and cold buffer of files in memory; clusters as the only unit of reading and
//! writing; grouping when files leave memory; no garbage (Wang et al. 2002, §2).
//!
//! Owns the lookup table, the three buffers and the table of clusters. Invariants: a file is in
//! memory, on one unit of clusters on disk, or both; a unit whose file was changed or regrouped is
//! not on disk any more; bytes in memory stay within the three shares once a request is done.
//! Threads: one user. Its parts: `buffers.rs` (memory, grouping), `clusters.rs` (disk).
//!
//! Deviations: a file larger than a cluster is written with its clusters as one unit and read back
//! whole (§2.4.6 reads cluster by cluster); the most recently used file of a full medium buffer
//! does not move to the hot one unless it is hit (§2.5.1 says that it does, which would put
//! one-timers there); the half of the cold buffer that grouping looks at is kept as a list of its
//! own and looked at by indexes, which find what the scans of figures 4 and 5 find first, but for
//! one thing: they give up after 256 files that do not fit or lie on the disk as they are; HTML is
//! what ends in `.html`, `.htm` or a slash; each unit is a write of its own (§2.4.2 lets several go
//! in one); the table of files has no end at 4 million (§2.3.2), which no trace here comes near,
//! but where the disk has no room for more of it on shutdown: then the least used unit goes, as on
//! a full disk; what counts as a use of a cluster, for the 115 hours and for LFU, is that it was
//! written or read, not a hit in memory on a copy of a file that it holds; its count begins at 1
//! with each write (§2.4.7 does not say what becomes of those of its files); the file system's
//! tables are written on shutdown with 24 bytes for each file and 6 for each cluster, and lie with
//! the memory that is saved behind the clusters, at the disk's end (§3.3: in the space of the
//! superblock, without saying where that is). A restart
//! (`restart=N`) is a shutdown and, after it, reading all that it saved; requests wait for both
//! (§3.3 gives no time between them).

mod buffers;
mod clusters;
#[cfg(test)]
mod tests;

use damelo::ByteSize;

use super::grouping::{GroupRule, Grouper};
use super::spec::{Parameter, Values, YES_NO, choice, memory_check, number, size};
use super::wanted::{Rules, Wanted};
use super::{Changes, Design, DesignInputs, DesignOptions, Outcome};
use crate::disk::Direction;
use crate::lru::NumberMap;
use crate::machine::{Action, Kind};
use crate::request::{Catalogue, Request};
use crate::requests::Requests;
use buffers::Buffers;
use clusters::{Clusters, UnitId, disk_bytes_min};

/// How UCFS runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UcfsOptions {
    /// Bytes of a cluster.
    pub cluster_bytes: u32,
    /// Memory for files.
    pub memory_bytes: u64,
    /// Space on the disk.
    pub disk_bytes: u64,
    /// Largest file that is kept (§2.2).
    pub file_bytes_max: u64,
    /// Percent of memory for hot and for medium files; the rest is cold.
    pub hot_percent: u32,
    /// See `hot_percent`.
    pub medium_percent: u32,
    /// How files are grouped when they leave memory.
    pub grouping: GroupRule,
    /// Gaps in a cluster are filled with files used as often or small (the second part of algorithm
    /// 2).
    pub fills: bool,
    /// Hours after which a cluster nobody used is dropped.
    pub unused_hours: u32,
    /// Requests between restarts, with memory saved before and restored after (§3.3); 0 for none.
    pub restart_every: u32,
}

impl Default for UcfsOptions {
    fn default() -> UcfsOptions {
        UcfsOptions {
            cluster_bytes: 64 << 10,
            memory_bytes: 256 << 20,
            disk_bytes: 25 << 30,
            file_bytes_max: 256 << 10,
            hot_percent: 30,
            medium_percent: 40,
            grouping: GroupRule::HostPath,
            fills: true,
            unused_hours: 115,
            restart_every: 0,
        }
    }
}

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "hot",
        default: "30",
        values: Values::Range("0", "100"),
        about: "percent of memory for hot files",
        set: |o, text| number(text, 0..=100).map(|n| o.ucfs.hot_percent = n),
    },
    Parameter {
        name: "medium",
        default: "40",
        values: Values::Range("0", "100"),
        about: "percent of memory for medium files; the rest is cold",
        set: |o, text| number(text, 0..=100).map(|n| o.ucfs.medium_percent = n),
    },
    Parameter {
        name: "fill",
        default: "yes",
        values: Values::OneOf(&["yes", "no"]),
        about: "fill clusters with files used as often or small, besides those of the host and path",
        set: |o, text| choice(text, &YES_NO).map(|fills| o.ucfs.fills = fills),
    },
    Parameter {
        name: "unused-hours",
        default: "115",
        values: Values::Range("1", "1000000"),
        about: "hours after which a cluster that nobody used is dropped",
        set: |o, text| number(text, 1..=1_000_000).map(|n| o.ucfs.unused_hours = n),
    },
    Parameter {
        name: "restart",
        default: "0",
        values: Values::Range("0", "1000000000"),
        about: "requests between restarts, memory saved before and restored after; 0 for none",
        set: |o, text| number(text, 0..=1_000_000_000).map(|n| o.ucfs.restart_every = n),
    },
    Parameter {
        name: "file-max",
        default: "256KiB",
        values: Values::Range("1KiB", "1GiB"),
        about: "largest file that is kept",
        set: |o, text| size(text, 1 << 10..=1 << 30).map(|n| o.ucfs.file_bytes_max = n),
    },
];

pub(super) fn check(options: &DesignOptions) -> Result<(), String> {
    let percent = options.ucfs.hot_percent + options.ucfs.medium_percent;
    let right = format!("hot and medium are at most 100 percent together, not {percent}");
    if percent > 100 {
        return Err(right);
    }
    let needed = disk_bytes_min(options.page_bytes, options.memory_bytes);
    if options.cache_bytes < needed {
        let [needed, given] = [needed, options.cache_bytes].map(ByteSize::new);
        return Err(format!(
            "memory is saved behind the clusters: {needed} of cache, not {given}; or less memory"
        ));
    }
    memory_check(options, CLUSTERS_MIN * u64::from(options.page_bytes))
}

/// Each of the three buffers holds some.
const CLUSTERS_MIN: u64 = 8;

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let options = UcfsOptions {
        cluster_bytes: inputs.options.page_bytes,
        memory_bytes: inputs.options.memory_bytes,
        disk_bytes: inputs.options.cache_bytes.min(inputs.space_bytes()),
        grouping: inputs.options.grouping,
        ..inputs.options.ucfs
    };
    Box::new(Ucfs::new(options, inputs.requests, inputs.options.changes))
}

/// Bytes of a file's header on disk besides its URL: size, time, count, array (§2.4.1).
const HEADER_BYTES: u64 = 80;

#[derive(Debug, Clone, Copy)]
struct File {
    /// With its header.
    bytes: u64,
    object_bytes: u64,
    group: u64,
    html: bool,
    references: u32,
    in_memory: bool,
    unit: Option<UnitId>,
    /// Brought in with another file and not asked for since.
    prefetched: bool,
}

/// The design.
pub struct Ucfs {
    options: UcfsOptions,
    rules: Rules,
    grouper: Grouper,
    files: NumberMap<u64, File>,
    buffers: Buffers,
    clusters: Clusters,
    prefetched: u64,
    prefetch_hits: u64,
    disk_hits: u64,
    stale: u64,
    writes_saved: u64,
    /// Requests since the start, or the last restart.
    since_start: u32,
    restarts: u64,
}

impl Ucfs {
    /// An empty disk. `requests` are for the oracle grouping only.
    ///
    /// # Panics
    /// If clusters are not whole sectors of 512 bytes, or hot and medium are more than all of
    /// memory.
    pub fn new(options: UcfsOptions, requests: Requests<'_>, changes: Changes) -> Ucfs {
        assert!(options.cluster_bytes.is_multiple_of(512), "clusters are sectors");
        assert!(options.hot_percent + options.medium_percent <= 100, "shares of memory");
        let share = |percent: u32| options.memory_bytes * u64::from(percent) / 100;
        let hot = share(options.hot_percent);
        let medium = share(options.medium_percent);
        Ucfs {
            options,
            rules: Rules { changes, object_bytes_max: options.file_bytes_max },
            grouper: Grouper::new(options.grouping, requests),
            files: NumberMap::default(),
            buffers: Buffers::new(hot, medium, options.memory_bytes - hot - medium),
            clusters: Clusters::new(
                options.cluster_bytes,
                options.disk_bytes,
                options.memory_bytes,
            ),
            prefetched: 0,
            prefetch_hits: 0,
            disk_hits: 0,
            stale: 0,
            writes_saved: 0,
            since_start: 0,
            restarts: 0,
        }
    }

    /// A file that is in memory is asked for (§2.5.1: it becomes hot).
    fn memory_hit(&mut self, key: u64) {
        let Some(file) = self.files.get_mut(&key) else { return };
        file.references += 1;
        if std::mem::take(&mut file.prefetched) {
            self.prefetch_hits += 1;
        }
        let bytes = file.bytes;
        self.buffers.make_hot(key, bytes);
    }

    /// Brings a file's unit into the medium buffer (§2.4.3).
    fn load(&mut self, key: u64, now_us: u64, out: &mut Vec<Action>) {
        let Some(unit) = self.files.get(&key).and_then(|file| file.unit) else { return };
        self.disk_hits += 1;
        self.clusters.used(unit, now_us);
        self.transfer(unit, Direction::Read, out);
        for other in self.clusters.files(unit).to_vec() {
            let Some(file) = self.files.get_mut(&other) else { continue };
            if file.in_memory || file.unit != Some(unit) {
                continue;
            }
            file.in_memory = true;
            file.prefetched = other != key;
            self.prefetched += u64::from(file.prefetched);
            self.buffers.add_medium(other, file.bytes);
        }
    }

    fn transfer(&mut self, unit: UnitId, direction: Direction, out: &mut Vec<Action>) {
        let wait = direction == Direction::Read;
        for (offset, bytes) in self.clusters.extents(unit) {
            out.push(Action::Block { direction, kind: Kind::Data, offset, bytes, wait });
        }
    }

    /// Takes files over the cold buffer's share out of memory (§2.4.2, §2.4.4, figures 4 and 5).
    fn evict(&mut self, now_us: u64, out: &mut Vec<Action>) {
        self.buffers.settle(&self.files);
        while self.buffers.over() {
            let Some(first) = self.buffers.first() else { return };
            let unit = self.files.get(&first).and_then(|file| file.unit);
            if let Some(unit) = unit
                && self.all_cold(unit)
            {
                self.forget_copies(unit);
                self.writes_saved += 1;
                continue;
            }
            let bytes_max = u64::from(self.options.cluster_bytes);
            let chosen = self.buffers.choose(first, &self.files, bytes_max, self.options.fills);
            self.write_unit(&chosen, now_us, out);
            self.buffers.settle(&self.files);
        }
    }

    /// §2.4.4: true if every file of an untouched unit is in the cold buffer.
    fn all_cold(&self, unit: UnitId) -> bool {
        self.clusters.files(unit).iter().all(|&key| self.buffers.is_cold(key))
    }

    fn forget_copies(&mut self, unit: UnitId) {
        for key in self.clusters.files(unit).to_vec() {
            if let Some(file) = self.files.get_mut(&key) {
                (file.in_memory, file.prefetched) = (false, false);
                self.buffers.remove(key, file.bytes);
            }
        }
    }

    fn write_unit(&mut self, chosen: &[u64], now_us: u64, out: &mut Vec<Action>) {
        for key in chosen {
            self.leave_unit(*key);
        }
        let bytes = chosen.iter().filter_map(|key| self.files.get(key)).map(|f| f.bytes).sum();
        let unit = loop {
            if let Some(unit) = self.clusters.write(chosen, bytes, now_us) {
                break unit;
            }
            // The disk is full: the least used unit goes (§2.4.9).
            match self.clusters.least_used() {
                Some(victim) => self.drop_unit(victim),
                None => return chosen.iter().for_each(|key| self.discard(*key)),
            }
        };
        for key in chosen {
            if let Some(file) = self.files.get_mut(key) {
                file.unit = Some(unit);
                (file.in_memory, file.prefetched) = (false, false);
                self.buffers.remove(*key, file.bytes);
            }
        }
        self.transfer(unit, Direction::Write, out);
    }

    /// A file is changed or grouped anew: its old unit is invalid, and what else was on it is in
    /// memory only (§2.4.4). Files of the unit that are not in memory any more cannot be: a unit is
    /// read whole and forgotten whole.
    fn leave_unit(&mut self, key: u64) {
        let Some(unit) = self.files.get(&key).and_then(|file| file.unit) else { return };
        for other in self.clusters.invalidate(unit) {
            if let Some(file) = self.files.get_mut(&other) {
                assert!(file.in_memory, "a unit is taken apart in memory only");
                file.unit = None;
            }
        }
    }

    /// Drops a unit and what is nowhere else.
    fn drop_unit(&mut self, unit: UnitId) {
        for key in self.clusters.invalidate(unit) {
            let Some(file) = self.files.get_mut(&key) else { continue };
            file.unit = None;
            if !file.in_memory {
                self.files.remove(&key);
            }
        }
    }

    fn discard(&mut self, key: u64) {
        self.leave_unit(key);
        if let Some(file) = self.files.remove(&key)
            && file.in_memory
        {
            self.buffers.remove(key, file.bytes);
        }
    }

    fn tables_bytes(&self) -> u64 {
        self.files.len() as u64 * 24 + self.clusters.count() * 6
    }

    /// What is saved has to fit behind the clusters, also when memory is full: of more files those
    /// on the least used unit go.
    fn keep_room_for_tables(&mut self) {
        while self.tables_bytes().next_multiple_of(512) > self.clusters.tables_bytes() {
            let Some(unit) = self.clusters.least_used() else { return };
            self.drop_unit(unit);
        }
    }

    /// §3.3: memory and tables, written or read in one sequence.
    fn saved(&self, direction: Direction, wait: bool, out: &mut Vec<Action>) {
        let saved = self.tables_bytes() + self.buffers.held_bytes();
        let bytes = saved.max(1).div_ceil(512) * 512;
        let (piece, kind) = (1 << 20, Kind::Table);
        for index in 0..bytes.div_ceil(piece) {
            let here = piece.min(bytes - index * piece) as u32;
            let offset = self.clusters.reserved_offset() + index * piece;
            out.push(Action::Block { direction, kind, offset, bytes: here, wait });
        }
    }

    /// Saves and restores, if so many requests were served. What was in memory is there again:
    /// nothing of it has to be fetched.
    fn restart_if_due(&mut self, out: &mut Vec<Action>) {
        if self.options.restart_every > 0 && self.since_start == self.options.restart_every {
            self.saved(Direction::Write, true, out);
            self.saved(Direction::Read, true, out);
            self.since_start = 0;
            self.restarts += 1;
        }
        self.since_start += 1;
    }

    fn store(&mut self, request: &Request, names: &Catalogue) -> Outcome {
        let url = names.url_text(request.key);
        let header_bytes = HEADER_BYTES + url.map_or(70, str::len) as u64;
        let file = File {
            bytes: request.size_bytes + header_bytes,
            object_bytes: request.size_bytes,
            group: self.grouper.group(request, names),
            html: url.is_some_and(is_html),
            references: 1,
            in_memory: true,
            unit: None,
            prefetched: false,
        };
        self.files.insert(request.key, file);
        self.buffers.add_medium(request.key, file.bytes);
        Outcome::Stored
    }

    fn serve(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        let (key, now_us) = (request.key, request.time_us);
        let file = self.files.get(&key).copied();
        let wanted = self.rules.wanted(request, file.map(|file| file.object_bytes));
        let Some(file) = file else {
            return match wanted {
                Wanted::Storing => self.store(request, names),
                Wanted::Refusal => Outcome::Refused,
                Wanted::Removal => Outcome::Done,
                Wanted::LeftOut | Wanted::Reading => Outcome::LeftOut,
            };
        };
        if wanted == Wanted::LeftOut {
            return Outcome::LeftOut;
        }
        if !file.in_memory {
            // A stale or unwanted file is read too, so that it is invalid in memory only (§2.4.3).
            self.load(key, now_us, out);
        }
        match wanted {
            Wanted::Reading => {
                self.memory_hit(key);
                Outcome::Hit
            }
            Wanted::Removal => {
                self.discard(key);
                Outcome::Done
            }
            Wanted::Refusal => {
                self.stale += 1;
                self.discard(key);
                Outcome::Refused
            }
            Wanted::Storing | Wanted::LeftOut => {
                self.stale += 1;
                self.discard(key);
                self.store(request, names)
            }
        }
    }
}

fn is_html(url: &str) -> bool {
    url.ends_with('/') || url.ends_with(".html") || url.ends_with(".htm")
}

impl Design for Ucfs {
    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        self.restart_if_due(out);
        let outcome = self.serve(request, names, out);
        let now_us = request.time_us;
        let age_us = u64::from(self.options.unused_hours) * 3_600_000_000;
        while let Some(unit) = self.clusters.unused_since(now_us.saturating_sub(age_us)) {
            self.drop_unit(unit);
        }
        self.evict(now_us, out);
        self.keep_room_for_tables();
        outcome
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        self.saved(Direction::Write, false, out);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("files", self.files.len() as u64),
            ("prefetched", self.prefetched),
            ("prefetch_hits", self.prefetch_hits),
            ("disk_hits", self.disk_hits),
            ("stale", self.stale),
            ("writes_saved", self.writes_saved),
            ("clusters_used", self.clusters.used_count()),
            ("restarts", self.restarts),
        ]
    }
}
