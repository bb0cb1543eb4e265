//! UCFS against Squid on FFS, on asynchronous FFS, and SquidML (Wang et al. 2002, tables 2 to 5,
//! figures 6 to 12).
//!
//! Memory is scaled with what the trace holds: the paper's 256 MB for files stood against tens of
//! gigabytes. Squid's directories are scaled with memory, or their blocks alone would fill it. All
//! is of requests at the trace's pace, so that what a system writes now and then, as FFS and the
//! mapped file do every 30 seconds, is written as often as it would be; a write that nobody waits
//! for delays nobody while the disk has time. Threads: one user.

use super::beside;
use super::playing::Play;
use super::workload::{check_length, requests as workload, second_level};
use super::{Exhibit, PaperError, PaperOptions, Published, Trace};
use crate::design::{
    Changes, Design, DesignInputs, DesignOptions, GroupRule, Ucfs, UcfsOptions, find,
};
use crate::disk::{Direction, Drive};
use crate::fs::FfsParams;
use crate::lru::NumberMap;
use crate::machine::{Machine, MachineConfig, MappedOn, Pace, Report, RunOptions};
use crate::request::Request;
use crate::requests::Requests;
use crate::trace::sort_by_time;
use crate::vm::VmParams;

pub(super) const SYNTHETIC_REQUESTS: usize = 400_000;
const NEEDED: usize = 1_000;
pub(super) const SCALE_DOWN_MAX: u32 = (SYNTHETIC_REQUESTS / NEEDED) as u32;
/// §4.3.2.
const WARMUP: usize = 150_000;
/// What the trace holds, divided by the memory for files.
const FOOTPRINT_TO_MEMORY: u64 = 64;
const CLUSTER_BYTES: u32 = 64 << 10;
/// The largest of figure 11.
const CLUSTER_BYTES_MAX: u32 = 256 << 10;

/// Memory for files in the paper (§4.1).
const PAPER_MEMORY_BYTES: u64 = 256 << 20;
/// Requests under way at once at the trace's pace: more than ever are.
const CLIENTS: u32 = 64;

#[derive(Clone, Copy)]
struct Setting<'a> {
    paper: &'a PaperOptions<'a>,
    requests: &'a [Request],
    trace: Trace<'a>,
    memory_bytes: u64,
    /// What the trace holds.
    footprint_bytes: u64,
    warmup: usize,
}

/// Facts of a report that are the file system's, not the design's.
const NAMES_LOOKED_UP: &str = "names_looked_up";
const NAMES_FOUND: &str = "names_found";

