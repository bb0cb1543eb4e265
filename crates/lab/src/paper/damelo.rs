//! Dámelo against ext2 (Ledlie 2000, figures 4 to 25): five orderings of creates, reads and deletes of
//! 131,072 objects of up to 16 KB, and a run like Web Polygraph's.
//!
//! Most figures are pictures; the text gives ratios and a few values. Threads: one user.

use std::collections::HashSet;

use super::beside;
use super::{Exhibit, PaperError, PaperOptions, Published, in_what};
use crate::design::{
    Changes, Context, Damelo, DameloOptions, Design, DesignOptions, GroupRule, Outcome, find,
};
use crate::disk::{Drive, Scheduler};
use crate::fs::FfsParams;
use crate::machine::{Action, Machine, MachineConfig, Report, RunOptions, run as play};
use crate::request::{Catalogue, Op, Request};

const OBJECTS: u64 = 131_072;
const OBJECT_BYTES_MAX: u64 = 16 << 10;
const GROUPS: u32 = 16;
const POOL_BYTES: u64 = 128 << 20;
const DISK_BYTES: u64 = 1_536 << 20;
/// §5.2: 16 threads for Dámelo, 4 for ext2, which did better with them.
const CLIENTS_DAMELO: u32 = 16;
const CLIENTS_EXT2: u32 = 4;

/// An ordering of §5.1; popular sixteenths of the groups for the skewed ones.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordering {
    name: &'static str,
    sequential: bool,
    popular_groups: u32,
    /// Figures of create, read and delete for ext2, and for Dámelo, where the thesis has them.
    figures: (&'static [u32], &'static [u32]),
}

const ORDERINGS: [Ordering; 5] = [
    Ordering {
        name: "sequential",
        sequential: true,
        popular_groups: 0,
        figures: (&[8, 9, 10], &[11, 12, 13]),
    },
    Ordering {
        name: "random",
        sequential: false,
        popular_groups: 0,
        figures: (&[14, 15, 16], &[17, 18, 19]),
    },
    Ordering { name: "zipf 1:8", sequential: false, popular_groups: 2, figures: (&[20], &[23]) },
    Ordering { name: "zipf 1:4", sequential: false, popular_groups: 4, figures: (&[21], &[24]) },
    Ordering { name: "zipf 3:8", sequential: false, popular_groups: 6, figures: (&[22], &[25]) },
];

const PAGES_KB: [u32; 5] = [16, 32, 64, 128, 256];

/// The requests of one ordering: objects are numbered by group.
struct Stages {
    create: Vec<Request>,
    read: Vec<Request>,
    delete: Vec<Request>,
}

fn stages(ordering: Ordering, objects: u64, seed: u64) -> Stages {
    let mut rng = fastrand::Rng::with_seed(seed);
    let sizes: Vec<u64> = (0..objects).map(|_| rng.u64(1..=OBJECT_BYTES_MAX)).collect();
    let per_group = objects / u64::from(GROUPS);
    let request = |key: u64, op| {
        let host = ((key / per_group) as u32).min(GROUPS - 1);
        Request { time_us: 0, client: 0, key, size_bytes: sizes[key as usize], host, op }
    };
    let mut order: Vec<u64> = (0..objects).collect();
    if !ordering.sequential {
        rng.shuffle(&mut order);
    }
    let create = order.iter().map(|&key| request(key, Op::Write)).collect();
    let popular = per_group * u64::from(ordering.popular_groups);
    let share = f64::from(ordering.popular_groups) / f64::from(GROUPS);
    let mut pick = |at: usize| match (ordering.sequential, popular) {
        (true, _) => at as u64,
        (false, 0) => rng.u64(0..objects),
        // The unpopular receive as small a share of the requests as the popular are of the objects.
        (false, _) if rng.f64() >= share => rng.u64(0..popular),
        (false, _) => rng.u64(popular..objects),
    };
    let read = (0..objects as usize).map(&mut pick).map(|key| request(key, Op::Read)).collect();
    if !ordering.sequential {
        rng.shuffle(&mut order);
    }
    let delete = order.iter().map(|&key| request(key, Op::Delete)).collect();
    Stages { create, read, delete }
}

/// Reports of the three stages.
struct Measured {
    create: Report,
    read: Report,
    delete: Report,
}

