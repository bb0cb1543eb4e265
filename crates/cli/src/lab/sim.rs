//! `damelo lab sim TRACE [TYPE] POLICIES SIZES`: miss ratios of policies at sizes. Results go to
//! standard output and are deterministic for a command; the speed goes to stderr.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use damelo::ByteSize;
use damelo_lab::output::{LineChart, Manifest, Report, Series, Table, TraceIdentity, Unit};
use damelo_lab::policy::{PolicySpec, Tally};
use damelo_lab::sim::{CacheResult, SimOptions, SimReport, SizeSpec, Warmup, simulate};
use damelo_lab::trace::Trace;
use serde_json::json;

use super::manifest::{NewPage, Read, manifest};
use super::reading::{ReadArgs, Reading, TOO_MANY_BYTES, check_times, is_too_many, remarks_of};
use crate::failure::Failure;
use crate::output::{Out, say, thousands};

const AFTER_HELP: &str = "\
TRACE     a file, or gen:NAME?seed=1&requests=100000
TYPE      its form, where users of libCacheSim write it: auto, csv, txt, oracleGeneral, squid, ...
POLICIES  lru,s3-fifo,fbc:cmax=5 and so on; `damelo lab policies` lists them
SIZES     64MiB,1GiB; 0.01,0.1 of the working set; auto

`belady` keeps 4 bytes for each request in a file without a name while it runs, in the directory
that TMPDIR names.

Examples:
  damelo lab sim access.log lru,s3-fifo,gdsf auto
  damelo lab sim t.oracleGeneral.zst lru,belady 0.01,0.1 --html report.html
  damelo lab sim t.csv csv lru 1gb -t time-col=1,obj-id-col=2,obj-size-col=3
  damelo lab sim t.txt txt sieve 1000,16000 --ignore-obj-size";

/// Miss ratios of replacement policies.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Sim {
    /// A file, or gen:NAME
    pub(super) trace: String,
    // One argument each, so that options may stand between them.
    /// Policies; or the trace's TYPE, and then POLICIES SIZES
    #[arg(value_name = "POLICIES")]
    second: String,
    /// Sizes
    #[arg(value_name = "SIZES")]
    third: String,
    #[arg(hide = true)]
    fourth: Option<String>,
    #[command(flatten)]
    read: ReadArgs,
    /// Count every object as one: sizes are numbers of objects
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false",
          hide_default_value = true, value_name = "BOOL", value_parser = truth)]
    ignore_obj_size: bool,
    /// Leave the first S seconds of the trace out of the count
    #[arg(long, value_name = "S", conflicts_with = "warmup_req")]
    warmup_sec: Option<u64>,
    /// Leave the first N requests out of the count (warm-up)
    #[arg(long, value_name = "N")]
    warmup_req: Option<u64>,
    /// Also print counts for every S seconds of the trace
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    report_interval: Option<u64>,
    /// Threads; 0, or if not given, one for each processor
    #[arg(long, alias = "threads", value_name = "N")]
    num_thread: Option<usize>,
    // Words of libCacheSim's `cachesim` that say here what to write instead.
    #[arg(long, short = 'e', hide = true, value_name = "PARAMETERS", value_parser = no_eviction_params)]
    eviction_params: Option<Never>,
    #[arg(long, short = 'o', hide = true, value_name = "FILE", value_parser = no_output)]
    output: Option<Never>,
    #[arg(long, hide = true, value_name = "SHARE", value_parser = no_sample_ratio)]
    sample_ratio: Option<Never>,
    /// Print as JSON, with the manifest of the run
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print as CSV, the manifest of the run before it as a comment
    #[arg(long)]
    csv: bool,
    /// Write a report with curves to this file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// What an option has that is always refused.
#[derive(Debug, Clone)]
enum Never {}

fn no_eviction_params(_: &str) -> Result<Never, String> {
    Err("parameters stand behind the policy's name here, as in fbc:cmax=5:amax=50; `damelo lab \
         policies` lists them"
        .to_owned())
}

fn no_output(_: &str) -> Result<Never, String> {
    Err("results go to standard output: write `> FILE`, with --json or --csv; --html FILE writes \
         a report"
        .to_owned())
}

fn no_sample_ratio(_: &str) -> Result<Never, String> {
    Err("a sample is a trace of its own here: `damelo lab trace sample TRACE OUT --share 0.1 --by \
         object`, and then sizes times the share"
        .to_owned())
}

fn truth(given: &str) -> Result<bool, String> {
    match given.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" => Ok(true),
        "false" | "0" | "no" | "n" => Ok(false),
        _ => {
            Err("write true or false: the word behind the switch is its value, so before another \
                  one write --ignore-obj-size=true"
                .to_owned())
        }
    }
}

