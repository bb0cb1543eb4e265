//! `damelo bench micro`: the thesis's fifteen microbenchmarks (§5.1), on the store and, with
//! `--against`, on one file per object in the same run. For each order both sides run in immediate
//! succession, so that drift of the machine's speed affects both alike.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueParser;
use damelo::{ByteSize, Config, OpenError};
use serde_json::{Value, json};

use crate::bench::disk::device_counters;
use crate::bench::files_side::{self, FilesJob};
use crate::bench::report::{Benchmark, Measurement, print_header};
use crate::bench::scratch::{Scratch, ScratchArgs};
use crate::bench::stage;
use crate::bench::store_side::StoreSide;
use crate::bench::workload::{Order, Settings, Stage, Workload};
use crate::failure::Failure;
use crate::output::Out;

/// Most threads a stage may have.
const THREADS_MAX: i64 = 1024;
const ORDERS: [Order; 5] =
    [Order::Sequential, Order::Random, Order::Zipf18, Order::Zipf14, Order::Zipf38];
const STAGES: [Stage; 3] = [Stage::Create, Stage::Read, Stage::Delete];

const AFTER_HELP: &str = "\
Examples:
  damelo bench micro
  damelo bench micro --threads 16 --against /var/tmp
  damelo bench micro --orders zipf1:8,random --objects 16384 --memory 16MiB --disk 192MiB --verify

Three stages, create, read and delete, in five orders. In each stage every thread does its share of
the operations, one piece of the order each; all threads finish before the next stage. After each
stage everything is brought to disk (`settle`, not in the rate); between create and read memory is
emptied, the store's as well as the page cache. Objects are spread over the groups in blocks; in
sequential and random order all groups are loved, in zipf order the groups of the popular objects
are loved and the others hated. Thesis settings are the defaults, except 16 threads.

hit = reads / (page reads x objects per page), with objects brought from disk counted as bytes
read / mean object size, since not every read is of a whole page. reads/ob = disk reads for each
object read.

--against DIR: one file per object in DIR/.../[a-z]/[a-z], buffered, in a child process whose
memory, page cache included, is held to --memory + 16MiB by a memory cgroup where one can be made;
the output says whether. Disk figures there: counts are the whole device's, from /proc/diskstats
(keep the machine quiet), bytes read are the child's own, from /proc/self/io. The store's are its
own counters. Ratios above 1 speak for the store.";

/// The thesis's fifteen microbenchmarks, perhaps beside files.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Micro {
    /// Objects
    #[arg(long, value_name = "COUNT", default_value = "131072", value_parser = at_least_one())]
    objects: u32,
    /// Largest object; sizes are spread evenly from 1 byte to this
    #[arg(long, value_name = "SIZE", default_value = "16KiB")]
    size: ByteSize,
    /// Give every object exactly --size
    #[arg(long)]
    fixed: bool,
    /// Groups
    #[arg(long, value_name = "COUNT", default_value = "16", value_parser = at_least_one())]
    groups: u32,
    /// Threads
    #[arg(long, value_name = "COUNT", default_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: u32,
    /// Page size
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    page: ByteSize,
    /// Memory for data; the files get the same as page cache
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    memory: ByteSize,
    /// Size of the store on disk
    #[arg(long, value_name = "SIZE", default_value = "1536MiB")]
    disk: ByteSize,
    #[command(flatten)]
    scratch: ScratchArgs,
    /// Seed of everything random
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Orders to run, with commas between them [default: all]
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = ORDERS, hide_default_value = true)]
    orders: Vec<Order>,
    /// Stages to report, with commas between them; earlier ones run nevertheless [default: all]
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = STAGES, hide_default_value = true)]
    stages: Vec<Stage>,
    /// Compare every byte of every read, not only length and both ends
    #[arg(long)]
    verify: bool,
    /// Run the same on one file per object below this directory
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Print one JSON object a benchmark
    #[arg(long)]
    json: bool,
}

fn at_least_one() -> ValueParser {
    clap::value_parser!(u32).range(1..).into()
}

impl Micro {
    fn settings(&self) -> Result<Settings, Failure> {
        let size_bytes_max = u32::try_from(self.size.bytes())
            .ok()
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| Failure::Usage("--size must be from 1 byte to below 4GiB".to_owned()))?;
        Ok(Settings {
            objects: self.objects,
            size_bytes_max,
            size_fixed: self.fixed,
            groups: self.groups,
            threads: self.threads,
            memory_bytes: self.memory.bytes(),
            seed: self.seed,
            verify: self.verify,
        })
    }

    fn config(&self, path: &Path) -> Config {
        let mut config = Config::new(path, self.disk);
        config.memory = self.memory;
        config.page = Some(self.page);
        config.seed = Some(self.seed);
        // 20% more than the objects, or the store's default if that is more.
        let enough = u64::from(self.objects) * 6 / 5 + 1024;
        config.objects_max = Some(enough.max(self.disk.bytes() / 4096));
        config
    }

    /// The stages to run: all up to the last reported one, since reads need creates.
    fn stages_run(&self) -> &'static [Stage] {
        let wanted = |stage: &Stage| self.stages.contains(stage);
        let last = STAGES.iter().rposition(wanted).unwrap_or(STAGES.len() - 1);
        &STAGES[..=last]
    }
}

