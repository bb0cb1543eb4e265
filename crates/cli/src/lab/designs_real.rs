//! `damelo lab designs --real`: the same designs on a real directory, file or device of this
//! machine; reports wall time, and the bytes and calls that the system counted. Threads: one,
//! besides the store's.

use damelo::ByteSize;
use damelo_lab::design::{DesignInputs, DesignSpec, mapped_bytes_max};
use damelo_lab::disk::Drive;
use damelo_lab::machine::{RealConfig, RealMachine, RealPlace, RealReport, run_real};
use damelo_lab::output::{BarChart, Report as Page, Table, Unit};
use serde_json::{Value, json};

use super::design_report::{MIB, json_with, response_histogram, responses};
use super::design_runs::{Forms, Played, Run, Setting, run_all};
use super::manifest::NewPage;
use super::watched::Watched;
use crate::failure::Failure;
use crate::leftovers::OwnPlace;
use crate::output::thousands;

/// Mapped files and files of blocks are sparse, so that room to spare costs nothing.
const FILE_BYTES_MIN: u64 = 1 << 30;

/// What of a run's JSON is in CSV.
const EXACT_COLUMNS: [&str; 22] = [
    "trace",
    "synthetic",
    "design",
    "real",
    "cache",
    "memory",
    "page",
    "group",
    "requests",
    "bodiless_requests",
    "refused_requests",
    "hit_percent",
    "read_bytes",
    "write_bytes",
    "read_calls",
    "write_calls",
    "response_ms_mean",
    "response_ms_p50",
    "response_ms_p99",
    "response_ms_max",
    "direct",
    "seconds",
];

/// How they are shown.
const REAL: Forms<RealReport> = Forms { json: json_of, columns: &EXACT_COLUMNS, table, page };

type Done = super::design_runs::Done<RealReport>;

/// Runs and prints.
pub(super) fn run<'a>(
    played: &Played<'_>,
    runs: impl ExactSizeIterator<Item = Run<'a>>,
    place: &RealPlace,
    drive: &Drive,
    new_page: Option<NewPage<'_>>,
) -> Result<(), Failure> {
    let own = OwnPlace::at(place)?;
    let mapped_bytes = mapped_bytes_max(played.loaded.requests());
    let size_bytes = played.cache_bytes.saturating_mul(2).max(FILE_BYTES_MIN).max(mapped_bytes);
    run_all(played, runs, new_page, &REAL, |spec, setting| {
        let config = RealConfig { place: own.place().clone(), size_bytes, flush: true };
        run_one(played, spec, setting, config, drive)
    })
}

/// A report as of modelled disks, with what a real one tells.
fn page(played: &Played<'_>, all: &[Done]) -> Page {
    let trace = &played.loaded.identity;
    let mut page = Page::new(&format!("Designs on a real disk: {}", trace.name), trace.synthetic);
    page.paragraph(&format!(
        "{} requests, one after the other, with {} of cache. Time is the wall clock's, until everything is on the disk; \
         bytes and calls are those that the system counted for the process. No run of this command takes the same time \
         again.",
        thousands(played.loaded.requests().len() as u64),
        ByteSize::new(played.cache_bytes),
    ));
    page.table(&table(all));
    let name = |done: &Done| match done.setting {
        Some(setting) => format!("{} {}", done.design, Setting::cells(Some(setting)).join(" ")),
        None => done.design.clone(),
    };
    let bytes = |done: &Done| {
        let system = &done.report.system;
        vec![system.read_bytes as f64, system.write_bytes as f64]
    };
    page.section("Bytes to and from disks");
    page.bars(&BarChart {
        title: "Bytes, counted by the system".to_owned(),
        unit: Unit::Bytes,
        parts: vec!["read".to_owned(), "written".to_owned()],
        bars: all.iter().map(|done| (name(done), bytes(done))).collect(),
    });
    page.section("Response times");
    let of = |done: &'_ Done| (name(done), done.report.responses.clone());
    let of: Vec<_> = all.iter().map(of).collect();
    page.chart(&response_histogram(&of));
    page.chart(&responses(&of));
    page
}

fn run_one(
    played: &Played<'_>,
    spec: &DesignSpec,
    setting: Option<Setting>,
    config: RealConfig,
    drive: &Drive,
) -> Result<RealReport, Failure> {
    let &Played { loaded, cache_bytes, .. } = played;
    let options = spec.options(&Setting::base(setting, cache_bytes, true))?;
    let inputs = DesignInputs { options: &options, requests: loaded.requests(), drive };
    let mut machine = RealMachine::new(config)?;
    // Dropped before the machine, in whose directory it may lie.
    let design = machine.design(spec.entry, &inputs)?;
    let mut design = Watched::new(design, loaded.requests().len());
    let report = run_real(&mut design, &mut machine, loaded.requests(), &loaded.names)?;
    loaded.check()?;
    Ok(report)
}

fn hit_percent(report: &RealReport) -> f64 {
    100.0 * report.hits as f64 / report.reads.max(1) as f64
}

/// For people.
fn table(all: &[Done]) -> Table {
    let mut columns = vec![
        "design",
        "memory",
        "page",
        "group",
        "hit %",
        "MiB read",
        "MiB written",
        "read calls",
        "write calls",
        "mean ms",
        "p99 ms",
        "seconds",
    ];
    let has_refused = all.iter().any(|done| done.report.refused > 0);
    columns.extend(has_refused.then_some("refused"));
    let mut table = Table::new(&columns);
    for done in all {
        let (report, system) = (&done.report, &done.report.system);
        let mut row = vec![done.design.clone()];
        row.extend(Setting::cells(done.setting));
        row.push(format!("{:.2}", hit_percent(report)));
        row.push(format!("{:.1}", system.read_bytes as f64 / MIB));
        row.push(format!("{:.1}", system.write_bytes as f64 / MIB));
        row.extend([system.read_calls, system.write_calls].map(thousands));
        row.push(format!("{:.3}", report.responses.mean_ms()));
        row.push(format!("{:.3}", report.responses.quantile_ms(0.99)));
        row.push(format!("{:.2}", report.elapsed_ns as f64 / 1e9));
        row.extend(has_refused.then(|| thousands(report.refused)));
        table.row(row);
    }
    table
}

fn json_of(played: &Played<'_>, done: &Done) -> Value {
    let (report, system) = (&done.report, &done.report.system);
    let own = json!({
        "real": played.args.real,
        "clients": 1,
        "pace": "as fast as served",
        // Of the machine's own blocks; the store opens its device itself.
        "direct": (report.actions != (0, 0)).then_some(report.direct),
        "requests": report.requests,
        "bodiless_requests": report.bodiless_requests,
        "refused_requests": report.refused,
        "hit_percent": hit_percent(report),
        "read_bytes": system.read_bytes,
        "write_bytes": system.write_bytes,
        "read_calls": system.read_calls,
        "write_calls": system.write_calls,
        "seconds": report.elapsed_ns as f64 / 1e9,
    });
    json_with(own, played, done, &report.responses, &report.facts)
}
