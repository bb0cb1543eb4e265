//! Hades: chunks of remote files lie one behind the other in a few large proxy files, placed by
//! remote file and by user (Konsta and Anastasiadis 2009, §3).
//!
//! Owns a bitmap of cacheblocks for each proxy file, the runs of chunks and their order of use.
//! Invariants: cacheblocks in use are those of runs; a run is contiguous in one proxy file and of
//! one remote file, in the list of hosts nearby or in that of hosts far away. Threads: one user.
//!
//! Deviations: requests are reads of whole objects, a remote file or, as `gen:files` and the
//! paper's own tables have it, one chunk of it; a run is what one request fetched, so that chunks
//! asked for one by one are runs of their own, side by side where nobody else stored between them;
//! a host further than a threshold is remote, and which hosts are is said by the latency rule below
//! (the paper measures it and leaves the policy's evaluation open, §3.3.5); fetching is a pause for
//! each chunk, of a latency, longer for a remote host, and of its bytes at the link's rate; another
//! pause models the tables on a miss, a fifth of that of `afs` for each chunk, since the paper says
//! only that the overhead is avoided.

use damelo::ByteSize;

use super::free_map::FreeMap;
use super::spec::{Parameter, Values, number, size};
use super::{Cache, Design, DesignInputs, DesignOptions, Served};
use crate::lru::{Lru, NumberMap};
use crate::machine::{Action, FileId};
use crate::request::{Catalogue, Request};

/// How a proxy of files runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HadesOptions {
    /// Unit of transfers.
    pub chunk_bytes: u64,
    /// Unit of space (§3.3.1).
    pub cacheblock_bytes: u64,
    /// Space for data.
    pub cache_bytes: u64,
    /// Size of a proxy file.
    pub proxy_file_bytes: u64,
    /// Time to fetch a chunk from its server besides that of its bytes, in microseconds.
    pub fetch_us: u32,
    /// Rate of the link to the server, in megabits a second; 0 if bytes take no time.
    pub link_mbit: u32,
    /// One host in so many is remote; 0 for none.
    pub remote_host_every: u32,
    /// Time to fetch a chunk from a remote host besides that from any other, in microseconds:
    /// without it there is nothing to be won by keeping what is remote.
    pub remote_us: u32,
}

impl Default for HadesOptions {
    fn default() -> HadesOptions {
        HadesOptions {
            chunk_bytes: 256 << 10,
            cacheblock_bytes: 4 << 10,
            cache_bytes: 16 << 30,
            proxy_file_bytes: 1 << 30,
            fetch_us: 100,
            link_mbit: 1_000,
            remote_host_every: 0,
            remote_us: 50_000,
        }
    }
}

impl HadesOptions {
    pub(crate) fn of(inputs: &DesignInputs<'_>) -> HadesOptions {
        let cache_bytes = inputs.options.cache_bytes.min(inputs.space_bytes() / 2);
        let proxy_file_bytes = HadesOptions::default().proxy_file_bytes.min(cache_bytes);
        let fetch_us = inputs.options.fetch_us;
        HadesOptions { cache_bytes, proxy_file_bytes, fetch_us, ..inputs.options.hades }
    }

    /// Time to fetch a chunk of so many bytes from its server.
    pub(crate) fn fetch_us_of(&self, bytes: u64) -> u32 {
        // A megabit a second is a bit a microsecond.
        let sent_us = (bytes * 8).checked_div(u64::from(self.link_mbit)).unwrap_or(0);
        u32::try_from(u64::from(self.fetch_us) + sent_us).unwrap_or(u32::MAX)
    }

    fn is_remote(&self, host: u32) -> bool {
        self.remote_host_every > 0 && host.is_multiple_of(self.remote_host_every)
    }

    /// Bytes of each proxy file; the last is what remains of the cache, if that is a cacheblock at
    /// least.
    fn file_bytes(self) -> impl Iterator<Item = u64> {
        let whole = self.cache_bytes / self.proxy_file_bytes;
        let rest = self.cache_bytes % self.proxy_file_bytes;
        let rest = (rest >= self.cacheblock_bytes).then_some(rest);
        (0..whole).map(move |_| self.proxy_file_bytes).chain(rest)
    }
}

pub(super) const CHUNK: Parameter = Parameter {
    name: "chunk",
    default: "256KiB",
    values: Values::Range("4KiB", "16MiB"),
    about: "unit of transfers",
    set: |o, text| size(text, 4 << 10..=16 << 20).map(|n| o.hades.chunk_bytes = n),
};

