//! `damelo check`: reads every byte of a closed store and reports segment by segment. Changes
//! nothing.

use std::path::PathBuf;

use clap::Args;
use damelo::ByteSize;
use damelo::check::{CheckReport, SegmentReport, SegmentState, check_volumes};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Out, heard, thousands};
use crate::progress::Progress;
use crate::store::opening::not_opened;

const AFTER_HELP: &str = "\
Examples:
  damelo check cache.damelo
  damelo check /disk1/c.damelo /disk2/c.damelo          the volumes of one store
  damelo check cache.damelo --json | jq '.segments[] | select(.state == \"damaged\")'

Records are objects, also those replaced or deleted since, and parts of large ones: more than `ls`
lists. The store must not be open elsewhere, and need only be readable. Exit code 0: every byte that
has a checksum is right; 1: damage was found (it would read as a miss, never as wrong bytes), or a
loss of power cut off what was being written; 3: not a store, locked, or cut off, so that
nothing can open it.";

/// Verify every byte of a store that nobody has open.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Check {
    /// The volumes of one store, in order
    #[arg(value_name = "PATH", required = true, value_delimiter = ',')]
    volumes: Vec<PathBuf>,
    /// Show free segments too
    #[arg(long)]
    all: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Verifies, prints the report, and fails if there is damage.
pub(crate) fn run(args: &Check) -> Result<(), Failure> {
    let mut progress = Progress::bytes("checking");
    let report =
        check_volumes(&args.volumes, &mut |at| progress.set(at.done_bytes, at.total_bytes))
            .map_err(|source| not_opened(source, &args.volumes[0]))?;
    drop(progress);
    heard(tell(args, &report))?;
    let damaged = report.damaged_total;
    if damaged > 0 { Err(Failure::Damaged { damaged }) } else { Ok(()) }
}

fn tell(args: &Check, report: &CheckReport) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        out.json(&to_json(report))?;
    } else {
        print(&mut out, report, args.all)?;
    }
    out.finish()
}

fn print(out: &mut Out, report: &CheckReport, all: bool) -> Result<(), Failure> {
    out.line(format_args!(
        "{:>8}  {:<8} {:>12} {:>10} {:>10} {:>8}",
        "segment", "state", "sequence", "records", "bytes", "damaged"
    ))?;
    for segment in &report.segments {
        if all || segment.state != SegmentState::Free {
            print_segment(out, segment)?;
        }
    }
    let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
    for damage in &report.damaged {
        out.line(format_args!("damaged: {damage}"))?;
    }
    out.line(format_args!(
        "{} segments, {} records, {} of {} superblock copies good, checkpoint {}, {} journal records, {} damaged",
        report.segments.len(),
        thousands(records),
        report.superblocks_ok,
        report.superblocks_total,
        report.checkpoint,
        report.journal_records,
        report.damaged_total
    ))
}

fn print_segment(out: &mut Out, segment: &SegmentReport) -> Result<(), Failure> {
    out.line(format_args!(
        "{:>8}  {:<8} {:>12} {:>10} {:>10} {:>8}",
        segment.id,
        state_word(segment.state),
        segment.seq,
        thousands(segment.records),
        ByteSize::new(segment.record_bytes).to_string(),
        segment.damaged_records
    ))?;
    for damage in &segment.damaged {
        out.line(format_args!("          {damage}"))?;
    }
    Ok(())
}

/// The state in a word that scripts may rely on.
fn state_word(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Free => "free",
        SegmentState::Sealed => "sealed",
        SegmentState::Open => "open",
        SegmentState::Damaged => "damaged",
    }
}

fn to_json(report: &CheckReport) -> Value {
    let segments: Vec<Value> = report
        .segments
        .iter()
        .map(|segment| {
            json!({
                "id": segment.id,
                "state": state_word(segment.state),
                "seq": segment.seq,
                "records": segment.records,
                "record_bytes": segment.record_bytes,
                "damaged_records": segment.damaged_records,
                "damaged": segment.damaged,
            })
        })
        .collect();
    json!({
        "segments": segments,
        "superblocks_ok": report.superblocks_ok,
        "superblocks_total": report.superblocks_total,
        "checkpoint": report.checkpoint,
        "journal_records": report.journal_records,
        "damaged": report.damaged,
        "damaged_total": report.damaged_total,
    })
}