fn config(scale_down: u32, block_kb: u32) -> MachineConfig {
    // ext2 is given as much memory as Dámelo's pool, so that layouts are compared.
    let memory_bytes = POOL_BYTES / u64::from(scale_down);
    let drive = Drive::named("ibm-9lzx").expect("a drive of the registry");
    MachineConfig {
        scheduler: Scheduler::OneWayElevator,
        files: FfsParams::ext2(block_kb << 10, memory_bytes),
        ..MachineConfig::new(drive)
    }
}

fn damelo(
    stages: &Stages,
    ordering: Ordering,
    page_kb: u32,
    scale: u32,
) -> Result<Measured, PaperError> {
    let options = DameloOptions {
        page_bytes: page_kb << 10,
        pool_bytes: POOL_BYTES / u64::from(scale),
        disk_bytes: DISK_BYTES / u64::from(scale),
        groups: GROUPS,
        grouping: GroupRule::Given,
        ..DameloOptions::default()
    };
    let mut design = Damelo::new(options, &[], Changes::Replace);
    let mut machine = Machine::new(&config(scale, 4));
    let names = Catalogue::new();
    let options =
        RunOptions { clients: CLIENTS_DAMELO, series_every: 1_024, ..RunOptions::default() };
    let what = in_what("damelo's orderings");
    let create = play(&mut design, &mut machine, &stages.create, &names, options).map_err(&what)?;
    // §5.1: the groups of the popular objects are loved; others are not, once there are popular ones.
    if ordering.popular_groups > 0 {
        (ordering.popular_groups..GROUPS).for_each(|group| design.hate(group));
    }
    let read = play(&mut design, &mut machine, &stages.read, &names, options).map_err(&what)?;
    let delete = play(&mut design, &mut machine, &stages.delete, &names, options).map_err(&what)?;
    Ok(Measured { create, read, delete })
}

fn ext2(stages: &Stages, block_kb: u32, scale: u32) -> Result<Measured, PaperError> {
    let options = DesignOptions::default();
    let config = config(scale, block_kb);
    let context = Context { options: &options, requests: &[], drive: &config.drive };
    // Squid's tree stands for [a-z]/[a-z]; a group is a directory, as the thesis says.
    let mut design = (find("squidl").expect("a design of the registry").make)(&context);
    let mut machine = Machine::new(&config);
    let names = Catalogue::new();
    let options =
        RunOptions { clients: CLIENTS_EXT2, series_every: 1_024, ..RunOptions::default() };
    let cold = RunOptions { cold_start: true, ..options };
    // A group of ext2 is a directory: 676 of them.
    let spread = |requests: &[Request]| -> Vec<Request> {
        let dirs = stages.create.len() as u64 / 676 + 1;
        requests.iter().map(|r| Request { host: (r.key / dirs) as u32, ..*r }).collect()
    };
    let what = in_what("ext2 in damelo's orderings");
    let mut stage = |requests: &[Request], options| {
        play(&mut *design, &mut machine, &spread(requests), &names, options).map_err(&what)
    };
    Ok(Measured {
        create: stage(&stages.create, options)?,
        read: stage(&stages.read, cold)?,
        delete: stage(&stages.delete, options)?,
    })
}

const WHY_LATENCY: &str = "Time of the run divided by operations: the thesis's 0.5 ms for a sequential read \
can be nothing else, since 16 threads that each wait 0.5 ms would read 256 MB/s from a drive of 30. Both \
sides have 128 MB for data, and only the disk takes time. ext2 reads a little better here than there \
(whole files in one request, inodes of a directory in one block), which shows where reading is \
sequential; the thesis's speedups come out where it is not.";

const WHY_STAGES: &str = "Creates of Dámelo and deletes of both wait for no data to be read. What a create \
takes in the lab is the writing of the pages it puts out of the pool; ext2's creates wait for reads of \
inodes, maps and directories only, and its writes come later, which the time per operation until all is \
on disk includes.";

