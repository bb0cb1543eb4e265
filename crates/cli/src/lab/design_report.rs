//! The output of `damelo lab designs`: tables, JSON, and the report with charts. Owns the columns
//! and the names of members for runs on modelled disks, and what runs on real ones have in common
//! with them.
//!
//! Invariants: CSV shows members of the JSON, nothing else and nothing rounded; what is rounded is
//! for people. The same reports give the same bytes. Pure; any thread.

use std::collections::BTreeMap;

use damelo::ByteSize;
use damelo_lab::disk::Direction;
use damelo_lab::machine::{IoCounts, KINDS, Kind, MAP_PARTS, Report, ResponseTimes};
use damelo_lab::output::{BarChart, LineChart, Report as Page, Series, StripChart, Table, Unit};
use serde_json::{Value, json};

use super::design_runs::{Done, Forms, Played, Setting};
use crate::output::thousands;

/// How runs on modelled disks are shown.
pub(super) const MODELLED: Forms<Report> =
    Forms { json: json_of, columns: &EXACT_COLUMNS, table, page };

/// Bytes in tables are in these, as sizes and charts are.
pub(super) const MIB: f64 = (1 << 20) as f64;

/// A run's name where several of a design are told apart.
fn name(done: &Done, all: &[Done]) -> String {
    let alone = all.iter().filter(|other| other.design == done.design).count() == 1;
    match done.setting {
        Some(setting) if !alone => format!("{} {}", done.design, words(setting)),
        _ => done.design.clone(),
    }
}

fn words(setting: Setting) -> String {
    Setting::cells(Some(setting)).join(" ")
}

fn virtual_s(report: &Report) -> f64 {
    report.elapsed_ns as f64 / 1e9
}

/// How long the disks were busy, also after the last client was served.
fn disk_s(report: &Report) -> f64 {
    report.disk_total_ns() as f64 / 1e9
}

fn byte_hit_percent(report: &Report) -> f64 {
    100.0 * report.hit_bytes as f64 / report.read_bytes.max(1) as f64
}

/// One row a run, for people.
fn table(all: &[Done]) -> Table {
    let mut columns = vec![
        "design",
        "memory",
        "page",
        "group",
        "hit %",
        "byte hit %",
        "disk reads",
        "disk writes",
        "MiB read",
        "MiB written",
        "mean ms",
        "p99 ms",
        "disk s",
        "virtual s",
    ];
    // Most traces have none.
    let has_bodiless = all.iter().any(|done| done.report.bodiless_requests > 0);
    columns.extend(has_bodiless.then_some("no body"));
    let has_refused = all.iter().any(|done| done.report.refused > 0);
    columns.extend(has_refused.then_some("refused"));
    // Of drives that write back.
    let has_absorbed = all.iter().any(|done| done.report.absorbed() > 0);
    columns.extend(has_absorbed.then_some("absorbed"));
    let mut table = Table::new(&columns);
    for done in all {
        let report = &done.report;
        let mut row = vec![done.design.clone()];
        row.extend(Setting::cells(done.setting));
        row.push(format!("{:.2}", report.hit_percent()));
        row.push(format!("{:.2}", byte_hit_percent(report)));
        for direction in [Direction::Read, Direction::Write] {
            row.push(thousands(report.io.requests_of(direction)));
        }
        for direction in [Direction::Read, Direction::Write] {
            row.push(format!("{:.1}", report.io.bytes_of(direction) as f64 / MIB));
        }
        row.push(format!("{:.3}", report.responses.mean_ms()));
        row.push(format!("{:.1}", report.responses.quantile_ms(0.99)));
        row.push(format!("{:.1}", disk_s(report)));
        row.push(format!("{:.1}", virtual_s(report)));
        row.extend(has_bodiless.then(|| thousands(report.bodiless_requests)));
        row.extend(has_refused.then(|| thousands(report.refused)));
        row.extend(has_absorbed.then(|| thousands(report.absorbed())));
        table.row(row);
    }
    table
}

