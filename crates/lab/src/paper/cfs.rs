//! CFS against ext2 (McCormick and Ledlie 2000, tables 2 to 6): three microbenchmarks of 50,000
//! files of 1 KB, and a day of a proxy.
//!
//! The paper's tables are pictures; the text gives improvements. Improvement here is one minus the
//! ratio of the times until the disks have done everything. In which directories ext2 had its files
//! the paper does not say, and it decides most of the comparisons: two layouts are measured.
//! Threads: one user.

use super::beside;
use super::playing::Play;
use super::workload::{check_length, requests as workload};
use super::{Exhibit, PaperError, PaperOptions, Published};
use crate::design::{Cfs, CfsOptions, Design, DesignInputs, DesignOptions, find};
use crate::disk::{Direction, Drive, Scheduler};
use crate::fs::FfsParams;
use crate::machine::{BufferedParams, Kind, Machine, MachineConfig, Report, RunOptions};
use crate::request::{Catalogue, Op, Request};
use crate::requests::Requests;

pub(super) const FILES: u64 = 50_000;
pub(super) const FILE_BYTES: u64 = 1_000;
pub(super) const TRACE_REQUESTS: usize = 18_000;
const SERIES_EVERY: usize = 1_000;
/// What §5.3.1 wrote raw, once so and once as one file.
const RAW_FILES: u64 = 1_000;
const RAW_FILE_BYTES: u64 = 512;
/// Of a trace that is given; a synthetic one may be scaled down as far as anybody likes.
const NEEDED: usize = 1_000;

/// The three stages, and the trace.
struct Stages {
    create: Report,
    read: Report,
    delete: Report,
}

/// §5.1: 1 GB of memory, of which half is taken for buffers here.
const MEMORY_BYTES: u64 = 512 << 20;

/// ext2 with its usual 4 KB blocks.
fn ext2_files() -> FfsParams {
    FfsParams::ext2(4 << 10, MEMORY_BYTES)
}

fn machine(scheduler: Scheduler, files: FfsParams) -> Machine {
    Machine::new(&machine_config(scheduler, files))
}

fn machine_config(scheduler: Scheduler, files: FfsParams) -> MachineConfig {
    let drive = Drive::named("ibm-9lzx").expect("a drive of the registry");
    MachineConfig {
        scheduler,
        files,
        buffered: BufferedParams::linux_2_2(MEMORY_BYTES),
        ..MachineConfig::new(drive)
    }
}

/// Where ext2 has its files: an assumption.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Of the microbenchmarks, all of whose objects are of one host.
    name: &'static str,
    /// Of the trace.
    of_trace: &'static str,
    design: &'static str,
}

const LAYOUTS: [Layout; 2] = [
    Layout { name: "4,096 directories", of_trace: "4,096 directories by number", design: "squid" },
    Layout { name: "one directory", of_trace: "a directory for a host", design: "squidl" },
];

fn ext2(layout: Layout) -> Box<dyn Design> {
    let options = DesignOptions::default();
    let drive = Drive::named("ibm-9lzx").expect("a drive of the registry");
    let inputs = DesignInputs { options: &options, requests: Requests::NONE, drive: &drive };
    (find(layout.design).expect("a design of the registry").make)(&inputs)
}

pub(super) fn requests(count: u64, size_bytes: u64, op: Op) -> Vec<Request> {
    let request = |key| Request { time_us: 0, client: 0, key, size_bytes, host: 0, op };
    (0..count).map(request).collect()
}

fn stages(
    paper: &PaperOptions<'_>,
    design: &mut dyn Design,
    mut machine: Machine,
    count: u64,
) -> Result<Stages, PaperError> {
    let names = Catalogue::new();
    let every = RunOptions { series_every: SERIES_EVERY, ..RunOptions::default() };
    let cold = RunOptions { cold_start: true, ..every };
    let mut stage = |op, run| {
        let requests = requests(count, FILE_BYTES, op);
        let play = Play { requests: &requests, names: &names, run, what: "cfs" };
        paper.play(design, &mut machine, play)
    };
    Ok(Stages {
        create: stage(Op::Write, every)?,
        read: stage(Op::Read, cold)?,
        delete: stage(Op::Delete, every)?,
    })
}