impl Setting<'_> {
    fn config(&self, files: FfsParams, mapped: bool, memory_bytes: u64) -> MachineConfig {
        let share = if mapped { memory_bytes / 2 } else { memory_bytes };
        let drive = Drive::named("atlas-10k-tripled").expect("a drive of the registry");
        // About as many names as there are directories, fitted to the 60 to 70% of lookups that
        // §4.2.1 observes to be found, on bu95; a row of figure 6 has what is found.
        let names = (memory_bytes / (64 << 10)).max(64) as u32;
        // §4.1: one disk for each system. The mapped file never replaces anything; an object takes
        // less than four times its size there.
        let mapped_bytes = (4 * self.footprint_bytes).min(drive.size_bytes() / 4);
        let mapped_on = match mapped {
            true => MappedOn::FilesDisk { bytes: mapped_bytes },
            false => MappedOn::OwnDisk,
        };
        MachineConfig {
            files: FfsParams { buffer_cache_bytes: share, name_cache_entries: names, ..files },
            mapped: VmParams { memory_bytes: share, ..VmParams::default() },
            mapped_on,
            ..MachineConfig::new(drive)
        }
    }

    fn run_options(&self) -> RunOptions {
        let (clients, pace, warmup) = (CLIENTS, Pace::Trace, self.warmup);
        RunOptions { clients, pace, warmup, ..RunOptions::default() }
    }

    fn play(&self, what: &'static str) -> Play<'_> {
        let (requests, names, run) = (self.requests, self.trace.names, self.run_options());
        Play { requests, names, run, what }
    }

    fn run(&self, design: &mut dyn Design, config: &MachineConfig) -> Result<Report, PaperError> {
        let mut machine = Machine::new(config);
        let mut report = self.paper.play(design, &mut machine, self.play("the systems of ucfs"))?;
        let (looked_up, missing) = machine.files().name_cache_counts();
        report.facts.extend([(NAMES_LOOKED_UP, looked_up), (NAMES_FOUND, looked_up - missing)]);
        Ok(report)
    }

    fn systems(&self) -> Result<Systems, PaperError> {
        Ok(Systems {
            squid: self.squid("squid", FfsParams::bsd_4k(), self.memory_bytes)?,
            asynchronous: self.squid("squid", FfsParams::bsd_4k_async(), self.memory_bytes)?,
            squidml: self.squid("squidml", FfsParams::bsd_4k(), self.memory_bytes)?,
            ucfs: self.ucfs(CLUSTER_BYTES, self.memory_bytes)?,
        })
    }

    /// Directories go with the trace, as memory does that is not varied.
    fn second_level(&self) -> u32 {
        second_level(self.memory_bytes, PAPER_MEMORY_BYTES)
    }

    fn squid(&self, name: &str, files: FfsParams, memory_bytes: u64) -> Result<Report, PaperError> {
        let squid_second_level = self.second_level();
        let options = DesignOptions { squid_second_level, ..DesignOptions::default() };
        let config = self.config(files, name == "squidml", memory_bytes);
        let inputs =
            DesignInputs { options: &options, requests: Requests::NONE, drive: &config.drive };
        let mut design = (find(name).expect("a design of the registry").make)(&inputs);
        self.run(&mut *design, &config)
    }

    /// Every design, and the paper's FFS that writes nothing at once.
    fn all(&self, asynchronous: Report) -> Result<Vec<(String, Report)>, PaperError> {
        let options = DesignOptions {
            memory_bytes: self.memory_bytes,
            grouping: GroupRule::HostPath,
            squid_second_level: self.second_level(),
            ..DesignOptions::default()
        };
        let config = self.config(FfsParams::bsd_4k(), false, self.memory_bytes);
        let play = self.play("every design on ucfs's trace");
        let mut rows = beside::all(self.paper, play, &config, &options)?;
        rows.insert(0, ("squid on FFS-async".to_owned(), asynchronous));
        Ok(rows)
    }

    fn ucfs(&self, cluster_bytes: u32, memory_bytes: u64) -> Result<Report, PaperError> {
        self.ucfs_with(UcfsOptions { cluster_bytes, memory_bytes, ..UcfsOptions::default() })
    }

    fn ucfs_with(&self, options: UcfsOptions) -> Result<Report, PaperError> {
        // What the largest clusters need, so that figure 11 gives all of them the same.
        let memory_bytes = options.memory_bytes.max(8 * u64::from(CLUSTER_BYTES_MAX));
        let options = UcfsOptions { memory_bytes, grouping: GroupRule::HostPath, ..options };
        let mut design = Ucfs::new(options, Requests::NONE, Changes::Replace);
        self.run(&mut design, &self.config(FfsParams::bsd_4k(), false, memory_bytes))
    }
}

/// Those of objects that are cached, in order: §2.2 caches nothing larger than 256 KB.
pub(super) fn cacheable(trace: &Trace<'_>) -> Vec<Request> {
    let mut requests: Vec<Request> =
        trace.requests.iter().filter(|r| r.size_bytes <= 256 << 10).copied().collect();
    sort_by_time(&mut requests);
    requests
}

