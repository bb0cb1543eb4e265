//! The shipped engine itself, its own code, over a device in memory whose transfers are replayed on
//! the modelled disk.
//!
//! Owns an open store and the device below it. The engine reads and writes the device at once, in
//! no virtual time; what it did is appended to the request that made it do so, reads waited for,
//! writes not. Its clock is told what a read of the drive costs on average, since it weighs reading
//! a page against reading an object by that. Invariants: what the machine's disk is asked for is
//! what the engine asked its device for, in the same order; the same requests do the same. Threads:
//! none but the caller's, since the store has none of its own here (`Config::background`); on a
//! real disk ([`make_real`]) it is the store as it ships, with its threads, its journal and the
//! system's clock.
//!
//! The journal lies in mapped memory in a store in service, and a record costs no transfer: here
//! its writes go through the modelled system's buffers, which are written now and then.
//!
//! Sizes of what was created are kept beside the store, as its callers would have them from the
//! origin's answer (up to 40 bytes of the lab's memory for an object): what is to be replaced by
//! another version is not read before. An entry may outlive its object, which the store dropped: a
//! request of another size stores either way, one of the same size asks the store, finds nothing
//! and takes the entry away.
//!
//! Deviations from a store in service: what its flusher does while callers go on is done here
//! before they go on, in no time; timers do not run, so that pages are written when enough waits
//! for them and a checkpoint is taken when the journal is full; the device holds 8 MiB to 4 GiB, in
//! memory (a real one as much as there is).

mod device;
mod sectors;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use damelo::{
    Admission, ByteSize, Clock, Config, CreateOptions, DiskPolicyKind, GroupId, OpenError,
    ReadError, Reader, Reinsertion, ResidencyPolicyKind, Store,
};

use self::device::{Recorder, Transfer};
use super::grouping::Grouper;
use super::spec::{Parameter, Values, choice, memory_check, number, size};
use super::wanted::{Rules, Wanted};
use super::{Design, DesignInputs, DesignOptions, Outcome};
use crate::disk::{Direction, Drive};
use crate::lru::NumberMap;
use crate::machine::{Action, Kind};
use crate::request::{Catalogue, Op, Request};

/// What objects are made of, again and again: so short that it stays in the processor's cache,
/// where a buffer as long as the longest object would be fetched from memory for each.
static CONTENTS: [u8; 16 << 10] = [CONTENT_BYTE; 16 << 10];
const CONTENT_BYTE: u8 = 0x5a;

/// Largest device that is held in memory.
const DEVICE_BYTES_MAX: u64 = 4 << 30;
/// Smallest device that a store is made on, and least memory that it takes.
const DEVICE_BYTES_MIN: u64 = 8 << 20;
const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// What a store is configured with here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOptions {
    /// What survives a turn of the ring.
    pub disk: DiskPolicyKind,
    /// What stays in memory.
    pub memory: ResidencyPolicyKind,
    /// What is written at all.
    pub admission: Admission,
    /// FBC: hits counted of an object at most.
    pub fbc_count_max: u8,
    /// FBC: mean count above which all are halved, in hundredths.
    pub fbc_average_max_percent: u32,
    /// Share of what is written that may be kept objects.
    pub reinsert_percent_max: u8,
    /// What is written again of what survives.
    pub reinsertion: Reinsertion,
    /// Segment, if not what the store takes by itself.
    pub segment_bytes: Option<u64>,
}

impl Default for StoreOptions {
    /// What a store takes by itself.
    fn default() -> StoreOptions {
        let config = Config::new("lab", ByteSize::new(0));
        StoreOptions {
            disk: config.disk_policy,
            memory: config.residency,
            admission: config.admission,
            fbc_count_max: config.fbc_count_max,
            fbc_average_max_percent: config.fbc_average_max_percent,
            reinsert_percent_max: config.reinsert_percent_max,
            reinsertion: config.reinsertion,
            segment_bytes: None,
        }
    }
}

