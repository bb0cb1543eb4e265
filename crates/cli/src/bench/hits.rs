//! `damelo bench hits`: how many objects a second come out of memory, beside how many of the same
//! size a plain memcpy moves. Threads: as many as asked for; each reads its own sequence of keys.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use damelo::{ByteSize, Config, GroupId, Store};
use fastrand::Rng;
use serde_json::json;

use crate::bench::scratch::{Scratch, ScratchArgs};
use crate::bench::store_side::key_of;
use crate::failure::Failure;
use crate::output::{Out, thousands};

/// Operations between two looks at the clock.
const BATCH: usize = 256;

const AFTER_HELP: &str = "\
Examples:
  damelo bench hits
  damelo bench hits --size 1KiB --threads 1,2,4

A hit is a look-up by key, a guard on the bytes, and a look at the first and last of them; nothing
is copied. The memcpy figure is the same working set copied object by object into one buffer: a
store that copied could not be faster than that.";

/// Hits in memory per second.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Hits {
    /// Size of each object
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    size: ByteSize,
    /// Objects
    #[arg(long, value_name = "COUNT", default_value = "4096",
          value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
    /// Threads; one measurement each
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = [1, 2],
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Seconds of each measurement
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    scratch: ScratchArgs,
    /// Print one JSON object a measurement
    #[arg(long)]
    json: bool,
}

/// Fills memory and measures.
pub(crate) fn run(args: &Hits) -> Result<(), Failure> {
    let scratch = Scratch::new(&args.scratch)?;
    let data_bytes = args.size.bytes().saturating_mul(u64::from(args.objects));
    let memory_bytes = data_bytes.saturating_mul(2) + (32 << 20);
    let disk_bytes = data_bytes.saturating_mul(2) + (128 << 20);
    let mut config = Config::new(scratch.path(), ByteSize::new(disk_bytes));
    config.memory = ByteSize::new(memory_bytes);
    let store = scratch.create(config)?;
    let keys: Vec<String> = (0..args.objects).map(key_of).collect();
    warm(&store, &keys, args.size.bytes() as usize)?;
    let mut out = Out::new();
    let mut one = None;
    for &threads in &args.threads {
        let period = Duration::from_secs(args.seconds);
        let hits = hits_per_second(&store, &keys, threads, period)?;
        let copies = copies_per_second(&keys, args.size.bytes() as usize, threads, period);
        let base = *one.get_or_insert(hits.per_second);
        print(&mut out, args, threads, &hits, copies, hits.per_second / base)?;
    }
    out.finish()?;
    Ok(store.close()?)
}

/// Creates the objects and reads them until they are in memory as reads leave them.
fn warm(store: &Store, keys: &[String], size: usize) -> Result<(), Failure> {
    let group = GroupId::of("bench hits");
    store.love(group);
    let bytes = vec![0x5a; size];
    for key in keys {
        store.create(key.as_bytes(), group, &bytes).wait()?;
    }
    store.sync()?;
    for _ in 0..2 {
        for key in keys {
            store.read(key.as_bytes()).wait()?;
        }
    }
    Ok(())
}

struct HitRate {
    per_second: f64,
    not_from_memory: u64,
}

fn hits_per_second(
    store: &Store,
    keys: &[String],
    threads: u32,
    period: Duration,
) -> Result<HitRate, Failure> {
    let not_from_memory = std::sync::atomic::AtomicU64::new(0);
    let per_second = rate(threads, period, |rng| {
        let mut others = 0;
        for _ in 0..BATCH {
            let key = keys[rng.usize(..keys.len())].as_bytes();
            let object = store.read(key).wait()?;
            match object {
                Some(object) if object.from_memory() => {
                    black_box((object.first(), object.last()));
                }
                _ => others += 1,
            }
        }
        if others > 0 {
            not_from_memory.fetch_add(others, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(HitRate { per_second, not_from_memory: not_from_memory.into_inner() })
}

fn copies_per_second(keys: &[String], size: usize, threads: u32, period: Duration) -> f64 {
    let pool = vec![0x5a_u8; size * keys.len()];
    let copied = rate(threads, period, |rng| {
        let mut buffer = vec![0_u8; size];
        for _ in 0..BATCH {
            let start = rng.usize(..keys.len()) * size;
            buffer.copy_from_slice(black_box(&pool[start..start + size]));
            black_box(&buffer);
        }
        Ok(())
    });
    copied.unwrap_or_default()
}

/// Runs `batch` over and over in every thread for a while; operations a second of all together.
fn rate(
    threads: u32,
    period: Duration,
    batch: impl Fn(&mut Rng) -> Result<(), Failure> + Sync,
) -> Result<f64, Failure> {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let counts = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (stop, batch) = (&stop, &batch);
                scope.spawn(move || -> Result<u64, Failure> {
                    let mut rng = Rng::with_seed(u64::from(thread) + 1);
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        batch(&mut rng)?;
                        done += BATCH as u64;
                    }
                    Ok(done)
                })
            })
            .collect();
        thread::sleep(period);
        stop.store(true, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join()).collect::<Vec<_>>()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut total = 0;
    for count in counts {
        total += count.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(total as f64 / seconds)
}

fn print(
    out: &mut Out,
    args: &Hits,
    threads: u32,
    hits: &HitRate,
    copies_per_second: f64,
    scaling: f64,
) -> Result<(), Failure> {
    if args.json {
        out.json(&json!({
            "benchmark": "hits",
            "threads": threads,
            "size_bytes": args.size.bytes(),
            "objects": args.objects,
            "hits_per_second": hits.per_second,
            "not_from_memory": hits.not_from_memory,
            "memcpy_per_second": copies_per_second,
            "scaling": scaling,
        }))?;
    } else {
        out.line(format_args!(
            "{threads} threads, {} objects of {}: {} hits/s ({scaling:.2} x the first), memcpy of the same {}/s, {} reads not from memory",
            args.objects,
            args.size,
            thousands(hits.per_second as u64),
            thousands(copies_per_second as u64),
            hits.not_from_memory,
        ))?;
    }
    out.flush()
}