/// Runs the requested orders, printing the benchmarks of each order when it ends.
pub(crate) fn run(args: &Micro) -> Result<(), Failure> {
    let settings = args.settings()?;
    let scratch = Scratch::new(&args.scratch)?;
    let mut out = Out::new();
    if !args.json {
        print_settings(&mut out, args, &settings)?;
    }
    let (mut wrong, mut said) = (0, String::new());
    for &order in &args.orders {
        let work = Workload::new(&settings, order);
        let store = run_store(args, &scratch, &work)?;
        let files = args.against.as_ref().map(|dir| run_files(args, dir, &work)).transpose()?;
        let described = describe(args, &settings, files.as_ref());
        if let (Some(files), false) = (&files, args.json) {
            let text = format!("files: memory {}; {}", files.memory, files.cache_drop);
            say_once(&mut out, &mut said, text)?;
        }
        let mut files = files.map(|files| files.measurements.into_iter());
        for (&stage, store) in args.stages_run().iter().zip(store) {
            let files = files.as_mut().and_then(Iterator::next);
            wrong += store.wrong + files.as_ref().map_or(0, |files| files.wrong);
            let benchmark = Benchmark { order, stage, store, files };
            if args.stages.contains(&stage) {
                print(&mut out, &benchmark, args.json.then_some(&described))?;
            }
        }
    }
    out.finish()?;
    if wrong > 0 { Err(Failure::WrongBytes { wrong }) } else { Ok(()) }
}

/// Prints a line unless it equals the previous one printed by this function.
fn say_once(out: &mut Out, said: &mut String, text: String) -> Result<(), Failure> {
    if *said != text {
        out.line(format_args!("{text}"))?;
        *said = text;
    }
    Ok(())
}

fn print(out: &mut Out, benchmark: &Benchmark, json: Option<&Value>) -> Result<(), Failure> {
    match json {
        Some(settings) => {
            out.json(&benchmark.to_json(settings))?;
            out.flush()
        }
        None => benchmark.print(out),
    }
}

fn run_store(
    args: &Micro,
    scratch: &Scratch,
    work: &Workload,
) -> Result<Vec<Measurement>, Failure> {
    let store = scratch.create(args.config(scratch.path())).map_err(|failure| match failure {
        // That number is ours, made of --objects and --disk: nobody has said it.
        Failure::Open { source: OpenError::Setting { setting: "objects_max", .. }, .. } => {
            let (objects, disk) = (args.objects, args.disk);
            Failure::Usage(format!("--disk {disk} is too small for {objects} objects"))
        }
        failure => failure,
    })?;
    let side = StoreSide::new(&store, work);
    let measured = args.stages_run().iter().map(|&stage| stage::run(work, &side, stage)).collect();
    store.close()?;
    measured
}

/// Results of the file side for one order, and the conditions under which they were measured.
struct FilesRun {
    measurements: Vec<Measurement>,
    cache_drop: String,
    memory: String,
    device_known: bool,
}

fn run_files(args: &Micro, dir: &Path, work: &Workload) -> Result<FilesRun, Failure> {
    let job = FilesJob {
        settings: work.settings().clone(),
        order: work.order(),
        stages: args.stages_run().to_vec(),
        dir: dir.to_owned(),
        cgroup: None,
    };
    let (answer, memory) = files_side::run_child(job)?;
    Ok(FilesRun {
        measurements: answer.measurements,
        cache_drop: answer.cache_drop,
        memory,
        device_known: device_counters(dir).reads.is_some(),
    })
}

fn describe(args: &Micro, settings: &Settings, files: Option<&FilesRun>) -> Value {
    json!({
        "work": settings,
        "page_bytes": args.page.bytes(),
        "disk_bytes": args.disk.bytes(),
        "files": files.map(|files| json!({
            "memory": files.memory,
            "cache_drop": files.cache_drop,
            "disk_counts": if files.device_known { "whole device" } else { "not known" },
        })),
    })
}

fn print_settings(out: &mut Out, args: &Micro, settings: &Settings) -> Result<(), Failure> {
    out.line(format_args!(
        "{} objects of {}{}, {} groups, {} threads, pages of {}, memory {}, disk {}, seed {}",
        settings.objects,
        if settings.size_fixed { "" } else { "1B to " },
        args.size,
        settings.groups,
        settings.threads,
        args.page,
        args.memory,
        args.disk,
        settings.seed
    ))?;
    print_header(out)?;
    out.flush()
}
