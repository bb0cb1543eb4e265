//! Reducing the disk I/O of proxies (Maltzahn, Richardson and Grunwald 1999), figures 1, 2, 4 to 7.
//!
//! The first half of the trace warms up, the second is measured (§4). Memory is scaled with what the
//! trace holds: the paper's machine had 512 MB for 8 GB of objects. Threads: one user.

use super::beside;
use super::workload::{check_length, requests as workload};
use super::{Exhibit, PaperError, PaperOptions, Published, Trace, in_what};
use crate::design::{Changes, Context, DesignOptions, find};
use crate::disk::{Direction, Drive};
use crate::fs::FfsParams;
use crate::lru::NumberMap;
use crate::machine::{Kind, Machine, MachineConfig, Report, RunOptions, run as play};
use crate::output::Unit;
use crate::request::Request;
use crate::vm::VmParams;

const SYNTHETIC_REQUESTS: usize = 400_000;
const SMALL_BYTES: u64 = 8 << 10;
const NEEDED: usize = 1_000;

/// A trace with its first half as warm-up, objects of one size each.
struct Days {
    requests: Vec<Request>,
    warmup: usize,
    footprint_bytes: u64,
}

fn days(requests: &[Request]) -> Days {
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

fn drive() -> Drive {
    Drive::named("atlas-10k").expect("a drive of the registry")
}

fn config(footprint_bytes: u64, mapped: bool) -> MachineConfig {
    // A sixteenth of what the trace holds; a mapped file shares it with the buffers.
    let memory_bytes = (footprint_bytes / 16).max(1 << 20);
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

fn measure(
    name: &str,
    days: &Days,
    trace: &Trace<'_>,
    config: &MachineConfig,
    options: &DesignOptions,
) -> Result<Report, PaperError> {
    let context = Context { options, requests: &days.requests, drive: &config.drive };
    let mut design = (find(name).expect("a design of the registry").make)(&context);
    let mut machine = Machine::new(config);
    let run = RunOptions { warmup: days.warmup, ..RunOptions::default() };
    play(&mut *design, &mut machine, &days.requests, trace.names, run)
        .map_err(in_what("the designs of squid"))
}

/// Measures figures 1, 2, 4, 5, 6 and 7.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let mut made = None;
    let trace = workload(options, SYNTHETIC_REQUESTS, &mut made)?;
    check_length(&trace, NEEDED)?;
    let days = days(trace.requests);
    let mut tables = vec![figure_1(&days), figure_2(&days)];
    let ignore = DesignOptions { changes: Changes::Ignore, ..DesignOptions::default() };
    let one = |name: &str| {
        let mapped = name.starts_with("squidm");
        measure(name, &days, &trace, &config(days.footprint_bytes, mapped), &ignore)
    };
    let (cern, squid) = (one("cern")?, one("squid")?);
    tables.push(figure_4(&cern, &squid));
    let others = ["squidl", "squidm", "squidml", "squidmla"]
        .iter()
        .map(|name| Ok((*name, one(name)?)))
        .collect::<Result<Vec<_>, PaperError>>()?;
    tables.push(figure_5(&squid, &others));
    tables.push(figure_6(&days));
    tables.push(figure_7(&days, &trace)?);
    let own = DesignOptions { memory_bytes: days.footprint_bytes / 16, ..ignore.clone() };
    let store = measure("store", &days, &trace, &config(days.footprint_bytes, false), &own)?;
    let mut rows = vec![("cern".to_owned(), &cern), ("squid".to_owned(), &squid)];
    rows.extend(others.iter().map(|(name, report)| ((*name).to_owned(), report)));
    rows.push(("store".to_owned(), &store));
    tables.push(beside::exhibit("the second half of the trace", &rows, WHY_STORE));
    Ok(tables)
}

const WHY_STORE: &str = "Ours alone. All have the same memory. The store writes pages and extents one after the \
other and keeps no metadata on disk that a miss would have to change; what is left of its disk time are the \
bytes themselves, and reads of what memory does not hold.";

fn figure_1(days: &Days) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 1",
        "Sizes of referenced objects",
        "Clients of 1995 and of 1998 asked for different things, and a synthetic workload for what its \
         parameters say; every design is sensitive to this share.",
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
fn figure_2(days: &Days) -> Exhibit {
    let mut recent: Vec<u32> = Vec::new();
    let mut counts = [0_u64; 11];
    for (at, request) in days.requests.iter().enumerate() {
        let found = recent.iter().rev().take(1 << 10).position(|&host| host == request.host);
        if at > days.warmup {
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

fn figure_4(cern: &Report, squid: &Report) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 4",
        "Disk I/O of CERN and Squid",
        "The paper finds the two surprisingly similar, on AdvFS, which logs metadata. The lab's UFS writes \
         metadata at once, and CERN makes and removes a lock and rewrites metadata with every miss, so it \
         writes more; it reads as little as SquidL for the reason the paper gives, that it keeps hosts \
         together.",
    );
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
    table.row("hit rate", "%", Published::Value(59.0), squid.hit_percent());
    table
}

fn saved(before: u64, after: u64) -> f64 {
    100.0 * (1.0 - after as f64 / before.max(1) as f64)
}

fn mean_kb(report: &Report, kinds: &[Kind]) -> f64 {
    let both = [Direction::Read, Direction::Write];
    let each = || both.iter().flat_map(|d| kinds.iter().map(move |k| (*d, *k)));
    let bytes: u64 = each().map(|(d, k)| report.io.bytes(d, k)).sum();
    let requests: u64 = each().map(|(d, k)| report.io.requests(d, k)).sum();
    bytes as f64 / 1024.0 / requests.max(1) as f64
}

const FILE_KINDS: [Kind; 4] = [Kind::Data, Kind::Inode, Kind::Directory, Kind::Allocation];

fn file_requests(report: &Report) -> u64 {
    report.io.total()
        - report.io.requests(Direction::Read, Kind::Page)
        - report.io.requests(Direction::Write, Kind::Page)
}

fn figure_5(squid: &Report, others: &[(&str, Report)]) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 5",
        "Disk I/O and duration of Squid and its variants",
        "Each variant saves what the paper says, in the paper's order, with sizes and host locality of \
         our trace. One disk holds all files where the paper had three, so durations are longer \
         relative to I/O; page cleaning sees fewer adjacent dirty pages the slower the requests come.",
    );
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
    let pages = |r: &Report| mean_kb(r, &[Kind::Page]);
    table.row(
        "transfer to Squid's files",
        "KB",
        Published::Value(8.0),
        mean_kb(squid, &FILE_KINDS),
    );
    table.row(
        "transfer to SquidL's files",
        "KB",
        Published::Value(10.0),
        mean_kb(&others[0].1, &FILE_KINDS),
    );
    table.row(
        "transfer to SquidM's mapped file",
        "KB",
        Published::Value(21.0),
        pages(&others[1].1),
    );
    table.row(
        "transfer to SquidML's mapped file",
        "KB",
        Published::Value(21.0),
        pages(&others[2].1),
    );
    // The paper's arithmetic: what large objects cost is as before; the rest is what mapping saves.
    for (mapped, plain, name, value) in
        [(&others[1].1, squid, "SquidM", 85.0), (&others[2].1, &others[0].1, "SquidML", 63.0)]
    {
        let large = file_requests(mapped);
        let small_before = plain.io.total().saturating_sub(large);
        let small_after = mapped.io.total() - large;
        let label = format!("{name} saves of the I/O of small objects");
        table.row(label, "%", Published::Value(value), saved(small_before, small_after));
    }
    table
}

