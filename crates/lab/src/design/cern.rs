//! CERN httpd as a proxy: all state in files, names of directories from the URL (Maltzahn 1999
//! §2.3.1).
//!
//! Each request looks for a lock file in the URL's directory (which is not there), then reads the
//! directory's file of metadata, then the object's file. A miss makes the missing directories,
//! makes and removes a lock file, writes the object and the metadata. Invariant: a directory has a
//! file of metadata as soon as it has an object. Threads: one user.
//!
//! Deviations: a lock is never met, since requests come one after the other, as in the paper's
//! generator (§4); a new directory is made before its lock is looked for, not after, and for an
//! object that has changed in size neither lock nor metadata are looked at before it is stored
//! anew; metadata has a fixed length (4 KB) and is written as a whole; nothing expires, and nothing
//! is replaced: the paper gives it no limit, and `cache_bytes` is none.

use super::grouping::{NameHash, directory_of};
use super::{Cache, Design, DesignInputs, Served};
use crate::lru::{NumberMap, mix};
use crate::machine::{Action, DirId, FileId};
use crate::number_index::NumberIndex;
use crate::request::{Catalogue, Request};

const METADATA_BYTES: u64 = 4 << 10;

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    Box::new(Served { cache: Cern::default(), rules: inputs.rules(u64::MAX) })
}

/// What is known of a key: its directory, so that names are looked at once, and what is stored.
#[derive(Debug, Clone, Copy)]
struct Known {
    dir: DirId,
    stored: Option<Stored>,
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    file: FileId,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Cern {
    /// By the hash of the path.
    directories: NumberMap<u64, DirId>,
    /// The file of each directory that has one.
    metadata: Vec<Option<FileId>>,
    /// Places in `known` by key; keys come in the order of their first request.
    by_key: NumberIndex,
    known: Vec<Known>,
    objects: u64,
    next_file: FileId,
}

impl Cern {
    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        self.next_file - 1
    }

    fn known(&self, key: u64) -> Option<&Known> {
        Some(&self.known[self.by_key.get(key)? as usize])
    }

    /// What is known of a request's key; of a new one its directory and, if that is new, the making
    /// of it.
    fn known_or_new(
        &mut self,
        request: &Request,
        names: &Catalogue,
        out: &mut Vec<Action>,
    ) -> usize {
        if let Some(at) = self.by_key.get(request.key) {
            return at as usize;
        }
        let dir = match names.url_text(request.key).and_then(directory_of) {
            Some(directory) => self.make_path(directory, out),
            None => self.make_named(0, mix(u64::from(request.host) + 1), out),
        };
        let at = self.known.len();
        self.by_key.insert(request.key, at as u32);
        self.known.push(Known { dir, stored: None });
        at
    }

    /// Every directory of a path is known by the hash of the path up to there.
    fn make_path(&mut self, path: &str, out: &mut Vec<Action>) -> DirId {
        let (mut dir, mut hash) = (0, NameHash::default());
        for (index, part) in path.split('/').enumerate() {
            if index > 0 {
                hash.add("/");
            }
            hash.add(part);
            dir = self.make_named(dir, hash.finish(), out);
        }
        dir
    }

    fn metadata_of(&self, dir: DirId) -> Option<FileId> {
        self.metadata.get(dir as usize).copied().flatten()
    }

    fn make_named(&mut self, parent: DirId, name: u64, out: &mut Vec<Action>) -> DirId {
        let next = self.directories.len() as DirId + 1;
        *self.directories.entry(name).or_insert_with(|| {
            out.push(Action::MakeDir { dir: next, parent });
            next
        })
    }

    fn update_metadata(&mut self, dir: DirId, out: &mut Vec<Action>) {
        match self.metadata_of(dir) {
            Some(file) => {
                out.push(Action::WriteFile { file, offset: 0, bytes: METADATA_BYTES });
            }
            None => {
                let file = self.new_file();
                if self.metadata.len() <= dir as usize {
                    self.metadata.resize(dir as usize + 1, None);
                }
                self.metadata[dir as usize] = Some(file);
                out.push(Action::Create { dir, file, bytes: METADATA_BYTES });
            }
        }
    }
}

impl Cache for Cern {
    fn size_of(&self, key: u64) -> Option<u64> {
        self.known(key)?.stored.map(|stored| stored.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(&Known { dir, stored: Some(stored) }) = self.known(request.key) else { return };
        out.push(Action::LookMissing { dir });
        if let Some(file) = self.metadata_of(dir) {
            out.push(Action::ReadFile { file, offset: 0, bytes: METADATA_BYTES });
        }
        out.push(Action::ReadFile { file: stored.file, offset: 0, bytes: stored.bytes });
    }

    fn miss(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) {
        let at = self.known_or_new(request, names, out);
        let dir = self.known[at].dir;
        out.push(Action::LookMissing { dir });
        if let Some(file) = self.metadata_of(dir) {
            out.push(Action::ReadFile { file, offset: 0, bytes: METADATA_BYTES });
        }
    }

    fn store(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let at = self.known_or_new(request, names, out);
        let dir = self.known[at].dir;
        let (lock, file) = (self.new_file(), self.new_file());
        let bytes = request.size_bytes;
        out.push(Action::Create { dir, file: lock, bytes: 1 });
        out.push(Action::Create { dir, file, bytes });
        self.update_metadata(dir, out);
        out.push(Action::Remove { file: lock });
        let before = self.known[at].stored.replace(Stored { file, bytes });
        self.objects += u64::from(before.is_none());
        true
    }

    fn discard(&mut self, key: u64, out: &mut Vec<Action>) {
        let Some(at) = self.by_key.get(key) else { return };
        let known = &mut self.known[at as usize];
        if let Some(stored) = known.stored.take() {
            let dir = known.dir;
            self.objects -= 1;
            out.push(Action::Remove { file: stored.file });
            self.update_metadata(dir, out);
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        let directories = self.directories.len() as u64;
        vec![("objects", self.objects), ("directories", directories)]
    }
}