const DISK_POLICIES: [&str; DiskPolicyKind::ALL.len()] = {
    let mut names = [""; DiskPolicyKind::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = DiskPolicyKind::ALL[at].name();
        at += 1;
    }
    names
};

const MEMORY_POLICIES: [&str; ResidencyPolicyKind::ALL.len()] = {
    let mut names = [""; ResidencyPolicyKind::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ResidencyPolicyKind::ALL[at].name();
        at += 1;
    }
    names
};

/// The one of `all` that is called so.
fn kind<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let named: Vec<_> = all.iter().map(|&kind| (name(kind), kind)).collect();
    choice(text, &named)
}

const ADMISSIONS: [(&str, Admission); 3] = [
    ("always", Admission::Always),
    ("second-hit", Admission::SecondHit),
    ("half", Admission::Probability { percent: 50 }),
];

/// A rule by its name, or a size up to which objects are admitted.
fn admission(text: &str) -> Result<Admission, String> {
    choice(text, &ADMISSIONS).or_else(|names| match text.parse::<ByteSize>() {
        Ok(size) if size.bytes() > 0 => Ok(Admission::SizeMax { bytes: size.bytes() }),
        _ => Err(format!("{names}, or a size")),
    })
}

const REINSERTIONS: [(&str, Reinsertion); 4] = [
    ("worthy", Reinsertion::Worthy),
    ("used", Reinsertion::Used { hits_min: 1 }),
    ("used-twice", Reinsertion::Used { hits_min: 2 }),
    ("never", Reinsertion::Never),
];

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "disk",
        default: "fbc",
        values: Values::OneOf(&DISK_POLICIES),
        about: "what survives a turn of the ring: fbc, lfu-aging, lru, fifo",
        set: |o, text| {
            o.store.disk = kind(text, DiskPolicyKind::ALL, DiskPolicyKind::name)?;
            Ok(())
        },
    },
    Parameter {
        name: "memory",
        default: "hit-density",
        values: Values::OneOf(&MEMORY_POLICIES),
        about: "what stays in memory: hit-density, s3-fifo, lru, clock",
        set: |o, text| {
            o.store.memory = kind(text, ResidencyPolicyKind::ALL, ResidencyPolicyKind::name)?;
            Ok(())
        },
    },
    Parameter {
        name: "admission",
        default: "always",
        values: Values::OneOf(&["always", "second-hit", "half", "16KiB"]),
        about: "what is written: always, second-hit, half (by chance), or what is no larger than a size",
        set: |o, text| admission(text).map(|rule| o.store.admission = rule),
    },
    Parameter {
        name: "cmax",
        default: "3",
        values: Values::Range("1", "3"),
        about: "fbc: hits counted of an object at most",
        set: |o, text| number(text, 1..=3).map(|n| o.store.fbc_count_max = n),
    },
    Parameter {
        name: "amax",
        default: "100",
        values: Values::Range("1", "10000"),
        about: "fbc: mean count above which all are halved, in hundredths",
        set: |o, text| number(text, 1..=10_000).map(|n| o.store.fbc_average_max_percent = n),
    },
    Parameter {
        name: "reinsert",
        default: "20",
        values: Values::Range("0", "90"),
        about: "percent of a reused segment that may be kept",
        set: |o, text| number(text, 0..=90).map(|n| o.store.reinsert_percent_max = n),
    },
    Parameter {
        name: "keep",
        default: "worthy",
        values: Values::OneOf(&["worthy", "used", "used-twice", "never"]),
        about: "what of it: worthy, used (since written), used-twice, never",
        set: |o, text| choice(text, &REINSERTIONS).map(|rule| o.store.reinsertion = rule),
    },
    Parameter {
        name: "segment",
        default: "auto",
        values: Values::Range("256KiB", "64MiB"),
        about: "bytes of a segment, or auto: what a store of this size takes",
        set: |o, text| {
            let bytes = match text {
                "auto" => None,
                _ => Some(size(text, 256 << 10..=64 << 20)?),
            };
            o.store.segment_bytes = bytes;
            Ok(())
        },
    },
];