/// Tables from this length on are mapped by themselves; batches of requests stay below it: with
/// several caches, and with one.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TABLE_BYTES_MIN: [libc::c_int; 2] = [288 << 10, 72 << 10];

/// Has the allocator give back at once what large tables leave when they grow. By itself glibc
/// stops that as soon as one of them was freed, and keeps up to as much as is in use.
fn keep_tables_apart(is_one_cache: bool) {
    let _ = is_one_cache;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: both are settings of the allocator, which takes them at any time; a refusal changes
    // nothing.
    unsafe {
        let bytes = TABLE_BYTES_MIN[usize::from(is_one_cache)];
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * bytes);
    }
}

/// Simulates and prints.
pub(crate) fn run(args: &Sim) -> Result<(), Failure> {
    let name = &args.trace;
    let (trace_type, policies, sizes) = match &args.fourth {
        None => (None, &args.second, &args.third),
        Some(sizes) => (Some(args.second.as_str()), &args.third, sizes),
    };
    let read = args.read.options(trace_type)?;
    let options = options(args, policies, sizes)?;
    keep_tables_apart(options.is_one_cache());
    let new_page = NewPage::begin(args.html.as_deref(), &[Read::Trace(name)])?;
    let open = || Trace::open(name, &read);
    // Most traces without times are known before they are read, the others behind that.
    let by_time = by_time(args);
    by_time.map_or(Ok(()), |option| check_times(name, open()?.has_times(), option))?;
    let mut passes: BTreeMap<u32, Reading> = BTreeMap::new();
    let start = Instant::now();
    let mut before = start;
    let report = simulate(&open, &options, &mut |pass, trace, requests| {
        // A pass says something only after its first batch, and began where the one before ended.
        passes.entry(pass).or_insert_with(|| Reading::of(trace).since(before)).set(requests);
        before = Instant::now();
    })?;
    let seconds = start.elapsed().as_secs_f64();
    drop(passes);
    by_time.map_or(Ok(()), |option| check_times(name, report.has_times, option))?;
    if report.requests > 0 && report.warmup_requests + report.delete_requests == report.requests {
        let count = thousands(report.requests);
        let what = if report.delete_requests > 0 { "warm-up or deletes" } else { "warm-up" };
        return Err(Failure::Usage(format!(
            "nothing is left to measure: all {count} requests are {what}"
        )));
    }
    let is_kept = args.json || args.csv || args.html.is_some();
    let manifest = manifest(TraceIdentity::of(&open()?).without(&report.skipped), is_kept)?;
    let printed = print(args, &report, &manifest);
    if let Some(new_page) = new_page {
        new_page.write(&page(args, &report, &manifest))?;
    }
    printed?;
    remarks_of(&manifest.trace, &report.skipped);
    for warning in warnings(&options, &report) {
        say(format_args!("damelo: {warning}"));
    }
    let runs = report.caches.len().max(1);
    let caches = if runs == 1 { "cache" } else { "caches" };
    say(format_args!(
        "damelo: {} requests through {runs} {caches} in {seconds:.2} s, {:.2} million a second",
        thousands(report.requests),
        report.requests as f64 * runs as f64 / seconds / 1e6
    ));
    Ok(())
}

/// An option that goes by times.
fn by_time(args: &Sim) -> Option<&'static str> {
    let warmup = args.warmup_sec.filter(|s| *s > 0).map(|_| "--warmup-sec");
    warmup.or_else(|| args.report_interval.map(|_| "--report-interval"))
}

fn options(args: &Sim, policies: &str, sizes: &str) -> Result<SimOptions, Failure> {
    let policies = PolicySpec::parse_list(policies)?;
    if policies.is_empty() {
        return Err(Failure::Usage("name at least one policy".to_owned()));
    }
    let warmup = match (args.warmup_sec, args.warmup_req) {
        (Some(s), _) => Warmup::Seconds(s),
        (None, Some(requests)) => Warmup::Requests(requests),
        (None, None) => Warmup::None,
    };
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(SimOptions {
        policies,
        sizes: SizeSpec::parse_list(sizes)?,
        ignores_sizes: args.ignore_obj_size,
        warmup,
        interval_s: args.report_interval,
        threads: args.num_thread.filter(|n| *n > 0).unwrap_or_else(all),
    })
}

fn print(args: &Sim, report: &SimReport, manifest: &Manifest) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "manifest": manifest,
            "requests": report.requests,
            "warmup_requests": report.warmup_requests,
            "delete_requests": report.delete_requests,
            "empty_requests": report.empty_requests,
            "skipped": report.skipped.count,
            "objects": report.objects,
            "working_set": report.working_set,
            "caches": report.caches.iter().map(cache_json).collect::<Vec<_>>(),
        }))?;
    } else if args.csv {
        out.bytes(manifest.csv_comment().as_bytes())?;
        out.bytes(exact_table(args, report, &manifest.trace).csv().as_bytes())?;
    } else {
        for line in facts(args, report, manifest) {
            out.line(format_args!("{line}"))?;
        }
        out.bytes(table(args, report).text().as_bytes())?;
        if args.report_interval.is_some() {
            out.line(format_args!(""))?;
            out.bytes(interval_table(args, report).text().as_bytes())?;
        }
    }
    out.finish()
}