pub(super) const FETCH_US: Parameter = Parameter {
    name: "fetch-us",
    default: "100",
    values: Values::Range("0", "10000000"),
    about: "microseconds to fetch a chunk from its server, besides its bytes",
    set: |o, text| number(text, 0..=10_000_000).map(|us| o.fetch_us = us),
};

pub(super) const LINK_MBIT: Parameter = Parameter {
    name: "link-mbit",
    default: "1000",
    values: Values::Range("0", "1000000"),
    about: "megabits a second of the link to the server; 0 if bytes take no time",
    set: |o, text| number(text, 0..=1_000_000).map(|n| o.hades.link_mbit = n),
};

pub(super) const PARAMETERS: &[Parameter] = &[
    CHUNK,
    Parameter {
        name: "cacheblock",
        default: "4KiB",
        values: Values::Range("512B", "1MiB"),
        about: "unit of space in a proxy file",
        set: |o, text| size(text, 512..=1 << 20).map(|n| o.hades.cacheblock_bytes = n),
    },
    FETCH_US,
    LINK_MBIT,
    Parameter {
        name: "remote-every",
        default: "0",
        values: Values::Range("0", "1000000"),
        about: "one host in so many is far away; 0 for none",
        set: |o, text| number(text, 0..=1_000_000).map(|n| o.hades.remote_host_every = n),
    },
    Parameter {
        name: "remote-us",
        default: "50000",
        values: Values::Range("0", "10000000"),
        about: "microseconds more to fetch a chunk from a host that is far away",
        set: |o, text| number(text, 0..=10_000_000).map(|us| o.hades.remote_us = us),
    },
];

pub(super) fn check(options: &DesignOptions) -> Result<(), String> {
    let HadesOptions { chunk_bytes, cacheblock_bytes, .. } = options.hades;
    if cacheblock_bytes > chunk_bytes {
        let [block, chunk] = [cacheblock_bytes, chunk_bytes].map(ByteSize::new);
        return Err(format!(
            "a chunk has at least a cacheblock: cacheblock={block}, chunk={chunk}"
        ));
    }
    let [needed, given] = [cacheblock_bytes, options.cache_bytes].map(ByteSize::new);
    if given.bytes() < needed.bytes() {
        return Err(format!(
            "a proxy file has at least a cacheblock: {needed} of cache, not {given}"
        ));
    }
    Ok(())
}

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let options = HadesOptions::of(inputs);
    let blocks = |bytes: u64| bytes / options.cacheblock_bytes;
    let cache = Hades {
        options,
        bitmaps: options.file_bytes().map(|bytes| Bitmap::new(blocks(bytes))).collect(),
        near: Lru::new(),
        far: Lru::new(),
        last_of_user: NumberMap::default(),
        used_last: 0,
        evicted_local: 0,
        evicted_remote: 0,
    };
    // What does not fill a cacheblock at the end of a file holds nothing.
    let file_bytes = blocks(options.proxy_file_bytes) * options.cacheblock_bytes;
    Box::new(Served { cache, rules: inputs.rules(file_bytes) })
}

/// Time to enter a chunk into the tables.
pub(crate) const MAP_US: u32 = 20;

/// Free and used cacheblocks of a proxy file, searched from where the last search ended.
#[derive(Debug, Clone)]
struct Bitmap {
    blocks: FreeMap,
    next: u64,
}

impl Bitmap {
    fn new(blocks: u64) -> Bitmap {
        Bitmap { blocks: FreeMap::new(blocks), next: 0 }
    }

    fn take(&mut self, count: u64) -> Option<u64> {
        let start = self.blocks.find(self.next, count).or_else(|| self.blocks.find(0, count))?;
        self.blocks.take(start, count);
        self.next = start + count;
        Some(start)
    }

    fn release(&mut self, start: u64, count: u64) {
        self.blocks.release(start, count);
    }
}

#[derive(Debug, Clone, Copy)]
struct Run {
    file: FileId,
    start: u64,
    bytes: u64,
}

struct Hades {
    options: HadesOptions,
    bitmaps: Vec<Bitmap>,
    /// By remote file: those of hosts nearby, and those of hosts far away.
    near: Lru<Run>,
    far: Lru<Run>,
    last_of_user: NumberMap<u32, usize>,
    used_last: usize,
    evicted_local: u64,
    evicted_remote: u64,
}

