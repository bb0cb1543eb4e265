//! Reducing the disk I/O of proxies (Maltzahn, Richardson and Grunwald 1999): figures 1, 2, 4 and
//! 5. Figures 6 and 7, and what only the text has, are in `squid_mapped.rs`.
//!
//! The first half of the trace warms up, the second is measured (§4). Memory is scaled with what
//! the trace holds: the paper's machine had 512 MB for 8 GB of objects. Squid's directories are
//! scaled with memory, or their blocks alone would fill it. Threads: one user.

use super::beside;
use super::playing::Play;
use super::squid_mapped::{figure_6, figure_7, of_the_text};
use super::workload::{check_length, requests as workload, second_level};
use super::{Exhibit, PaperError, PaperOptions, Published, Trace};
use crate::design::{Changes, DesignInputs, DesignOptions, Masks, find};
use crate::disk::{Direction, Drive};
use crate::fs::FfsParams;
use crate::lru::NumberMap;
use crate::machine::{Kind, Machine, MachineConfig, Report, RunOptions};
use crate::output::Unit;
use crate::request::Request;
use crate::vm::VmParams;

pub(super) const SYNTHETIC_REQUESTS: usize = 400_000;
pub(super) const SMALL_BYTES: u64 = 8 << 10;
const NEEDED: usize = 1_000;
pub(super) const SCALE_DOWN_MAX: u32 = (SYNTHETIC_REQUESTS / NEEDED) as u32;

/// A trace with its first half as warm-up, objects of one size each.
pub(super) struct Days {
    pub(super) requests: Vec<Request>,
    pub(super) warmup: usize,
    pub(super) footprint_bytes: u64,
}

pub(super) fn days(requests: &[Request]) -> Days {
    let mut sizes: NumberMap<u64, u64> = NumberMap::default();
    for request in requests.iter().filter(|request| request.has_body()) {
        sizes.entry(request.key).or_insert(request.size_bytes);
    }
    let steady = |r: &Request| match sizes.get(&r.key) {
        Some(&size_bytes) if r.has_body() => Request { size_bytes, ..*r },
        _ => *r,
    };
    Days {
        requests: requests.iter().map(steady).collect(),
        warmup: requests.len() / 2,
        // What no disk has room for is never there.
        footprint_bytes: sizes.values().filter(|bytes| **bytes <= drive().size_bytes()).sum(),
    }
}

impl Days {
    /// What is measured of the second half.
    fn measured(&self) -> &[Request] {
        &self.requests[self.warmup..]
    }

    /// Share of small objects in the references of the second half.
    fn small_share(&self) -> f64 {
        let sized = || self.measured().iter().filter(|request| request.has_body());
        let small = sized().filter(|request| request.size_bytes <= SMALL_BYTES).count();
        small as f64 / sized().count().max(1) as f64
    }
}

fn drive() -> Drive {
    Drive::named("atlas-10k").expect("a drive of the registry")
}

/// Memory of the paper's machine (§4).
const PAPER_MEMORY_BYTES: u64 = 512 << 20;

/// A sixteenth of what the trace holds.
fn memory_bytes(footprint_bytes: u64) -> u64 {
    (footprint_bytes / 16).max(1 << 20)
}

/// What Squid and its variants are made with.
pub(super) fn design_options(footprint_bytes: u64) -> DesignOptions {
    DesignOptions {
        changes: Changes::Ignore,
        squid_second_level: second_level(memory_bytes(footprint_bytes), PAPER_MEMORY_BYTES),
        ..DesignOptions::default()
    }
}

pub(super) fn config(footprint_bytes: u64, mapped: bool) -> MachineConfig {
    let memory_bytes = memory_bytes(footprint_bytes);
    // A mapped file shares it with the buffers.
    let share = if mapped { memory_bytes / 2 } else { memory_bytes };
    MachineConfig {
        files: FfsParams {
            buffer_cache_bytes: share,
            // The default of the time for such a machine, scaled as memory is.
            name_cache_entries: (memory_bytes / (64 << 10)).max(256) as u32,
            ..FfsParams::ufs_8k()
        },
        mapped: VmParams { memory_bytes: share, ..VmParams::default() },
        ..MachineConfig::new(drive())
    }
}