/// The trace's time as the engine's, and the time that its own reads take, by which it judges them.
#[derive(Debug, Default)]
pub(super) struct TraceClock {
    time_us: AtomicU64,
    reads_ns: AtomicU64,
}

impl TraceClock {
    pub(super) fn spend(&self, ns: u64) {
        self.reads_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// 1 January 2024, so that times are plausible.
const UNIX_START_S: u64 = 1_704_067_200;

impl Clock for TraceClock {
    fn unix_seconds(&self) -> u64 {
        UNIX_START_S + self.time_us.load(Ordering::Relaxed) / 1_000_000
    }

    fn monotonic(&self) -> Duration {
        let trace = Duration::from_micros(self.time_us.load(Ordering::Relaxed));
        trace + Duration::from_nanos(self.reads_ns.load(Ordering::Relaxed))
    }
}

/// The store wants room for 16 pages at least.
fn memory_bytes_min(options: &DesignOptions) -> u64 {
    MEMORY_BYTES_MIN.max(16 * u64::from(options.page_bytes))
}

pub(super) fn check(options: &DesignOptions) -> Result<(), String> {
    let least = ByteSize::new(DEVICE_BYTES_MIN);
    let given = ByteSize::new(options.cache_bytes);
    if options.real {
        if options.cache_bytes < DEVICE_BYTES_MIN {
            return Err(format!("a cache has at least {least}, not {given}"));
        }
        return memory_check(options, memory_bytes_min(options));
    }
    let range = DEVICE_BYTES_MIN..=DEVICE_BYTES_MAX;
    if options.cache_bytes != u64::MAX && !range.contains(&options.cache_bytes) {
        let most = ByteSize::new(DEVICE_BYTES_MAX);
        return Err(format!(
            "a cache has {least} to {most}, not {given}: what a modelled disk holds is in memory; --real takes more"
        ));
    }
    memory_check(options, memory_bytes_min(options))?;
    // Only the store knows whether pages and segments go together on so much.
    let (config, device_bytes) = modelled(options, options.cache_bytes);
    Store::check_sizes(&config, &[device_bytes]).map_err(|error| error.to_string())
}

/// What the modelled and the shipped store have in common; `path` is where it lies, or a name.
fn config(options: &DesignOptions, path: &Path, size_bytes: u64) -> Config {
    let mut config = Config::new(path, ByteSize::new(size_bytes));
    // Papers that are scaled down may come below what `check` asks of those who choose a size.
    config.memory = ByteSize::new(options.memory_bytes.max(memory_bytes_min(options)));
    config.page = Some(ByteSize::new(u64::from(options.page_bytes)));
    // A run begins with an empty store, whatever a run before left there.
    config.anew = true;
    config.segment = options.store.segment_bytes.map(ByteSize::new);
    config.disk_policy = options.store.disk;
    config.residency = options.store.memory;
    config.admission = options.store.admission;
    config.fbc_count_max = options.store.fbc_count_max;
    config.fbc_average_max_percent = options.store.fbc_average_max_percent;
    config.reinsert_percent_max = options.store.reinsert_percent_max;
    config.reinsertion = options.store.reinsertion;
    config
}

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let wanted = inputs.options.cache_bytes.min(inputs.space_bytes());
    let (store, below) = open_modelled(inputs.options, inputs.drive, wanted)
        .expect("a store opens on an empty device with options that were checked");
    below.recorder.drain_into(&mut Vec::new());
    Box::new(EngineDesign::new(store, Some(below), inputs))
}

/// What a modelled store on about so many bytes is configured with, and how long its device is.
fn modelled(options: &DesignOptions, wanted_bytes: u64) -> (Config, u64) {
    let device_bytes = wanted_bytes.clamp(DEVICE_BYTES_MIN, DEVICE_BYTES_MAX) & !0xffff;
    let mut config = config(options, Path::new("lab"), device_bytes);
    config.checkpoint_period = Duration::ZERO;
    config.flush_period = Duration::ZERO;
    config.background = false;
    config.seed = Some(1);
    (config, device_bytes)
}

/// A store over a device in memory of about so many bytes.
fn open_modelled(
    options: &DesignOptions,
    drive: &Drive,
    wanted_bytes: u64,
) -> Result<(Store, Below), OpenError> {
    let (config, device_bytes) = modelled(options, wanted_bytes);
    let clock = Arc::new(TraceClock::default());
    let recorder = Arc::new(Recorder::new(device_bytes, drive, Arc::clone(&clock)));
    let store = Store::open_on(config, vec![recorder.clone()], clock.clone())?;
    Ok((store, Below { recorder, clock }))
}

/// The store as it ships, with its threads and the system's clock, on a file or device whose
/// contents are lost. It does its own I/O, so that no actions come of it.
///
/// # Errors
/// The store cannot be opened there.
pub(crate) fn make_real(
    inputs: &DesignInputs<'_>,
    path: &Path,
) -> Result<Box<dyn Design>, OpenError> {
    let size_bytes = inputs.options.cache_bytes.max(DEVICE_BYTES_MIN) & !0xffff;
    let store = Store::open(config(inputs.options, path, size_bytes))?;
    Ok(Box::new(EngineDesign::new(store, None, inputs)))
}

/// What lies below a modelled store.
struct Below {
    recorder: Arc<Recorder>,
    clock: Arc<TraceClock>,
}

/// What the store has of an object.
enum Found {
    Whole {
        bytes: u64,
    },
    /// More than its memory takes at once: nothing but the head is read yet.
    InPieces(Reader),
}

impl Found {
    fn bytes(&self) -> u64 {
        match self {
            Found::Whole { bytes } => *bytes,
            Found::InPieces(reader) => reader.info().length_bytes,
        }
    }

