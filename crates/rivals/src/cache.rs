//! `rivals cache`: what a cache is for. Clients read by Zipf's law over more objects than the disk
//! holds and create what they miss; after a warm-up of as many requests it is measured who has more
//! hits, and how fast. Files take no part: nothing evicts them.

use std::error::Error;

use clap::Args;
use serde::Serialize;

use crate::contestant::Name;
use crate::drive::Measured;
use crate::machine::Machine;
use crate::report::{self, median};
use crate::run::{self, Extras, Sample};
use crate::settings::Settings;
use crate::workload::{CacheUse, Ordering, Stage};

/// Options of `rivals cache`.
#[derive(Debug, Clone, Args)]
pub struct CacheOptions {
    /// Exponent of Zipf's law.
    #[arg(long, default_value_t = 0.9)]
    pub alpha: f64,
    /// Requests of the warm-up, and as many that are measured.
    #[arg(long, default_value_t = 1_000_000)]
    pub requests: u64,
    /// Everything else, as for `micro`, with other defaults; there is one ordering, and no delete.
    #[command(flatten)]
    pub settings: Settings,
}

/// Everything a run found.
#[derive(Debug, Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    settings: &'a Settings,
    cache: CacheUse,
    samples: &'a [Sample],
}

/// Runs `rivals cache`.
///
/// # Errors
/// If the benchmark cannot be run or its results not be written, or if what was asked for makes no
/// sense.
pub fn run(options: &CacheOptions) -> Result<(), Box<dyn Error>> {
    let mut settings = options.settings.clone();
    if settings.contestants.contains(&Name::Files) {
        return Err("files take no part in `rivals cache`: nothing evicts them".into());
    }
    if !settings.orderings.is_empty() {
        return Err("`rivals cache` has an order of its own: leave --orderings out".into());
    }
    if !(0.0..=10.0).contains(&options.alpha) || options.requests == 0 {
        return Err("--alpha must be from 0 to 10, --requests at least 1".into());
    }
    settings.orderings = vec![Ordering::Random];
    let cache = CacheUse { alpha: options.alpha, requests: options.requests };
    std::fs::create_dir_all(&settings.dir)?;
    let machine = Machine::look(&settings.dir);
    let extras = Extras { cache: Some(cache), ..Extras::default() };
    let samples = run::run_all(&settings, extras)?;
    let results = Results { machine: &machine, settings: &settings, cache, samples: &samples };
    let markdown = markdown(&results);
    report::publish(&settings, &machine, &results, &markdown)
}

fn markdown(results: &Results<'_>) -> String {
    let (machine, settings, cache) = (results.machine, results.settings, results.cache);
    let workload = settings.workload(Ordering::Random);
    let mib = |bytes: u64| bytes >> 20;
    let mut text = format!(
        "{} objects, {} MiB in all; memory {} MiB, disk {} MiB; {} requests by Zipf {} after as many; what is missing is \
         created.\nMedian of {} rounds, contestants in turn. Device figures are the whole device's.\n\
         {machine}.\n\n",
        workload.objects,
        mib(workload.total_bytes()),
        mib(settings.memory()),
        mib(settings.disk()),
        cache.requests,
        cache.alpha,
        settings.rounds,
    );
    let head = [
        "threads",
        "contestant",
        "ops/s",
        "damelo is",
        "hit ratio",
        "p99 us",
        "device reads/op",
        "device KiB written/op",
        "cpu us/op",
        "wrong, failed",
        "RSS MiB",
    ];
    let threads = settings.threads.iter();
    let cells = threads.flat_map(|&n| settings.contestants.iter().map(move |&name| (n, name)));
    let body: Vec<Vec<String>> =
        cells.filter_map(|(threads, name)| line(results.samples, threads, name)).collect();
    text.push_str(&report::table(&head.map(str::to_owned), &body));
    for sample in results.samples {
        if let Some(error) = &sample.report.error {
            text.push_str(&format!("No figures: {}: {error}\n", sample.contestant.name()));
        }
    }
    text
}

/// The measured stage of each round.
fn rounds(samples: &[Sample], threads: usize, name: Name) -> Vec<(&Sample, &Measured)> {
    let measured = Stage::Cache as usize - Stage::Warm as usize;
    let fits = |sample: &&Sample| sample.contestant == name && sample.threads == threads;
    let with = |sample| Some((sample, Sample::stage(sample, measured)?));
    samples.iter().filter(fits).filter_map(with).collect()
}

fn line(samples: &[Sample], threads: usize, name: Name) -> Option<Vec<String>> {
    let found = rounds(samples, threads, name);
    let mid = |f: &dyn Fn(&Measured) -> f64| median(found.iter().map(|(_, m)| f(m)).collect());
    let per_op = |m: &Measured, count: u64| count as f64 / m.operations.max(1) as f64;
    let ours = rounds(samples, threads, Name::Damelo);
    let ratios = ours.iter().filter_map(|(own, measured)| {
        let (_, theirs) = found.iter().find(|(sample, _)| sample.round == own.round)?;
        Some(measured.ops_per_s / theirs.ops_per_s)
    });
    let ratio = median(ratios.collect()).filter(|_| name != Name::Damelo);
    let wrong: u64 = found.iter().map(|(_, m)| m.wrong + m.failed).sum();
    let rss = found.iter().map(|(sample, _)| sample.report.peak_rss_bytes).max()?;
    Some(vec![
        threads.to_string(),
        name.name().to_owned(),
        format!("{:.0}", mid(&|m| m.ops_per_s)?),
        ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x")),
        format!("{:.4}", mid(&|m| 1.0 - per_op(m, m.missing))?),
        format!("{:.0}", mid(&|m| m.p99_us)?),
        format!("{:.3}", mid(&|m| per_op(m, m.counters.device_reads))?),
        format!("{:.2}", mid(&|m| per_op(m, m.counters.device_write_bytes) / 1024.0)?),
        format!("{:.1}", mid(&|m| per_op(m, m.counters.cpu_us))?),
        wrong.to_string(),
        (rss >> 20).to_string(),
    ])
}
