//! The cache of an Andrew client: each chunk of a remote file is a local file (Hades 2009 §3.2).
//!
//! Requests are reads of whole remote files, or of single chunks; each is cut into chunks of 256
//! KB. Cache files are made in advance, in one directory, and chunks take them in turn; which chunk
//! a file holds is kept in memory and in a file of items that is written as chunks come. Invariant:
//! a cache file holds at most one chunk. Threads: one user.
//!
//! Deviations: cache files get their blocks when a chunk arrives (made and removed whole), since
//! the modelled file system has no files without blocks; replacement is LRU; fetching is a pause as
//! in `hades`; another models the table of chunks on a miss (§4.2 calls the cost substantial and
//! gives no number): 100 us for each chunk; a remote file that is larger than the cache is refused,
//! since its chunks would only push each other out.

use super::hades::{CHUNK, FETCH_US, HadesOptions, LINK_MBIT};
use super::spec::Parameter;
use super::{Cache, Design, DesignInputs, Served};
use crate::lru::{Lru, NumberMap};
use crate::machine::{Action, FileId};
use crate::request::{Catalogue, Request};

pub(super) const PARAMETERS: &[Parameter] = &[CHUNK, FETCH_US, LINK_MBIT];

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let options = HadesOptions::of(inputs);
    let cache = Afs {
        options,
        chunks: Lru::new(),
        held_bytes: 0,
        remote: NumberMap::default(),
        next_chunk: 0,
        free: Vec::new(),
        next_file: 1,
    };
    Box::new(Served { cache, rules: inputs.rules(options.cache_bytes) })
}

const ITEMS_FILE: FileId = 0;
const ITEM_BYTES: u64 = 512;
const ITEMS: u64 = 8_192;
/// Time to enter a chunk into the tables.
pub(crate) const MAP_US: u32 = 100;

/// A remote file: its size if it was stored, and the numbers of its chunks. Chunks are numbered one
/// file after the other, so that those of small files lie together in the map.
#[derive(Debug, Clone, Copy, Default)]
struct Remote {
    bytes: Option<u64>,
    first_chunk: u64,
    chunks: u64,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    number: u64,
    bytes: u64,
}

struct Afs {
    options: HadesOptions,
    /// By number.
    chunks: Lru<(FileId, u64)>,
    held_bytes: u64,
    remote: NumberMap<u64, Remote>,
    next_chunk: u64,
    free: Vec<FileId>,
    next_file: FileId,
}

impl Afs {
    /// The chunks of a file of so many bytes that begin at a number.
    fn chunks(&self, first_chunk: u64, bytes: u64) -> impl Iterator<Item = Chunk> + use<> {
        let chunk_bytes = self.options.chunk_bytes;
        (0..bytes.div_ceil(chunk_bytes)).map(move |index| Chunk {
            number: first_chunk + index,
            bytes: chunk_bytes.min(bytes - index * chunk_bytes),
        })
    }

    /// Notes that a file of so many bytes is stored: the number of its first chunk.
    fn note(&mut self, key: u64, bytes: u64) -> u64 {
        let needed = bytes.div_ceil(self.options.chunk_bytes);
        let remote = self.remote.entry(key).or_default();
        if remote.chunks < needed {
            (remote.first_chunk, remote.chunks) = (self.next_chunk, needed);
            self.next_chunk += needed;
        }
        remote.bytes = Some(bytes);
        remote.first_chunk
    }

    fn insert(&mut self, chunk: Chunk, out: &mut Vec<Action>) {
        while self.held_bytes + chunk.bytes > self.options.cache_bytes {
            let Some((_, (file, bytes))) = self.chunks.pop_oldest() else { break };
            self.held_bytes -= bytes;
            self.free.push(file);
            out.push(Action::Remove { file });
        }
        let file = self.free.pop().unwrap_or_else(|| {
            self.next_file += 1;
            self.next_file - 1
        });
        let fetch_us = self.options.fetch_us_of(chunk.bytes);
        out.push(Action::Pause { us: fetch_us.saturating_add(MAP_US) });
        out.push(Action::Create { dir: 0, file, bytes: chunk.bytes });
        let offset = u64::from(file) % ITEMS * ITEM_BYTES;
        out.push(Action::WriteFile { file: ITEMS_FILE, offset, bytes: ITEM_BYTES });
        self.chunks.insert(chunk.number, (file, chunk.bytes));
        self.held_bytes += chunk.bytes;
    }
}

impl Cache for Afs {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        out.push(Action::Create { dir: 0, file: ITEMS_FILE, bytes: ITEMS * ITEM_BYTES });
    }

    /// A remote file is there if all of its chunks are.
    fn size_of(&self, key: u64) -> Option<u64> {
        let Remote { bytes, first_chunk, .. } = *self.remote.get(&key)?;
        let bytes = bytes?;
        let all = self.chunks(first_chunk, bytes).all(|chunk| self.chunks.contains(chunk.number));
        all.then_some(bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(&Remote { first_chunk, chunks, .. }) = self.remote.get(&request.key) else {
            return;
        };
        // Of a file whose size does not count those that were stored are read.
        let asked = self.chunks(first_chunk, request.size_bytes).take(chunks as usize);
        for chunk in asked {
            if let Some(&mut (file, bytes)) = self.chunks.touch(chunk.number) {
                out.push(Action::ReadFile { file, offset: 0, bytes: bytes.min(chunk.bytes) });
            }
        }
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let bytes = request.size_bytes;
        if self.remote.get(&request.key).is_some_and(|remote| remote.bytes != Some(bytes)) {
            // What is left of another version is of no use.
            self.discard(request.key, out);
        }
        let first_chunk = self.note(request.key, bytes);
        for chunk in self.chunks(first_chunk, bytes) {
            match self.chunks.touch(chunk.number) {
                Some(&mut (file, bytes)) => {
                    out.push(Action::ReadFile { file, offset: 0, bytes });
                }
                None => self.insert(chunk, out),
            }
        }
        true
    }

    fn discard(&mut self, key: u64, out: &mut Vec<Action>) {
        let Some(remote) = self.remote.get_mut(&key) else { return };
        let (first_chunk, Some(bytes)) = (remote.first_chunk, remote.bytes.take()) else { return };
        for chunk in self.chunks(first_chunk, bytes) {
            if let Some((file, bytes)) = self.chunks.remove(chunk.number) {
                self.held_bytes -= bytes;
                self.free.push(file);
                out.push(Action::Remove { file });
            }
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("chunks", self.chunks.len() as u64),
            ("chunk_numbers", self.next_chunk),
            ("held_bytes", self.held_bytes),
        ]
    }
}
