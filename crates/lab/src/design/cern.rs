//! CERN httpd as a proxy: all state in files, names of directories from the URL (Maltzahn 1999
//! §2.3.1).
//!
//! Each request looks for a lock file in the URL's directory (which is not there), then reads the
//! directory's file of metadata, then the object's file. A miss makes the missing directories, makes
//! and removes a lock file, writes the object and the metadata. Invariant: a directory has a file of
//! metadata as soon as it has an object. Threads: one user.
//!
//! Deviations: a lock is never met, since requests come one after the other, as in the paper's
//! generator (§4); metadata has a fixed length (4 KB) and is written as a whole; nothing expires.

use super::grouping::{directory_of, hash_name};
use super::{Cache, Context, Design, Served};
use crate::lru::{NumberMap, mix};
use crate::machine::{Action, DirId, FileId};
use crate::request::{Catalogue, Request};

const METADATA_BYTES: u64 = 4 << 10;

pub(crate) fn make(context: &Context<'_>) -> Box<dyn Design> {
    Box::new(Served { cache: Cern::default(), changes: context.options.changes })
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    file: FileId,
    bytes: u64,
    dir: DirId,
}

#[derive(Debug, Default)]
struct Cern {
    /// By the hash of the path.
    directories: NumberMap<u64, DirId>,
    metadata: NumberMap<u32, FileId>,
    /// Directory of each key, so that names are looked at once.
    known: NumberMap<u64, DirId>,
    objects: NumberMap<u64, Stored>,
    next_file: FileId,
}

impl Cern {
    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        self.next_file - 1
    }

    /// The directory of a request's URL and, if it is new, the making of it.
    fn directory(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> DirId {
        if let Some(&dir) = self.known.get(&request.key) {
            return dir;
        }
        let dir = match names.url_text(request.key) {
            Some(url) => self.make_path(directory_of(url), out),
            None => self.make_named(0, mix(u64::from(request.host) + 1), out),
        };
        self.known.insert(request.key, dir);
        dir
    }

    fn make_path(&mut self, path: &str, out: &mut Vec<Action>) -> DirId {
        let (mut dir, mut end) = (0, 0);
        for part in path.split('/') {
            end += part.len();
            dir = self.make_named(dir, hash_name(&path[..end]), out);
            end += 1;
        }
        dir
    }

    fn make_named(&mut self, parent: DirId, name: u64, out: &mut Vec<Action>) -> DirId {
        let next = self.directories.len() as DirId + 1;
        *self.directories.entry(name).or_insert_with(|| {
            out.push(Action::MakeDir { dir: next, parent });
            next
        })
    }

    fn update_metadata(&mut self, dir: DirId, out: &mut Vec<Action>) {
        match self.metadata.get(&dir) {
            Some(&file) => {
                out.push(Action::WriteFile { file, offset: 0, bytes: METADATA_BYTES });
            }
            None => {
                let file = self.new_file();
                self.metadata.insert(dir, file);
                out.push(Action::Create { dir, file, bytes: METADATA_BYTES });
            }
        }
    }
}

impl Cache for Cern {
    fn size_of(&self, key: u64) -> Option<u64> {
        self.objects.get(&key).map(|stored| stored.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(&Stored { file, bytes, dir }) = self.objects.get(&request.key) else { return };
        out.push(Action::LookMissing { dir });
        if let Some(&metadata) = self.metadata.get(&dir) {
            let bytes = METADATA_BYTES;
            out.push(Action::ReadFile { file: metadata, offset: 0, bytes });
        }
        out.push(Action::ReadFile { file, offset: 0, bytes });
    }

    fn miss(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) {
        let dir = self.directory(request, names, out);
        out.push(Action::LookMissing { dir });
        if let Some(&file) = self.metadata.get(&dir) {
            out.push(Action::ReadFile { file, offset: 0, bytes: METADATA_BYTES });
        }
    }

    fn store(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let dir = self.directory(request, names, out);
        let (lock, file) = (self.new_file(), self.new_file());
        let bytes = request.size_bytes.max(1);
        out.push(Action::Create { dir, file: lock, bytes: 1 });
        out.push(Action::Create { dir, file, bytes });
        self.update_metadata(dir, out);
        out.push(Action::Remove { file: lock });
        self.objects.insert(request.key, Stored { file, bytes, dir });
        true
    }

    fn discard(&mut self, key: u64, out: &mut Vec<Action>) {
        if let Some(stored) = self.objects.remove(&key) {
            out.push(Action::Remove { file: stored.file });
            self.update_metadata(stored.dir, out);
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        let directories = self.directories.len() as u64;
        vec![("objects", self.objects.len() as u64), ("directories", directories)]
    }
}
