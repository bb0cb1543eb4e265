//! Runs children, everybody in turn for each benchmark of each round.

use std::error::Error;
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::cgroup::Group;
use crate::child::{ChildReport, ChildSpec, fresh_directory};
use crate::contestant::Name;
use crate::drive::Measured;
use crate::settings::Settings;
use crate::workload::{CacheUse, Ordering, Workload};

/// What one child measured, and as whom.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Who ran.
    pub contestant: Name,
    /// In which order.
    pub ordering: Ordering,
    /// With how many clients.
    pub threads: usize,
    /// From 0.
    pub round: usize,
    /// What it said.
    pub report: ChildReport,
}

impl Sample {
    /// One of its stages, in the order in which they ran.
    pub fn stage(&self, index: usize) -> Option<&Measured> {
        self.report.stages.get(index)
    }
}

/// What `rivals throttled` and `rivals cache` add.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras {
    /// Reads a second that the device may do during the read stage.
    pub reads_per_s: Option<u64>,
    /// Reads, if not as many as there are objects.
    pub reads: Option<usize>,
    /// A cache in use instead of the stages of a microbenchmark.
    pub cache: Option<CacheUse>,
}

/// Runs every contestant on every ordering and number of threads, `rounds` times over.
///
/// # Errors
/// If the directory cannot be made or a child cannot be started.
pub fn run_all(settings: &Settings, extras: Extras) -> Result<Vec<Sample>, Box<dyn Error>> {
    let mut samples = Vec::new();
    for round in 0..settings.rounds {
        for &ordering in settings.orderings() {
            for &threads in &settings.threads {
                let mut contestants = settings.contestants.clone();
                // Nobody always runs first.
                let first = round % contestants.len();
                contestants.rotate_left(first);
                for contestant in contestants {
                    let report = run_one(settings, extras, contestant, ordering, threads)?;
                    let sample = Sample { contestant, ordering, threads, round, report };
                    announce(&sample, settings.rounds);
                    samples.push(sample);
                }
            }
        }
    }
    Ok(samples)
}

fn announce(sample: &Sample, rounds: usize) {
    let stages: Vec<String> = sample
        .report
        .stages
        .iter()
        .map(|s| format!("{:.0} ops/s p99 {:.0} us", s.ops_per_s, s.p99_us))
        .collect();
    eprintln!(
        "round {}/{rounds} {:<10} {:>2} threads {:<11} {}; lost {}{}",
        sample.round + 1,
        sample.ordering.name(),
        sample.threads,
        sample.contestant.name(),
        stages.join(", "),
        sample.report.lost,
        sample.report.error.as_ref().map_or(String::new(), |e| format!("; ERROR {e}")),
    );
}

fn run_one(
    settings: &Settings,
    extras: Extras,
    contestant: Name,
    ordering: Ordering,
    threads: usize,
) -> Result<ChildReport, Box<dyn Error>> {
    let directory = settings.dir.join(contestant.name());
    fresh_directory(&directory)?;
    let memory_group = if settings.no_limit {
        None
    } else {
        Group::with_memory(settings.memory_limit(contestant))
            .inspect_err(|e| eprintln!("no memory limit: {e}"))
            .ok()
    };
    let reads_group = extras.reads_per_s.map(|_| Group::with_reads()).transpose()?;
    let spec = ChildSpec {
        contestant,
        workload: Workload { cache: extras.cache, ..settings.workload(ordering) },
        threads,
        memory: settings.memory(),
        disk: settings.disk(),
        directory: directory.clone(),
        memory_group: memory_group.as_ref().map(|g| g.path().to_owned()),
        reads_group: reads_group.as_ref().map(|g| g.path().to_owned()),
        reads_per_s: extras.reads_per_s,
        reads: extras.reads,
        skip_delete: settings.skip_delete,
        foyer_tasks: settings.foyer_tasks,
        foyer: settings.foyer,
    };
    let report = start(&spec)?;
    fresh_directory(&directory)?;
    Ok(report)
}

/// Runs this program again as a child and takes the last line it prints.
fn start(spec: &ChildSpec) -> Result<ChildReport, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(serde_json::to_string(spec)?)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    Ok(report.unwrap_or_else(|| ChildReport {
        error: Some(format!("child ended with {} (signal 9: memory limit)", output.status)),
        ..ChildReport::default()
    }))
}
