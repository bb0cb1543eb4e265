//! `damelo bench hits`: memory hits per second, compared with how many objects of the same size a
//! plain memcpy moves. Threads: as many as requested; each reads its own sequence of keys.

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
use crate::progress::{self, Progress};

/// Objects between two progress updates.
const TELL_EVERY: usize = 256;
/// Operations between two clock reads.
const BATCH: usize = 256;

const AFTER_HELP: &str = "\
Examples:
  damelo bench hits
  damelo bench hits --size 1KiB --threads 1,2,4

A hit is a look-up by key, a guard on the bytes, and a look at the first and last of them; nothing
is copied. The memcpy figure is the same working set copied object by object into one buffer: a
store that copied could not be faster than that. What threads gain by being several is shown beside
what the same number gains at arithmetic in registers, which shares nothing: two processors that are
one core, or busy with others, gain little at either.";

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
    let mut first = None;
    for &threads in &args.threads {
        let period = Duration::from_secs(args.seconds);
        let hits = hits_per_second(&store, &keys, threads, period)?;
        let size = args.size.bytes() as usize;
        let measured = Measured {
            threads,
            copies_per_second: copies_per_second(&keys, size, threads, period),
            arithmetic_per_second: arithmetic_per_second(threads, period),
            hits,
        };
        print(&mut out, args, &measured, first.as_ref().unwrap_or(&measured))?;
        first.get_or_insert(measured);
    }
    out.finish()?;
    Ok(store.close()?)
}

/// Creates the objects and reads them until memory has the state that reads leave.
fn warm(store: &Store, keys: &[String], size: usize) -> Result<(), Failure> {
    let group = GroupId::of("bench hits");
    store.love(group);
    let bytes = vec![0x5a; size];
    let mut filling = Progress::count("filling");
    for (number, key) in keys.iter().enumerate() {
        if number % TELL_EVERY == 0 {
            filling.set(number as u64, keys.len() as u64);
        }
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

struct Measured {
    threads: u32,
    hits: HitRate,
    copies_per_second: f64,
    arithmetic_per_second: f64,
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

/// Rate of chained multiplications in all threads: how the processors scale without memory accesses
/// and locks.
fn arithmetic_per_second(threads: u32, period: Duration) -> f64 {
    let steps = rate(threads, period, |rng| {
        let mut value = rng.u64(..) | 1;
        for _ in 0..BATCH {
            // Takes about as long as a hit.
            for _ in 0..64 {
                value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
            }
        }
        black_box(value);
        Ok(())
    });
    steps.unwrap_or_default()
}

/// Runs `batch` repeatedly in every thread for `period`; operations per second of all threads.
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
        progress::timed("measuring", period, || thread::sleep(period));
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

fn print(out: &mut Out, args: &Hits, measured: &Measured, first: &Measured) -> Result<(), Failure> {
    let Measured { threads, hits, copies_per_second, arithmetic_per_second } = measured;
    let scaling = hits.per_second / first.hits.per_second;
    let arithmetic_scaling = arithmetic_per_second / first.arithmetic_per_second;
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
            "arithmetic_scaling": arithmetic_scaling,
        }))?;
    } else {
        out.line(format_args!(
            "{threads} threads, {} objects of {}: {} hits/s ({scaling:.2} x the first; arithmetic \
             {arithmetic_scaling:.2} x), memcpy of the same {}/s, {} reads not from memory",
            args.objects,
            args.size,
            thousands(hits.per_second as u64),
            thousands(*copies_per_second as u64),
            hits.not_from_memory,
        ))?;
    }
    out.flush()
}