/// Seconds until raw writes of so many files are on the disk (§5.3.1).
fn raw_seconds(paper: &PaperOptions<'_>, files: u64, size_bytes: u64) -> Result<f64, PaperError> {
    let options = CfsOptions { buffered: false, block_bytes: 512, ..CfsOptions::default() };
    let requests = requests(files, size_bytes, Op::Write);
    let mut machine = machine(Scheduler::Fcfs, ext2_files());
    let (mut design, names) = (Cfs::design(options), Catalogue::new());
    let (run, what) = (RunOptions::default(), "raw writes of cfs");
    let play = Play { requests: &requests, names: &names, run, what };
    paper.play(&mut *design, &mut machine, play).map(|report| seconds(&report))
}

fn seconds(report: &Report) -> f64 {
    report.drained_ns as f64 / 1e9
}

fn ms_each(report: &Report) -> f64 {
    seconds(report) * 1e3 / report.requests.max(1) as f64
}

pub(super) fn saved(ours: f64, theirs: f64) -> f64 {
    100.0 * (1.0 - ours / theirs.max(1e-9))
}

fn improvement(ours: &Report, theirs: &Report) -> f64 {
    saved(seconds(ours), seconds(theirs))
}

/// The thousand of a stage that half of the thousands are faster than: what is left without bursts.
fn median_ms(report: &Report) -> f64 {
    let mut sorted = report.series_ms.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn points(report: &Report) -> Vec<(f64, f64)> {
    let x = |at: usize| (at * SERIES_EVERY) as f64;
    report.series_ms.iter().enumerate().map(|(at, ms)| (x(at), *ms)).collect()
}

const WHY_DELETES: &str = "The lab counts disk time only, until everything is on the disk. CFS \
    deletes in memory, ext2 writes directories, inodes and maps. In which directories ext2 had \
    its files the paper does not say; both layouts are assumptions.";

const WHY_NO_HASH: &str = "saves processor time only, which the lab does not count";

const WHY_CREATES: &str = "The lab counts disk time only, until everything is on the disk. In \
    4,096 directories ext2 writes more requests, in more places, than in one, which comes nearer \
    to the paper's number; which it had the paper does not say. A raw write waits for a \
    revolution of the drive, since nothing joins it with its neighbours: the paper's 6 ms for \
    each of a thousand raw files are the same here. Buffered creates are cheaper here than there: \
    their disk time alone, against some 0.9 ms (6 ms over 6 to 7) that must have been the \
    processor's for the most part. So the ratio of the two is greater. The paper's 36 \
    microseconds for 512,000 bytes are 14 GB/s, which no drive of its time writes: that file went \
    to memory.";

const WHY_READ: &str = "Read cold, in the order of creation, the disk's time only. CFS reads \
    blocks of 1 KB side by side. ext2 keeps 4 KB for each file of 1 KB and reads inodes and \
    directories besides. In one directory files and inodes lie in the order of creation, and ext2 \
    is little slower than CFS, as in the paper between its bursts; in a tree of 4,096 directories \
    neighbours in time are in different places, and each read is a seek. FIFO and elevator are \
    the same here, since one caller waits for each read and no queue forms. The paper found them \
    the same, too, but not for that reason: its creates and reads are queued and return, and only \
    sync waits (§4.2, §4.4). Files that are read in the order in which they lie leave an elevator \
    nothing to change in either.";

const WHY_BURSTS: &str = "Reading a file changes its access time, which ext2 keeps in the inode \
    and writes out every 30 seconds. In the tree of 4,096 directories reads that come then wait \
    behind those writes, which is like the first of the paper's two hypotheses, of buffers that \
    are written out; as many inodes are read without access times, and no read takes long. In one \
    directory those writes are few and side by side, and hardly slow a read down. So this is what \
    may have happened, not what did: the lab has no burst that does not depend on the layout.";

const WHY_TRACE: &str = "The paper's trace is not to be had; ours has other sizes and another hit \
    rate. All of it fits in memory on both sides, so what is compared is writing: CFS writes data \
    in runs, ext2 data, inodes, directories and maps, which are fewer where files that come \
    together share a directory. In which directories the paper's ext2 had its files is not known. The \
    paper reads a stale file before it deletes it (§5.1); here neither side does.";

/// ext2's stages in one layout, with access times and without.
struct Ext2 {
    layout: Layout,
    timed: Stages,
    untimed: Stages,
}

fn measure_ext2(paper: &PaperOptions<'_>, count: u64) -> Result<Vec<Ext2>, PaperError> {
    let one = |layout| {
        let on = |files| {
            let machine = machine(Scheduler::OneWayElevator, files);
            stages(paper, &mut *ext2(layout), machine, count)
        };
        let timed = on(ext2_files())?;
        let untimed = on(FfsParams { update_access_time: false, ..ext2_files() })?;
        Ok(Ext2 { layout, timed, untimed })
    };
    LAYOUTS.into_iter().map(one).collect()
}

/// CFS's stages: by FIFO, by elevator, and raw.
struct Ours {
    fifo: Stages,
    elevator: Stages,
    raw: Stages,
}

fn measure_cfs(paper: &PaperOptions<'_>, count: u64) -> Result<Ours, PaperError> {
    let on = |options, scheduler| {
        stages(paper, &mut *Cfs::design(options), machine(scheduler, ext2_files()), count)
    };
    let raw = CfsOptions { buffered: false, ..CfsOptions::default() };
    Ok(Ours {
        fifo: on(CfsOptions::default(), Scheduler::Fcfs)?,
        elevator: on(CfsOptions::default(), Scheduler::OneWayElevator)?,
        raw: on(raw, Scheduler::Fcfs)?,
    })
}

/// Measures tables 2 to 6.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    if let Some(trace) = &options.trace {
        check_length(trace, NEEDED)?;
    }
    let count = (FILES / u64::from(options.scale_down)).max(1_000);
    let (cfs, ext2) = (measure_cfs(options, count)?, measure_ext2(options, count)?);
    let of = files(count);
    let mut tables = vec![deletes(&cfs, &ext2, &of), creates(options, &cfs, &ext2, &of)?];
    tables.push(reads(&cfs, &ext2, &of));
    tables.push(bursts(&cfs, &ext2));
    let (table_6, store) = trace_tables(options)?;
    tables.extend([table_6, store]);
    tables.extend(beside_stages(options, count)?);
    Ok(tables)
}

