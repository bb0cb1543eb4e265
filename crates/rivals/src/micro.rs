//! `rivals micro` and `rivals throttled`: the fifteen microbenchmarks, whole or with a slow disk.

use std::error::Error;
use std::fmt::Write;

use clap::Args;
use serde::Serialize;

use crate::contestant::Name;
use crate::machine::Machine;
use crate::report::{self, Row};
use crate::run::{self, Extras, Sample};
use crate::settings::Settings;
use crate::workload::{Ordering, Stage};

/// Options of `rivals throttled`.
#[derive(Debug, Clone, Args)]
pub struct ThrottledOptions {
    /// Device reads a second during the read stage.
    #[arg(long, default_value_t = 150)]
    pub reads_per_s: u64,
    /// Object reads; as many as there are objects (after --scale) if not given.
    #[arg(long)]
    pub reads: Option<usize>,
    /// Everything else, as for `micro`, with other defaults: scale 8, one round, 4 threads,
    /// damelo and files, sequential, random and zipf 1:8.
    #[command(flatten)]
    pub settings: Settings,
}

/// Everything a run found.
#[derive(Debug, Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    settings: &'a Settings,
    reads_per_s: Option<u64>,
    memory_limit_bytes: Option<u64>,
    rows: &'a [Row],
    samples: &'a [Sample],
}

/// Runs `rivals micro`.
///
/// # Errors
/// If the benchmark cannot be run or its results not be written.
pub fn micro(settings: &Settings) -> Result<(), Box<dyn Error>> {
    measure(settings, Extras::default())
}

/// Runs `rivals throttled`.
///
/// # Errors
/// If the benchmark cannot be run or its results not be written.
pub fn throttled(options: &ThrottledOptions) -> Result<(), Box<dyn Error>> {
    let mut settings = options.settings.clone();
    settings.skip_delete = true;
    if settings.orderings.is_empty() {
        settings.orderings = vec![Ordering::Zipf18, Ordering::Sequential, Ordering::Random];
    }
    measure(
        &settings,
        Extras {
            reads_per_s: Some(options.reads_per_s),
            reads: options.reads,
            ..Extras::default()
        },
    )
}

fn measure(settings: &Settings, extras: Extras) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(&settings.dir)?;
    let machine = Machine::look(&settings.dir);
    let samples = run::run_all(settings, extras)?;
    let mut rows = report::rows(&samples, &settings.contestants, &settings.threads);
    if extras.reads_per_s.is_some() {
        rows.retain(|row| row.stage == Stage::Read);
    }
    let limited = samples.iter().all(|s| s.report.memory_limited);
    let results = Results {
        machine: &machine,
        settings,
        reads_per_s: extras.reads_per_s,
        memory_limit_bytes: limited.then(|| settings.memory_limit(Name::Files)),
        rows: &rows,
        samples: &samples,
    };
    let markdown = markdown(&results);
    report::publish(settings, &machine, &results, &markdown)
}

fn markdown(results: &Results<'_>) -> String {
    let mut text = preamble(results);
    text.push_str(&report::results_table(results.rows, &results.settings.contestants));
    text.push_str(&slower_rows(results.rows));
    for sample in results.samples.iter().filter(|s| s.report.error.is_some()) {
        let error = sample.report.error.as_deref().unwrap_or("");
        let (who, order) = (sample.contestant.name(), sample.ordering.name());
        let _ = writeln!(text, "No figures: {who}, {order}, {} threads: {error}", sample.threads);
    }
    text
}

/// Names the rows in which a rival is faster, those included where it lost objects.
fn slower_rows(rows: &[Row]) -> String {
    let mut text = String::from("\n");
    let (mut pairs, mut slower) = (0, 0);
    for row in rows {
        for rival in row.results.iter().filter(|s| s.contestant != Name::Damelo) {
            let Some(ratio) = rival.damelo_ratio else { continue };
            pairs += 1;
            if ratio >= 1.0 {
                continue;
            }
            slower += 1;
            let (stage, order, name) =
                (row.stage.name(), row.ordering.name(), rival.contestant.name());
            let why = if rival.lossy { " (lossy: objects were not there)" } else { "" };
            let threads = row.threads;
            let _ = writeln!(text, "- {name} wins {stage} {order} at {threads}: {ratio:.2}{why}");
        }
    }
    let _ = writeln!(text, "\ndamelo is slower in {slower} of {pairs} comparisons.");
    text
}

fn preamble(results: &Results<'_>) -> String {
    let (machine, settings) = (results.machine, results.settings);
    let mib = |bytes: u64| bytes >> 20;
    let limit = match results.memory_limit_bytes {
        Some(bytes) => format!("memory cgroup of {} MiB (foyer: twice that)", mib(bytes)),
        None => "NO memory limit: files had all the machine's memory".to_owned(),
    };
    let dropped = results.samples.iter().all(|s| s.report.caches_dropped);
    let caches = if dropped { "dropped" } else { "NOT dropped (not permitted)" };
    let held = results.reads_per_s.map_or(String::new(), |n| {
        format!("Disk held to {n} reads/s by blkio while objects are read.\n")
    });
    let workload = settings.workload(Ordering::Random);
    format!(
        "{} objects, {} MiB in all, {} groups; memory {} MiB, disk {} MiB; {limit}; \
         kernel caches {caches} between stages.\n{held}\
         Median of {} rounds, contestants in turn. Ratios are medians of each round's ratio. \
         Device reads are the whole device's, so other users of it count as well; KiB read are \
         this process's own. Lossy: over 1% of the objects were not there.\n{machine}.\n\n",
        workload.objects,
        mib(workload.total_bytes()),
        workload.groups,
        mib(settings.memory()),
        mib(settings.disk()),
        settings.rounds,
    )
}