/// What of a run's JSON is in CSV: all but lists and the manifest, which comes before the rows.
const EXACT_COLUMNS: [&str; 32] = [
    "trace",
    "synthetic",
    "design",
    "cache",
    "memory",
    "page",
    "group",
    "drive",
    "files",
    "mapped",
    "system_memory",
    "scheduler",
    "clients",
    "pace",
    "warmup_requests",
    "love_top",
    "requests",
    "bodiless_requests",
    "refused_requests",
    "hit_percent",
    "byte_hit_percent",
    "disk_reads",
    "disk_writes",
    "absorbed_writes",
    "read_bytes",
    "write_bytes",
    "response_ms_mean",
    "response_ms_p50",
    "response_ms_p99",
    "response_ms_max",
    "disk_seconds",
    "virtual_seconds",
];

/// Members of JSON objects as a table.
pub(super) fn columns_of(columns: &[&str], rows: impl Iterator<Item = Value>) -> Table {
    let mut table = Table::new(columns);
    for row in rows {
        let cell = |column: &&str| match &row[*column] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        table.row(columns.iter().map(cell).collect());
    }
    table
}

/// One run for programs: what is told of any, and what its kind of disk has besides.
pub(super) fn json_with<R>(
    own: Value,
    played: &Played<'_>,
    done: &Done<R>,
    responses: &ResponseTimes,
    facts: &[(&'static str, u64)],
) -> Value {
    let facts: BTreeMap<_, _> = facts.iter().copied().collect();
    let measured = json!({
        "response_ms_mean": responses.mean_ms(),
        "response_ms_p50": responses.quantile_ms(0.5),
        "response_ms_p99": responses.quantile_ms(0.99),
        "response_ms_max": responses.max_ms(),
        "facts": facts,
    });
    let mut all = json_about(played, &done.design, done.setting);
    if let Some(all) = all.as_object_mut() {
        [measured, own].into_iter().filter_map(into_members).for_each(|more| all.extend(more));
    }
    all
}

fn into_members(value: Value) -> Option<serde_json::Map<String, Value>> {
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// What of a run is known before it begins.
pub(super) fn json_about(played: &Played<'_>, design: &str, setting: Option<Setting>) -> Value {
    let trace = &played.loaded.identity;
    json!({
        "manifest": played.manifest,
        "design": design,
        "memory": setting.map(|s| s.memory_bytes),
        "page": setting.map(|s| s.page_bytes),
        "group": setting.map(|s| s.group),
        "cache": played.cache_bytes,
        "trace": trace.name,
        "synthetic": trace.synthetic,
    })
}

fn json_of(played: &Played<'_>, done: &Done) -> Value {
    let report = &done.report;
    let system = &played.args.system;
    let own = json!({
        "drive": system.drive,
        "files": system.files(),
        "mapped": system.mapped(),
        "system_memory": system.memory_bytes(),
        "scheduler": system.scheduler(),
        "clients": played.clients(),
        "pace": played.pace(),
        "requests": report.requests,
        "bodiless_requests": report.bodiless_requests,
        "refused_requests": report.refused,
        "warmup_requests": played.warmup_requests(),
        "love_top": played.args.love,
        "hit_percent": report.hit_percent(),
        "byte_hit_percent": byte_hit_percent(report),
        "disk_reads": report.io.requests_of(Direction::Read),
        "disk_writes": report.io.requests_of(Direction::Write),
        "absorbed_writes": report.absorbed(),
        "read_bytes": report.io.bytes_of(Direction::Read),
        "write_bytes": report.io.bytes_of(Direction::Write),
        "io": io_json(&report.io),
        "disk_seconds": disk_s(report),
        "virtual_seconds": virtual_s(report),
    });
    json_with(own, played, done, &report.responses, &report.facts)
}

/// Requests and bytes by kind, those that there were.
fn io_json(io: &IoCounts) -> Value {
    let side = |direction| {
        let used = KINDS.iter().filter(|kind| io.requests(direction, **kind) > 0);
        let counts = |kind: &Kind| {
            let (requests, bytes) = (io.requests(direction, *kind), io.bytes(direction, *kind));
            (kind.name(), json!({ "requests": requests, "bytes": bytes }))
        };
        used.map(counts).collect::<BTreeMap<_, _>>()
    };
    json!({ "read": side(Direction::Read), "write": side(Direction::Write) })
}

/// The report.
fn page(played: &Played<'_>, all: &[Done]) -> Page {
    let trace = &played.loaded.identity;
    let mut page = Page::new(&format!("Designs: {}", trace.name), trace.synthetic);
    page.paragraph(&how(played));
    page.table(&table(all));
    page.section("Disk requests by kind");
    page.bars(&by_kind(all, Direction::Read, "Reads"));
    page.bars(&by_kind(all, Direction::Write, "Writes"));
    page.section("Response times");
    let of = |done: &Done| (name(done, all), done.report.responses.clone());
    let of: Vec<_> = all.iter().map(of).collect();
    page.chart(&response_histogram(&of));
    page.chart(&responses(&of));
    page.chart(&over_time(all));
    sweeps(&mut page, all);
    page.section("Where on the disk");
    page.strips(&disk_map(all, Direction::Read, "Bytes read"));
    page.strips(&disk_map(all, Direction::Write, "Bytes written"));
    page
}

/// How the requests were played, in a sentence.
fn how(played: &Played<'_>) -> String {
    let clients = match played.clients() {
        1 => "one client".to_owned(),
        clients => format!("{} clients", thousands(clients.into())),
    };
    let pace = match played.pace() {
        "trace" => "asking when the trace says",
        _ => "asking as fast as they are served",
    };
    let warmup = match played.warmup_requests() {
        0 => String::new(),
        first => format!(" The first {} warm up and are not counted.", thousands(first as u64)),
    };
    let love = played.args.love.map_or_else(String::new, |share| {
        let percent = 100.0 * share;
        format!(" Of the groups that these ask for {percent}% are loved, the others hated.")
    });
    let system = &played.args.system;
    let (files, mapped) = (system.files(), system.mapped());
    let memory = match system.memory_bytes() {
        Some(bytes) => format!("{} of the system's memory for each", ByteSize::new(bytes)),
        None => "the system's usual memory for both".to_owned(),
    };
    format!(
        "{} requests on the modelled drive {} (order {}) with {} of cache, {clients} {pace}.{warmup}{love} Files on {files}, \
         mapped ones with {mapped}, {memory}.",
        thousands(played.loaded.requests().len() as u64),
        system.drive,
        system.scheduler(),
        ByteSize::new(played.cache_bytes),
    )
}

fn by_kind(all: &[Done], direction: Direction, title: &str) -> BarChart {
    let counts = |done: &Done| {
        let io = &done.report.io;
        KINDS.iter().map(|kind| io.requests(direction, *kind) as f64).collect()
    };
    BarChart {
        title: format!("{title}, requests to disks"),
        unit: Unit::Number,
        parts: KINDS.iter().map(|kind| kind.name().to_owned()).collect(),
        bars: all.iter().map(|done| (name(done, all), counts(done))).collect(),
    }
}

fn lines(all: &[Done], points: impl Fn(&Done) -> Vec<(f64, f64)>) -> Vec<Series> {
    all.iter().map(|done| Series { name: name(done, all), points: points(done) }).collect()
}

/// Points for each tenfold of time.
const STEPS: i32 = 12;
/// Hundredths of a millisecond up to ten seconds.
const TENFOLDS: i32 = 6;

/// Steps of the histogram for each tenfold of time.
const BARS: i32 = 4;

/// Which share of the requests took how long, of several runs with their names: the outlines of
/// bars, so that several can be seen in one chart.
pub(super) fn response_histogram(runs: &[(String, ResponseTimes)]) -> LineChart {
    let us = |n: i32| 10f64.powf(1.0 + f64::from(n) / f64::from(BARS));
    let outline = |responses: &ResponseTimes| {
        let mut points = Vec::new();
        let mut before = 0.0;
        for n in 0..=BARS * TENFOLDS {
            let within = responses.percent_within_us(us(n) as u64);
            // The first bar is of all that took less, the last of all that took more.
            let share = if n == BARS * TENFOLDS { 100.0 } else { within } - before;
            points.extend([us(n - 1), us(n)].map(|us| (us / 1e3, share)));
            before = within;
        }
        points
    };
    shares_by_time(
        "Share of requests by response time, in four classes for each tenfold",
        "milliseconds, in the first class all below, in the last all above",
        runs,
        outline,
    )
}

/// Percents of requests over response times, of several runs with their names.
fn shares_by_time(
    title: &str,
    x_label: &str,
    runs: &[(String, ResponseTimes)],
    points: impl Fn(&ResponseTimes) -> Vec<(f64, f64)>,
) -> LineChart {
    LineChart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        x_unit: Unit::Number,
        y_label: "percent of requests".to_owned(),
        y_unit: Unit::Number,
        log_x: true,
        log_y: false,
        series: runs
            .iter()
            .map(|(name, of)| Series { name: name.clone(), points: points(of) })
            .collect(),
    }
}

/// How long requests took at most, of several runs with their names.
pub(super) fn responses(runs: &[(String, ResponseTimes)]) -> LineChart {
    let shares = |responses: &ResponseTimes| {
        let within = |n: i32| {
            let us = 10f64.powf(1.0 + f64::from(n) / f64::from(STEPS));
            (us / 1e3, responses.percent_within_us(us as u64))
        };
        let until_all = (0..=STEPS * TENFOLDS).map(within);
        let mut is_whole = false;
        until_all
            .take_while(|(_, share)| !std::mem::replace(&mut is_whole, *share >= 100.0))
            .collect()
    };
    shares_by_time("Share of requests answered within a time", "milliseconds", runs, shares)
}

fn over_time(all: &[Done]) -> LineChart {
    let means = |done: &Done| {
        let means = &done.report.series_ms;
        let share = |at: usize| 100.0 * (at as f64 + 1.0) / means.len() as f64;
        means.iter().enumerate().map(|(at, ms)| (share(at), *ms)).collect()
    };
    LineChart {
        title: "Response time over the run".to_owned(),
        x_label: "percent of the requests".to_owned(),
        x_unit: Unit::Number,
        y_label: "mean milliseconds".to_owned(),
        y_unit: Unit::Number,
        log_x: false,
        log_y: true,
        series: lines(all, means),
    }
}

/// Virtual time over page and memory size, if several were run.
fn sweeps(page: &mut Page, all: &[Done]) {
    let with: Vec<(&Done, Setting)> =
        all.iter().filter_map(|done| Some((done, done.setting?))).collect();
    let of = |label: &str, x: fn(Setting) -> u64, rest: fn(Setting) -> String| {
        let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (done, setting) in &with {
            let points = series.entry(format!("{} {}", done.design, rest(*setting))).or_default();
            points.push((x(*setting) as f64, virtual_s(&done.report)));
        }
        LineChart {
            title: format!("Virtual time by {label}"),
            x_label: label.to_owned(),
            x_unit: Unit::Bytes,
            y_label: "virtual time".to_owned(),
            y_unit: Unit::Seconds,
            log_x: true,
            log_y: false,
            series: series.into_iter().map(|(name, points)| Series { name, points }).collect(),
        }
    };
    let varies = |x: fn(Setting) -> u64| with.windows(2).any(|w| x(w[0].1) != x(w[1].1));
    let (page_of, memory_of) = (|s: Setting| u64::from(s.page_bytes), |s: Setting| s.memory_bytes);
    if varies(page_of) || varies(memory_of) {
        page.section("Sweeps");
    }
    if varies(page_of) {
        let rest = |s: Setting| format!("{} {}", ByteSize::new(s.memory_bytes), s.group);
        page.chart(&of("page size", page_of, rest));
    }
    if varies(memory_of) {
        let rest = |s: Setting| format!("{} {}", ByteSize::new(u64::from(s.page_bytes)), s.group);
        page.chart(&of("memory", memory_of, rest));
    }
}

/// Cells of a strip.
const CELLS: usize = 128;

fn disk_map(all: &[Done], direction: Direction, title: &str) -> StripChart {
    let cells = |done: &Done| {
        let map = &done.report.map[direction as usize];
        map.chunks(MAP_PARTS / CELLS).map(|parts| parts.iter().sum::<u64>() as f64).collect()
    };
    StripChart {
        title: format!("{title} by place, from the outermost track (left) to the innermost"),
        unit: Unit::Bytes,
        rows: all.iter().map(|done| (name(done, all), cells(done))).collect(),
    }
}
