//! CFS against ext2 (McCormick and Ledlie 2000, tables 2 to 6): three microbenchmarks of 50,000 files
//! of 1 KB, and a day of a proxy.
//!
//! The paper's tables are pictures; the text gives improvements. Improvement here is one minus the
//! ratio of the times until the disks have done everything. Threads: one user.

use super::beside;
use super::workload::{check_length, requests as workload};
use super::{Exhibit, PaperError, PaperOptions, Published, in_what};
use crate::design::{Cfs, CfsOptions, Context, Design, DesignOptions, find};
use crate::disk::{Direction, Drive, Scheduler};
use crate::fs::FfsParams;
use crate::machine::{
    BufferedParams, Kind, Machine, MachineConfig, Report, RunOptions, run as play,
};
use crate::request::{Catalogue, Op, Request};

const FILES: u64 = 50_000;
const FILE_BYTES: u64 = 1_000;
const TRACE_REQUESTS: usize = 18_000;
/// Of a trace that is given; a synthetic one may be scaled down as far as anybody likes.
const NEEDED: usize = 1_000;

/// The three stages, and the trace.
struct Stages {
    create: Report,
    read: Report,
    delete: Report,
}

/// §5.1: 1 GB of memory, of which half is taken for buffers here; ext2 with its usual 4 KB blocks.
fn ext2_files() -> FfsParams {
    FfsParams::ext2(4 << 10, 512 << 20)
}

fn machine(scheduler: Scheduler, files: FfsParams) -> Machine {
    let drive = Drive::named("ibm-9lzx").expect("a drive of the registry");
    Machine::new(&MachineConfig {
        scheduler,
        files,
        buffered: BufferedParams::linux_2_2(512 << 20),
        ..MachineConfig::new(drive)
    })
}

fn ext2() -> Box<dyn Design> {
    let options = DesignOptions::default();
    let drive = Drive::named("ibm-9lzx").expect("a drive of the registry");
    let context = Context { options: &options, requests: &[], drive: &drive };
    (find("squid").expect("a design of the registry").make)(&context)
}

fn requests(count: u64, op: Op) -> Vec<Request> {
    let request = |key| Request {
        time_us: 0,
        client: 0,
        key,
        size_bytes: FILE_BYTES,
        host: (key % 676) as u32,
        op,
    };
    (0..count).map(request).collect()
}

fn stages(design: &mut dyn Design, mut machine: Machine, count: u64) -> Result<Stages, PaperError> {
    let names = Catalogue::new();
    let every = RunOptions { series_every: 1_000, ..RunOptions::default() };
    let cold = RunOptions { cold_start: true, ..every };
    let mut stage = |op, options| {
        play(design, &mut machine, &requests(count, op), &names, options).map_err(in_what("cfs"))
    };
    Ok(Stages {
        create: stage(Op::Write, every)?,
        read: stage(Op::Read, cold)?,
        delete: stage(Op::Delete, every)?,
    })
}

fn improvement(ours: &Report, theirs: &Report) -> f64 {
    100.0 * (1.0 - ours.drained_ns as f64 / theirs.drained_ns.max(1) as f64)
}

fn points(report: &Report) -> Vec<(f64, f64)> {
    report.series_ms.iter().enumerate().map(|(i, ms)| (i as f64 * 1_000.0, *ms)).collect()
}

const WHY_MICRO: &str = "The lab counts disk time only. The paper's machine had memory for all \
files, so that much of what it measured is the processor's work in system calls, which is not \
modelled; both systems here are compared by the time until everything is on the disk. Raw writes lose a revolution \
each, since nothing joins them and the modelled drive acknowledges no write early; the paper's drive \
seems to have.";

const WHY_READ: &str = "Read cold, in the order of creation. ext2 keeps 4 KB for each file of 1 KB \
and reads directories and inodes besides, CFS reads 1 KB blocks side by side, so the gap is wider than \
the paper's, whose files were still in memory for most of the time. FIFO and elevator are the same for one \
caller that waits for each operation, as the paper found too.";

const WHY_BURSTS: &str = "Reading a file changes its access time, which ext2 keeps in the inode and writes out \
every 30 seconds. Reads that come then wait behind those writes: the first of the paper's two hypotheses, of buffers that \
are written out. The second, that inodes and directories have to be read, is not it: without access times as many of \
them are read, and no read takes long.";