/// Measures tables 2 to 5 and figures 6 to 12.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let mut made = None;
    let trace = workload(options, SYNTHETIC_REQUESTS, &mut made)?;
    check_length(&trace, NEEDED)?;
    let requests = cacheable(&trace);
    let mut sizes: NumberMap<u64, u64> = NumberMap::default();
    requests.iter().filter(|r| r.has_body()).for_each(|r| {
        sizes.insert(r.key, r.size_bytes);
    });
    let footprint_bytes: u64 = sizes.values().sum();
    let warmup = WARMUP.min(requests.len() / 4);
    let memory_bytes = (footprint_bytes / FOOTPRINT_TO_MEMORY).max(1 << 20);
    let (paper, requests) = (options, &requests[..]);
    let setting = Setting { paper, requests, trace, memory_bytes, footprint_bytes, warmup };
    let systems = setting.systems()?;
    let mut tables = vec![table_2(&setting), table_3(&systems), table_4(&systems)];
    tables.push(table_5(&setting, &systems)?);
    tables.extend([figure_6(&systems), figure_7(&systems), figure_8(&systems)]);
    tables.extend([figure_9(&systems), figure_10(&systems)]);
    tables.push(figure_11(&setting)?);
    tables.push(figure_12(&setting)?);
    let rows = setting.all(systems.asynchronous)?;
    tables.push(beside::exhibit("objects of up to 256 KB", &rows, WHY_STORE));
    Ok(tables)
}

const WHY_STORE: &str = "Ours alone. All have the same memory. Dámelo keeps no object that is larger than a page, so \
that it writes and hits less. UCFS drops what nobody used for 115 hours and writes only what leaves memory; the \
store writes every object soon after it came, since it promises to have it after a crash, and keeps it for as \
long as there is room. Its journal lies in mapped memory, whose blocks the system writes every 30 seconds: at a trace's slow \
pace these are most of its writes.";

struct Systems {
    squid: Report,
    asynchronous: Report,
    squidml: Report,
    ucfs: Report,
}

