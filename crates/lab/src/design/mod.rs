//! Published cache designs as state machines, and the registry they are found in.
//!
//! A design keeps its tables and says, request by request, which files, pages or blocks it touches;
//! it knows neither time nor disks, so that the same code runs on modelled and real ones. To add a
//! design: one file here, one line in [`REGISTRY`]. Threads: one user for each design.

mod afs;
mod around;
mod cern;
mod cfs;
mod damelo;
mod free_map;
mod grouping;
mod hades;
mod hinted;
mod mapped;
mod mapped_future;
mod segments;
pub(crate) mod spec;
mod squid;
mod squid_family;
mod squidl;
mod squidm;
mod squidml;
mod squidmla;
mod store;
#[cfg(test)]
mod tests;
mod ucfs;
mod wanted;

pub(crate) use afs::MAP_US as AFS_MAP_US;
pub use around::Around;
pub use cfs::{Cfs, CfsOptions};
pub use damelo::{Damelo, DameloOptions, Placement};
pub use grouping::{GROUP_RULES, GroupRule, Grouper};
pub use hades::HadesOptions;
pub(crate) use hades::MAP_US as HADES_MAP_US;
pub use hinted::Hinted;
pub(crate) use segments::MappedFile;
pub use segments::mapped_bytes_max;
pub use spec::{DesignError, DesignSpec, Parameter, Values, parse_choice, parse_size};
pub use squid_family::Masks;
pub(crate) use squid_family::{directory_of_host, make_given};
pub use store::StoreOptions;
pub use ucfs::{Ucfs, UcfsOptions};

use std::path::Path;

use crate::disk::Drive;
use crate::machine::{Action, MachineConfig, MappedOn};
use crate::request::{Catalogue, Request};
use crate::requests::Requests;
use wanted::{Rules, Wanted};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The cache had it.
    Hit,
    /// It was not there, or not in that version, and has been stored.
    Stored,
    /// It was not there and is not kept (too large, no room).
    Refused,
    /// Deleted, or there was nothing to delete.
    Done,
    /// Its answer has no body of its own and nothing is stored that it could be about: nothing was
    /// done.
    LeftOut,
}

/// A cache design.
pub trait Design {
    /// What is made before the first request, directories above all.
    fn prepare(&mut self, out: &mut Vec<Action>) {
        let _ = out;
    }

    /// Handles one request and appends what it does to the disks.
    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome;

    /// A group that is to be kept in memory; nothing for designs that take no hints.
    fn love(&mut self, group: u64) {
        let _ = group;
    }

    /// A group that is to leave memory first; nothing for designs that take no hints.
    fn hate(&mut self, group: u64) {
        let _ = group;
    }

    /// The group that a group of requests is in this design, which may have fewer.
    fn own_group(&self, group: u64) -> u64 {
        group
    }

    /// The warm-up is over, whether there was one or not; what follows is measured.
    fn counting_begins(&mut self) {}

    /// An orderly end.
    fn finish(&mut self, out: &mut Vec<Action>) {
        let _ = out;
    }

    /// Counters of its own.
    fn facts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// What a trace's change of size means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Changes {
    /// The object is a new version: what is stored is stale (UCFS §3.1).
    #[default]
    Replace,
    /// Nothing: the first size counts (Maltzahn §4 ignores staleness).
    Ignore,
}

/// What designs are made with. Each takes what concerns it.
#[derive(Debug, Clone)]
pub struct DesignOptions {
    /// Space for objects on disk; `u64::MAX` for no limit.
    pub cache_bytes: u64,
    /// They run on a real disk, so that neither the modelled drive nor what memory holds of a
    /// modelled one is a limit.
    pub real: bool,
    /// Memory of designs that manage their own.
    pub memory_bytes: u64,
    /// Page or cluster of designs that have one.
    pub page_bytes: u32,
    /// How objects are grouped.
    pub grouping: GroupRule,
    /// What a changed size means.
    pub changes: Changes,
    /// Time to fetch a chunk of a remote file besides that of its bytes (see
    /// [`HadesOptions::link_mbit`]), in microseconds.
    pub fetch_us: u32,
    /// Squid and its variants: directories in each of the first level's 16, a power of two. Not a
    /// parameter: the papers' is 256, and fewer stand for it where memory is scaled down.
    pub squid_second_level: u32,
    /// `squidl`, `squidml` and `squidmla`: which bits of a host's hash choose its directory.
    pub squid_masks: Masks,
    /// `mmap-fbc`: references below which an object is replaced.
    pub fbc_count_max: u32,
    /// `mmap-fbc`: mean references above which all are halved.
    pub fbc_average_max: u32,
    /// Of `cfs`; its space comes from `cache_bytes`. The same holds for those that follow.
    pub cfs: CfsOptions,
    /// Of `damelo`.
    pub damelo: DameloOptions,
    /// Of `ucfs`.
    pub ucfs: UcfsOptions,
    /// Of `afs` and `hades`.
    pub hades: HadesOptions,
    /// Of `store`.
    pub store: StoreOptions,
}