/// Hits by place in the mapped file of SquidMLA, all in memory.
fn figure_6(days: &Days) -> Exhibit {
    let mut segments = crate::design::PackedFile::new();
    let mut places: NumberMap<u64, u64> = NumberMap::default();
    let mut hits: Vec<u64> = Vec::new();
    for (at, request) in days.requests.iter().enumerate() {
        if request.size_bytes > SMALL_BYTES {
            continue;
        }
        match places.get(&request.key) {
            Some(&offset) if at >= days.warmup => hits.push(offset),
            Some(_) => {}
            None if !request.has_body() => {}
            None => {
                places.insert(request.key, segments.place(request.size_bytes));
            }
        }
    }
    let end = segments.end_bytes().max(1) as f64;
    let share = |part: f64| {
        let below = hits.iter().filter(|&&offset| (offset as f64) < end * part).count();
        100.0 * below as f64 / hits.len().max(1) as f64
    };
    let mut table = Exhibit::new(
        "figure 6",
        "Hits over the mapped file",
        "Popular objects are missed first and so lie first. The longer a trace and the more its popular \
         objects change, the weaker this is: ours is of a hundred days where the paper's is of two.",
    );
    table.row("hits in the first quarter", "%", Published::Value(70.0), share(0.25));
    table.axes("percent of the mapped file", "percent of hits");
    table.series(
        "cumulative %",
        (1..=10).map(|i| (f64::from(i) * 10.0, share(f64::from(i) / 10.0))).collect(),
    );
    table
}

