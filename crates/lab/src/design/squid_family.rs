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
//! disks do not work side by side; the directory of a host takes its two numbers from bits of the
//! hash that have nothing in common, where the formula as printed masks the same ones twice
//! (`masks=same`; see [`Masks`]); a limit of space evicts least recently used objects, as Squid's
//! list does, where the paper has no limit.

use super::segments::{SMALL_BYTES_MAX, Segments};
use super::spec::{Parameter, Values, choice};
use super::{Cache, Design, DesignInputs, Served};
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
    /// The host's number is that of the directory.
    Given,
}

/// Which bits of a host's hash number its directories (§2.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Masks {
    /// Those of the first level are none of the second's, so that all directories are used.
    #[default]
    Apart,
    /// As the formula is printed, h(s) AND m_l1, h(s) AND m_l2: the first level's are the lowest of
    /// the second's, and of 16 by 256 directories 256 are used.
    Same,
}

pub(super) const BY_HOST_PARAMETERS: &[Parameter] = &[Parameter {
    name: "masks",
    default: "apart",
    values: Values::OneOf(&["same", "apart"]),
    about: "bits of a host's hash that number its directories: same (as printed) or apart",
    set: |o, text| {
        choice(text, &[("same", Masks::Same), ("apart", Masks::Apart)]).map(|m| o.squid_masks = m)
    },
}];

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
    tree: Tree,
    masks: Masks,
}

/// Directories of the first level, and in each of those.
#[derive(Debug, Clone, Copy)]
struct Tree {
    first_level: u32,
    second_level: u32,
}

impl Tree {
    /// Number of a second-level directory: those of the first level come first, from 1.
    fn directory(self, first: u32, second: u32) -> DirId {
        1 + self.first_level + first * self.second_level + second
    }
}

pub(crate) fn make(
    inputs: &DesignInputs<'_>,
    rule: DirectoryRule,
    small: Option<Segments>,
) -> Box<dyn Design> {
    let second_level = inputs.options.squid_second_level;
    assert!(second_level.is_power_of_two(), "a mask chooses among the second level");
    make_on(inputs, rule, small, Tree { first_level: FIRST_LEVEL, second_level })
}

/// A file for each object in a tree of so many by so many directories, where the host's number says
/// in which.
pub(crate) fn make_given(
    inputs: &DesignInputs<'_>,
    first_level: u32,
    second_level: u32,
) -> Box<dyn Design> {
    make_on(inputs, DirectoryRule::Given, None, Tree { first_level, second_level })
}

fn make_on(
    inputs: &DesignInputs<'_>,
    rule: DirectoryRule,
    small: Option<Segments>,
    tree: Tree,
) -> Box<dyn Design> {
    let cache = SquidFamily {
        rule,
        small,
        objects: Lru::new(),
        held_bytes: 0,
        cache_bytes: inputs.options.cache_bytes,
        next_file: 0,
        free_files: Vec::new(),
        tree,
        masks: inputs.options.squid_masks,
    };
    Box::new(Served { cache, rules: inputs.rules(inputs.options.cache_bytes) })
}

/// Where SquidL has the objects of a host.
pub(crate) fn directory_of_host(second_level: u32, host: u32, masks: Masks) -> DirId {
    let hash = mix(u64::from(host) + 1) as u32;
    let second = match masks {
        Masks::Apart => hash >> 8,
        Masks::Same => hash,
    };
    let tree = Tree { first_level: FIRST_LEVEL, second_level };
    tree.directory(hash & (FIRST_LEVEL - 1), second & (second_level - 1))
}

impl SquidFamily {
    fn directory_of(&self, file: FileId, request: &Request) -> DirId {
        let Tree { first_level, second_level } = self.tree;
        let host = request.host;
        match self.rule {
            DirectoryRule::Number => {
                self.tree.directory(file % first_level, file / first_level % second_level)
            }
            DirectoryRule::Host => directory_of_host(second_level, host, self.masks),
            DirectoryRule::Given => {
                self.tree.directory(host / second_level % first_level, host % second_level)
            }
        }
    }
}

impl Cache for SquidFamily {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        let Tree { first_level, second_level } = self.tree;
        out.extend((1..=first_level).map(|dir| Action::MakeDir { dir, parent: 0 }));
        for first in 0..first_level {
            for second in 0..second_level {
                let dir = self.tree.directory(first, second);
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
    use crate::requests::Requests;

    /// 16 directories of the first level, four in each: 80 with those, and every file goes to one
    /// of them.
    #[test]
    fn a_second_level_that_is_scaled_down_holds_all_files() {
        let options = DesignOptions { squid_second_level: 4, ..DesignOptions::default() };
        let drive = Drive::named("atlas-10k").expect("known");
        let inputs = DesignInputs { options: &options, requests: Requests::NONE, drive: &drive };
        for rule in [DirectoryRule::Number, DirectoryRule::Host] {
            let (mut design, mut out) = (make(&inputs, rule, None), Vec::new());
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
    /// As printed the first level's number is the second's last four bits: of 16 by 256 directories
    /// 10,000 hosts come to 256, one for each number of the second level; apart, to nearly all.
    #[test]
    fn hosts_come_to_256_directories_by_the_formula_as_printed() {
        let directories = |masks| {
            let of = |host| directory_of_host(SECOND_LEVEL, host, masks);
            (0..10_000).map(of).collect::<std::collections::BTreeSet<_>>()
        };
        let same = directories(Masks::Same);
        assert_eq!(same.len(), 256);
        assert!(same.iter().all(|dir| (dir - 17) / 256 == (dir - 17) % 16));
        // 4,096 less those that 10,000 at random leave out, 4,096 / e^2.44: 357.
        let apart = directories(Masks::Apart).len();
        assert!((3_650..3_830).contains(&apart), "{apart}");
    }

    /// [a-z]/[a-z]: 26 directories, 26 in each, and a directory for each of 676 hosts.
    #[test]
    fn a_given_directory_is_that_of_its_number() {
        let options = DesignOptions::default();
        let drive = Drive::named("atlas-10k").expect("known");
        let inputs = DesignInputs { options: &options, requests: Requests::NONE, drive: &drive };
        let (mut design, mut out) = (make_given(&inputs, 26, 26), Vec::new());
        design.prepare(&mut out);
        assert_eq!(out.len(), 26 + 676);
        out.clear();
        for host in 0..676 {
            let request = Request { key: host.into(), host, size_bytes: 9, ..Request::default() };
            design.request(&request, &Catalogue::new(), &mut out);
        }
        let dirs: Vec<DirId> = out
            .iter()
            .map(|action| match action {
                Action::Create { dir, .. } => *dir,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(dirs, (27..27 + 676).collect::<Vec<DirId>>());
    }
}
