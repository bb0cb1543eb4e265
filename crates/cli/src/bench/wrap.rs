//! `damelo bench wrap`: write amplification of a store whose ring wraps around repeatedly while
//! popular objects are kept: a cache under zipf-distributed requests that creates each missed
//! object.

use clap::Args;
use damelo::{ByteSize, Config, GroupId, MetadataError, Store, WriterOptions};
use fastrand::Rng;
use serde_json::json;

use crate::bench::scratch::{Scratch, ScratchArgs};
use crate::bench::store_side::key_of;
use crate::bench::workload::{Order, Settings, Workload};
use crate::bench::zipf::Zipf;
use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::progress::Progress;

/// Requests between two checks of the ring.
const BATCH: u32 = 1024;
/// Piece in which a streamed object is written.
const PIECE_BYTES: usize = 64 << 10;
/// Most requests, per object that fits on disk, before the benchmark gives up.
const REQUESTS_PER_SLOT_MAX: u64 = 200;

const AFTER_HELP: &str = "\
Examples:
  damelo bench wrap --turns 2 --zipf 0.8
  damelo bench wrap --size 1MiB --renew 5     large objects, revalidated now and then
  damelo bench wrap --size 6MiB --streamed    objects in parts

Requests follow a zipf distribution over --objects objects of 1 byte to --size, by default four
times as many as fit on disk. What is missing is created. The run ends when every segment has been
reused --turns times. Write amplification = bytes the device wrote / bytes of values created, from
start to end, summaries, journal, checkpoints and reinserted objects included; beside it the
store's own figure, against bytes of records (values with keys and headers).";

/// Write amplification when the ring comes round.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Wrap {
    /// Size of the store on disk
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    disk: ByteSize,
    /// Memory for data
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: ByteSize,
    /// Largest object
    #[arg(long, value_name = "SIZE", default_value = "16KiB")]
    size: ByteSize,
    /// Objects asked for [default: four times as many as fit]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    objects: Option<u32>,
    /// Groups the objects are spread over
    #[arg(long, value_name = "COUNT", default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
    /// Exponent of the distribution
    #[arg(long, default_value = "0.8")]
    zipf: f64,
    /// Times that every segment is reused
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    turns: u64,
    /// Percentage of hits after which the metadata is replaced, as by a proxy that revalidates
    #[arg(long, value_name = "PERCENT", default_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    renew: u8,
    /// Create in pieces, without telling the length
    #[arg(long)]
    streamed: bool,
    /// Share of a reused segment that may be written again, in percent [default: the store's, 20]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=90))]
    reinsert: Option<u8>,
    /// Seed of everything random
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    scratch: ScratchArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Wrap {
    fn settings(&self) -> Result<Settings, Failure> {
        let usage = |text: &str| Failure::Usage(text.to_owned());
        let size_bytes_max = u32::try_from(self.size.bytes())
            .ok()
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| usage("--size must be from 1 byte to below 4GiB"))?;
        if !(0.0..=10.0).contains(&self.zipf) {
            return Err(usage("--zipf must be from 0 to 10"));
        }
        let fit = (self.disk.bytes() * 2 / u64::from(size_bytes_max)).max(1);
        let objects = self.objects.or_else(|| u32::try_from(fit * 4).ok());
        Ok(Settings {
            objects: objects.ok_or_else(|| usage("give --objects for a store of this size"))?,
            size_bytes_max,
            size_fixed: false,
            groups: self.groups,
            threads: 1,
            memory_bytes: self.memory.bytes(),
            seed: self.seed,
            verify: true,
        })
    }
}

/// Counts of the run.
#[derive(Default)]
struct Seen {
    requests: u64,
    hits: u64,
    wrong: u64,
    created_bytes: u64,
}

/// Drives the store until the ring has wrapped as often as requested, and prints the write
/// amplification.
pub(crate) fn run(args: &Wrap) -> Result<(), Failure> {
    let settings = args.settings()?;
    let work = Workload::new(&settings, Order::Random);
    let scratch = Scratch::new(&args.scratch)?;
    let mut config = Config::new(scratch.path(), args.disk);
    config.memory = args.memory;
    config.reinsert_percent_max = args.reinsert.unwrap_or(config.reinsert_percent_max);
    config.seed = Some(args.seed);
    let store = scratch.create(config)?;
    let seen = drive(args, &store, &work)?;
    store.sync()?;
    print(args, &store, &seen)?;
    store.close()?;
    if seen.wrong > 0 { Err(Failure::WrongBytes { wrong: seen.wrong }) } else { Ok(()) }
}

