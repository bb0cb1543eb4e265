//! Dámelo against ext2 (Ledlie 2000, figures 4 to 25): five orderings of creates, reads and deletes
//! of 131,072 objects of up to 16 KB. Figure 7 is in `polygraph.rs`.
//!
//! Most figures are pictures; the text gives ratios and a few values. Rows and curves of an
//! operation are the time of the run divided by operations. Threads: one user.

use super::playing::Play;
use super::{Exhibit, PaperError, PaperOptions, Published};
use super::{damelo_beside, polygraph};
use crate::design::{
    Changes, Damelo, DameloOptions, DesignInputs, DesignOptions, GroupRule, make_given,
};
use crate::disk::{Direction, Drive, Scheduler};
use crate::fs::FfsParams;
use crate::machine::{Machine, MachineConfig, Report, RunOptions};
use crate::request::{Catalogue, Op, Request};
use crate::requests::Requests;

pub(super) const OBJECTS: u64 = 131_072;
const OBJECT_BYTES_MAX: u64 = 16 << 10;
pub(super) const GROUPS: u32 = 16;
pub(super) const POOL_BYTES: u64 = 128 << 20;
pub(super) const DISK_BYTES: u64 = 1_536 << 20;
/// §5.2: 16 threads for Dámelo, 4 for ext2, which did better with them.
pub(super) const CLIENTS_DAMELO: u32 = 16;
const CLIENTS_EXT2: u32 = 4;

/// An ordering of §5.1; popular sixteenths of the groups for the skewed ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ordering {
    pub(super) name: &'static str,
    sequential: bool,
    pub(super) popular_groups: u32,
    /// Figures of create, read and delete for ext2, and for Dámelo, where the thesis has them.
    figures: (&'static [u32], &'static [u32]),
}

impl Ordering {
    /// Whether the thesis has figures of creates and deletes as well; of the others it has the
    /// reads only.
    pub(super) fn has_all_stages(self) -> bool {
        self.figures.0.len() == 3
    }
}