pub(super) fn measure(
    paper: &PaperOptions<'_>,
    name: &str,
    days: &Days,
    trace: &Trace<'_>,
    config: &MachineConfig,
    options: &DesignOptions,
) -> Result<Report, PaperError> {
    let inputs = DesignInputs { options, requests: (&days.requests).into(), drive: &config.drive };
    let mut design = (find(name).expect("a design of the registry").make)(&inputs);
    let mut machine = Machine::new(config);
    let run = RunOptions { warmup: days.warmup, ..RunOptions::default() };
    let (requests, names, what) = (&days.requests[..], trace.names, "the designs of squid");
    paper.play(&mut *design, &mut machine, Play { requests, names, run, what })
}

/// Measures figures 1, 2, 4, 5, 6 and 7.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let mut made = None;
    let trace = workload(options, SYNTHETIC_REQUESTS, &mut made)?;
    check_length(&trace, NEEDED)?;
    let days = days(trace.requests);
    let mut tables = vec![figure_1(&days), figure_2(&days)];
    let ignore = design_options(days.footprint_bytes);
    let one = |name: &str| {
        let mapped = name.starts_with("squidm");
        measure(options, name, &days, &trace, &config(days.footprint_bytes, mapped), &ignore)
    };
    let (cern, squid) = (one("cern")?, one("squid")?);
    let others = ["squidl", "squidm", "squidml", "squidmla"]
        .iter()
        .map(|name| Ok((*name, one(name)?)))
        .collect::<Result<Vec<_>, PaperError>>()?;
    tables.push(figure_4(&cern, &squid, &others[0].1));
    let as_printed = DesignOptions { squid_masks: Masks::Same, ..ignore.clone() };
    let files = config(days.footprint_bytes, false);
    let as_printed = measure(options, "squidl", &days, &trace, &files, &as_printed)?;
    let mut table = figure_5(&squid, &others, days.small_share());
    let label = "squidl saves of Squid's I/O, its two masks of the same bits, as printed (§2.4.1)";
    let value = saved(squid.io.total(), as_printed.io.total());
    table.row(label, "%", Published::About(50.0), value);
    tables.push(table);
    tables.extend([figure_6(&days), figure_7(options, &days, &trace)?, of_the_text(&days)]);
    let own = DesignOptions { memory_bytes: days.footprint_bytes / 16, ..ignore };
    let run = RunOptions { warmup: days.warmup, ..RunOptions::default() };
    let (requests, what) = (&days.requests[..], "every design on squid's trace");
    let play = Play { requests, names: trace.names, run, what };
    let rows = beside::all(options, play, &config(days.footprint_bytes, false), &own)?;
    tables.push(beside::exhibit("the second half of the trace", &rows, WHY_STORE));
    Ok(tables)
}

const WHY_STORE: &str = "Ours alone. All have the same memory. The store writes pages and extents \
    one after the other and keeps no metadata on disk that a miss would have to change; what is \
    left of its disk time are the bytes themselves, and reads of what memory does not hold.";

fn figure_1(days: &Days) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 1",
        "Sizes of referenced objects",
        "It depends on who asked, and of a synthetic workload on its parameters; every design is \
         sensitive to this share.",
    );
    let sized = || days.requests.iter().filter(|r| r.has_body());
    let total = sized().count().max(1) as f64;
    let below =
        |limit: u64| sized().filter(|r| r.size_bytes <= limit).count() as f64 * 100.0 / total;
    table.row("references to at most 8 KB", "%", Published::Value(74.0), below(SMALL_BYTES));
    let points = (9..21).map(|power| ((1_u64 << power) as f64, below(1 << power))).collect();
    table.axes("size of the object", "percent of references");
    table.x_unit = Unit::Bytes;
    table.series("cumulative %", points);
    table
}