fn figure_7(days: &Days, trace: &Trace<'_>) -> Result<Exhibit, PaperError> {
    let small: Vec<Request> =
        days.requests.iter().filter(|r| r.size_bytes <= SMALL_BYTES).copied().collect();
    let mut seen: NumberMap<u64, ()> = NumberMap::default();
    let unique: u64 =
        small.iter().filter(|r| seen.insert(r.key, ()).is_none()).map(|r| r.size_bytes).sum();
    let days = Days { warmup: small.len() / 2, requests: small, footprint_bytes: unique };
    // 160 MB of file for what we take to be 0.9 GB of small objects, 24 MB of memory (§4).
    let cache_bytes = (unique * 18 / 100).max(64 << 10) / SMALL_BYTES * SMALL_BYTES;
    let mut config = config(unique, true);
    config.mapped.memory_bytes = (cache_bytes * 15 / 100).max(32 << 10);
    let options =
        DesignOptions { cache_bytes, changes: Changes::Ignore, ..DesignOptions::default() };
    let one = |name: &str| measure(name, &days, trace, &config, &options);
    let (lru, fbc, future) = (one("mmap-lru")?, one("mmap-fbc")?, one("mmap-future")?);
    let mut table = Exhibit::new(
        "figure 7",
        "Replacement in a mapped file",
        "Pictures in the paper, but for what the text says: LRU needs most I/O, FBC less without a lower hit \
         rate, and saves more time than I/O. The looking-ahead bound keeps only what is asked for again, so \
         its hit rate depends on how much of the trace is.",
    );
    for (name, report) in [("LRU", &lru), ("FBC", &fbc), ("future", &future)] {
        table.row(format!("{name}, hit rate"), "%", Published::Picture, report.hit_percent());
        table.row(
            format!("{name}, disk I/O"),
            "requests",
            Published::Picture,
            report.io.total() as f64,
        );
        let seconds = report.elapsed_ns as f64 / 1e9;
        table.row(format!("{name}, duration"), "s", Published::Picture, seconds);
    }
    table.row(
        "FBC saves of LRU's I/O",
        "%",
        Published::Picture,
        saved(lru.io.total(), fbc.io.total()),
    );
    table.row(
        "FBC saves of LRU's time",
        "%",
        Published::Picture,
        saved(lru.elapsed_ns, fbc.elapsed_ns),
    );
    let change = fbc.hit_percent() - lru.hit_percent();
    table.row("FBC's hit rate less LRU's", "points", Published::Value(0.0), change);
    Ok(table)
}