impl Systems {
    fn baselines(&self) -> [(&'static str, &Report); 3] {
        [
            ("SQUID/FFS", &self.squid),
            ("SQUID/FFS-async", &self.asynchronous),
            ("SQUIDML/FFS", &self.squidml),
        ]
    }

    fn all(&self) -> [(&'static str, &Report); 4] {
        let [a, b, c] = self.baselines();
        [a, b, c, ("UCFS", &self.ucfs)]
    }
}

fn table_2(setting: &Setting<'_>) -> Exhibit {
    let mut table = Exhibit::new(
        "table 2",
        "The traces",
        "The NLANR traces are not public any more; ours is far smaller.",
    );
    let bytes: u64 = setting.requests.iter().map(|r| r.size_bytes).sum();
    let mut seen: NumberMap<u64, u64> = NumberMap::default();
    let (mut hits, mut bodiless) = (0_u32, 0_u32);
    for request in setting.requests {
        let known = seen.get(&request.key).copied();
        if request.has_body() {
            seen.insert(request.key, request.size_bytes);
            hits += u32::from(known == Some(request.size_bytes));
        } else {
            // As every design has it: a hit if it is about something, else left out.
            hits += u32::from(known.is_some());
            bodiless += u32::from(known.is_none());
        }
    }
    let count = setting.requests.len() as f64 - f64::from(bodiless);
    table.row("requests", "1", Published::Range(676_836.0, 8_547_397.0), count);
    if bodiless > 0 {
        let label = "without a body, left out";
        table.row(label, "requests", Published::Ours, f64::from(bodiless));
    }
    table.row("traffic", "GB", Published::Range(14.8, 253.0), bytes as f64 / 1e9);
    table.row(
        "document hit rate",
        "%",
        Published::Range(44.4, 57.8),
        f64::from(hits) * 100.0 / count.max(1.0),
    );
    table
}

fn table_3(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new(
        "table 3",
        "Document hit rates",
        "Nothing has to be replaced here, so SQUID and SQUIDML have the trace's own rate; UCFS loses what \
         it drops after 115 hours, which the days of the trace decide. (What the paper prints as SQUID's mean, \
         50.6%, is not that of its five rows, which is 52.6%.)",
    );
    table.row("SQUID/FFS", "%", Published::Value(50.6), systems.squid.hit_percent());
    table.row("SQUIDML", "%", Published::Value(50.5), systems.squidml.hit_percent());
    table.row("UCFS", "%", Published::Value(53.6), systems.ucfs.hit_percent());
    table
}

fn table_4(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new(
        "table 4",
        "Hits in memory, of all hits",
        "The users of bu95 sit in two rooms and come back to a page within minutes, where the paper's caches saw what \
         other caches had missed; so far more hits are in memory for every system. The order is the \
         paper's if UCFS leads.",
    );
    table.row("SQUID/FFS", "%", Published::Value(6.4), systems.squid.memory_hit_percent());
    table.row("SQUIDML", "%", Published::Value(10.2), systems.squidml.memory_hit_percent());
    table.row("UCFS", "%", Published::Value(16.9), systems.ucfs.memory_hit_percent());
    table
}

fn table_5(setting: &Setting<'_>, systems: &Systems) -> Result<Exhibit, PaperError> {
    let mut table = Exhibit::new(
        "table 5",
        "Prefetched files that are hit",
        "Counted as §2.4.5 does, after the warm-up: first hits of prefetched files by prefetched files. What fills the \
         gaps of a unit, files used as often or small, is of no host in particular; it is prefetched with the rest, and hit far less \
         often. Units of a host and path alone are hit as often as the paper's are, or more so. They hold less, so that more of them \
         are written, and bring less that is of no use: the disk's time can become either more or less by it.",
    );
    let rate =
        |r: &Report| 100.0 * share(r.fact_counted("prefetch_hits"), r.fact_counted("prefetched"));
    table.row("UCFS", "%", Published::Range(28.1, 38.2), rate(&systems.ucfs));
    let larger = setting.ucfs(CLUSTER_BYTES, setting.memory_bytes * 8)?;
    table.row("UCFS, eight times the memory", "%", Published::Ours, rate(&larger));
    let smaller = setting.ucfs(CLUSTER_BYTES / 4, setting.memory_bytes)?;
    table.row("UCFS, clusters of 16 KB", "%", Published::Ours, rate(&smaller));
    let (cluster_bytes, memory_bytes) = (CLUSTER_BYTES, setting.memory_bytes);
    let unfilled = setting.ucfs_with(UcfsOptions {
        cluster_bytes,
        memory_bytes,
        fills: false,
        ..UcfsOptions::default()
    })?;
    table.row("UCFS, gaps not filled", "%", Published::Ours, rate(&unfilled));
    let time = 100.0 * (times(&unfilled, &systems.ucfs) - 1.0);
    table.row("disk time that not filling gaps adds", "%", Published::Ours, time);
    let saved = systems.ucfs.fact_counted("prefetch_hits") as f64;
    table.row("disk reads saved by it", "1", Published::Ours, saved);
    Ok(table)
}

const WHY_LATENCY: &str = "Sums of the time the disks were busy after the warm-up, requests coming at the trace's pace. Memory is \
scaled with the trace, and Squid's directories with memory: the paper's 4,096, whose blocks alone take 16 MB, stood against 256 MB. The file systems are models of our own. \
The write of UCFS's memory on shutdown is included.";

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn times(of: &Report, ours: &Report) -> f64 {
    of.disk_total_ns() as f64 / ours.disk_total_ns().max(1) as f64
}

fn figure_6(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new("figure 6", "Total disk I/O latency", WHY_LATENCY);
    for (name, report) in systems.all() {
        table.row(name, "s", Published::Picture, report.disk_total_ns() as f64 / 1e9);
    }
    let published = [(7.0, 19.0), (3.4, 7.5), (3.0, 9.0)];
    for ((name, report), (low, high)) in systems.baselines().into_iter().zip(published) {
        let value = times(report, &systems.ucfs);
        table.row(format!("UCFS faster than {name}"), "times", Published::Range(low, high), value);
    }
    let found = share(systems.squid.fact(NAMES_FOUND), systems.squid.fact(NAMES_LOOKED_UP));
    let label = "names that SQUID/FFS finds in memory, warm-up included";
    table.row(label, "%", Published::Range(60.0, 70.0), 100.0 * found);
    table
}

fn figure_7(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 7",
        "Mean disk response time",
        "What a request waits for, from its arrival at the trace's pace; a write that nobody waits for counts where it \
         delays something. More of our requests find all they need in memory than the paper's, see figure 8; those that \
         come in bursts wait for each other.",
    );
    let published = [
        Published::About(30.0),
        Published::Range(11.0, 14.0),
        Published::Range(10.0, 20.0),
        Published::Range(1.5, 3.0),
    ];
    for ((name, report), published) in systems.all().into_iter().zip(published) {
        table.row(name, "ms", published, report.responses.mean_ms());
    }
    // Part (b); the text has the largest of all: 20.
    let faster =
        |report: &Report| report.responses.mean_ms() / systems.ucfs.responses.mean_ms().max(1e-9);
    for (name, report) in systems.baselines() {
        let label = format!("UCFS answers faster than {name}");
        table.row(label, "times", Published::Picture, faster(report));
    }
    let most = systems.baselines().map(|(_, report)| faster(report));
    let most = most.into_iter().fold(0.0, f64::max);
    table.row("largest speedup", "times", Published::Value(20.0), most);
    table
}

fn figure_8(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 8",
        "Histogram of disk response times",
        "The paper's is of the UC trace; ours are the requests of figure 7. More of them find all they need in memory, see table 4, so that \
         less is left for each of the longer times.",
    );
    let mut add = |label: &str, report: &Report, from, to, published| {
        table.row(label, "%", published, report.responses.percent_between(from, to));
    };
    let most = usize::MAX;
    add("UCFS, under 1 ms", &systems.ucfs, 0, 1, Published::Value(65.5));
    add("UCFS, 6 ms and more", &systems.ucfs, 6, most, Published::About(20.0));
    add("SQUID/FFS, under 1 ms", &systems.squid, 0, 1, Published::Value(10.0));
    add("SQUID/FFS, 6 to 9 ms", &systems.squid, 6, 9, Published::About(30.0));
    add("SQUID/FFS, 28 ms and more", &systems.squid, 28, most, Published::About(60.0));
    add("SQUID/FFS-async, under 1 ms", &systems.asynchronous, 0, 1, Published::Value(22.0));
    add("SQUID/FFS-async, 6 to 16 ms", &systems.asynchronous, 6, 16, Published::Value(60.0));
    add("SQUID/FFS-async, 23 ms and more", &systems.asynchronous, 23, most, Published::About(10.0));
    add("SQUIDML/FFS, under 1 ms", &systems.squidml, 0, 1, Published::About(15.0));
    let label = "SQUIDML/FFS, 12 to 24 ms (the text: most)";
    add(label, &systems.squidml, 12, 24, Published::Picture);
    table.axes("milliseconds", "percent of requests");
    for (name, report) in systems.all() {
        let total = report.responses.count().max(1) as f64;
        let bins = report.responses.bins().iter().enumerate();
        let points = bins.map(|(ms, n)| (ms as f64, *n as f64 * 100.0 / total)).collect();
        table.series(format!("{name}, %"), points);
    }
    table
}