/// Every design on the files of tables 2 to 5.
fn beside_stages(paper: &PaperOptions<'_>, count: u64) -> Result<Vec<Exhibit>, PaperError> {
    let [create, read, delete] =
        [Op::Write, Op::Read, Op::Delete].map(|op| requests(count, FILE_BYTES, op));
    let run = RunOptions::default();
    let cold = RunOptions { cold_start: true, ..run };
    let options = DesignOptions { memory_bytes: STORE_MEMORY_BYTES, ..DesignOptions::default() };
    let stages = [(&create, run), (&read, cold), (&delete, run)];
    let workload = beside::Workload {
        paper,
        stages: &stages.map(|(requests, run)| beside::Stage::of(requests, run)),
        names: &Catalogue::new(),
        config: &machine_config(Scheduler::OneWayElevator, ext2_files()),
        options: &options,
        what: "every design on cfs's files",
    };
    let rows = workload.all()?;
    let table = |(at, what)| {
        let title = format!("{what} of {}", files(count));
        beside::exhibit(&title, &beside::stage_of(&rows, at), WHY_STORE_FILES)
    };
    Ok([(0, "creates"), (1, "reads"), (2, "deletes")].map(table).to_vec())
}

/// Of designs that have their own, a tenth of the files of tables 2 to 5 at most: it is not emptied
/// before they are read.
const STORE_MEMORY_BYTES: u64 = 4 << 20;

const WHY_STORE_FILES: &str = "Ours alone; by one-way elevator, one file after the other, in the \
    order of creation, reads with the system's caches emptied before. Designs that have memory of \
    their own have 4 MB of it, less than a tenth of the files, since nothing empties that; files \
    and CFS's blocks have the paper's 512 MB. All files are of one host.";

