//! A paper's own workloads through its designs on real disks: wall time and what the system
//! counted, beside the model's time and, where a number says how much faster one was, the published
//! one.
//!
//! Drives and file systems of the papers' time are gone, and a real system keeps what it likes in
//! memory: what comes out is about this machine. Invariant: a place that holds no files has the
//! designs that need none, and no comparison with the others. Threads: one user.

use std::path::Path;

use super::cfs::{FILE_BYTES, FILES, TRACE_REQUESTS, saved};
use super::workload::requests as workload;
use super::{Exhibit, Paper, PaperError, PaperOptions, Published, Trace, in_what};
use super::{cfs, damelo, hades, squid, ucfs};
use crate::design::{DesignInputs, DesignOptions, Entry, GroupRule, find};
use crate::disk::Drive;
use crate::machine::{
    Machine, MachineConfig, RealConfig, RealMachine, RealPlace, RealReport, RunOptions,
    run as play, run_real,
};
use crate::request::{Catalogue, Op, Request};
use crate::requests::Requests;

/// Room for objects at least, and for the file of blocks or the mapped file, which is sparse, twice
/// as much.
const CACHE_BYTES_MIN: u64 = 512 << 20;
/// Of designs that have their own.
const MEMORY_BYTES: u64 = 8 << 20;
/// The thesis's best for random reads.
const DAMELO_PAGE_BYTES: u32 = 16 << 10;
/// What is larger is written for minutes, on a disk with a flash translation layer to no end.
const FILES_BYTES_MAX: u64 = 1 << 30;

/// Requests one after the other, under the name of what they do.
struct Stage {
    name: String,
    requests: Vec<Request>,
}

fn stage(name: impl Into<String>, requests: Vec<Request>) -> Stage {
    Stage { name: name.into(), requests }
}

/// How a number of ours comes about.
#[derive(Clone, Copy)]
enum Compared {
    /// The percentage of the other's time that the design saves.
    Saves(&'static str, &'static str),
    /// How many times as long the other takes.
    Faster(&'static str, &'static str),
    /// Megabytes a second.
    Rate(&'static str),
}

/// A published number, of which stage it is, and how ours comes about.
struct Comparison {
    stage: usize,
    how: Compared,
    published: Published,
}

/// A workload of a paper.
struct Job<'a> {
    title: String,
    stages: Vec<Stage>,
    names: &'a Catalogue,
    grouping: GroupRule,
    memory_bytes: u64,
    comparisons: Vec<Comparison>,
}

impl Job<'_> {
    fn requests(&self) -> usize {
        self.stages.iter().map(|stage| stage.requests.len()).sum()
    }

    /// What its objects take at most, and as much again.
    fn cache_bytes(&self) -> u64 {
        let requests = self.stages.iter().flat_map(|stage| &stage.requests);
        let stored = requests.filter(|request| request.op != Op::Delete);
        let mut sizes: crate::lru::NumberMap<u64, u64> = crate::lru::NumberMap::default();
        stored.for_each(|request| {
            sizes.insert(request.key, request.size_bytes);
        });
        (2 * sizes.values().sum::<u64>()).max(CACHE_BYTES_MIN)
    }
}

fn designs(paper: Paper) -> &'static [&'static str] {
    match paper {
        Paper::Cfs => &["cfs", "squid", "store"],
        Paper::Squid => &["cern", "squid", "squidl", "squidm", "squidml", "squidmla", "store"],
        Paper::Damelo => &["damelo", "squid", "store"],
        Paper::Ucfs => &["ucfs", "squid", "squidml", "store"],
        Paper::Hades => &["hades", "afs", "store"],
    }
}

fn of_cfs<'a>(options: &PaperOptions<'_>, trace: &Trace<'a>, none: &'a Catalogue) -> Vec<Job<'a>> {
    let count = (FILES / u64::from(options.scale_down)).max(1_000);
    let of = |op| cfs::requests(count, FILE_BYTES, op);
    let saves =
        |stage, published| Comparison { stage, how: Compared::Saves("cfs", "squid"), published };
    let stages = vec![
        stage("creates", of(Op::Write)),
        stage("reads", of(Op::Read)),
        stage("deletes", of(Op::Delete)),
    ];
    let comparisons = vec![
        saves(0, Published::AtLeast(60.0)),
        saves(1, Published::About(65.0)),
        saves(2, Published::AtLeast(95.0)),
    ];
    let plain =
        Job { comparisons, ..job(format!("{} (tables 2 to 4)", cfs::files(count)), stages, none) };
    let day: Vec<Request> = trace.requests.iter().take(TRACE_REQUESTS).copied().collect();
    let title = format!("{} requests of a proxy (table 6)", day.len());
    let comparisons = vec![saves(0, Published::About(50.0))];
    let day = Job { comparisons, ..job(title, vec![stage("requests", day)], trace.names) };
    vec![plain, day]
}

fn job(title: String, stages: Vec<Stage>, names: &Catalogue) -> Job<'_> {
    let (grouping, memory_bytes) = (GroupRule::Host, MEMORY_BYTES);
    Job { title, stages, names, grouping, memory_bytes, comparisons: Vec::new() }
}

