//! Every design on random requests: an auditor watches what it asks of files, pages and blocks, and
//! runs are compared with what the disks served and with themselves.

use std::collections::{BTreeMap, HashMap};

use super::super::segments::{CLASSES, SMALL_BYTES_MAX, class_of, segment_bytes};
use super::*;

/// Watches actions: nothing is read that was not written, space is not exceeded, files exist.
#[derive(Default)]
struct Auditor {
    files: HashMap<u32, u64>,
    directories: u32,
    /// Written ranges of the mapped file and the raw device, joined.
    mapped: BTreeMap<u64, u64>,
    raw: BTreeMap<u64, u64>,
    /// The store reads the end of a segment at once, of which what lies before summary and footer
    /// may never have been written.
    reads_ends: bool,
}

fn add_range(ranges: &mut BTreeMap<u64, u64>, mut start: u64, mut end: u64) {
    while let Some((&s, &e)) = ranges.range(..=end).next_back() {
        if e < start {
            break;
        }
        ranges.remove(&s);
        (start, end) = (start.min(s), end.max(e));
    }
    ranges.insert(start, end);
}

fn covers(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    ranges.range(..=start).next_back().is_some_and(|(_, &e)| e >= end)
}

impl Auditor {
    fn watch(&mut self, action: &Action) {
        match *action {
            Action::MakeDir { dir, parent } => {
                assert_eq!(dir, self.directories + 1, "directories are numbered in order");
                assert!(parent <= self.directories);
                self.directories = dir;
            }
            Action::LookMissing { dir } => assert!(dir <= self.directories),
            Action::Create { dir, file, bytes } => {
                assert!(dir <= self.directories);
                assert!(self.files.insert(file, bytes).is_none(), "file {file} is new");
            }
            Action::ReadFile { file, offset, bytes }
            | Action::WriteFile { file, offset, bytes } => {
                assert!(self.files[&file] >= offset + bytes, "within the file");
            }
            Action::Remove { file } => assert!(self.files.remove(&file).is_some()),
            Action::ReadMapped { offset, bytes } => {
                assert!(covers(&self.mapped, offset, offset + u64::from(bytes)), "{action:?}");
            }
            Action::WriteMapped { offset, bytes } => {
                add_range(&mut self.mapped, offset, offset + u64::from(bytes));
            }
            Action::Block { direction, offset, bytes, .. }
            | Action::Buffered { direction, offset, bytes, .. } => {
                let end = offset + u64::from(bytes);
                match direction {
                    Direction::Read => {
                        let is_end = self.reads_ends
                            && bytes == SEGMENT_END_BYTES
                            && covers(&self.raw, end - FOOTER_BYTES, end);
                        assert!(is_end || covers(&self.raw, offset, end), "{action:?}");
                    }
                    Direction::Write => add_range(&mut self.raw, offset, end),
                }
            }
            Action::Pause { .. } => {}
        }
    }

    fn file_bytes(&self) -> u64 {
        self.files.values().sum()
    }

    fn end_bytes(&self) -> u64 {
        let last = |ranges: &BTreeMap<u64, u64>| ranges.last_key_value().map_or(0, |(_, &e)| e);
        last(&self.mapped).max(last(&self.raw))
    }
}

fn random_requests(seed: u64, count: usize) -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    let mut time_us = 0;
    let mut one = || {
        // Few popular, many unpopular keys.
        let key = (rng.f64() * rng.f64() * rng.f64() * 400.0) as u64;
        let power = rng.u32(8..16);
        let fresh = rng.u64(1..=1 << power);
        let size = sizes.entry(key).or_insert(fresh);
        if rng.u8(0..20) == 0 {
            *size = fresh;
        }
        // Four hours in all, so that what is done after one is done.
        time_us += rng.u64(0..10_000_000);
        let op = match rng.u8(0..20) {
            0 => Op::Delete,
            1 => Op::Write,
            _ => Op::Read,
        };
        let client = rng.u32(0..5);
        Request { time_us, client, key, size_bytes: *size, host: (key % 17) as u32, op }
    };
    (0..count).map(|_| one()).collect()
}

/// How much a design may take, after every request.
struct Space<'a> {
    entry: &'a Entry,
    cache_bytes: u64,
    /// Most objects of each class of segments that there were at once.
    peaks: [u64; CLASSES],
}

/// CERN's file of metadata for each directory, and the cache file of items of `afs`.
const CERN_METADATA_BYTES: u64 = 4 << 10;
const AFS_ITEMS_BYTES: u64 = 4 << 20;