/// Measures figures 4 to 25.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let scale = options.scale_down;
    let objects = OBJECTS / u64::from(scale);
    let mut latency = Exhibit::new("figure 4", "Mean read latency", WHY_LATENCY);
    let mut hit_rate =
        Exhibit::new("figure 6", "Objects asked for of those on a page that was read", WHY_HITS);
    let mut details = Vec::new();
    let mut figure_5 = Exhibit::new("figure 5", "ext2 and Dámelo, zipf 1:8, read", WHY_LATENCY);
    for ordering in ORDERINGS {
        let stages = stages(ordering, objects, options.seed);
        let files = ext2(&stages, 4, scale)?;
        let pages: Vec<(u32, Measured)> = PAGES_KB
            .iter()
            .map(|&kb| Ok((kb, damelo(&stages, ordering, kb, scale)?)))
            .collect::<Result<_, PaperError>>()?;
        add_latency(&mut latency, ordering, &files, &pages);
        add_hit_rate(&mut hit_rate, ordering, &pages);
        if !ordering.sequential {
            details.push(beside_store(ordering, &stages, &files, &pages, scale)?);
        }
        if ordering.name == "zipf 1:8" {
            figure_5.axes(AXES.0, AXES.1);
            figure_5.series("ext2, ms", points(&files.read));
            figure_5.series("Dámelo, 32 KB pages, ms", points(&pages[1].1.read));
            let ratio =
                per_operation_ms(&files.read) / per_operation_ms(&pages[1].1.read).max(1e-9);
            figure_5.row("ext2 slower than 32 KB pages", "times", Published::Value(6.0), ratio);
        }
        details.extend(detail_tables(ordering, &files, &pages));
    }
    for kb in [1, 2] {
        let ordering = ORDERINGS[1];
        let files = ext2(&stages(ordering, objects, options.seed), kb, scale)?;
        let label = format!("random, ext2 with {kb} KB blocks");
        latency.row(label, "ms", Published::Picture, per_operation_ms(&files.read));
    }
    let mut tables = vec![latency, figure_5, hit_rate, polygraph(options)?];
    tables.extend(details);
    Ok(tables)
}

/// The store with the same memory and groups, reading what it created before.
fn beside_store(
    ordering: Ordering,
    stages: &Stages,
    files: &Measured,
    pages: &[(u32, Measured)],
    scale: u32,
) -> Result<Exhibit, PaperError> {
    let options = DesignOptions {
        cache_bytes: DISK_BYTES / u64::from(scale),
        memory_bytes: POOL_BYTES / u64::from(scale),
        grouping: GroupRule::Given,
        ..DesignOptions::default()
    };
    let config = config(scale, 4);
    let context = Context { options: &options, requests: &[], drive: &config.drive };
    let mut design = (find("store").expect("a design of the registry").make)(&context);
    let (mut machine, names) = (Machine::new(&config), Catalogue::new());
    let options = RunOptions { clients: CLIENTS_DAMELO, ..RunOptions::default() };
    let what = in_what("the store in damelo's orderings");
    play(&mut *design, &mut machine, &stages.create, &names, options).map_err(&what)?;
    (0..ordering.popular_groups).for_each(|group| design.love(u64::from(group)));
    let store = play(&mut *design, &mut machine, &stages.read, &names, options).map_err(&what)?;
    let mut rows = vec![("ext2".to_owned(), &files.read)];
    rows.extend(pages.iter().map(|(kb, stages)| (format!("damelo {kb} KB"), &stages.read)));
    rows.push(("store".to_owned(), &store));
    Ok(beside::exhibit(&format!("{} read", ordering.name), &rows, WHY_STORE))
}

const WHY_STORE: &str = "Ours alone. Both are told which groups are popular. The store reads an object or its page, whatever it expects to cost less.";

const WHY_HITS: &str = "Objects of half a page's size on average leave the end of 16 KB pages empty, so that \
fewer than two lie on one; the thesis counts requests against objects on a page, and so does this. It \
says that pages of 16 KB cannot fall below 50%; zipf 1:8 exceeds 100% because a page that stays in memory \
answers more requests than it has objects.";

/// Of curves over a stage.
const AXES: (&str, &str) = ("operations", "mean milliseconds of 1,024");

fn points(report: &Report) -> Vec<(f64, f64)> {
    report.series_ms.iter().enumerate().map(|(i, ms)| (i as f64 * 1_024.0, *ms)).collect()
}

/// Time of the run for each operation. The thesis's 0.5 ms of a sequential read with 256 KB pages is
/// this, not what one of 16 threads waits: the drive passes no more than 16 KB in that time.
fn per_operation_ms(report: &Report) -> f64 {
    report.elapsed_ns as f64 / 1e6 / report.requests.max(1) as f64
}