fn of_damelo<'a>(options: &PaperOptions<'_>, none: &'a Catalogue) -> Vec<Job<'a>> {
    let scale = u64::from(options.scale_down);
    let faster = |published| {
        vec![Comparison { stage: 1, how: Compared::Faster("damelo", "squid"), published }]
    };
    let of = |at: usize, published| {
        let ordering = damelo::ORDERINGS[at];
        let stages = damelo::stages(ordering, damelo::OBJECTS / scale, options.seed);
        let stages = vec![
            stage("creates", stages.create),
            stage("reads", stages.read),
            stage("deletes", stages.delete),
        ];
        let title = format!("{} ordering of {} objects", ordering.name, damelo::OBJECTS / scale);
        Job {
            grouping: GroupRule::Given,
            memory_bytes: (damelo::POOL_BYTES / scale).max(MEMORY_BYTES),
            comparisons: faster(published),
            ..job(title, stages, none)
        }
    };
    vec![of(0, Published::Value(5.0)), of(1, Published::Value(2.0))]
}

fn of_hades<'a>(options: &PaperOptions<'_>, none: &'a Catalogue) -> Vec<Job<'a>> {
    let scale = u64::from(options.scale_down);
    let mut jobs = Vec::new();
    for (label, bytes, readers, files) in hades::SIZES {
        let bytes = if bytes > 1 << 20 { bytes / scale } else { bytes };
        let files = (files / scale).max(1);
        if bytes * files * u64::from(readers) > FILES_BYTES_MAX {
            continue;
        }
        let of = |readers, seed| hades::requests(readers, files, bytes, seed);
        let stages = vec![
            stage("Par/Cd", of(readers, options.seed)),
            stage("Par/Wm", of(readers, options.seed ^ 1)),
            stage("Seq/Wm", of(1, options.seed)),
        ];
        let warm = [(1, "Par/Wm"), (2, "Seq/Wm")].into_iter();
        let comparisons = warm.flat_map(|(stage, mode)| {
            let (afs, hades) = hades::published(label, mode);
            let rate =
                |design, published| Comparison { stage, how: Compared::Rate(design), published };
            [rate("afs", afs), rate("hades", hades)]
        });
        let comparisons = comparisons.collect();
        jobs.push(Job { comparisons, ..job(format!("files of {label}"), stages, none) });
    }
    jobs
}

fn of_proxy<'a>(paper: Paper, trace: &Trace<'a>) -> Job<'a> {
    let (requests, comparisons) = match paper {
        Paper::Squid => {
            let variants = ["squidl", "squidm", "squidml", "squidmla"];
            let saves = |name| Compared::Saves(name, "squid");
            let of =
                |name| Comparison { stage: 0, how: saves(name), published: Published::Picture };
            (squid::days(trace.requests).requests, variants.map(of).into_iter().collect())
        }
        _ => {
            let of = |(name, low, high)| Comparison {
                stage: 0,
                how: Compared::Faster("ucfs", name),
                published: Published::Range(low, high),
            };
            let theirs = [("squid", 7.0, 19.0), ("squidml", 3.0, 9.0)];
            (ucfs::cacheable(trace), theirs.map(of).into_iter().collect())
        }
    };
    let title = format!("{} requests of a proxy", requests.len());
    Job { comparisons, ..job(title, vec![stage("requests", requests)], trace.names) }
}

fn jobs<'a>(
    paper: Paper,
    options: &PaperOptions<'_>,
    trace: &Trace<'a>,
    none: &'a Catalogue,
) -> Vec<Job<'a>> {
    match paper {
        Paper::Cfs => of_cfs(options, trace, none),
        Paper::Damelo => of_damelo(options, none),
        Paper::Hades => of_hades(options, none),
        Paper::Squid | Paper::Ucfs => vec![of_proxy(paper, trace)],
    }
}

/// What a design did in a stage, and how long the model takes for it.
struct Measured {
    name: &'static str,
    stages: Vec<(RealReport, f64)>,
}

fn measure(
    entry: &'static Entry,
    place: RealPlace,
    job: &Job<'_>,
    flush: bool,
) -> Result<Measured, PaperError> {
    let cache_bytes = job.cache_bytes();
    let page_bytes = match entry.name {
        "damelo" => DAMELO_PAGE_BYTES,
        _ => DesignOptions::default().page_bytes,
    };
    let options = DesignOptions {
        // By host, but UCFS as its paper has it.
        grouping: if entry.name == "ucfs" { GroupRule::HostPath } else { job.grouping },
        cache_bytes,
        memory_bytes: job.memory_bytes,
        page_bytes,
        real: true,
        ..DesignOptions::default().without_fetching()
    };
    let drive = Drive::named("sata-7200-2009").expect("a drive of the registry");
    let inputs = DesignInputs { options: &options, requests: Requests::NONE, drive: &drive };
    let config = RealConfig { place, size_bytes: 2 * cache_bytes, flush };
    let mut machine = RealMachine::new(config)?;
    let mut design = machine.design(entry, &inputs)?;
    let real = |stage: &Stage| run_real(&mut *design, &mut machine, &stage.requests, job.names);
    let real: Vec<RealReport> = job.stages.iter().map(real).collect::<Result<_, _>>()?;
    let options = DesignOptions { real: false, ..options.clone() };
    let mut design = (entry.make)(&DesignInputs { options: &options, ..inputs });
    let mut machine = Machine::new(&MachineConfig::new(drive.clone()));
    let model_s = |stage: &Stage| {
        play(&mut *design, &mut machine, &stage.requests, job.names, RunOptions::default())
            .map(|report| report.drained_ns as f64 / 1e9)
            .map_err(in_what("the model beside real disks"))
    };
    let model_s: Vec<f64> = job.stages.iter().map(model_s).collect::<Result<_, _>>()?;
    Ok(Measured { name: entry.name, stages: real.into_iter().zip(model_s).collect() })
}

