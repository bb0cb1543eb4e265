//! One contestant, one ordering, one number of threads: the three stages in a process of their
//! own, so that its memory can be limited and nothing is left over from the one before.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cgroup::Group;
use crate::contestant::{Contestant, Name};
use crate::counters;
#[cfg(feature = "damelo")]
use crate::damelo_store::Damelo;
use crate::drive::{self, Measured, StageRun};
use crate::files::Files;
use crate::foyer_cache::{Foyer, FoyerOptions};
use crate::workload::{Ordering, Stage, Workload};

/// Reads tried after the deletes; each must find nothing.
const DELETED_SAMPLE: usize = 2000;
/// Clients of the untimed pass that looks for lost objects.
const AUDIT_THREADS: usize = 4;

/// Everything a child is told, as JSON on its command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChildSpec {
    /// Who runs.
    pub contestant: Name,
    /// What it runs.
    pub workload: Workload,
    /// Clients at once.
    pub threads: usize,
    /// Memory for data, in bytes.
    pub memory: u64,
    /// Disk, in bytes.
    pub disk: u64,
    /// An empty directory of its own.
    pub directory: PathBuf,
    /// Memory cgroup to enter first.
    pub memory_group: Option<PathBuf>,
    /// Block-I/O cgroup to enter first.
    pub reads_group: Option<PathBuf>,
    /// Reads a second during the read stage.
    pub reads_per_s: Option<u64>,
    /// Reads, if not as many as there are objects.
    pub reads: Option<usize>,
    /// Only create and read.
    pub skip_delete: bool,
    /// foyer's clients are tasks.
    pub foyer_tasks: bool,
    /// Choices for foyer.
    pub foyer: FoyerOptions,
}

/// What a child prints, as one line of JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChildReport {
    /// Create, read and, unless skipped, delete.
    pub stages: Vec<Measured>,
    /// Created objects that were not there, or not right, afterwards.
    pub lost: u64,
    /// Of a sample of deleted objects, those that could still be read.
    pub undeleted: u64,
    /// Whether the kernel's caches were dropped between stages.
    pub caches_dropped: bool,
    /// Whether the memory limit was in force.
    pub memory_limited: bool,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
    /// Store or cache that could not be opened, or another reason for no figures.
    pub error: Option<String>,
}

/// Runs the stages as told and returns what was measured.
///
/// # Errors
/// If a cgroup cannot be entered or the contestant cannot be opened.
pub fn run(spec: &ChildSpec) -> Result<ChildReport, Box<dyn Error>> {
    for group in [&spec.memory_group, &spec.reads_group].into_iter().flatten() {
        Group::borrowed(group).enter()?;
    }
    let (directory, workload) = (&spec.directory, spec.workload);
    match spec.contestant {
        Name::Files => run_stages(spec, Files::open(directory, workload)?),
        Name::Damelo => run_damelo(spec),
        Name::Foyer | Name::FoyerPaced | Name::FoyerLoved => {
            let (path, memory) = (directory.join("foyer"), spec.memory as usize);
            let disk = spec.disk as usize;
            let name = spec.contestant;
            run_stages(spec, Foyer::open(&path, memory, disk, workload, spec.foyer, name)?)
        }
    }
}

#[cfg(feature = "damelo")]
fn run_damelo(spec: &ChildSpec) -> Result<ChildReport, Box<dyn Error>> {
    let path = spec.directory.join("damelo");
    let (memory, disk, workload) = (spec.memory, spec.disk, spec.workload);
    let store = match workload.cache {
        Some(_) => Damelo::open_unloved(&path, memory, disk, workload)?,
        None => Damelo::open(&path, memory, disk, workload)?,
    };
    run_stages(spec, store)
}

#[cfg(not(feature = "damelo"))]
fn run_damelo(_: &ChildSpec) -> Result<ChildReport, Box<dyn Error>> {
    Err("built without the feature `damelo`".into())
}

