//! What Squid and its variants share: a file for each object in a tree of 16 by 256 directories,
//! and, in some, small objects in a mapped file instead (Maltzahn 1999 §2.3.2 to §2.4.4). A caller
//! that scales memory down scales the second level with it (`DesignOptions::squid_second_level`),
//! since the blocks of 4,096 directories alone take 16 MiB.
//!
//! Owns the table of objects, in memory as Squid's. Invariant: an object is in a file or in the
//! mapped file, never both. Threads: one user.
//!
//! Deviations: the tree is made before the run, as Squid's `-z` does; one file system holds all
//! directories where the paper spreads them over three disks, so that counts are comparable but
//! disks do not work side by side; a limit of space evicts least recently used objects, as Squid's
//! list does, where the paper has no limit.

use super::segments::{SMALL_BYTES_MAX, Segments};
use super::{Cache, Context, Design, Served};
use crate::lru::{Lru, mix};
use crate::machine::{Action, DirId, FileId};
use crate::request::{Catalogue, Request};

const FIRST_LEVEL: u32 = 16;
/// Directories in each of those, unless a caller scales them.
pub(super) const SECOND_LEVEL: u32 = 256;

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
    /// Directories in each of the first level, a power of two.
    second_level: u32,
}

pub(crate) fn make(
    context: &Context<'_>,
    rule: DirectoryRule,
    small: Option<Segments>,
) -> Box<dyn Design> {
    let second_level = context.options.squid_second_level;
    assert!(second_level.is_power_of_two(), "a mask chooses among the second level");
    let cache = SquidFamily {
        rule,
        small,
        objects: Lru::new(),
        held_bytes: 0,
        cache_bytes: context.options.cache_bytes,
        next_file: 0,
        free_files: Vec::new(),
        second_level,
    };
    Box::new(Served { cache, rules: context.rules(context.options.cache_bytes) })
}

/// Number of a second-level directory: 1 to 16 are the first level, then come those in each.
fn directory(second_level: u32, first: u32, second: u32) -> DirId {
    1 + FIRST_LEVEL + first * second_level + second
}

/// Where SquidL has the objects of a host.
pub(crate) fn directory_of_host(second_level: u32, host: u32) -> DirId {
    let hash = mix(u64::from(host) + 1) as u32;
    directory(second_level, hash & (FIRST_LEVEL - 1), hash >> 8 & (second_level - 1))
}

impl SquidFamily {
    fn directory_of(&self, file: FileId, request: &Request) -> DirId {
        let second_level = self.second_level;
        match self.rule {
            DirectoryRule::Number => {
                directory(second_level, file % FIRST_LEVEL, file / FIRST_LEVEL % second_level)
            }
            DirectoryRule::Host => directory_of_host(second_level, request.host),
        }
    }
}

impl Cache for SquidFamily {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        out.extend((1..=FIRST_LEVEL).map(|dir| Action::MakeDir { dir, parent: 0 }));
        for first in 0..FIRST_LEVEL {
            for second in 0..self.second_level {
                let dir = directory(self.second_level, first, second);
                out.push(Action::MakeDir { dir, parent: 1 + first });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::DesignOptions;
    use crate::disk::Drive;

    /// 16 directories of the first level, four in each: 80 with those, and every file goes to one
    /// of them.
    #[test]
    fn a_second_level_that_is_scaled_down_holds_all_files() {
        let options = DesignOptions { squid_second_level: 4, ..DesignOptions::default() };
        let drive = Drive::named("atlas-10k").expect("known");
        let context = Context { options: &options, requests: &[], drive: &drive };
        for rule in [DirectoryRule::Number, DirectoryRule::Host] {
            let (mut design, mut out) = (make(&context, rule, None), Vec::new());
            design.prepare(&mut out);
            let made = |action: &Action| match action {
                Action::MakeDir { dir, .. } => Some(*dir),
                _ => None,
            };
            let dirs: Vec<DirId> = out.iter().filter_map(made).collect();
            assert_eq!(dirs.len(), 16 + 16 * 4);
            out.clear();
            for key in 0..1_000 {
                let request =
                    Request { key, host: key as u32, size_bytes: 100, ..Request::default() };
                design.request(&request, &Catalogue::new(), &mut out);
            }
            for action in &out {
                let Action::Create { dir, .. } = action else { panic!("{action:?}") };
                assert!(dirs[16..].contains(dir), "{rule:?}: {dir}");
            }
        }
    }
}