fn add_latency(
    table: &mut Exhibit,
    ordering: Ordering,
    files: &Measured,
    pages: &[(u32, Measured)],
) {
    let name = ordering.name;
    let ext2_ms = per_operation_ms(&files.read);
    table.row(format!("{name}, ext2 with 4 KB blocks"), "ms", Published::Picture, ext2_ms);
    for (kb, measured) in pages {
        let published = match (name, kb) {
            ("sequential", 256) => Published::About(0.5),
            _ => Published::Picture,
        };
        let ms = per_operation_ms(&measured.read);
        table.row(format!("{name}, pages of {kb} KB"), "ms", published, ms);
    }
    let speedup = |index: usize| ext2_ms / per_operation_ms(&pages[index].1.read).max(1e-9);
    let best = (0..pages.len()).map(speedup).fold(0.0, f64::max);
    match name {
        "sequential" => {
            table.row("sequential, 16 KB pages faster", "times", Published::Value(5.0), speedup(0));
        }
        "random" => {
            table.row("random, best page faster", "times", Published::Value(2.0), best);
            table.row("random, 256 KB pages faster", "times", Published::About(1.0), speedup(4));
        }
        "zipf 1:8" => table.row("zipf 1:8, best page faster", "times", Published::Value(6.0), best),
        "zipf 1:4" => {
            table.row("zipf 1:4, best page faster", "times", Published::Range(2.0, 3.0), best);
        }
        _ => table.row(format!("{name}, best page faster"), "times", Published::Picture, best),
    }
}

fn add_hit_rate(table: &mut Exhibit, ordering: Ordering, pages: &[(u32, Measured)]) {
    for (kb, measured) in pages {
        let brought = measured.read.fact("objects_brought").max(1);
        let rate = 100.0 * measured.read.fact("objects_asked") as f64 / brought as f64;
        let published = match (ordering.name, kb) {
            ("sequential", _) => Published::Value(100.0),
            ("random", 16) => Published::AtLeast(50.0),
            _ => Published::Picture,
        };
        table.row(format!("{}, pages of {kb} KB", ordering.name), "%", published, rate);
    }
}

/// Figures 8 to 25: each a stage of an ordering over time.
fn detail_tables(ordering: Ordering, files: &Measured, pages: &[(u32, Measured)]) -> Vec<Exhibit> {
    let stage = |measured: &Measured, index: usize, count: usize| {
        let report = match (index, count) {
            (0, 3) => &measured.create,
            (2, 3) => &measured.delete,
            _ => &measured.read,
        };
        (report.drained_ns as f64 / 1e6 / report.requests.max(1) as f64, points(report))
    };
    let (of_ext2, of_damelo) = ordering.figures;
    let names = if of_ext2.len() == 3 { &["create", "read", "delete"][..] } else { &["read"] };
    let mut tables = Vec::new();
    for (index, (name, count)) in names.iter().zip(std::iter::repeat(names.len())).enumerate() {
        let (ext2_ms, ext2_points) = stage(files, index, count);
        let what = format!("figure {}", of_ext2[index]);
        let title = format!("ext2: {} {name}", ordering.name);
        let mut table = Exhibit::new(&what, &title, WHY_STAGES);
        table.row("time per operation", "ms", Published::Picture, ext2_ms);
        table.axes(AXES.0, AXES.1);
        table.series("latency, ms", ext2_points);
        tables.push(table);
        let what = format!("figure {}", of_damelo[index]);
        let title = format!("Dámelo: {} {name}", ordering.name);
        let mut table = Exhibit::new(&what, &title, WHY_STAGES);
        table.axes(AXES.0, AXES.1);
        for (kb, measured) in pages {
            let (ms, points) = stage(measured, index, count);
            table.row(format!("time per operation, {kb} KB"), "ms", Published::Picture, ms);
            table.series(format!("{kb} KB, latency, ms"), points);
            if *name == "delete" {
                let label = format!("disk requests, {kb} KB");
                let requests = measured.delete.io.total() as f64;
                table.row(label, "requests", Published::Value(0.0), requests);
            }
        }
        tables.push(table);
    }
    tables
}

/// What a proxy may not keep passes by: a design sees nothing of it.
struct Passing<'a> {
    design: &'a mut dyn Design,
    uncacheable: &'a HashSet<u64>,
}

impl Design for Passing<'_> {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        self.design.prepare(out);
    }

    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        if self.uncacheable.contains(&request.key) {
            return Outcome::Refused;
        }
        self.design.request(request, names, out)
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        self.design.finish(out);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        self.design.facts()
    }
}