pub(super) const ORDERINGS: [Ordering; 5] = [
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

/// Operations of a point of a curve.
const SERIES_EVERY: usize = 1_024;

const PAGES_KB: [u32; 5] = [16, 32, 64, 128, 256];
/// Each group has two of the largest pages.
pub(super) const SCALE_DOWN_MAX: u32 = (DISK_BYTES / (GROUPS as u64 * 2 * (256 << 10))) as u32;

/// The requests of one ordering: objects are numbered by group.
pub(super) struct Stages {
    pub(super) create: Vec<Request>,
    pub(super) read: Vec<Request>,
    pub(super) delete: Vec<Request>,
}

pub(super) fn stages(ordering: Ordering, objects: u64, seed: u64) -> Stages {
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
pub(super) struct Measured {
    pub(super) create: Report,
    pub(super) read: Report,
    pub(super) delete: Report,
}

pub(super) fn config(scale_down: u32, block_kb: u32) -> MachineConfig {
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
    paper: &PaperOptions<'_>,
    stages: &Stages,
    ordering: Ordering,
    page_kb: u32,
) -> Result<Measured, PaperError> {
    let scale = paper.scale_down;
    let options = DameloOptions {
        page_bytes: page_kb << 10,
        pool_bytes: POOL_BYTES / u64::from(scale),
        disk_bytes: DISK_BYTES / u64::from(scale),
        groups: GROUPS,
        grouping: GroupRule::Given,
        ..DameloOptions::default()
    };
    let mut design = Damelo::new(options, Requests::NONE, Changes::Replace);
    let mut machine = Machine::new(&config(scale, 4));
    let names = Catalogue::new();
    let run =
        RunOptions { clients: CLIENTS_DAMELO, series_every: SERIES_EVERY, ..RunOptions::default() };
    let mut stage = |design: &mut Damelo, requests: &[Request]| {
        let play = Play { requests, names: &names, run, what: "damelo's orderings" };
        paper.play(design, &mut machine, play)
    };
    let create = stage(&mut design, &stages.create)?;
    // §5.1: the groups of the popular objects are loved; others are not, once there are popular
    // ones.
    if ordering.popular_groups > 0 {
        (ordering.popular_groups..GROUPS).for_each(|group| design.hate(group));
    }
    let read = stage(&mut design, &stages.read)?;
    let delete = stage(&mut design, &stages.delete)?;
    Ok(Measured { create, read, delete })
}

/// Directories of each level, [a-z].
const LETTERS: u32 = 26;

/// Objects in order fill one directory after the other, all alike.
fn directory(key: u64, objects: u64) -> u32 {
    (key * u64::from(LETTERS * LETTERS) / objects) as u32
}

fn ext2(paper: &PaperOptions<'_>, stages: &Stages, block_kb: u32) -> Result<Measured, PaperError> {
    let options = DesignOptions::default();
    let config = config(paper.scale_down, block_kb);
    let inputs = DesignInputs { options: &options, requests: Requests::NONE, drive: &config.drive };
    // [a-z]/[a-z] (§5.1); each object is assigned one of them.
    let mut design = make_given(&inputs, LETTERS, LETTERS);
    let mut machine = Machine::new(&config);
    let names = Catalogue::new();
    let options =
        RunOptions { clients: CLIENTS_EXT2, series_every: SERIES_EVERY, ..RunOptions::default() };
    let cold = RunOptions { cold_start: true, ..options };
    // A group of ext2 is a directory.
    let objects = stages.create.len() as u64;
    let spread = |requests: &[Request]| -> Vec<Request> {
        requests.iter().map(|r| Request { host: directory(r.key, objects), ..*r }).collect()
    };
    let mut stage = |requests: &[Request], run| {
        let (requests, what) = (spread(requests), "ext2 in damelo's orderings");
        let play = Play { requests: &requests, names: &names, run, what };
        paper.play(&mut *design, &mut machine, play)
    };
    Ok(Measured {
        create: stage(&stages.create, options)?,
        read: stage(&stages.read, cold)?,
        delete: stage(&stages.delete, options)?,
    })
}

const WHY_LATENCY: &str = "Time of the run divided by operations: the thesis's 0.5 ms for a \
    sequential read can be nothing else, since 16 threads that each wait 0.5 ms would read 256 \
    MB/s from a drive of 30. Both sides have 128 MB for data, and only the disk takes time. ext2 \
    reads a little better here than there (whole files in one request, inodes of a directory in \
    one block), which shows where reading is sequential; the thesis's speedups come out where it \
    is not.";

const WHY_ZIPF: &str = "Curves and row are the time of the run shared out to its operations, as \
    in figure 4: Dámelo has 16 threads and ext2 4, so that what a thread waits says nothing of \
    what is faster. Both begin with nothing in memory.";

const WHY_CREATE: &str = "Once its pool is full, a create of Dámelo waits for the page that it \
    puts out. In the lab a page is a write of its own, which nothing joins with its neighbours, \
    and costs about a revolution of the drive however small it is: twice the page, half the time. \
    ext2 writes late and in runs of up to 64 KB; what it has not written when the last create \
    returns is in the second row only. So pages of 16 KB are slower than ext2 here, against the \
    thesis's text, and larger ones are faster. A random order costs ext2 little here, since what \
    is dirty is sorted before it is written, where the thesis has it seek to each directory; \
    Dámelo's streams do not care, as in the thesis.";

const WHY_READ: &str = "What reads wait for: of ext2 directories, inodes and blocks, of Dámelo \
    whole pages. The time of the run is shared out to its operations, as in figure 4. What ext2 \
    writes besides are access times.";

const WHY_DELETE: &str = "Dámelo's deletes are in memory and take no time that the lab counts, \
    where the thesis has them one order of magnitude faster than ext2's. ext2's wait for \
    directories and inodes that are not in memory; what they change is written later, which is in \
    the second row. After random reads nearly all of these are in memory; sequential deletes \
    begin with those that the last of the sequential reads put out, and so read more. Random ones \
    write more, since what they change lies in more places.";

/// Measures figures 4 to 25.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let scale = options.scale_down;
    let objects = OBJECTS / u64::from(scale);
    let mut latency = Exhibit::new("figure 4", "Mean read latency", WHY_LATENCY);
    let mut hit_rate =
        Exhibit::new("figure 6", "Objects asked for of those on a page that was read", WHY_HITS);
    let mut details = Vec::new();
    let mut figure_5 = Exhibit::new("figure 5", "ext2 and Dámelo, zipf 1:8, read", WHY_ZIPF);
    let mut sequential = None;
    for ordering in ORDERINGS {
        let stages = stages(ordering, objects, options.seed);
        let files = ext2(options, &stages, 4)?;
        let pages: Vec<(u32, Measured)> = PAGES_KB
            .iter()
            .map(|&kb| Ok((kb, damelo(options, &stages, ordering, kb)?)))
            .collect::<Result<_, PaperError>>()?;
        add_latency(&mut latency, ordering, &files, &pages);
        add_hit_rate(&mut hit_rate, ordering, &pages);
        details.extend(damelo_beside::tables(options, ordering, &stages, (&files, &pages))?);
        if ordering.name == "zipf 1:8" {
            figure_5.axes(AXES.0, AXES.1);
            figure_5.series("ext2, ms", points(&files.read));
            figure_5.series("Dámelo, 32 KB pages, ms", points(&pages[1].1.read));
            let ratio =
                per_operation_ms(&files.read) / per_operation_ms(&pages[1].1.read).max(1e-9);
            figure_5.row("ext2 slower than 32 KB pages", "times", Published::Value(6.0), ratio);
        }
        let both = Both { files, pages };
        details.extend(detail_tables(ordering, &both, sequential.as_ref().unwrap_or(&both)));
        if ordering.sequential {
            sequential = Some(both);
        }
    }
    for kb in [1, 2] {
        let ordering = ORDERINGS[1];
        let files = ext2(options, &stages(ordering, objects, options.seed), kb)?;
        let label = format!("random, ext2 with {kb} KB blocks");
        latency.row(label, "ms", Published::Picture, per_operation_ms(&files.read));
    }
    let mut tables = vec![latency, figure_5, hit_rate, polygraph::figure_7(options)?];
    tables.extend(details);
    tables.push(polygraph::beside_all(options)?);
    Ok(tables)
}

const WHY_HITS: &str = "Objects of half a page's size on average leave the end of 16 KB pages \
    empty, so that fewer than two lie on one; the thesis counts requests against objects on a \
    page, and so does this. It says that pages of 16 KB cannot fall below 50%; zipf 1:8 exceeds \
    100% because a page that stays in memory answers more requests than it has objects.";

/// Of curves over a stage.
const AXES: (&str, &str) = ("operations", "mean milliseconds of 1,024");

fn points(report: &Report) -> Vec<(f64, f64)> {
    let x = |at: usize| (at * SERIES_EVERY) as f64;
    report.series_operation_ms.iter().enumerate().map(|(at, ms)| (x(at), *ms)).collect()
}

/// Time of the run for each operation. The thesis's 0.5 ms of a sequential read with 256 KB pages
/// is this, not what one of 16 threads waits: the drive passes no more than 16 KB in that time.
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

/// An ordering on both systems.
struct Both {
    files: Measured,
    /// By page size in kilobytes.
    pages: Vec<(u32, Measured)>,
}

/// A stage of figures 8 to 25.
struct Stage {
    name: &'static str,
    of: fn(&Measured) -> &Report,
    why: &'static str,
}

const STAGES: [Stage; 3] = [
    Stage { name: "create", of: |measured| &measured.create, why: WHY_CREATE },
    Stage { name: "read", of: |measured| &measured.read, why: WHY_READ },
    Stage { name: "delete", of: |measured| &measured.delete, why: WHY_DELETE },
];

/// Figures 8 to 25: each a stage of an ordering over time.
fn detail_tables(ordering: Ordering, both: &Both, sequential: &Both) -> Vec<Exhibit> {
    let (of_ext2, of_damelo) = ordering.figures;
    let stages = if ordering.has_all_stages() { &STAGES[..] } else { &STAGES[1..2] };
    let figures = of_ext2.iter().zip(of_damelo);
    let tables = stages.iter().zip(figures).map(|(stage, (ext2, damelo))| {
        let exhibit = |figure: &u32, system: &str| {
            let title = format!("{system}: {} {}", ordering.name, stage.name);
            let mut table = Exhibit::new(&format!("figure {figure}"), &title, stage.why);
            table.axes(AXES.0, AXES.1);
            table
        };
        let mut of_files = exhibit(ext2, "ext2");
        add_stage(&mut of_files, "", stage, &both.files);
        let mut of_pages = exhibit(damelo, "Dámelo");
        for (kb, measured) in &both.pages {
            add_stage(&mut of_pages, &format!(", {kb} KB"), stage, measured);
        }
        if stage.name == "create" && ordering.sequential {
            add_gain(&mut of_pages, stage, both);
        }
        if stage.name != "read" && !ordering.sequential {
            add_penalty(&mut of_files, &mut of_pages, stage, both, sequential);
        }
        [of_files, of_pages]
    });
    tables.flatten().collect()
}

/// Curve and rows of one stage of one system.
fn add_stage(table: &mut Exhibit, name: &str, stage: &Stage, measured: &Measured) {
    let report = (stage.of)(measured);
    let ms = per_operation_ms(report);
    table.row(format!("time per operation{name}"), "ms", Published::Picture, ms);
    table.series(format!("time per operation{name}, ms"), points(report));
    let is_delete = stage.name == "delete";
    if stage.name == "read" {
        return;
    }
    if is_delete && !name.is_empty() {
        let requests = report.io.total() as f64;
        table.row(format!("disk requests{name}"), "requests", Published::Value(0.0), requests);
        return;
    }
    let drained_ms = report.drained_ns as f64 / 1e6 / report.requests.max(1) as f64;
    let label = format!("time per operation until all is on the disk{name}");
    table.row(label, "ms", Published::Ours, drained_ms);
    if is_delete {
        for (label, direction) in
            [("disk reads", Direction::Read), ("disk writes", Direction::Write)]
        {
            let requests = report.io.requests_of(direction) as f64;
            table.row(label, "requests", Published::Ours, requests);
        }
    }
}

/// §5.3: "consistently better than ext2's".
fn add_gain(table: &mut Exhibit, stage: &Stage, both: &Both) {
    let ext2_ms = per_operation_ms((stage.of)(&both.files));
    for (kb, measured) in &both.pages {
        let times = ext2_ms / per_operation_ms((stage.of)(measured)).max(1e-9);
        let label = format!("faster than ext2, {kb} KB");
        table.row(label, "times", Published::AtLeast(1.0), times);
    }
}

/// §5.3: what a random order costs, "not nearly as much" for Dámelo.
fn add_penalty(
    of_files: &mut Exhibit,
    of_pages: &mut Exhibit,
    stage: &Stage,
    random: &Both,
    sequential: &Both,
) {
    let times = |random: &Measured, sequential: &Measured| {
        let ms = per_operation_ms((stage.of)(sequential));
        // What takes no time in one order takes none in the other.
        if ms == 0.0 { 1.0 } else { per_operation_ms((stage.of)(random)) / ms }
    };
    let value = times(&random.files, &sequential.files);
    of_files.row("random over sequential", "times", Published::Picture, value);
    for ((kb, random), (_, sequential)) in random.pages.iter().zip(&sequential.pages) {
        let label = format!("random over sequential, {kb} KB");
        of_pages.row(label, "times", Published::Picture, times(random, sequential));
    }
}
