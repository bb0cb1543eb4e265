//! `damelo bench index`: bytes of memory per object in the index, all tables included, measured
//! from outside: the difference of the resident sizes of two processes with equal stores and data
//! memory, one with a full index and one with an almost empty one.

use clap::Args;
use damelo::ByteSize;
use serde_json::json;

use crate::bench::fill::{FillAnswer, FillJob, Filler};
use crate::bench::scratch::{Scratch, ScratchArgs};
use crate::failure::Failure;
use crate::output::{Out, thousands};

/// Size of the objects that fill data memory in the reference process: so large that they are few,
/// since each may touch a page of the index.
const LARGE_BYTES: usize = 256 << 10;

const AFTER_HELP: &str = "\
Example:
  damelo bench index --objects 10000000

Two child processes make the same store, with the same data memory, and fill all of that. One holds
this many small objects at a 90% fill of the index, the other a few large ones, which leave the
index empty. Bytes for each object = difference of their resident sizes / objects: index, segment
tables, group tables, everything that grows with objects; the journal's pages are in both.";

/// Memory for each object, by the size of the process.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Index {
    /// Objects
    #[arg(long, value_name = "COUNT", default_value = "10000000",
          value_parser = clap::value_parser!(u32).range(1000..))]
    objects: u32,
    /// Size of each object
    #[arg(long, value_name = "SIZE", default_value = "64")]
    size: ByteSize,
    /// Memory for data
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    memory: ByteSize,
    #[command(flatten)]
    scratch: ScratchArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures both processes.
pub(crate) fn run(args: &Index) -> Result<(), Failure> {
    let scratch = Scratch::new(&args.scratch)?;
    let large = u32::try_from(args.memory.bytes() * 2 / LARGE_BYTES as u64)
        .map_err(|_| Failure::Usage("--memory is too large for this benchmark".to_owned()))?;
    let job = |objects, size| FillJob {
        seeks: args.scratch.seeks,
        ..FillJob::new(scratch.path(), objects, size, args.memory)
    };
    let full = job(args.objects, args.size.bytes() as usize);
    let small = job(large.max(1), LARGE_BYTES);
    let disk_bytes = full.disk_bytes.max(small.disk_bytes);
    let alike = |job: FillJob| FillJob { disk_bytes, objects_max: full.objects_max, ..job };
    let small = weigh(&alike(small))?;
    scratch.remove();
    let full = weigh(&alike(full.clone()))?;
    print(args, &small, &full)
}

fn weigh(job: &FillJob) -> Result<FillAnswer, Failure> {
    let mut filler = Filler::start(job)?;
    let answer = filler.answer()?;
    filler.end()?;
    Ok(answer)
}

fn print(args: &Index, small: &FillAnswer, full: &FillAnswer) -> Result<(), Failure> {
    let grown = full.resident_bytes.saturating_sub(small.resident_bytes);
    let bytes_per_object = grown as f64 / f64::from(args.objects);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "benchmark": "index",
            "objects": args.objects,
            "bytes_per_object": bytes_per_object,
            "resident_bytes_full": full.resident_bytes,
            "resident_bytes_small": small.resident_bytes,
            "index_bytes_full": full.index_bytes,
            "index_bytes_small": small.index_bytes,
            "lost": full.lost,
        }))?;
    } else {
        out.line(format_args!(
            "{bytes_per_object:.2} bytes for each of {} objects: the process has {}, with hardly any objects {}; the store says its index is {}; {} lost",
            thousands(u64::from(args.objects)),
            ByteSize::new(full.resident_bytes),
            ByteSize::new(small.resident_bytes),
            ByteSize::new(full.index_bytes),
            full.lost,
        ))?;
    }
    out.finish()
}