/// Rows of a stage that each layout has.
fn add_layouts(
    table: &mut Exhibit,
    published: Published,
    cfs: &Report,
    ext2: &[Ext2],
    of: fn(&Stages) -> &Report,
) {
    for Ext2 { layout, timed, .. } in ext2 {
        let faster = improvement(cfs, of(timed));
        table.row(format!("CFS faster than ext2 by, {}", layout.name), "%", published, faster);
    }
    let requests = |report: &Report| report.io.total() as f64;
    table.row("disk requests of CFS", "requests", Published::Ours, requests(cfs));
    for Ext2 { layout, timed, .. } in ext2 {
        let label = format!("disk requests of ext2, {}", layout.name);
        table.row(label, "requests", Published::Ours, requests(of(timed)));
    }
    table.row("time of CFS for each", "ms", Published::Ours, ms_each(cfs));
    for Ext2 { layout, timed, .. } in ext2 {
        let label = format!("time of ext2 for each, {}", layout.name);
        table.row(label, "ms", Published::Ours, ms_each(of(timed)));
    }
}

/// Table 2.
fn deletes(cfs: &Ours, ext2: &[Ext2], files: &str) -> Exhibit {
    let mut table = Exhibit::new("table 2", &format!("Deletes of {files}"), WHY_DELETES);
    let published = Published::AtLeast(95.0);
    add_layouts(&mut table, published, &cfs.fifo.delete, ext2, |stages| &stages.delete);
    table.not_measured("CFS with an integer beside each MD5", "s", Published::Picture, WHY_NO_HASH);
    table.not_measured("CFS with a simpler hash", "s", Published::Picture, WHY_NO_HASH);
    table
}

/// Table 3, and the two measurements of raw writes.
fn creates(
    paper: &PaperOptions<'_>,
    cfs: &Ours,
    ext2: &[Ext2],
    files: &str,
) -> Result<Exhibit, PaperError> {
    let mut table = Exhibit::new("table 3", &format!("Creates of {files}"), WHY_CREATES);
    let (fifo, elevator) = (&cfs.fifo.create, &cfs.elevator.create);
    add_layouts(&mut table, Published::AtLeast(60.0), fifo, ext2, |stages| &stages.create);
    let faster = improvement(elevator, fifo);
    table.row("elevator faster than FIFO by", "%", Published::Value(0.0), faster);
    let slower = seconds(&cfs.raw.create) / seconds(fifo).max(1e-9);
    table.row("raw slower than buffered (§4.5)", "times", Published::Range(6.0, 7.0), slower);
    let small_s = raw_seconds(paper, RAW_FILES, RAW_FILE_BYTES)?;
    let what = "1,000 raw files of 512 bytes (§5.3.1)";
    table.row(what, "s", Published::Value(6.0), small_s);
    let large_ms = raw_seconds(paper, 1, RAW_FILES * RAW_FILE_BYTES)? * 1e3;
    let what = "one raw file of 512,000 bytes (§5.3.1)";
    table.row(what, "ms", Published::Value(0.036), large_ms);
    table.not_measured("CFS with a simpler hash", "s", Published::Picture, WHY_NO_HASH);
    Ok(table)
}

/// Table 4.
fn reads(cfs: &Ours, ext2: &[Ext2], files: &str) -> Exhibit {
    let mut table = Exhibit::new("table 4", &format!("Reads of {files}"), WHY_READ);
    let fifo = &cfs.fifo.read;
    add_layouts(&mut table, Published::About(65.0), fifo, ext2, |stages| &stages.read);
    for Ext2 { layout, timed, .. } in ext2 {
        // The paper: "marginally".
        let faster = saved(median_ms(fifo), median_ms(&timed.read));
        let label = format!("the same of the median thousand, {}", layout.name);
        table.row(label, "%", Published::About(0.0), faster);
    }
    let faster = improvement(&cfs.elevator.read, fifo);
    table.row("elevator faster than FIFO by", "%", Published::Value(0.0), faster);
    table.axes("reads", "mean milliseconds of a thousand");
    table.series("CFS, ms", points(fifo));
    for Ext2 { layout, timed, .. } in ext2 {
        table.series(format!("ext2, {}, ms", layout.name), points(&timed.read));
    }
    table
}