fn cache_json(cache: &CacheResult) -> serde_json::Value {
    json!({
        "policy": cache.policy,
        "size": cache.size_bytes,
        "size_share": cache.size_share,
        "requests": cache.tally.requests,
        "misses": cache.tally.misses,
        "bytes": cache.tally.bytes,
        "miss_bytes": cache.tally.miss_bytes,
        "miss_ratio": cache.tally.miss_ratio(),
        "byte_miss_ratio": cache.tally.byte_miss_ratio(),
        "objects_at_end": cache.objects,
        "used_at_end": cache.used_bytes,
        "intervals": cache.intervals,
    })
}

fn facts(args: &Sim, report: &SimReport, manifest: &Manifest) -> Vec<String> {
    let trace = &manifest.trace;
    let synthetic = if trace.synthetic { ", synthetic" } else { "" };
    let mut lines = vec![format!(
        "{} ({}{synthetic}): {} requests, {} objects",
        trace.name,
        trace.format,
        thousands(report.requests),
        thousands(report.objects)
    )];
    lines.extend(trace.words_of_left_out());
    lines.extend(trace.notes.iter().cloned());
    if let Some(working_set) = report.working_set {
        lines.push(format!("working set {}", size(args, working_set)));
    }
    if report.warmup_requests > 0 {
        lines.push(format!("{} of them warm-up, not counted", thousands(report.warmup_requests)));
    }
    if report.delete_requests > 0 {
        lines.push(format!("{} of them deletes, not counted", thousands(report.delete_requests)));
    }
    if report.empty_requests > 0 {
        let count = thousands(report.empty_requests);
        let which = "304, HEAD, no bytes, refused DELETE or PURGE, 206, broken off";
        lines.push(format!("{count} requests without a body ({which}) left out"));
    }
    lines.push(String::new());
    lines
}

fn size(args: &Sim, bytes: u64) -> String {
    match args.ignore_obj_size {
        true => format!("{} objects", thousands(bytes)),
        false => ByteSize::new(bytes).to_string(),
    }
}

fn share(cache: &CacheResult) -> String {
    cache.size_share.map_or(String::new(), |share| format!("{share:.4}"))
}

/// A ratio of what was counted; none where nothing was, as in an interval of the warm-up: 0 would
/// say that nothing missed.
fn counted(tally: &Tally, ratio: impl Fn(&Tally) -> f64) -> Option<f64> {
    (tally.requests > 0).then(|| ratio(tally))
}

/// For people.
fn table(args: &Sim, report: &SimReport) -> Table {
    let mut table = Table::new(&[
        "policy",
        "size",
        "of working set",
        "requests",
        "miss ratio",
        "byte miss ratio",
    ]);
    for cache in &report.caches {
        table.row(vec![
            cache.policy.clone(),
            size(args, cache.size_bytes),
            share(cache),
            thousands(cache.tally.requests),
            format!("{:.4}", cache.tally.miss_ratio()),
            format!("{:.4}", cache.tally.byte_miss_ratio()),
        ]);
    }
    table
}

fn interval_table(args: &Sim, report: &SimReport) -> Table {
    let mut table = Table::new(&["policy", "size", "up to s", "requests", "miss ratio"]);
    for cache in &report.caches {
        for interval in &cache.intervals {
            table.row(vec![
                cache.policy.clone(),
                size(args, cache.size_bytes),
                interval.end_s.to_string(),
                thousands(interval.tally.requests),
                counted(&interval.tally, Tally::miss_ratio)
                    .map_or(String::new(), |ratio| format!("{ratio:.4}")),
            ]);
        }
    }
    table
}

const EXACT_COLUMNS: [&str; 11] = [
    "trace",
    "synthetic",
    "policy",
    "size",
    "size_share",
    "requests",
    "misses",
    "bytes",
    "miss_bytes",
    "miss_ratio",
    "byte_miss_ratio",
];
/// Seconds since the first request at which an interval ends; empty where a row is of the whole
/// run.
const INTERVAL_COLUMN: &str = "interval_end_s";