fn figure_9(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new("figure 9", "Disk time of reads and writes", WHY_LATENCY);
    for (name, report) in systems.all() {
        for (label, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
            let seconds = report.disk_ns(direction) as f64 / 1e9;
            table.row(format!("{name}, {label}"), "s", Published::Picture, seconds);
        }
    }
    let over_squid = |report: &Report, direction| {
        systems.squid.disk_ns(direction) as f64 / report.disk_ns(direction).max(1) as f64
    };
    let (asynchronous, squidml) = (&systems.asynchronous, &systems.squidml);
    for (label, report, direction, published) in [
        ("SQUID/FFS-async's writes", asynchronous, Direction::Write, Published::Range(2.0, 3.0)),
        ("SQUIDML/FFS's reads", squidml, Direction::Read, Published::About(1.5)),
        ("SQUIDML/FFS's writes", squidml, Direction::Write, Published::Range(1.3, 1.5)),
    ] {
        let label = format!("{label} faster than SQUID/FFS's");
        table.row(label, "times", published, over_squid(report, direction));
    }
    table
}

fn figure_10(systems: &Systems) -> Exhibit {
    let mut table = Exhibit::new(
        "figure 10",
        "Speedup of reads and writes",
        "The text gives the largest of five traces: these are bounds, not means.",
    );
    let faster = |report: &Report, direction| {
        report.disk_ns(direction) as f64 / systems.ucfs.disk_ns(direction).max(1) as f64
    };
    let published = |name: &str, direction| match (name, direction) {
        ("SQUID/FFS", Direction::Write) => Published::Value(42.0),
        ("SQUID/FFS-async", Direction::Write) => Published::Value(9.0),
        ("SQUIDML/FFS", Direction::Read) => Published::Value(7.0),
        _ => Published::Picture,
    };
    for (name, report) in systems.baselines() {
        for (label, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
            let value = faster(report, direction);
            table.row(format!("{name}, {label}"), "times", published(name, direction), value);
        }
    }
    table
}

