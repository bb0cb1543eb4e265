//! `damelo bench open`: the time until a store serves again, after SIGKILL during writes and after
//! a clean close.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use damelo::{ByteSize, Config, Store};
use fastrand::Rng;
use serde_json::json;

use crate::bench::fill::{FillJob, Filler};
use crate::bench::scratch::{self, Scratch, ScratchArgs};
use crate::bench::store_side::key_of;
use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::progress;

/// Objects that are looked up after the index is fully loaded.
const SAMPLE: u32 = 100_000;

const AFTER_HELP: &str = "\
Example:
  damelo bench open --objects 10000000

A child process fills a new store and brings it to disk; then it is killed with SIGKILL while it
goes on writing. Times run from the call of open: until it returns, until the first read of a
random object hits, until everything is loaded. The same again after a clean close. `missing`:
objects of a sample of those on disk before the kill that are not there afterwards.";

/// Time to open a store, killed and closed.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Open {
    /// Objects
    #[arg(long, value_name = "COUNT", default_value = "10000000",
          value_parser = clap::value_parser!(u32).range(1..4_000_000_000))]
    objects: u32,
    /// Size of each object
    #[arg(long, value_name = "SIZE", default_value = "64")]
    size: ByteSize,
    /// Memory for data
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: ByteSize,
    #[command(flatten)]
    scratch: ScratchArgs,
    /// Print one JSON object for each of the two
    #[arg(long)]
    json: bool,
}

/// Fills, kills, opens; closes, opens.
pub(crate) fn run(args: &Open) -> Result<(), Failure> {
    let scratch = Scratch::new(&args.scratch)?;
    let mut job =
        FillJob::new(scratch.path(), args.objects, args.size.bytes() as usize, args.memory);
    job.to_be_killed = true;
    job.seeks = args.scratch.seeks;
    let mut filler = Filler::start(&job)?;
    let lost = filler.answer()?.lost;
    drop(filler);
    let mut out = Out::new();
    let (store, killed) = time_open(args, scratch.path())?;
    print(&mut out, args, "kill -9", lost, &killed)?;
    store.close()?;
    let (store, closed) = time_open(args, scratch.path())?;
    print(&mut out, args, "clean close", lost, &closed)?;
    store.close()?;
    out.finish()
}

/// Seconds since the call of open.
struct OpenTimes {
    returned: f64,
    first_hit: Option<f64>,
    everything: f64,
    misses_before: u64,
    missing: u64,
}

fn time_open(args: &Open, path: &Path) -> Result<(Store, OpenTimes), Failure> {
    let mut config = Config::existing(path);
    config.memory = args.memory;
    config.seeks = args.scratch.seeks;
    let mut rng = Rng::new();
    let start = Instant::now();
    let store = scratch::open(config, path)?;
    let returned = start.elapsed().as_secs_f64();
    let (mut first_hit, mut misses_before) = (None, 0);
    while first_hit.is_none() {
        // Checked before the read, so that the last read runs with everything loaded.
        let all_loaded = store.recovery().done;
        let key = key_of(rng.u32(..args.objects));
        match store.read(key.as_bytes()).wait()? {
            Some(_) => first_hit = Some(start.elapsed().as_secs_f64()),
            None if all_loaded && misses_before > u64::from(SAMPLE) => break,
            None => misses_before += 1,
        }
    }
    let how_far = || {
        let state = store.recovery();
        (state.segments_loaded, state.segments_wanted)
    };
    progress::watched("recovering segments", how_far, || store.wait_recovered());
    let everything = start.elapsed().as_secs_f64();
    let is_missing = |key: String| !store.may_contain(key.as_bytes());
    let missing = (0..SAMPLE).filter(|_| is_missing(key_of(rng.u32(..args.objects)))).count();
    let times =
        OpenTimes { returned, first_hit, everything, misses_before, missing: missing as u64 };
    Ok((store, times))
}

fn print(out: &mut Out, args: &Open, after: &str, lost: u64, t: &OpenTimes) -> Result<(), Failure> {
    if args.json {
        out.json(&json!({
            "benchmark": "open",
            "after": after,
            "objects": args.objects,
            "open_seconds": t.returned,
            "first_hit_seconds": t.first_hit,
            "misses_before_first_hit": t.misses_before,
            "everything_seconds": t.everything,
            "missing": t.missing,
            "sample": SAMPLE,
            "lost_before": lost,
        }))?;
    } else {
        let first_hit = t.first_hit.map_or("never".to_owned(), |s| format!("{s:.3} s"));
        out.line(format_args!(
            "{} objects after {after}: open returned after {:.3} s, first hit {first_hit} ({} misses before it), everything {:.3} s; {} of a sample of {} missing",
            thousands(u64::from(args.objects)),
            t.returned,
            t.misses_before,
            t.everything,
            t.missing,
            thousands(u64::from(SAMPLE)),
        ))?;
    }
    out.flush()
}