/// Table 5, and what tells the paper's two hypotheses apart: ext2 that keeps no access times.
fn bursts(cfs: &Ours, ext2: &[Ext2]) -> Exhibit {
    let mut table = Exhibit::new("table 5", "Slow bursts of ext2's reads", WHY_BURSTS);
    let slowest = cfs.fifo.read.responses.max_ms();
    table.row("slowest read of CFS", "ms", Published::Picture, slowest);
    for Ext2 { layout, timed, untimed } in ext2 {
        let mean = timed.read.responses.mean_ms();
        let label = format!("mean read of ext2, {}", layout.name);
        table.row(label, "ms", Published::Picture, mean);
        for (times, of) in [("", timed), (", no access times", untimed)] {
            let report = &of.read;
            let published = if times.is_empty() { Published::Picture } else { Published::Ours };
            let mut add = |what: &str, unit, published, value| {
                let label = format!("{what} of ext2, {}{times}", layout.name);
                table.row(label, unit, published, value);
            };
            add("slowest read", "ms", published, report.responses.max_ms());
            for (what, direction) in
                [("inodes read", Direction::Read), ("inodes written", Direction::Write)]
            {
                let count = report.io.requests(direction, Kind::Inode) as f64;
                add(what, "requests", Published::Ours, count);
            }
        }
    }
    table
}

/// The files of tables 2 to 4, as many as there are.
pub(super) fn files(count: u64) -> String {
    match count {
        FILES => "50,000 files of 1 KB".to_owned(),
        fewer => format!("{fewer} files of 1 KB"),
    }
}

/// The requests of table 6, as many as there are.
fn title(requests: usize) -> String {
    match requests {
        TRACE_REQUESTS => "18,000 requests".to_owned(),
        fewer => format!("{fewer} requests"),
    }
}

/// Table 6: 18,000 requests; hits are read, misses created, stale ones deleted and created again.
fn trace_tables(options: &PaperOptions<'_>) -> Result<(Exhibit, Exhibit), PaperError> {
    let mut made = None;
    let trace = workload(options, TRACE_REQUESTS, &mut made)?;
    let requests = &trace.requests[..trace.requests.len().min(TRACE_REQUESTS)];
    let one = |design: &mut dyn Design, scheduler| {
        let mut machine = machine(scheduler, ext2_files());
        let (run, what) = (RunOptions::default(), "table 6 of cfs");
        options.play(design, &mut machine, Play { requests, names: trace.names, run, what })
    };
    let cfs = one(&mut *Cfs::design(CfsOptions::default()), Scheduler::Fcfs)?;
    let ext2: Vec<Report> = LAYOUTS
        .into_iter()
        .map(|layout| one(&mut *ext2(layout), Scheduler::OneWayElevator))
        .collect::<Result<_, _>>()?;
    let what = format!("A day of a proxy, {}", title(requests.len()));
    let mut table = Exhibit::new("table 6", &what, WHY_TRACE);
    for (layout, report) in LAYOUTS.iter().zip(&ext2) {
        let label = format!("CFS faster than ext2 by, {}", layout.of_trace);
        table.row(label, "%", Published::About(50.0), improvement(&cfs, report));
    }
    table.row("hit rate", "%", Published::Ours, cfs.hit_percent());
    table.row("disk requests of CFS", "requests", Published::Ours, cfs.io.total() as f64);
    for (layout, report) in LAYOUTS.iter().zip(&ext2) {
        let label = format!("disk requests of ext2, {}", layout.of_trace);
        table.row(label, "requests", Published::Ours, report.io.total() as f64);
    }
    // Beside each other all have the same scheduler; the paper's CFS above has its FIFO.
    let config = machine_config(Scheduler::OneWayElevator, ext2_files());
    let own = DesignOptions { memory_bytes: MEMORY_BYTES, ..DesignOptions::default() };
    let (run, what) = (RunOptions::default(), "every design on cfs's table 6");
    let play = Play { requests, names: trace.names, run, what };
    let rows = beside::all(options, play, &config, &own)?;
    let of_a_proxy = format!("{} of a proxy", title(requests.len()));
    Ok((table, beside::exhibit(&of_a_proxy, &rows, WHY_STORE)))
}

const WHY_STORE: &str = "Ours alone; the drive serves each of them by one-way elevator. All that \
    is asked for again is in memory on each side. CFS writes blocks late and in runs through the \
    system's buffers, the store in pages and in extents of up to a megabyte.";
