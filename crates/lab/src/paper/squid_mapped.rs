//! Reducing the disk I/O of proxies (Maltzahn, Richardson and Grunwald 1999), the mapped file:
//! figures 6 and 7, and numbers that only the text has.
//!
//! Threads: one user.

use super::squid::{Days, SMALL_BYTES, config, design_options, measure, saved};
use super::{Exhibit, PaperError, PaperOptions, Published, Trace};
use crate::design::{Changes, DesignOptions, MappedFile, Masks, directory_of_host};
use crate::lru::NumberMap;
use crate::machine::Report;
use crate::request::Request;
use crate::trace::popularity_slope;

const WHY_REPLACEMENT: &str = "Pictures in the paper, but for what the text says: LRU needs most \
    I/O, FBC less without a lower hit rate, and saves more time than I/O. Of looking ahead §7 \
    says that it allows \"an additional 10% reduction\", not of what. Here it saves far more than \
    that of FBC's I/O: it stores nothing that is asked for only once, each of which costs FBC a \
    page that is read, changed and written, and it lays the most popular objects on the first \
    pages, which stay in memory. The last row is the first of the two alone: FBC over the \
    requests for what is asked for again.";

/// Hits by place in the mapped file of SquidMLA, all in memory.
pub(super) fn figure_6(days: &Days) -> Exhibit {
    let mut segments = MappedFile::packed();
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
         objects change, the weaker this is.",
    );
    table.row("hits in the first quarter", "%", Published::Value(70.0), share(0.25));
    let times = || days.requests.iter().map(|request| request.time_us);
    let span_us = times().max().unwrap_or(0) - times().min().unwrap_or(0);
    table.row("length of the trace", "days", Published::Value(2.0), span_us as f64 / 86_400e6);
    table.axes("percent of the mapped file", "percent of hits");
    table.series(
        "cumulative %",
        (1..=10).map(|i| (f64::from(i) * 10.0, share(f64::from(i) / 10.0))).collect(),
    );
    table
}

/// Requests, halved as they were, without those for what is asked for only once.
fn asked_again(requests: &[Request]) -> Days {
    let mut counts: NumberMap<u64, u32> = NumberMap::default();
    requests.iter().for_each(|request| *counts.entry(request.key).or_insert(0) += 1);
    let is_again = |request: &&Request| counts[&request.key] > 1;
    let warmup = requests[..requests.len() / 2].iter().filter(is_again).count();
    Days {
        requests: requests.iter().filter(is_again).copied().collect(),
        warmup,
        footprint_bytes: 0,
    }
}

pub(super) fn figure_7(
    paper: &PaperOptions<'_>,
    days: &Days,
    trace: &Trace<'_>,
) -> Result<Exhibit, PaperError> {
    let small: Vec<Request> =
        days.requests.iter().filter(|r| r.size_bytes <= SMALL_BYTES).copied().collect();
    let again = asked_again(&small);
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
    let one = |name: &str, days: &Days| measure(paper, name, days, trace, &config, &options);
    let [lru, fbc, future] =
        [one("mmap-lru", &days)?, one("mmap-fbc", &days)?, one("mmap-future", &days)?];
    let fbc_again = one("mmap-fbc", &again)?;
    let mut table = Exhibit::new("figure 7", "Replacement in a mapped file", WHY_REPLACEMENT);
    for (name, report) in [("LRU", &lru), ("FBC", &fbc), ("future", &future)] {
        let (requests, seconds) = (report.io.total() as f64, report.elapsed_ns as f64 / 1e9);
        table.row(format!("{name}, hit rate"), "%", Published::Picture, report.hit_percent());
        table.row(format!("{name}, disk I/O"), "requests", Published::Picture, requests);
        table.row(format!("{name}, duration"), "s", Published::Picture, seconds);
    }
    let io = |before: &Report, after: &Report| saved(before.io.total(), after.io.total());
    let time = saved(lru.elapsed_ns, fbc.elapsed_ns);
    table.row("FBC saves of LRU's I/O", "%", Published::Picture, io(&lru, &fbc));
    table.row("FBC saves of LRU's time", "%", Published::Picture, time);
    table.row("future saves of FBC's I/O (§7)", "%", Published::Value(10.0), io(&fbc, &future));
    let change = fbc.hit_percent() - lru.hit_percent();
    table.row("FBC's hit rate less LRU's", "points", Published::Value(0.0), change);
    let label = "FBC without what is asked for once saves of its I/O";
    table.row(label, "%", Published::Ours, io(&fbc, &fbc_again));
    Ok(table)
}

const WHY_TEXT: &str = "Exponents of popularity are those that the paper cites for traces of \
    proxies; ours is a fit over the objects asked for at least twice. The paper's trace has a \
    million requests, and all of Squid's 4,096 directories; ours are scaled with memory. An object is counted as lying across pages \
    by its own bytes, not by those of its segment.";

/// Numbers that are in the text and in no figure.
pub(super) fn of_the_text(days: &Days) -> Exhibit {
    let mut table = Exhibit::new("§2, §5", "What only the text has", WHY_TEXT);
    let mut counts: NumberMap<u64, u32> = NumberMap::default();
    days.requests.iter().for_each(|request| *counts.entry(request.key).or_insert(0) += 1);
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // A trace of nothing popular has no slope.
    if let Some((slope, _)) = popularity_slope(&counts) {
        let published = Published::Range(0.64, 0.83);
        table.row("exponent of popularity (§2.2)", "1", published, slope);
    }
    let what = "directories of SquidL with over 1,000 files (§2.4.1)";
    table.row(what, "directories", Published::About(30.0), full_directories(days) as f64);
    let (objects, hits) = across_pages(days);
    table.row("cached objects across pages (§5)", "%", Published::Value(32.0), objects);
    table.row("hits of objects across pages (§5)", "%", Published::Value(30.0), hits);
    table
}

/// §2.4.1: directories of SquidL that many objects share in the end.
fn full_directories(days: &Days) -> usize {
    let mut seen: NumberMap<u64, ()> = NumberMap::default();
    let mut files: NumberMap<u64, u64> = NumberMap::default();
    let second_level = design_options(days.footprint_bytes).squid_second_level;
    let stored = days.requests.iter().filter(|request| request.has_body());
    for request in stored {
        if seen.insert(request.key, ()).is_none() {
            let directory = directory_of_host(second_level, request.host, Masks::Apart);
            *files.entry(u64::from(directory)).or_insert(0) += 1;
        }
    }
    files.into_values().filter(|files| *files > FULL_FILES).count()
}

const FULL_FILES: u64 = 1_000;

/// §5: of the objects that SquidM and SquidML map, and of the hits of the second half, in percent:
/// how many lie on two pages.
fn across_pages(days: &Days) -> (f64, f64) {
    let mut file = MappedFile::contiguous();
    let mut across: NumberMap<u64, bool> = NumberMap::default();
    let (mut hits, mut hits_across) = (0_u64, 0_u64);
    for (at, request) in days.requests.iter().enumerate() {
        if request.size_bytes > SMALL_BYTES {
            continue;
        }
        if let Some(&is_across) = across.get(&request.key) {
            if at >= days.warmup {
                hits += 1;
                hits_across += u64::from(is_across);
            }
        } else if request.has_body() {
            let offset = file.place(request.size_bytes);
            let last = offset + request.size_bytes - 1;
            across.insert(request.key, offset / SMALL_BYTES != last / SMALL_BYTES);
        }
    }
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let objects_across = across.values().filter(|is_across| **is_across).count() as u64;
    (percent(objects_across, across.len() as u64), percent(hits_across, hits))
}
