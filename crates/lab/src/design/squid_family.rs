//! What Squid and its variants share: a file for each object in a tree of 16 by 256 directories,
//! and, in some, small objects in a mapped file instead (Maltzahn 1999 §2.3.2 to §2.4.4).
//!
//! Owns the table of objects, in memory as Squid's. Invariant: an object is in a file or in the
//! mapped file, never both. Threads: one user.
//!
//! Deviations: the tree is made before the run, as Squid's `-z` does; one file system holds all 4,096
//! directories where the paper spreads them over three disks, so that counts are comparable but disks
//! do not work side by side; a limit of space evicts least recently used objects, as Squid's list
//! does, where the paper has no limit.

use super::segments::{SMALL_BYTES_MAX, Segments};
use super::{Cache, Context, Design, Served};
use crate::lru::{Lru, mix};
use crate::machine::{Action, DirId, FileId};
use crate::request::{Catalogue, Request};

const FIRST_LEVEL: u32 = 16;
const SECOND_LEVEL: u32 = 256;

/// How a file's directory is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryRule {
    /// By the running number of the file (§2.3.2).
    Number,
    /// By the host (§2.4.1).
    Host,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    File(FileId),
    Mapped { offset: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    bytes: u64,
    place: Place,
}

/// The family.
pub(crate) struct SquidFamily {
    rule: DirectoryRule,
    small: Option<Segments>,
    objects: Lru<Stored>,
    held_bytes: u64,
    cache_bytes: u64,
    next_file: FileId,
    free_files: Vec<FileId>,
}

pub(crate) fn make(
    context: &Context<'_>,
    rule: DirectoryRule,
    small: Option<Segments>,
) -> Box<dyn Design> {
    let cache = SquidFamily {
        rule,
        small,
        objects: Lru::new(),
        held_bytes: 0,
        cache_bytes: context.options.cache_bytes,
        next_file: 0,
        free_files: Vec::new(),
    };
    Box::new(Served { cache, rules: context.rules(context.options.cache_bytes) })
}

/// Number of a second-level directory: 1 to 16 are the first level, then 256 for each.
fn directory(first: u32, second: u32) -> DirId {
    1 + FIRST_LEVEL + first * SECOND_LEVEL + second
}

impl SquidFamily {
    fn directory_of(&self, file: FileId, request: &Request) -> DirId {
        match self.rule {
            DirectoryRule::Number => {
                directory(file % FIRST_LEVEL, file / FIRST_LEVEL % SECOND_LEVEL)
            }
            DirectoryRule::Host => {
                let hash = mix(u64::from(request.host) + 1) as u32;
                directory(hash & (FIRST_LEVEL - 1), hash >> 8 & (SECOND_LEVEL - 1))
            }
        }
    }
}

impl Cache for SquidFamily {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        out.extend((1..=FIRST_LEVEL).map(|dir| Action::MakeDir { dir, parent: 0 }));
        for first in 0..FIRST_LEVEL {
            for second in 0..SECOND_LEVEL {
                out.push(Action::MakeDir { dir: directory(first, second), parent: 1 + first });
            }
        }
    }

    fn size_of(&self, key: u64) -> Option<u64> {
        self.objects.peek(key).map(|stored| stored.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(stored) = self.objects.touch(request.key) else { return };
        let bytes = stored.bytes;
        out.push(match stored.place {
            Place::File(file) => Action::ReadFile { file, offset: 0, bytes },
            Place::Mapped { offset } => Action::ReadMapped { offset, bytes: bytes as u32 },
        });
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let bytes = request.size_bytes;
        while self.held_bytes + bytes > self.cache_bytes {
            let Some(oldest) = self.objects.oldest() else { break };
            self.discard(oldest, out);
        }
        let place = match &mut self.small {
            Some(segments) if bytes <= SMALL_BYTES_MAX => {
                let (offset, written) = segments.place(bytes);
                out.push(Action::WriteMapped { offset, bytes: written });
                Place::Mapped { offset }
            }
            _ => {
                // Numbers of expired objects are used again (§2.3.2).
                let file = self.free_files.pop().unwrap_or_else(|| {
                    self.next_file += 1;
                    self.next_file - 1
                });
                out.push(Action::Create { dir: self.directory_of(file, request), file, bytes });
                Place::File(file)
            }
        };
        self.objects.insert(request.key, Stored { bytes, place });
        self.held_bytes += bytes;
        true
    }

    fn discard(&mut self, key: u64, out: &mut Vec<Action>) {
        let Some(stored) = self.objects.remove(key) else { return };
        self.held_bytes -= stored.bytes;
        match stored.place {
            Place::File(file) => {
                out.push(Action::Remove { file });
                self.free_files.push(file);
            }
            Place::Mapped { offset } => {
                if let Some(segments) = &mut self.small {
                    segments.release(offset, stored.bytes);
                }
            }
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        let mapped_bytes = self.small.as_ref().map_or(0, Segments::end_bytes);
        vec![("objects", self.objects.len() as u64), ("mapped_bytes", mapped_bytes)]
    }
}