impl Default for DesignOptions {
    fn default() -> DesignOptions {
        DesignOptions {
            cache_bytes: u64::MAX,
            real: false,
            memory_bytes: 128 << 20,
            page_bytes: 64 << 10,
            grouping: GroupRule::Host,
            changes: Changes::Replace,
            fetch_us: HadesOptions::default().fetch_us,
            squid_second_level: squid_family::SECOND_LEVEL,
            squid_masks: Masks::default(),
            fbc_count_max: 3,
            fbc_average_max: 100,
            cfs: CfsOptions::default(),
            damelo: DameloOptions::default(),
            ucfs: UcfsOptions::default(),
            hades: HadesOptions::default(),
            store: StoreOptions::default(),
        }
    }
}

impl DesignOptions {
    /// For real disks: objects come from nowhere, and what fetching them would take is not the
    /// disk's.
    #[must_use]
    pub fn without_fetching(self) -> DesignOptions {
        let hades = HadesOptions { link_mbit: 0, remote_us: 0, ..self.hades };
        DesignOptions { fetch_us: 0, hades, ..self }
    }
}

/// What a design is made from: its options, the trace for those that look ahead, the drive.
#[derive(Debug, Clone, Copy)]
pub struct DesignInputs<'a> {
    /// See [`DesignOptions`].
    pub options: &'a DesignOptions,
    /// All requests; only `mmap-future` and the oracle grouping look at them.
    pub requests: Requests<'a>,
    /// The drive it lies on; of a real one only how it reads is told by this.
    pub drive: &'a Drive,
}

impl DesignInputs<'_> {
    /// Room on the drive. Of a real one the system says when there is none.
    pub(crate) fn space_bytes(&self) -> u64 {
        if self.options.real { u64::MAX } else { self.drive.size_bytes() }
    }

    /// What decides for a cache of so many bytes, which may be more than there are.
    fn rules(&self, cache_bytes: u64) -> Rules {
        let object_bytes_max = cache_bytes.min(self.space_bytes());
        Rules { changes: self.options.changes, object_bytes_max }
    }
}

/// A line of the registry.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// The paper it is from.
    pub paper: &'static str,
    /// It has memory, pages and groups of its own, and takes them from [`DesignOptions`].
    pub has_pages: bool,
    /// All that it touches is a device's blocks: it needs no files, directories or mapped file.
    pub on_blocks: bool,
    /// It keeps all that it stores, by its paper or its definition: space for objects is no limit
    /// to it.
    pub is_unlimited: bool,
    /// It can be told which groups are to stay and which are to go.
    pub takes_hints: bool,
    /// It keeps some objects in files and some in a mapped file, which lies beside those.
    pub maps_beside_files: bool,
    /// Its own parameters.
    pub parameters: &'static [Parameter],
    /// What does not go together in its parameters.
    check: fn(&DesignOptions) -> Result<(), String>,
    /// Makes it.
    pub make: fn(&DesignInputs<'_>) -> Box<dyn Design>,
    /// Makes it on a file or device of a real machine, if it does its own I/O there.
    pub(crate) make_real: Option<MakeReal>,
}

impl Entry {
    /// The machine with what the design keeps on one disk, so that designs which map some of it do
    /// not have one more than the others. The mapped file gets `mapped_bytes`, if it takes any (see
    /// [`mapped_bytes_max`]), and three quarters of the disk at most; files have the rest.
    #[must_use]
    pub fn on_one_disk(&self, config: &MachineConfig, mapped_bytes: u64) -> MachineConfig {
        let bytes = mapped_bytes.min(config.drive.size_bytes() / 4 * 3);
        let mapped_on = match self.maps_beside_files {
            true => MappedOn::FilesDisk { bytes },
            false => config.mapped_on,
        };
        MachineConfig { mapped_on, ..config.clone() }
    }
}