/// How many different hosts were asked for since the same host was.
pub(super) fn figure_2(days: &Days) -> Exhibit {
    let mut recent: Vec<u32> = Vec::new();
    let mut counts = [0_u64; 11];
    for (at, request) in days.requests.iter().enumerate() {
        let found = recent.iter().rev().take(1 << 10).position(|&host| host == request.host);
        if at >= days.warmup {
            let bin = found.map_or(10, |depth| (depth as f64 + 1.0).log2() as usize).min(10);
            counts[bin] += 1;
        }
        if let Some(depth) = found {
            recent.remove(recent.len() - 1 - depth);
        }
        recent.push(request.host);
        if recent.len() > 1 << 11 {
            recent.drain(..1 << 10);
        }
    }
    let total = counts.iter().sum::<u64>().max(1) as f64;
    let mut sum = 0;
    let points = counts[..10]
        .iter()
        .enumerate()
        .map(|(bin, count)| {
            sum += count;
            ((1_u64 << (bin + 1)) as f64, sum as f64 * 100.0 / total)
        })
        .collect();
    let mut table = Exhibit::new(
        "figure 2",
        "Locality of server names",
        "A picture in the paper. Shown is the share of requests whose host is among so many hosts asked \
         for last.",
    );
    let near = counts[..3].iter().sum::<u64>() as f64 * 100.0 / total;
    table.row("host among the last 7", "%", Published::Picture, near);
    table.axes("hosts asked for last", "percent of requests");
    table.series("cumulative % by LRU depth of hosts", points);
    table
}

const WHY_CERN: &str = "The paper finds the two surprisingly similar, on AdvFS, which logs \
    metadata. The lab's UFS writes metadata at once, and CERN makes and removes a lock and \
    rewrites metadata with every miss, so it writes more. It reads no less than Squid, and more \
    than SquidL of every kind: of data its files of metadata besides the objects, and the inodes \
    of all these. That CERN keeps hosts together, which the paper takes to be the reason, can \
    save reads of directories and inodes only, of which Squid has few here, since its directories \
    fit in memory.";

fn figure_4(cern: &Report, squid: &Report, squidl: &Report) -> Exhibit {
    let mut table = Exhibit::new("figure 4", "Disk I/O of CERN and Squid", WHY_CERN);
    let ratio = cern.io.total() as f64 / squid.io.total().max(1) as f64;
    table.row("I/O of CERN over Squid", "times", Published::About(1.0), ratio);
    let reads =
        |r: &Report| 100.0 * r.io.requests_of(Direction::Read) as f64 / r.io.total().max(1) as f64;
    table.row("share of reads, Squid", "%", Published::Value(33.0), reads(squid));
    table.row("share of reads, CERN", "%", Published::Value(33.0), reads(cern));
    for (name, report) in [("CERN", cern), ("Squid", squid)] {
        for (label, direction) in [("reads", Direction::Read), ("writes", Direction::Write)] {
            let count = report.io.requests_of(direction) as f64;
            table.row(format!("{name}, {label}"), "requests", Published::Picture, count);
        }
    }
    // What is read, and what locality of hosts spares SquidL of it.
    for (name, report) in [("CERN", cern), ("Squid", squid), ("SquidL", squidl)] {
        for (what, kind) in FILE_KINDS {
            let count = report.io.requests(Direction::Read, kind) as f64;
            table.row(format!("{name}, reads of {what}"), "requests", Published::Ours, count);
        }
    }
    table.row("hit rate", "%", Published::Value(59.0), squid.hit_percent());
    table
}

pub(super) fn saved(before: u64, after: u64) -> f64 {
    100.0 * (1.0 - after as f64 / before.max(1) as f64)
}

fn mean_kb(report: &Report, kinds: &[Kind]) -> f64 {
    let both = [Direction::Read, Direction::Write];
    let each = || both.iter().flat_map(|d| kinds.iter().map(move |k| (*d, *k)));
    let bytes: u64 = each().map(|(d, k)| report.io.bytes(d, k)).sum();
    let requests: u64 = each().map(|(d, k)| report.io.requests(d, k)).sum();
    bytes as f64 / 1024.0 / requests.max(1) as f64
}

const FILE_KINDS: [(&str, Kind); 4] = [
    ("data", Kind::Data),
    ("inodes", Kind::Inode),
    ("directories", Kind::Directory),
    ("maps", Kind::Allocation),
];

fn file_requests(report: &Report) -> u64 {
    report.io.total()
        - report.io.requests(Direction::Read, Kind::Page)
        - report.io.requests(Direction::Write, Kind::Page)
}