/// Measures tables 2 to 6.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    if let Some(trace) = &options.trace {
        check_length(trace, NEEDED)?;
    }
    let count = (FILES / u64::from(options.scale_down)).max(1_000);
    let cfs = |options, scheduler| {
        stages(&mut *Cfs::design(options), machine(scheduler, ext2_files()), count)
    };
    let fifo = cfs(CfsOptions::default(), Scheduler::Fcfs)?;
    let elevator = cfs(CfsOptions::default(), Scheduler::OneWayElevator)?;
    let raw = CfsOptions { buffered: false, ..CfsOptions::default() };
    let raw = cfs(raw, Scheduler::Fcfs)?;
    let on = |files| stages(&mut *ext2(), machine(Scheduler::OneWayElevator, files), count);
    let ext2 = on(ext2_files())?;
    let untimed = on(FfsParams { update_access_time: false, ..ext2_files() })?;

    let mut deletes = Exhibit::new("table 2", "Deletes of 50,000 files of 1 KB", WHY_MICRO);
    let faster = improvement(&fifo.delete, &ext2.delete);
    deletes.row("CFS faster than ext2 by", "%", Published::AtLeast(95.0), faster);
    deletes.row(
        "disk requests of CFS",
        "requests",
        Published::Value(0.0),
        fifo.delete.io.total() as f64,
    );
    deletes.row(
        "disk requests of ext2",
        "requests",
        Published::Ours,
        ext2.delete.io.total() as f64,
    );

    let mut creates = Exhibit::new("table 3", "Creates of 50,000 files of 1 KB", WHY_MICRO);
    let faster = improvement(&fifo.create, &ext2.create);
    creates.row("CFS (FIFO) faster than ext2 by", "%", Published::AtLeast(60.0), faster);
    let faster = improvement(&elevator.create, &fifo.create);
    creates.row("elevator faster than FIFO by", "%", Published::Value(0.0), faster);
    let slower = raw.create.drained_ns as f64 / fifo.create.drained_ns.max(1) as f64;
    creates.row("raw slower than buffered (§4.5)", "times", Published::Range(6.0, 7.0), slower);
    creates.row("disk requests of CFS", "requests", Published::Ours, fifo.create.io.total() as f64);
    creates.row(
        "disk requests of ext2",
        "requests",
        Published::Ours,
        ext2.create.io.total() as f64,
    );

    let mut reads = Exhibit::new("table 4", "Reads of 50,000 files of 1 KB", WHY_READ);
    let faster = improvement(&fifo.read, &ext2.read);
    reads.row("CFS faster than ext2 by, bursts included", "%", Published::About(65.0), faster);
    let faster = improvement(&elevator.read, &fifo.read);
    reads.row("elevator faster than FIFO by", "%", Published::Value(0.0), faster);
    reads.axes("reads", "mean milliseconds of a thousand");
    reads.series("CFS, ms", points(&fifo.read));
    reads.series("ext2, ms", points(&ext2.read));

    let (table_6, store) = trace_tables(options)?;
    Ok(vec![deletes, creates, reads, bursts(&ext2.read, &untimed.read, &fifo.read), table_6, store])
}

/// Table 5, and what tells the paper's two hypotheses apart: ext2 that keeps no access times.
fn bursts(ext2: &Report, untimed: &Report, cfs: &Report) -> Exhibit {
    let mut table = Exhibit::new("table 5", "Slow bursts of ext2's reads", WHY_BURSTS);
    table.row("slowest read of ext2", "ms", Published::Picture, ext2.responses.max_ms());
    table.row("mean read of ext2", "ms", Published::Picture, ext2.responses.mean_ms());
    table.row("slowest read of CFS", "ms", Published::Picture, cfs.responses.max_ms());
    for (name, report) in [("with", ext2), ("without", untimed)] {
        let mut ours = |what: &str, unit, value| {
            table.row(format!("ext2 {name} access times, {what}"), unit, Published::Ours, value);
        };
        ours("slowest read", "ms", report.responses.max_ms());
        ours("inodes read", "requests", report.io.requests(Direction::Read, Kind::Inode) as f64);
        ours(
            "inodes written",
            "requests",
            report.io.requests(Direction::Write, Kind::Inode) as f64,
        );
    }
    table
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
        play(design, &mut machine, requests, trace.names, RunOptions::default())
            .map_err(in_what("table 6 of cfs"))
    };
    let cfs = one(&mut *Cfs::design(CfsOptions::default()), Scheduler::Fcfs)?;
    let ext2 = one(&mut *ext2(), Scheduler::OneWayElevator)?;
    let mut table = Exhibit::new(
        "table 6",
        &format!("A day of a proxy, {}", title(requests.len())),
        "The paper's trace is not to be had; ours has other sizes and another hit rate. All of it fits \
         in memory on both sides, so what is compared is writing: CFS writes data in runs, ext2 data, \
         inodes, directories and maps.",
    );
    table.row("CFS faster than ext2 by", "%", Published::About(50.0), improvement(&cfs, &ext2));
    table.row("hit rate", "%", Published::Ours, cfs.hit_percent());
    table.row("disk requests of CFS", "requests", Published::Ours, cfs.io.total() as f64);
    table.row("disk requests of ext2", "requests", Published::Ours, ext2.io.total() as f64);
    let drive = Drive::named("ibm-9lzx").expect("a drive of the registry");
    let options = DesignOptions { memory_bytes: 512 << 20, ..DesignOptions::default() };
    let context = Context { options: &options, requests, drive: &drive };
    let mut store = (find("store").expect("a design of the registry").make)(&context);
    // Beside each other all have the same scheduler; the paper's CFS above has its FIFO.
    let order = Scheduler::OneWayElevator;
    let (store, cfs) =
        (one(&mut *store, order)?, one(&mut *Cfs::design(CfsOptions::default()), order)?);
    let rows = [("cfs", &cfs), ("ext2", &ext2), ("store", &store)].map(|(n, r)| (n.to_owned(), r));
    let of_a_proxy = format!("{} of a proxy", title(requests.len()));
    Ok((table, beside::exhibit(&of_a_proxy, &rows, WHY_STORE)))
}

const WHY_STORE: &str = "Ours alone; the drive serves each of them by one-way elevator. All that is asked for again is in memory on each side. CFS writes blocks late \
and in runs through the system's buffers, the store in pages and in extents of up to a megabyte.";