type MakeReal = fn(&DesignInputs<'_>, &Path) -> Result<Box<dyn Design>, ::damelo::OpenError>;

type Make = fn(&DesignInputs<'_>) -> Box<dyn Design>;

fn no_check(_: &DesignOptions) -> Result<(), String> {
    Ok(())
}

const fn plain(name: &'static str, paper: &'static str, make: Make) -> Entry {
    Entry {
        name,
        paper,
        has_pages: false,
        on_blocks: false,
        is_unlimited: false,
        takes_hints: false,
        maps_beside_files: false,
        parameters: &[],
        check: no_check,
        make,
        make_real: None,
    }
}

const fn with(parameters: &'static [Parameter], entry: Entry) -> Entry {
    Entry { parameters, ..entry }
}

const fn paged(entry: Entry) -> Entry {
    Entry { has_pages: true, ..on_blocks(entry) }
}

const fn unlimited(entry: Entry) -> Entry {
    Entry { is_unlimited: true, ..entry }
}

const fn beside_files(entry: Entry) -> Entry {
    Entry { maps_beside_files: true, ..entry }
}

const fn by_host(entry: Entry) -> Entry {
    with(squid_family::BY_HOST_PARAMETERS, entry)
}

const fn on_blocks(entry: Entry) -> Entry {
    Entry { on_blocks: true, ..entry }
}

/// Every design.
pub const REGISTRY: [Entry; 16] = [
    unlimited(plain("cern", "squid-disk-io-1999", cern::make)),
    plain("squid", "squid-disk-io-1999", squid::make),
    by_host(plain("squidl", "squid-disk-io-1999", squidl::make)),
    beside_files(plain("squidm", "squid-disk-io-1999", squidm::make)),
    by_host(beside_files(plain("squidml", "squid-disk-io-1999", squidml::make))),
    by_host(beside_files(plain("squidmla", "squid-disk-io-1999", squidmla::make))),
    unlimited(plain("mmap-infinite", "squid-disk-io-1999", mapped::make_infinite)),
    plain("mmap-lru", "squid-disk-io-1999", mapped::make_lru),
    with(mapped::PARAMETERS, plain("mmap-fbc", "squid-disk-io-1999", mapped::make_fbc)),
    plain("mmap-future", "squid-disk-io-1999", mapped_future::make),
    with(cfs::PARAMETERS, on_blocks(plain("cfs", "cfs-2000", cfs::make))),
    Entry {
        check: damelo::check,
        takes_hints: true,
        ..with(damelo::PARAMETERS, paged(plain("damelo", "damelo-2000", damelo::make)))
    },
    Entry {
        check: ucfs::check,
        ..with(ucfs::PARAMETERS, paged(plain("ucfs", "ucfs-2002", ucfs::make)))
    },
    with(afs::PARAMETERS, plain("afs", "hades-2009", afs::make)),
    Entry {
        check: hades::check,
        ..with(hades::PARAMETERS, plain("hades", "hades-2009", hades::make))
    },
    Entry {
        check: store::check,
        takes_hints: true,
        make_real: Some(store::make_real),
        ..with(store::PARAMETERS, paged(plain("store", "ours", store::make)))
    },
];

/// The design of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}

/// What most designs are: something that has objects, stores, reads and drops them.
pub(crate) trait Cache {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        let _ = out;
    }
    /// Size of a stored object.
    fn size_of(&self, key: u64) -> Option<u64>;
    /// Reads a stored object.
    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>);
    /// Stores an object that is not there, of at least a byte; false if it is not kept.
    fn store(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> bool;
    /// Drops a stored object.
    fn discard(&mut self, key: u64, out: &mut Vec<Action>);
    /// Looks for an object that is not there; free for designs that know in memory.
    fn miss(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) {
        let _ = (request, names, out);
    }
    fn finish(&mut self, out: &mut Vec<Action>) {
        let _ = out;
    }
    fn facts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Makes a [`Design`] of a [`Cache`]: hit, miss, stale and delete are the same for all.
pub(crate) struct Served<C> {
    cache: C,
    rules: Rules,
}

impl<C: Cache> Design for Served<C> {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        self.cache.prepare(out);
    }

    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        serve(&mut self.cache, self.rules, request, names, out)
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        self.cache.finish(out);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        self.cache.facts()
    }
}

pub(crate) fn serve<C: Cache>(
    cache: &mut C,
    rules: Rules,
    request: &Request,
    names: &Catalogue,
    out: &mut Vec<Action>,
) -> Outcome {
    let stored = cache.size_of(request.key);
    let wanted = rules.wanted(request, stored);
    match (wanted, stored) {
        (Wanted::LeftOut, _) => return Outcome::LeftOut,
        // Of what is not there as a whole there may be parts.
        (Wanted::Removal, _) => {
            cache.discard(request.key, out);
            return Outcome::Done;
        }
        (Wanted::Reading, stored) => {
            // What says no size is about what is there.
            let size_bytes = if request.has_body() { None } else { stored };
            let size_bytes = size_bytes.unwrap_or(request.size_bytes);
            cache.fetch(&Request { size_bytes, ..*request }, out);
            return Outcome::Hit;
        }
        (Wanted::Storing | Wanted::Refusal, Some(_)) => cache.discard(request.key, out),
        (Wanted::Storing | Wanted::Refusal, None) => cache.miss(request, names, out),
    }
    let is_kept = wanted == Wanted::Storing && cache.store(request, names, out);
    if is_kept { Outcome::Stored } else { Outcome::Refused }
}