const WHY_VARIANTS: &str = "The order is the paper's, but SquidL saves less than its half: Squid's \
    directories, scaled with memory as the paper's stood to its own, stay in memory, so that \
    hosts that lie together spare no reads of them. What it saves are late writes of inodes, maps \
    and data, which go out together where they are neighbours; each create writes its inode and a \
    block of its directory at once, in SquidL as in Squid. One disk holds all files where the paper had three, so durations are longer \
    relative to I/O; page cleaning sees fewer adjacent dirty pages the slower the requests come. \
    Of small objects' I/O: the paper takes it that large objects' stays as it was and is as large \
    a share as that of their references, and so do the first two rows. By what goes to files once \
    small objects are mapped, large ones cost more than their share, and nearly all I/O of small \
    ones is saved.";

fn figure_5(squid: &Report, others: &[(&str, Report)], small_share: f64) -> Exhibit {
    let mut table =
        Exhibit::new("figure 5", "Disk I/O and duration of Squid and its variants", WHY_VARIANTS);
    let total = squid.io.total();
    table.row("Squid", "requests", Published::Picture, total as f64);
    let published = |name: &str| match name {
        "squidl" => Published::About(50.0),
        "squidm" => Published::Value(60.0),
        _ => Published::AtLeast(70.0),
    };
    for (name, report) in others {
        let value = saved(total, report.io.total());
        table.row(format!("{name} saves of Squid's I/O"), "%", published(name), value);
    }
    // What locality of hosts saves, and what not.
    for (name, report) in [("squid", squid), ("squidl", &others[0].1)] {
        for (what, kind) in FILE_KINDS {
            let count = report.io.requests(Direction::Write, kind) as f64;
            table.row(format!("{name}, writes of {what}"), "requests", Published::Ours, count);
        }
    }
    // Part (a): what goes to files, and what to the mapped file.
    for (name, report) in others {
        let files = file_requests(report);
        table.row(format!("{name}, to files"), "requests", Published::Picture, files as f64);
        let mapped = (report.io.total() - files) as f64;
        table.row(format!("{name}, to the mapped file"), "requests", Published::Picture, mapped);
    }
    for (name, report) in others {
        let value = saved(squid.elapsed_ns, report.elapsed_ns);
        table.row(format!("{name} saves of Squid's time"), "%", Published::Picture, value);
    }
    add_transfers(&mut table, squid, others);
    add_small_objects(&mut table, squid, others, small_share);
    table
}

fn add_transfers(table: &mut Exhibit, squid: &Report, others: &[(&str, Report)]) {
    let of_files = FILE_KINDS.map(|(_, kind)| kind);
    for (where_to, report, kinds, published) in [
        ("Squid's files", squid, &of_files[..], 8.0),
        ("SquidL's files", &others[0].1, &of_files, 10.0),
        ("SquidM's mapped file", &others[1].1, &[Kind::Page], 21.0),
        ("SquidML's mapped file", &others[2].1, &[Kind::Page], 21.0),
    ] {
        let label = format!("transfer to {where_to}");
        table.row(label, "KB", Published::Value(published), mean_kb(report, kinds));
    }
}

/// §5. The paper assumes that large objects keep their share of the I/O, that of their references,
/// so that what is saved is saved of the rest. Ours measures what large objects cost besides: all
/// that goes to files once small ones are mapped.
fn add_small_objects(
    table: &mut Exhibit,
    squid: &Report,
    others: &[(&str, Report)],
    small_share: f64,
) {
    let pairs = [
        (squid, &others[1].1, "SquidM", Published::Value(85.0)),
        (&others[0].1, &others[2].1, "SquidML", Published::About(63.0)),
    ];
    for (plain, mapped, name, published) in pairs {
        let saved = saved(plain.io.total(), mapped.io.total()) / small_share;
        let label = format!("{name} saves of the I/O of small objects (§5)");
        table.row(label, "%", published, saved);
    }
    for (plain, mapped, name, _) in pairs {
        let large = file_requests(mapped);
        let small_before = plain.io.total().saturating_sub(large);
        let value = saved(small_before, mapped.io.total() - large);
        let label = format!("{name} saves of it, large objects as measured");
        table.row(label, "%", Published::Ours, value);
    }
}