    /// Reads what is not read yet; false if that cannot be.
    fn read_rest(self) -> bool {
        let Found::InPieces(mut reader) = self else { return true };
        loop {
            match reader.next().wait() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

struct EngineDesign {
    store: Store,
    /// `None` on a real disk.
    below: Option<Below>,
    grouper: Grouper,
    rules: Rules,
    /// Of what was created last under a key, which the store may have dropped since.
    sizes: NumberMap<u64, u64>,
    /// Transfers on their way from the device's log to actions.
    transfers: Vec<Transfer>,
    refused: u64,
}

impl EngineDesign {
    fn new(store: Store, below: Option<Below>, inputs: &DesignInputs<'_>) -> EngineDesign {
        EngineDesign {
            store,
            below,
            grouper: Grouper::new(inputs.options.grouping, inputs.requests),
            rules: inputs.rules(inputs.options.cache_bytes.max(DEVICE_BYTES_MIN)),
            sizes: NumberMap::default(),
            transfers: Vec::new(),
            refused: 0,
        }
    }

    /// What the engine did to its device since the last time, as actions.
    fn replay(&mut self, out: &mut Vec<Action>) {
        let Some(below) = &self.below else { return };
        below.recorder.drain_into(&mut self.transfers);
        for Transfer { direction, kind, offset, bytes } in self.transfers.drain(..) {
            let wait = direction == Direction::Read;
            // The journal lies in mapped memory: the system writes its pages now and then.
            out.push(match kind {
                Kind::Table => Action::Buffered { direction, kind, offset, bytes },
                _ => Action::Block { direction, kind, offset, bytes, wait },
            });
        }
    }

    /// Reads an object, or opens it if it is too long for that, as a program would whose objects
    /// may be of any length. One that cannot be read is a miss.
    fn find(&self, key: &[u8]) -> Option<Found> {
        match self.store.read(key).wait() {
            Ok(object) => object.map(|object| Found::Whole { bytes: object.len() as u64 }),
            Err(ReadError::TooLargeForMemory { .. }) => {
                self.store.reader(key).wait().ok().flatten().map(Found::InPieces)
            }
            Err(_) => None,
        }
    }

    fn create(&mut self, request: &Request, names: &Catalogue) -> Outcome {
        let group = GroupId::new(self.grouper.group(request, names));
        let (key, bytes) = (request.key.to_le_bytes(), request.size_bytes);
        if self.try_create(&key, group, bytes as usize) {
            self.sizes.insert(request.key, bytes);
            Outcome::Stored
        } else {
            self.refuse(request.key)
        }
    }

    fn refuse(&mut self, key: u64) -> Outcome {
        self.refused += 1;
        // What was there of it is of another version.
        self.remove(key);
        Outcome::Refused
    }

    fn remove(&mut self, key: u64) {
        self.sizes.remove(&key);
        self.refused += u64::from(self.store.remove(&key.to_le_bytes()).is_err());
    }

    /// What a read finds; nothing of what would be replaced whatever is there, so that it is not
    /// read from disk for that.
    fn find_wanted(&mut self, request: &Request) -> Option<Found> {
        let created_bytes = self.sizes.get(&request.key).copied();
        let is_other = created_bytes.is_some_and(|bytes| !self.rules.keeps(request, bytes));
        if request.op != Op::Read || is_other {
            return None;
        }
        let found = self.find(&request.key.to_le_bytes());
        if found.is_none() {
            self.sizes.remove(&request.key);
        }
        found
    }

    fn try_create(&self, key: &[u8], group: GroupId, bytes: usize) -> bool {
        let create = |pieces: &[&[u8]]| {
            self.store.create_pieces(key, group, pieces, CreateOptions::default()).wait()
        };
        // Most are a piece or a few: nothing is allocated for them.
        let created = match bytes.div_ceil(CONTENTS.len()) {
            1 => create(&[&CONTENTS[..bytes]]),
            count => {
                let mut pieces = vec![&CONTENTS[..]; count];
                pieces[count - 1] = &CONTENTS[..bytes - (count - 1) * CONTENTS.len()];
                create(&pieces)
            }
        };
        created.is_ok()
    }
}

impl Design for EngineDesign {
    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        if let Some(below) = &self.below {
            below.clock.time_us.store(request.time_us, Ordering::Relaxed);
        }
        let found = self.find_wanted(request);
        let outcome = match self.rules.wanted(request, found.as_ref().map(Found::bytes)) {
            Wanted::LeftOut => Outcome::LeftOut,
            Wanted::Removal => {
                self.remove(request.key);
                Outcome::Done
            }
            Wanted::Reading if found.is_none_or(Found::read_rest) => Outcome::Hit,
            // Lost on the way: a miss, whose answer is stored if it has a body.
            Wanted::Reading if !request.has_body() => Outcome::LeftOut,
            Wanted::Reading | Wanted::Storing => self.create(request, names),
            Wanted::Refusal => self.refuse(request.key),
        };
        self.replay(out);
        outcome
    }

    fn love(&mut self, group: u64) {
        self.store.love(GroupId::new(group));
    }

    fn hate(&mut self, group: u64) {
        self.store.hate(GroupId::new(group));
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        // What could not be written is counted by the engine.
        self.refused += u64::from(self.store.sync().is_err());
        self.replay(out);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        let stats = self.store.stats();
        vec![
            ("objects", stats.index_objects),
            ("resident_objects", stats.resident_objects),
            ("prefetch_hits", stats.prefetch_hits),
            ("object_reads", stats.object_reads),
            ("page_reads", stats.page_reads),
            ("maintenance_reads", stats.maintenance_reads),
            ("pages_written", stats.pages_written),
            ("extents_written", stats.extents_written),
            ("segments_reused", stats.segments_reused),
            ("reinserted_objects", stats.reinserted_objects),
            ("refused", self.refused),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_of_the_store_is_told_of() {
        for (name, choices) in [("disk", &DISK_POLICIES[..]), ("memory", &MEMORY_POLICIES[..])] {
            let parameter = PARAMETERS.iter().find(|p| p.name == name).expect("it is there");
            assert_eq!(parameter.default, choices[0], "{name}");
            let told = format!(": {}", choices.join(", "));
            assert!(parameter.about.ends_with(&told), "{name}: {}", parameter.about);
        }
    }
}