/// For programs: nothing rounded; every row says what it was measured on. Rows of intervals, if
/// they were asked for, come after that of their cache.
fn exact_table(args: &Sim, report: &SimReport, trace: &TraceIdentity) -> Table {
    let has_intervals = args.report_interval.is_some();
    let mut columns = EXACT_COLUMNS.to_vec();
    columns.extend(has_intervals.then_some(INTERVAL_COLUMN));
    let mut table = Table::new(&columns);
    for cache in &report.caches {
        let mut add = |tally: &Tally, end_s: Option<u64>| {
            let (synthetic, policy) = (trace.synthetic.to_string(), cache.policy.clone());
            let mut row = vec![trace.name.clone(), synthetic, policy];
            let share = cache.size_share.map_or(String::new(), |share| share.to_string());
            row.extend([cache.size_bytes.to_string(), share]);
            let counts = [tally.requests, tally.misses, tally.bytes, tally.miss_bytes];
            row.extend(counts.map(|count| count.to_string()));
            row.extend([Tally::miss_ratio, Tally::byte_miss_ratio].map(|ratio| {
                counted(tally, ratio).map_or(String::new(), |ratio| ratio.to_string())
            }));
            row.extend(has_intervals.then(|| end_s.map_or(String::new(), |s| s.to_string())));
            table.row(row);
        };
        add(&cache.tally, None);
        cache.intervals.iter().for_each(|part| add(&part.tally, Some(part.end_s)));
    }
    table
}

/// What a reader of the results should know.
fn warnings(options: &SimOptions, report: &SimReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let hit_nothing = |cache: &CacheResult| cache.tally.misses == cache.tally.requests;
    let empty = report.caches.iter().filter(|cache| cache.objects == 0);
    for cache in empty.filter(|cache| hit_nothing(cache)) {
        warnings.push(format!(
            "{} of {} hit nothing and held nothing at the end: every object was deleted, or is \
             larger than it, or than the part of it where new ones come in",
            cache.policy,
            if options.ignores_sizes {
                format!("{} objects", cache.size_bytes)
            } else {
                ByteSize::new(cache.size_bytes).to_string()
            }
        ));
    }
    if report.caches.iter().any(|cache| is_too_many(cache.tally.bytes)) {
        warnings.push(TOO_MANY_BYTES.to_owned());
    }
    warnings
}

fn page(args: &Sim, report: &SimReport, manifest: &Manifest) -> String {
    let trace = &manifest.trace;
    let mut page = Report::new(&format!("Miss ratios: {}", trace.name), trace.synthetic);
    for line in facts(args, report, manifest).iter().filter(|line| !line.is_empty()) {
        page.paragraph(line);
    }
    let (x_label, x_unit) = match args.ignore_obj_size {
        true => ("cache size, objects", Unit::Number),
        false => ("cache size", Unit::Bytes),
    };
    let curve = |title: &str, of: &dyn Fn(&CacheResult) -> f64| LineChart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        x_unit,
        y_label: title.to_lowercase(),
        y_unit: Unit::Number,
        log_x: true,
        log_y: false,
        series: by_policy(report, |cache| vec![(cache.size_bytes as f64, of(cache))]),
    };
    page.section("Miss ratio curves");
    page.chart(&curve("Miss ratio", &|cache| cache.tally.miss_ratio()));
    if !args.ignore_obj_size {
        page.chart(&curve("Byte miss ratio", &|cache| cache.tally.byte_miss_ratio()));
    }
    page.section("Results");
    page.table(&table(args, report));
    if args.report_interval.is_some() {
        page.section("Over time");
        for chart in over_time(args, report) {
            page.chart(&chart);
        }
    }
    page.finish(manifest)
}

/// One line a policy, of the points of all its caches.
fn by_policy(report: &SimReport, points: impl Fn(&CacheResult) -> Vec<(f64, f64)>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for cache in &report.caches {
        match series.iter_mut().find(|series| series.name == cache.policy) {
            Some(series) => series.points.extend(points(cache)),
            None => series.push(Series { name: cache.policy.clone(), points: points(cache) }),
        }
    }
    series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    series
}

/// One chart a size.
fn over_time(args: &Sim, report: &SimReport) -> Vec<LineChart> {
    let mut sizes: Vec<u64> = report.caches.iter().map(|cache| cache.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let chart = |bytes: u64| LineChart {
        title: format!("Miss ratio over time, {}", size(args, bytes)),
        x_label: "time since the first request".to_owned(),
        x_unit: Unit::Seconds,
        y_label: "miss ratio".to_owned(),
        y_unit: Unit::Number,
        log_x: false,
        log_y: false,
        series: by_policy(report, |cache| {
            let own = cache.intervals.iter().filter(|_| cache.size_bytes == bytes);
            let point =
                |tally, end_s: u64| Some((end_s as f64, counted(tally, Tally::miss_ratio)?));
            own.filter_map(|interval| point(&interval.tally, interval.end_s)).collect()
        }),
    };
    sizes.into_iter().map(chart).collect()
}