/// §5.4: exponential sizes of 13 KB, 80% cacheable, 55% asked for again, 5 minutes. Also the objects that
/// are not cacheable, each asked for once.
fn polygraph_requests(count: usize, seed: u64) -> (Vec<Request>, HashSet<u64>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut known: Vec<(u64, u64)> = Vec::new();
    let mut uncacheable = HashSet::new();
    let requests = (0..count as u64)
        .map(|i| {
            let again = !known.is_empty() && rng.f64() < 0.55;
            let (key, size_bytes) = if again {
                known[rng.usize(0..known.len())]
            } else {
                let size_bytes = (-(1.0 - rng.f64()).ln() * 13_000.0) as u64 + 1;
                let entry = (i, size_bytes.min(64 << 10));
                if rng.f64() < 0.8 {
                    known.push(entry);
                } else {
                    uncacheable.insert(i);
                }
                entry
            };
            let host = rng.u32(0..GROUPS);
            Request { time_us: 0, client: 0, key, size_bytes, host, op: Op::Read }
        })
        .collect();
    (requests, uncacheable)
}

/// Figure 7. What the network and the processor take is not modelled but fitted: so much for each
/// request that the proxy over ext2 serves what it did.
fn polygraph(options: &PaperOptions<'_>) -> Result<Exhibit, PaperError> {
    let scale = options.scale_down;
    // 363 a second for 5 minutes.
    let count = 108_900 / scale as usize;
    let (requests, uncacheable) = polygraph_requests(count, options.seed);
    let names = Catalogue::new();
    let rate = |report: &Report| report.requests as f64 / (report.elapsed_ns as f64 / 1e9);
    let run_on = |design: &mut dyn Design, config: &MachineConfig, clients, compute_us| {
        let mut machine = Machine::new(config);
        let options = RunOptions { clients, compute_us, ..RunOptions::default() };
        let design = &mut Passing { design, uncacheable: &uncacheable };
        play(design, &mut machine, &requests, &names, options).map_err(in_what("figure 7"))
    };
    let design_options = DesignOptions::default();
    // The machine's 1 GB is half buffers here: all of it would be ext2's, less the proxy's own.
    let mut ext2_config = config(scale, 4);
    ext2_config.files.buffer_cache_bytes = (512 << 20) / u64::from(scale);
    let context = Context { options: &design_options, requests: &[], drive: &ext2_config.drive };
    let squid = || (find("squid").expect("a design of the registry").make)(&context);
    let free = run_on(&mut *squid(), &ext2_config, CLIENTS_DAMELO, 0)?;
    let per_request_us = 1e6 * f64::from(CLIENTS_DAMELO) / 363.0;
    let disk_us = 1e6 * f64::from(CLIENTS_DAMELO) / rate(&free);
    let compute_us = (per_request_us - disk_us).max(0.0) as u32;
    let files = run_on(&mut *squid(), &ext2_config, CLIENTS_DAMELO, compute_us)?;
    let damelo_options = DameloOptions {
        pool_bytes: POOL_BYTES / u64::from(scale),
        disk_bytes: 4 * DISK_BYTES / u64::from(scale),
        ..DameloOptions::default()
    };
    let mut damelo = Damelo::new(damelo_options, &[], Changes::Replace);
    let damelo = run_on(&mut damelo, &ext2_config, CLIENTS_DAMELO, compute_us)?;
    let mut table = Exhibit::new(
        "figure 7",
        "Requests a second of a run like Web Polygraph's",
        "Synthetic. Time besides the disk is fitted so that the proxy over ext2 serves about 363 a \
         second; what is left to compare is Dámelo's gain. The processor's share differed between the \
         thesis's proxies; it does not here. Squid's layout is ext2's row's, so that its row is the same \
         run: its better proxy code is not modelled. What is not cacheable passes by all of them.",
    );
    table.row("mt-ext2 (fitted)", "1/s", Published::Value(363.0), rate(&files));
    table.row("Squid, by its layout alone", "1/s", Published::Value(545.0), rate(&files));
    table.row("mt-Dámelo", "1/s", Published::Value(617.0), rate(&damelo));
    table.row(
        "mt-Dámelo over mt-ext2",
        "times",
        Published::Value(1.69),
        rate(&damelo) / rate(&files),
    );
    table.row("disk time, ext2", "s", Published::Ours, files.disk_total_ns() as f64 / 1e9);
    table.row("disk time, Dámelo", "s", Published::Ours, damelo.disk_total_ns() as f64 / 1e9);
    Ok(table)
}
