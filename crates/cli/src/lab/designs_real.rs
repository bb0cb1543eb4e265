//! `damelo lab designs --real`: the same designs in a directory, or on a file or device, of this machine;
//! wall time, and the bytes and calls that the system counted. Threads: one, besides the store's own.

use std::collections::BTreeMap;
use std::path::Path;

use damelo_lab::design::{Context, DesignOptions, DesignSpec};
use damelo_lab::disk::Drive;
use damelo_lab::machine::{RealConfig, RealMachine, RealReport, run_real};
use damelo_lab::output::Table;
use serde_json::{Value, json};

use super::designs::{Designs, Setting, cache_bytes};
use super::load::Loaded;
use super::watched::Watched;
use crate::failure::Failure;
use crate::output::{Out, thousands};

/// Mapped files and files of blocks are sparse, so that room to spare costs nothing.
const FILE_BYTES_MIN: u64 = 1 << 30;

struct Done {
    design: String,
    setting: Option<Setting>,
    report: RealReport,
}

/// Runs and prints.
pub(super) fn run<'a>(
    args: &Designs,
    runs: impl Iterator<Item = (&'a DesignSpec, Option<Setting>)>,
    loaded: &Loaded,
    drive: &Drive,
) -> Result<(), Failure> {
    let Some(path) = &args.real else { return Ok(()) };
    let mut out = Out::new();
    let mut all = Vec::new();
    for (spec, setting) in runs {
        let report = run_one(args, spec, setting, loaded, (path, drive))?;
        let done = Done { design: spec.label().to_owned(), setting, report };
        if args.json {
            out.json(&json_of(args, loaded, &done))?;
        }
        all.push(done);
    }
    if args.csv {
        out.bytes(table(&all, true).csv().as_bytes())?;
    } else if !args.json {
        out.bytes(table(&all, false).text().as_bytes())?;
    }
    out.finish()
}

fn place(path: &Path, cache_bytes: u64) -> RealConfig {
    let is_directory = path.is_dir();
    RealConfig {
        directory: if is_directory { path.to_owned() } else { std::env::temp_dir() },
        device: (!is_directory).then(|| path.to_owned()),
        size_bytes: cache_bytes.saturating_mul(2).max(FILE_BYTES_MIN),
        flush: true,
    }
}

fn run_one(
    args: &Designs,
    spec: &DesignSpec,
    setting: Option<Setting>,
    loaded: &Loaded,
    (path, drive): (&Path, &Drive),
) -> Result<RealReport, Failure> {
    let cache_bytes = cache_bytes(args, drive)?;
    // Objects come from nowhere: what fetching would take is not the disk's.
    let base = DesignOptions { fetch_us: 0, ..Setting::options(setting, cache_bytes) };
    let options = spec.options(&base)?;
    let context = Context { options: &options, requests: &loaded.requests, drive };
    let mut machine = RealMachine::new(place(path, cache_bytes))?;
    // Dropped before the machine, in whose directory it may lie.
    let design = machine.design(spec.entry, &context)?;
    let mut design = Watched::new(design, loaded.requests.len());
    Ok(run_real(&mut design, &mut machine, &loaded.requests, &loaded.names)?)
}

fn hit_percent(report: &RealReport) -> f64 {
    100.0 * report.hits as f64 / report.reads.max(1) as f64
}

fn table(all: &[Done], exact: bool) -> Table {
    let mut table = Table::new(&[
        "design",
        "memory",
        "page",
        "group",
        "hit %",
        "MB read",
        "MB written",
        "read calls",
        "write calls",
        "mean ms",
        "p99 ms",
        "seconds",
    ]);
    let count = |n: u64| if exact { n.to_string() } else { thousands(n) };
    for done in all {
        let (report, system) = (&done.report, &done.report.system);
        let mut row = vec![done.design.clone()];
        row.extend(Setting::cells(done.setting));
        row.push(format!("{:.2}", hit_percent(report)));
        row.push(format!("{:.1}", system.read_bytes as f64 / 1e6));
        row.push(format!("{:.1}", system.write_bytes as f64 / 1e6));
        row.extend([count(system.read_calls), count(system.write_calls)]);
        row.push(format!("{:.3}", report.responses.mean_ms()));
        row.push(format!("{:.3}", report.responses.quantile_ms(0.99)));
        row.push(format!("{:.2}", report.elapsed_ns as f64 / 1e9));
        table.row(row);
    }
    table
}

fn json_of(args: &Designs, loaded: &Loaded, done: &Done) -> Value {
    let (report, system) = (&done.report, &done.report.system);
    let facts: BTreeMap<_, _> = report.facts.iter().map(|(name, n)| (*name, *n)).collect();
    json!({
        "design": done.design,
        "memory": done.setting.map(|s| s.memory_bytes),
        "page": done.setting.map(|s| s.page_bytes),
        "group": done.setting.map(|s| s.group),
        "real": args.real,
        // Of the machine's own blocks; the store opens its device itself.
        "direct": (report.actions != (0, 0)).then_some(report.direct),
        "trace": loaded.identity.name,
        "synthetic": loaded.identity.synthetic,
        "requests": report.requests,
        "hit_percent": hit_percent(report),
        "read_bytes": system.read_bytes,
        "write_bytes": system.write_bytes,
        "read_calls": system.read_calls,
        "write_calls": system.write_calls,
        "response_ms_mean": report.responses.mean_ms(),
        "response_ms_p50": report.responses.quantile_ms(0.5),
        "response_ms_p99": report.responses.quantile_ms(0.99),
        "response_ms_max": report.responses.max_ms(),
        "facts": facts,
        "seconds": report.elapsed_ns as f64 / 1e9,
    })
}