fn figure_11(setting: &Setting<'_>) -> Result<Exhibit, PaperError> {
    let mut table = Exhibit::new(
        "figure 11",
        "Disk time of a request by cluster size",
        "The paper finds 64 KB best and says so of its own traces. The best size depends on memory: large clusters \
         in a small cold buffer cannot be filled with files that belong together.",
    );
    let mut best = (f64::MAX, 0);
    let mut points = Vec::new();
    for kb in [16, 32, 64, 128, 256] {
        let report = setting.ucfs(kb << 10, setting.memory_bytes)?;
        let ms = report.disk_total_ns() as f64 / 1e6 / report.requests.max(1) as f64;
        best = if ms < best.0 { (ms, kb) } else { best };
        points.push((f64::from(kb), ms));
        table.row(format!("{kb} KB"), "ms", Published::Picture, ms);
    }
    table.row("best cluster", "KB", Published::Value(64.0), f64::from(best.1));
    table.axes("KB of a cluster", "milliseconds of disk time a request");
    table.series("ms a request by KB", points);
    Ok(table)
}

fn figure_12(setting: &Setting<'_>) -> Result<Exhibit, PaperError> {
    let mut table = Exhibit::new(
        "figure 12",
        "Speedup over SQUID/FFS by memory",
        "Half, all and twice the scaled memory stand for 256, 512 and 1,024 MB. Response times at the trace's pace, as in figure 7.",
    );
    let mut before: Option<f64> = None;
    for (label, memory_bytes) in [
        ("256 MB", setting.memory_bytes / 2),
        ("512 MB", setting.memory_bytes),
        ("1024 MB", setting.memory_bytes * 2),
    ] {
        let squid = setting.squid("squid", FfsParams::bsd_4k(), memory_bytes)?;
        let ucfs = setting.ucfs(CLUSTER_BYTES, memory_bytes)?;
        let mean_ms = squid.responses.mean_ms();
        let faster = mean_ms / ucfs.responses.mean_ms().max(1e-9);
        table.row(format!("speedup, {label}"), "times", Published::Picture, faster);
        if let Some(before) = before.replace(mean_ms)
            && label == "1024 MB"
        {
            let gain = 100.0 * (1.0 - mean_ms / before);
            table.row("SQUID's response, 512 to 1,024 MB", "%", Published::Value(7.5), gain);
        }
    }
    Ok(table)
}