impl Space<'_> {
    /// `present` is what was stored and not deleted; a design holds that or, if it replaces, less.
    fn check(&mut self, auditor: &Auditor, present: &HashMap<u64, u64>) {
        let name = self.entry.name;
        let (files, end) = (auditor.file_bytes(), auditor.end_bytes());
        match name {
            // The paper gives CERN no limit: what it holds is what was stored, and metadata.
            "cern" => {
                let held: u64 = present.values().sum();
                let metadata = CERN_METADATA_BYTES * u64::from(auditor.directories);
                assert!((held..=held + metadata).contains(&files), "{name}: {files} for {held}");
                assert_eq!(end, 0, "{name} maps nothing");
            }
            // The limit counts bytes of objects; the mapped file of some is longer, see below.
            _ if name.starts_with("squid") => {
                assert!(files <= self.cache_bytes, "{name}: {files} bytes of files");
                self.check_segments(end, present);
            }
            // No limit by its definition.
            "mmap-infinite" => self.check_segments(end, present),
            "afs" => assert!(files <= self.cache_bytes + AFS_ITEMS_BYTES, "{name}: {files}"),
            "hades" => assert!(files <= self.cache_bytes, "{name}: {files} bytes of files"),
            _ => assert!(end <= self.cache_bytes && files == 0, "{name}: {end} and {files}"),
        }
    }

    /// A mapped file is longer than what it holds by padding, and since a segment is used again by
    /// its own class only: it ends at most where the peaks of all classes do. A packed one cuts a
    /// free segment of a larger class, or opens a page, only while no segment of a class in between
    /// is free, which leaves at most one free of each class that is not the largest.
    fn check_segments(&mut self, end: u64, present: &HashMap<u64, u64>) {
        let mut counts = [0; CLASSES];
        let small = present.values().filter(|bytes| **bytes <= SMALL_BYTES_MAX);
        small.for_each(|bytes| counts[class_of(*bytes)] += 1);
        for (peak, count) in self.peaks.iter_mut().zip(counts) {
            *peak = count.max(*peak);
        }
        let at_once =
            (0..CLASSES).map(|class| self.peaks[class] * segment_bytes(class)).sum::<u64>();
        let left_over = (0..CLASSES - 1).map(segment_bytes).sum::<u64>();
        let most = match self.entry.name {
            "squidm" | "squidml" => at_once,
            "squidmla" | "mmap-infinite" => at_once + left_over,
            _ => 0,
        };
        assert!(end <= most, "{}: the mapped file ends at {end}, not by {most}", self.entry.name);
    }
}

/// Some parameters in the middle of their ranges, where the most happens.
const CHOSEN: [&str; 13] = [
    "mmap-fbc:cmax=2:amax=3",
    "cfs:block=4kib:buffered=no:compact=yes",
    "damelo:groups=4:placement=centre-out:checkpoint=60",
    "damelo:groups=7:placement=centre-out:checkpoint=1",
    "ucfs:restart=500:unused-hours=1",
    "ucfs:hot=10:medium=20:file-max=16kib:restart=97",
    "afs:chunk=16kib",
    "hades:remote-every=3:chunk=64kib",
    "hades:remote-every=2:chunk=16kib:cacheblock=512b",
    "store:disk=lfu-aging:memory=clock:reinsert=60:segment=512kib",
    "store:disk=lru:memory=s3-fifo:admission=second-hit:segment=256kib",
    "store:disk=fifo:memory=lru",
    "store:admission=8kib:keep=used-twice:reinsert=60:segment=256kib",
];

/// What the store reads of a segment's end at once, and the footer within.
const SEGMENT_END_BYTES: u32 = 128 << 10;
const FOOTER_BYTES: u64 = 4 << 10;

/// A store is never made on less than 8 MiB, nor with less than 4 MiB of memory.
fn audit_base(entry: &Entry) -> DesignOptions {
    let (cache_bytes, memory_bytes) =
        if entry.name == "store" { (8 << 20, 4 << 20) } else { (4 << 20, 512 << 10) };
    DesignOptions { cache_bytes, memory_bytes, page_bytes: 32 << 10, ..DesignOptions::default() }
}

/// A design with some of its parameters at one of their ends, as far as they go together.
fn extreme(entry: &'static Entry, rng: &mut fastrand::Rng) -> String {
    let mut name = entry.name.to_owned();
    for parameter in entry.parameters {
        if rng.bool() {
            continue;
        }
        let values = parameter.values.extremes();
        let value = values[rng.usize(..values.len())].to_lowercase();
        let longer = format!("{name}:{}={value}", parameter.name);
        let spec = DesignSpec::parse(&longer).expect("within the ranges that are listed");
        if spec.options(&audit_base(entry)).is_ok() {
            name = longer;
        }
    }
    name
}