const WHY: &str = "One request after the other, wall time until everything is on the disk, and the \
    bytes that the system says it sent to its disks; the model's time is that of the drive \
    sata-7200-2009. In a directory all designs, on a file or device those that need no files. What \
    the paper has beside ours was measured with its drive, its system and its threads. The system's \
    caches are as large as they are and are not emptied, so that reads of files, and of CFS's \
    blocks, come from memory, where those of damelo, ucfs and the store go past it if the file system \
    lets them. The store is the shipped one with its own threads and I/O; what it sends past the page \
    cache counts as written when it is sent, as do its io_uring requests, which are no system \
    calls that read or write.";

/// The tables of a paper's designs.
pub(super) fn run(
    paper: Paper,
    options: &PaperOptions<'_>,
    path: &Path,
) -> Result<Vec<Exhibit>, PaperError> {
    let mut made = None;
    let none = Catalogue::new();
    let trace = match paper {
        Paper::Damelo | Paper::Hades => Trace { name: "", requests: &[], names: &none },
        Paper::Cfs => workload(options, TRACE_REQUESTS, &mut made)?,
        Paper::Squid => workload(options, squid::SYNTHETIC_REQUESTS, &mut made)?,
        Paper::Ucfs => workload(options, ucfs::SYNTHETIC_REQUESTS, &mut made)?,
    };
    // At less than full size nobody wants to wait for other people's dirty pages.
    let flush = options.scale_down == 1;
    let place = RealPlace::of(path)?;
    let mut tables = Vec::new();
    for job in jobs(paper, options, &trace, &none) {
        let mut all = Vec::new();
        for name in designs(paper) {
            let entry = find(name).expect("a design of the registry");
            if place.check(entry).is_err() {
                continue;
            }
            // On the disk, and in the model.
            options.count(2 * job.requests());
            if !options.is_rehearsal() {
                all.push(measure(entry, place.clone(), &job, flush)?);
            }
        }
        tables.push(table(&job, &all));
    }
    Ok(tables)
}

fn table(job: &Job<'_>, all: &[Measured]) -> Exhibit {
    let title = format!("The paper's designs on the disks of this machine: {}", job.title);
    let mut table = Exhibit::new("real disks", &title, WHY);
    for (at, stage) in job.stages.iter().enumerate() {
        for comparison in job.comparisons.iter().filter(|comparison| comparison.stage == at) {
            compare(&mut table, stage, all, comparison);
        }
    }
    for (at, stage) in job.stages.iter().enumerate() {
        for Measured { name, stages } in all {
            let (real, model_s) = &stages[at];
            let mut add = |what: &str, unit, value| {
                let label = format!("{}, {name}, {what}", stage.name);
                table.row(label, unit, Published::Ours, value);
            };
            add("time", "s", real.elapsed_ns as f64 / 1e9);
            add("time in the model", "s", *model_s);
            add("written", "MB", real.system.write_bytes as f64 / 1e6);
            let calls = real.system.read_calls + real.system.write_calls;
            add("reads and writes", "calls", calls as f64);
        }
    }
    table
}

/// A row that has a published number beside it, if all that it compares ran.
fn compare(table: &mut Exhibit, stage: &Stage, all: &[Measured], comparison: &Comparison) {
    let &Comparison { stage: at, how, published } = comparison;
    let seconds = |name: &str| {
        let measured = all.iter().find(|measured| measured.name == name)?;
        Some((measured.stages[at].0.elapsed_ns as f64 / 1e9).max(1e-9))
    };
    let of = &stage.name;
    let row = match how {
        Compared::Saves(ours, theirs) => seconds(ours).zip(seconds(theirs)).map(|(a, b)| {
            (format!("{of}, {ours} saves of the time of {theirs}"), "%", saved(a, b))
        }),
        Compared::Faster(ours, theirs) => seconds(ours)
            .zip(seconds(theirs))
            .map(|(a, b)| (format!("{of}, {ours} faster than {theirs}"), "times", b / a)),
        Compared::Rate(name) => seconds(name).map(|s| {
            let bytes: u64 = stage.requests.iter().map(|request| request.size_bytes).sum();
            (format!("{of}, {name}"), "MB/s", bytes as f64 / 1e6 / s)
        }),
    };
    if let Some((label, unit, value)) = row {
        table.row(label, unit, published, value);
    }
}
