//! The cache of an Andrew client: each chunk of a remote file is a local file (Hades 2009 §3.2).
//!
//! Requests are reads of whole remote files; each is cut into chunks of 256 KB. Cache files are made
//! in advance, in one directory, and chunks take them in turn; which chunk a file holds is kept in
//! memory and in a file of items that is written as chunks come. Invariant: a cache file holds at
//! most one chunk. Threads: one user.
//!
//! Deviations: cache files get their blocks when a chunk arrives (made and removed whole), since the
//! modelled file system has no files without blocks; replacement is LRU; a pause models the table of
//! chunks on a miss (§4.2 calls the cost substantial and gives no number): 100 us for each chunk.

use super::hades::{Chunk, HadesOptions, chunks};
use super::{Cache, Context, Design, Served};
use crate::lru::{Lru, NumberMap};
use crate::machine::{Action, FileId};
use crate::request::{Catalogue, Request};

pub(crate) fn make(context: &Context<'_>) -> Box<dyn Design> {
    let options = HadesOptions::of(context);
    let cache = Afs {
        options,
        chunks: Lru::new(),
        held_bytes: 0,
        sizes: NumberMap::default(),
        free: Vec::new(),
        next_file: 1,
    };
    Box::new(Served { cache, changes: context.options.changes })
}

const ITEMS_FILE: FileId = 0;
const ITEM_BYTES: u64 = 512;
const ITEMS: u64 = 8_192;
/// Time to enter a chunk into the tables.
const MAP_US: u32 = 100;

struct Afs {
    options: HadesOptions,
    chunks: Lru<(FileId, u64)>,
    held_bytes: u64,
    sizes: NumberMap<u64, u64>,
    free: Vec<FileId>,
    next_file: FileId,
}

impl Afs {
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
        out.push(Action::Pause { us: self.options.fetch_us + MAP_US });
        out.push(Action::Create { dir: 0, file, bytes: chunk.bytes });
        let offset = u64::from(file) % ITEMS * ITEM_BYTES;
        out.push(Action::WriteFile { file: ITEMS_FILE, offset, bytes: ITEM_BYTES });
        self.chunks.insert(chunk.id, (file, chunk.bytes));
        self.held_bytes += chunk.bytes;
    }
}

impl Cache for Afs {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        out.push(Action::Create { dir: 0, file: ITEMS_FILE, bytes: ITEMS * ITEM_BYTES });
    }

    /// A remote file is there if all of its chunks are.
    fn size_of(&self, key: u64) -> Option<u64> {
        let bytes = *self.sizes.get(&key)?;
        let all = chunks(key, bytes, self.options.chunk_bytes)
            .all(|chunk| self.chunks.contains(chunk.id));
        all.then_some(bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        for chunk in chunks(request.key, request.size_bytes.max(1), self.options.chunk_bytes) {
            if let Some(&mut (file, bytes)) = self.chunks.touch(chunk.id) {
                out.push(Action::ReadFile { file, offset: 0, bytes: bytes.min(chunk.bytes) });
            }
        }
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let bytes = request.size_bytes.max(1);
        for chunk in chunks(request.key, bytes, self.options.chunk_bytes) {
            match self.chunks.touch(chunk.id) {
                Some(&mut (file, bytes)) => {
                    out.push(Action::ReadFile { file, offset: 0, bytes });
                }
                None => self.insert(chunk, out),
            }
        }
        self.sizes.insert(request.key, bytes);
        bytes <= self.options.cache_bytes
    }

    fn discard(&mut self, key: u64, out: &mut Vec<Action>) {
        let Some(bytes) = self.sizes.remove(&key) else { return };
        for chunk in chunks(key, bytes, self.options.chunk_bytes) {
            if let Some((file, bytes)) = self.chunks.remove(chunk.id) {
                self.held_bytes -= bytes;
                self.free.push(file);
                out.push(Action::Remove { file });
            }
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![("chunks", self.chunks.len() as u64), ("held_bytes", self.held_bytes)]
    }
}