fn audit(name: &str, seed: u64) {
    let requests = random_requests(seed, 3_000);
    let spec = DesignSpec::parse(name).expect(name);
    let entry = spec.entry;
    let options = spec.options(&audit_base(entry)).expect(name);
    let inputs =
        DesignInputs { options: &options, requests: (&requests).into(), drive: &config().drive };
    let mut design = (entry.make)(&inputs);
    let mut auditor = Auditor { reads_ends: entry.name == "store", ..Auditor::default() };
    let (mut out, names) = (Vec::new(), Catalogue::new());
    design.prepare(&mut out);
    let mut present: HashMap<u64, u64> = HashMap::new();
    let mut space = Space { entry, cache_bytes: options.cache_bytes, peaks: [0; CLASSES] };
    for request in &requests {
        let outcome = design.request(request, &names, &mut out);
        out.drain(..).for_each(|action| auditor.watch(&action));
        // A hit is of an object that was stored, in that version, and not deleted since.
        match (request.op, outcome) {
            (_, Outcome::Hit) => {
                assert_eq!(present.get(&request.key), Some(&request.size_bytes), "{name}");
            }
            (Op::Delete, _) => {
                present.remove(&request.key);
            }
            (_, Outcome::Stored) => {
                present.insert(request.key, request.size_bytes);
            }
            _ => {
                present.remove(&request.key);
            }
        }
        space.check(&auditor, &present);
    }
    design.finish(&mut out);
    out.iter().for_each(|action| auditor.watch(action));
    space.check(&auditor, &present);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(12))]
    #[test]
    fn designs_read_only_what_they_wrote(seed in proptest::prelude::any::<u64>()) {
        for entry in &REGISTRY {
            audit(entry.name, seed);
        }
    }

    #[test]
    fn so_they_do_with_other_parameters(seed in proptest::prelude::any::<u64>()) {
        so_they_do(seed);
    }
}

fn so_they_do(seed: u64) {
    CHOSEN.into_iter().for_each(|name| audit(name, seed));
    let mut rng = fastrand::Rng::with_seed(seed);
    for entry in REGISTRY.iter().filter(|entry| !entry.parameters.is_empty()) {
        audit(&extreme(entry, &mut rng), seed);
    }
}

/// A segment that the next object did not fit in: its end is read with the gap before the footer.
#[test]
fn the_end_of_a_segment_is_read_with_what_was_never_written() {
    so_they_do(3_948_980_670_230_623_635);
}

/// Requests counted by kind are those that the disks served, and a run replays exactly.
#[test]
fn runs_replay_and_counts_agree_with_the_disks() {
    let requests = random_requests(3, 3_000);
    let options = DesignOptions {
        cache_bytes: 16 << 20,
        memory_bytes: 512 << 10,
        page_bytes: 32 << 10,
        ..DesignOptions::default()
    };
    for entry in &REGISTRY {
        let report = run_named(entry.name, &options, &requests);
        let again = run_named(entry.name, &options, &requests);
        assert_eq!(format!("{report:?}"), format!("{again:?}"), "{} replays", entry.name);
        let served: u64 = report.disks.iter().map(|d| d.reads + d.writes).sum();
        assert_eq!(report.io.total(), served, "{}", entry.name);
        let bytes: u64 = report.disks.iter().map(|d| d.read_bytes + d.write_bytes).sum();
        let counted = report.io.bytes_of(Direction::Read) + report.io.bytes_of(Direction::Write);
        assert_eq!(counted, bytes, "{} conserves bytes", entry.name);
        assert!(report.hits <= report.reads && report.memory_hits <= report.hits);
    }
}

/// More hosts than the store remembers groups of: which of them it forgets must not differ either.
/// 4 MiB of memory remember 873 groups.
#[test]
fn a_store_with_more_groups_than_it_remembers_replays() {
    let mut rng = fastrand::Rng::with_seed(4);
    let one = |_| {
        let key = rng.u64(0..4_000);
        Request { host: (key / 2) as u32, ..read(key, 4_000) }
    };
    let requests: Vec<Request> = (0..20_000).map(one).collect();
    let options = DesignOptions {
        cache_bytes: 64 << 20,
        memory_bytes: 4 << 20,
        page_bytes: 32 << 10,
        ..DesignOptions::default()
    };
    let first = run_named("store", &options, &requests);
    assert!(first.fact("page_reads") > 100 && first.fact("object_reads") > 100, "both are chosen");
    for _ in 0..3 {
        let again = run_named("store", &options, &requests);
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
    }
}