impl Hades {
    fn cacheblocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.options.cacheblock_bytes)
    }

    /// From the user's last proxy file on, else from the last used at all (§3.3.3).
    fn allocate(&mut self, user: u32, count: u64) -> Option<(usize, u64)> {
        let files = self.bitmaps.len();
        let first = self.last_of_user.get(&user).copied().unwrap_or(self.used_last);
        let (file, start) = (0..files).find_map(|i| {
            let file = (first + i) % files;
            self.bitmaps[file].take(count).map(|start| (file, start))
        })?;
        self.last_of_user.insert(user, file);
        self.used_last = file;
        Some((file, start))
    }

    /// The oldest local run, or the oldest at all if none is local (§3.1).
    fn evict(&mut self) -> bool {
        let run = if let Some((_, run)) = self.near.pop_oldest() {
            self.evicted_local += 1;
            run
        } else if let Some((_, run)) = self.far.pop_oldest() {
            self.evicted_remote += 1;
            run
        } else {
            return false;
        };
        self.release(run);
        true
    }

    fn release(&mut self, run: Run) {
        let count = self.cacheblocks(run.bytes);
        self.bitmaps[run.file as usize].release(run.start, count);
    }

    /// The run, chunk by chunk: it is read, or written as its chunks are fetched, each in so many
    /// microseconds more than its own.
    fn transfer(&self, run: Run, fetched: Option<u32>, out: &mut Vec<Action>) {
        let base = run.start * self.options.cacheblock_bytes;
        let chunk_bytes = self.options.chunk_bytes;
        for index in 0..run.bytes.div_ceil(chunk_bytes) {
            let offset = base + index * chunk_bytes;
            let bytes = chunk_bytes.min(run.bytes - index * chunk_bytes);
            if let Some(more_us) = fetched {
                let us = self.options.fetch_us_of(bytes).saturating_add(more_us);
                out.push(Action::Pause { us: us.saturating_add(MAP_US) });
                // Cacheblocks are written whole, so that none has to be read first.
                let bytes = self.cacheblocks(bytes) * self.options.cacheblock_bytes;
                out.push(Action::WriteFile { file: run.file, offset, bytes });
            } else {
                out.push(Action::ReadFile { file: run.file, offset, bytes });
            }
        }
    }
}

impl Cache for Hades {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        let files = (0..).zip(self.options.file_bytes());
        out.extend(files.map(|(file, bytes)| Action::Create { dir: 0, file, bytes }));
    }

    fn size_of(&self, key: u64) -> Option<u64> {
        self.near.peek(key).or_else(|| self.far.peek(key)).map(|run| run.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let near = self.near.touch(request.key).copied();
        if let Some(run) = near.or_else(|| self.far.touch(request.key).copied()) {
            self.transfer(run, None, out);
        }
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let bytes = request.size_bytes;
        let count = self.cacheblocks(bytes);
        let (file, start) = loop {
            if let Some(found) = self.allocate(request.client, count) {
                break found;
            }
            if !self.evict() {
                return false;
            }
        };
        let remote = self.options.is_remote(request.host);
        let run = Run { file: file as FileId, start, bytes };
        let runs = if remote { &mut self.far } else { &mut self.near };
        runs.insert(request.key, run);
        let more_us = if remote { self.options.remote_us } else { 0 };
        self.transfer(run, Some(more_us), out);
        true
    }

    fn discard(&mut self, key: u64, _out: &mut Vec<Action>) {
        if let Some(run) = self.near.remove(key).or_else(|| self.far.remove(key)) {
            self.release(run);
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("runs", (self.near.len() + self.far.len()) as u64),
            ("evicted_local", self.evicted_local),
            ("evicted_remote", self.evicted_remote),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No part of a cache that holds a cacheblock is left out, and no file is longer than the
    /// others.
    #[test]
    fn proxy_files_take_all_of_the_cache() {
        let files = |cache_bytes: u64, proxy_file_bytes: u64| {
            let options = HadesOptions { cache_bytes, proxy_file_bytes, ..HadesOptions::default() };
            options.file_bytes().collect::<Vec<u64>>()
        };
        const GIB: u64 = 1 << 30;
        assert_eq!(files(GIB, GIB), [GIB]);
        assert_eq!(files(5 * GIB / 2, GIB), [GIB, GIB, GIB / 2]);
        assert_eq!(files(GIB + 4_096, GIB), [GIB, 4_096]);
        assert_eq!(files(GIB + 4_095, GIB), [GIB]);
        assert_eq!(files(12 << 10, 12 << 10), [12 << 10]);
    }

    /// A gigabit is 125 bytes a microsecond: 256 KiB are 2,097 of them, a file of 1,000 bytes 8.
    #[test]
    fn a_small_file_pays_for_its_own_bytes() {
        let options = HadesOptions::default();
        assert_eq!(
            [0, 1_000, 256 << 10].map(|bytes| options.fetch_us_of(bytes)),
            [100, 108, 2_197]
        );
        let free = HadesOptions { fetch_us: 0, link_mbit: 0, ..options };
        assert_eq!(free.fetch_us_of(256 << 10), 0);
    }
}
