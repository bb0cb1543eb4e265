//! `damelo bench randread`: random reads of single objects from disk, many in flight at once from
//! one thread through the async API, compared with raw random reads of the same file.

use std::time::{Duration, Instant};

use clap::Args;
use damelo::{ByteSize, Config, GroupId, Store};
use fastrand::Rng;
use serde_json::json;

use crate::bench::disk::{DiskCounters, store_counters};
use crate::bench::queue;
use crate::bench::raw::{self, RawRate};
use crate::bench::scratch::{Scratch, ScratchArgs};
use crate::bench::store_side::key_of;
use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::progress::{self, Progress};

/// Objects between two progress updates.
const TELL_EVERY: u32 = 256;

const AFTER_HELP: &str = "\
Examples:
  damelo bench randread
  damelo bench randread --size 4KiB --objects 500000 --depth 64

The reference is raw reads of the same file at the same depth and size (rounded up to 4KiB),
bypassing the page cache, half before and half after the store's turn. To compare with fio on a
file of the same length:
  fio --name=r --filename=FILE --rw=randread --bs=8k --iodepth=32 --direct=1 --ioengine=io_uring \\
      --runtime=5 --time_based";

/// Random single-object disk reads, with raw reads beside them.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Randread {
    /// Size of each object
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    size: ByteSize,
    /// Objects
    #[arg(long, value_name = "COUNT", default_value = "131072",
          value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
    /// Groups the objects are spread over
    #[arg(long, value_name = "COUNT", default_value = "1024",
          value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
    /// Reads under way at once
    #[arg(long, value_name = "COUNT", default_value = "32",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Memory for data; small, so that reads go to disk
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    memory: ByteSize,
    /// Seconds of each measurement
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    scratch: ScratchArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Fills a store, then measures reads from it and raw reads of its file.
pub(crate) fn run(args: &Randread) -> Result<(), Failure> {
    let scratch = Scratch::new(&args.scratch)?;
    let data_bytes = (args.size.bytes() + 512) * u64::from(args.objects);
    let mut config = Config::new(scratch.path(), ByteSize::new(data_bytes * 5 / 4 + (128 << 20)));
    config.memory = args.memory;
    config.queue_depth = args.depth.max(64);
    let store = scratch.create(config)?;
    fill(&store, args)?;
    let period = Duration::from_secs(args.seconds);
    let raw = || {
        let half = period / 2;
        progress::timed("raw reads", half, || {
            raw::random_reads(scratch.path(), args.size.bytes(), data_bytes, args.depth, half)
        })
    };
    let raw_before = raw()?;
    let before = store_counters(&store);
    let seen = progress::timed("reads", period, || measure(&store, args, period))?;
    let disk = store_counters(&store).since(before);
    let raw_after = raw()?;
    store.close()?;
    print(args, &seen, disk, [raw_before, raw_after])
}

fn fill(store: &Store, args: &Randread) -> Result<(), Failure> {
    let bytes: Vec<u8> = (0..args.size.bytes()).map(|i| i as u8).collect();
    let mut filling = Progress::count("filling");
    for object in 0..args.objects {
        if object % TELL_EVERY == 0 {
            filling.set(object.into(), args.objects.into());
        }
        let group = GroupId::new(u64::from(object % args.groups));
        store.create(key_of(object).as_bytes(), group, &bytes).wait()?;
    }
    store.sync()?;
    store.drop_memory();
    Ok(())
}

/// Counts of reads by the tier that answered them.
#[derive(Default)]
struct Seen {
    disk: u64,
    memory: u64,
    missing: u64,
    seconds: f64,
    failure: Option<Failure>,
}

fn measure(store: &Store, args: &Randread, period: Duration) -> Result<Seen, Failure> {
    let mut rng = Rng::with_seed(7);
    let mut seen = Seen::default();
    let start = Instant::now();
    let next = || {
        (start.elapsed() < period).then(|| store.read(key_of(rng.u32(..args.objects)).as_bytes()))
    };
    queue::run(args.depth as usize, next, |outcome| match outcome {
        Ok(Some(object)) if object.from_memory() => seen.memory += 1,
        Ok(Some(_)) => seen.disk += 1,
        Ok(None) => seen.missing += 1,
        Err(error) => seen.failure = Some(error.into()),
    });
    seen.seconds = start.elapsed().as_secs_f64();
    seen.failure.take().map_or(Ok(seen), Err)
}

fn print(
    args: &Randread,
    seen: &Seen,
    disk: DiskCounters,
    raw: [RawRate; 2],
) -> Result<(), Failure> {
    let per_second = seen.disk as f64 / seen.seconds;
    let raw_per_second = (raw[0].per_second + raw[1].per_second) / 2.0;
    let bytes_each = disk.read_bytes.unwrap_or(0) as f64 / disk.reads.unwrap_or(0).max(1) as f64;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "benchmark": "randread",
            "depth": args.depth,
            "size_bytes": args.size.bytes(),
            "objects": args.objects,
            "disk_hits_per_second": per_second,
            "memory_hits": seen.memory,
            "missing": seen.missing,
            "disk_reads": disk.reads,
            "disk_read_bytes": disk.read_bytes,
            "bytes_per_disk_read": bytes_each,
            "raw_reads_per_second": raw_per_second,
            "raw_how": raw[0].how,
            "ratio": per_second / raw_per_second,
        }))?;
    } else {
        out.line(format_args!(
            "{} objects/s from disk at depth {} ({} of {} each), {} in memory, {} missing",
            thousands(per_second as u64),
            args.depth,
            thousands(disk.reads.unwrap_or(0)),
            ByteSize::new(bytes_each as u64),
            thousands(seen.memory),
            seen.missing,
        ))?;
        out.line(format_args!(
            "raw reads of {} ({}): {}/s before, {}/s after; the store reaches {:.0}%",
            args.size,
            raw[0].how,
            thousands(raw[0].per_second as u64),
            thousands(raw[1].per_second as u64),
            100.0 * per_second / raw_per_second,
        ))?;
    }
    out.finish()
}