fn run_stages<C: Contestant>(
    spec: &ChildSpec,
    contestant: C,
) -> Result<ChildReport, Box<dyn Error>> {
    let contestant = Arc::new(contestant);
    let mut report =
        ChildReport { memory_limited: spec.memory_group.is_some(), ..ChildReport::default() };
    let device = counters::device_name(&spec.directory);
    let device = device.as_deref();
    if spec.workload.cache.is_some() {
        for stage in [Stage::Warm, Stage::Cache] {
            let (threads, tasks) = (spec.threads, spec.foyer_tasks);
            let run = StageRun { stage, threads, tasks, operations: None };
            report.stages.push(drive::run_stage(&contestant, spec.workload, run, device));
        }
        report.peak_rss_bytes = counters::peak_rss_bytes();
        return Ok(report);
    }
    let run = |stage| StageRun {
        stage,
        threads: spec.threads,
        tasks: spec.foyer_tasks,
        operations: if stage == Stage::Read { spec.reads } else { None },
    };
    report.stages.push(drive::run_stage(&contestant, spec.workload, run(Stage::Create), device));
    report.caches_dropped = chill(&*contestant);
    hold_reads(spec, spec.reads_per_s)?;
    report.stages.push(drive::run_stage(&contestant, spec.workload, run(Stage::Read), device));
    hold_reads(spec, None)?;
    report.lost = audit(&contestant, spec);
    if !spec.skip_delete {
        chill(&*contestant);
        let deleted = drive::run_stage(&contestant, spec.workload, run(Stage::Delete), device);
        report.stages.push(deleted);
        report.undeleted = still_there(&contestant, spec.workload);
    }
    report.peak_rss_bytes = counters::peak_rss_bytes();
    Ok(report)
}

/// Empties the contestant's memory and the kernel's.
fn chill<C: Contestant>(contestant: &C) -> bool {
    contestant.settle();
    contestant.forget_memory();
    drive::drop_kernel_caches()
}

/// Puts the limit on disk reads in force, or lifts it.
fn hold_reads(spec: &ChildSpec, per_second: Option<u64>) -> Result<(), Box<dyn Error>> {
    let Some(group) = &spec.reads_group else { return Ok(()) };
    let device = counters::device_number(&spec.directory).ok_or("no device under the directory")?;
    Ok(Group::borrowed(group).hold_reads(device, per_second.unwrap_or(0))?)
}

/// Reads every object once, untimed, and counts those that are gone or wrong.
fn audit<C: Contestant>(contestant: &Arc<C>, spec: &ChildSpec) -> u64 {
    let workload = Workload { ordering: Ordering::Sequential, ..spec.workload };
    let tasks = spec.foyer_tasks;
    let run = StageRun { stage: Stage::Read, threads: AUDIT_THREADS, tasks, operations: None };
    let read = drive::run_stage(contestant, workload, run, None);
    read.missing + read.wrong + read.failed
}

/// Of the first objects deleted, how many a read still finds.
fn still_there<C: Contestant>(contestant: &Arc<C>, workload: Workload) -> u64 {
    let workload = Workload { ordering: Ordering::Sequential, ..workload };
    let sample = Some(DELETED_SAMPLE);
    let run = StageRun { stage: Stage::Read, threads: 1, tasks: false, operations: sample };
    let read = drive::run_stage(contestant, workload, run, None);
    read.operations - read.missing
}

/// Entry point of `rivals child`: prints one line of JSON, whatever happens.
pub fn main(spec: &str) {
    let report = serde_json::from_str::<ChildSpec>(spec)
        .map_err(|e| Box::new(e) as Box<dyn Error>)
        .and_then(|spec| run(&spec))
        .unwrap_or_else(|e| ChildReport { error: Some(e.to_string()), ..ChildReport::default() });
    match serde_json::to_string(&report) {
        Ok(line) => println!("{line}"),
        Err(e) => eprintln!("rivals child: {e}"),
    }
}

/// Empties a directory and makes it anew.
///
/// # Errors
/// Whatever the file system reports.
pub fn fresh_directory(path: &std::path::Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::create_dir_all(path)
}