fn drive(args: &Wrap, store: &Store, work: &Workload) -> Result<Seen, Failure> {
    let objects = work.settings().objects;
    let zipf = Zipf::new(objects, args.zipf)?;
    let mut rng = Rng::with_seed(args.seed);
    // Popularity is independent of the object's number, so every group has popular objects.
    let mut by_rank: Vec<u32> = (0..objects).collect();
    rng.shuffle(&mut by_rank);
    let mut seen = Seen::default();
    let mut bytes = Vec::new();
    let slots = args.disk.bytes() * 2 / u64::from(work.settings().size_bytes_max) + 1024;
    let mut progress = Progress::count("segments reused");
    loop {
        let stats = store.stats();
        if stats.segments_reused >= stats.segments * args.turns {
            break;
        }
        progress.set(stats.segments_reused, stats.segments * args.turns);
        for _ in 0..BATCH {
            let object = by_rank[zipf.draw(&mut rng) as usize];
            let renew = rng.u8(0..100) < args.renew;
            if !ask(store, work, object, renew, &mut seen)? {
                work.fill(object, &mut bytes);
                seen.created_bytes += bytes.len() as u64;
                create(store, args, work, object, &bytes)?;
            }
        }
        if seen.requests > slots * REQUESTS_PER_SLOT_MAX * (args.turns + 1) {
            let text = "the ring did not come round: everything fits; give more --objects";
            return Err(Failure::Usage(text.to_owned()));
        }
    }
    Ok(seen)
}

/// Reads an object, and replaces its metadata after a hit if `renew`. True for a hit.
fn ask(
    store: &Store,
    work: &Workload,
    object: u32,
    renew: bool,
    seen: &mut Seen,
) -> Result<bool, Failure> {
    let key = key_of(object);
    seen.requests += 1;
    let Some(found) = store.read(key.as_bytes()).wait()? else { return Ok(false) };
    seen.hits += 1;
    seen.wrong += u64::from(!work.matches(object, &found));
    drop(found);
    if renew {
        match store.set_metadata(key.as_bytes(), &seen.requests.to_le_bytes()).wait() {
            // `Superseded`: the store relocated the object concurrently.
            Ok(_) | Err(MetadataError::Superseded) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn create(
    store: &Store,
    args: &Wrap,
    work: &Workload,
    object: u32,
    bytes: &[u8],
) -> Result<(), Failure> {
    let key = key_of(object);
    let group = GroupId::new(u64::from(work.group_of(object)));
    if !args.streamed {
        return Ok(store.create(key.as_bytes(), group, bytes).wait()?);
    }
    let mut writer = store.writer(key.as_bytes(), group, WriterOptions::default())?;
    for piece in bytes.chunks(PIECE_BYTES) {
        writer.write(piece).wait()?;
    }
    Ok(writer.commit().wait()?)
}

fn print(args: &Wrap, store: &Store, seen: &Seen) -> Result<(), Failure> {
    let stats = store.stats();
    let written: u64 = stats.devices.iter().map(|device| device.write_bytes).sum();
    let amplification = written as f64 / seen.created_bytes.max(1) as f64;
    let hit_rate = seen.hits as f64 / seen.requests.max(1) as f64;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "benchmark": "wrap",
            "turns": args.turns,
            "zipf": args.zipf,
            "renew_percent": args.renew,
            "streamed": args.streamed,
            "requests": seen.requests,
            "hit_rate": hit_rate,
            "created_bytes": seen.created_bytes,
            "device_write_bytes": written,
            "write_amplification": amplification,
            "write_amplification_records": stats.write_amplification(),
            "reinserted_objects": stats.reinserted_objects,
            "reinserted_bytes": stats.reinserted_bytes,
            "wrong": seen.wrong,
        }))?;
    } else {
        out.line(format_args!(
            "write amplification {amplification:.3} ({} written for {} created; {:.3} against records) after {} turns; {} requests, {:.1}% hits, {} reinserted in {} objects",
            ByteSize::new(written),
            ByteSize::new(seen.created_bytes),
            stats.write_amplification(),
            args.turns,
            thousands(seen.requests),
            100.0 * hit_rate,
            ByteSize::new(stats.reinserted_bytes),
            thousands(stats.reinserted_objects),
        ))?;
    }
    out.finish()
}
