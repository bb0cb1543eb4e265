//! `damelo lab designs`: published designs and our store over one trace, and what their disks did.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use damelo::ByteSize;
use damelo_lab::design::{Context, DesignOptions, Entry, REGISTRY};
use damelo_lab::disk::{Direction, Drive, drive_names};
use damelo_lab::machine::{
    IoCounts, KINDS, Kind, Machine, MachineConfig, Report, RunOptions, run as play,
};
use damelo_lab::output::Table;
use serde_json::{Value, json};

use super::load::{Loaded, load};
use super::reading::ReadArgs;
use crate::failure::Failure;
use crate::output::{Out, thousands};

const AFTER_HELP: &str = "\
Examples:
  damelo lab designs access.log                      every design on the thesis's disk
  damelo lab designs access.log ucfs,damelo,store --drive nvme-1tb --cache 1GiB
  damelo lab designs 'gen:web?requests=50000' squid,squidml --json

Disk reads and writes are requests to the modelled disk; virtual time is its time, one client asking
as fast as it is served. docs/lab/designs.md in the source tells what each design is.";

/// Run published designs and the store over a trace, on a modelled disk
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Designs {
    /// A file, or gen:NAME?...
    trace: String,
    /// Designs; all if none are named
    #[arg(value_delimiter = ',')]
    designs: Vec<String>,
    #[command(flatten)]
    read: ReadArgs,
    #[arg(long, value_name = "NAME|FILE", default_value = "atlas-10k-tripled", help = drive_help())]
    drive: String,
    /// Room for objects on disk
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    cache: ByteSize,
    /// Print one JSON object a design
    #[arg(long)]
    json: bool,
}

fn drive_help() -> String {
    let names = drive_names().collect::<Vec<_>>().join(", ");
    format!("Drive: {names}, or a .json file of parameters as in crates/lab/drives")
}

/// Runs and prints.
pub(crate) fn run(args: &Designs) -> Result<(), Failure> {
    let drive = Drive::open(&args.drive)?;
    let entries = chosen(&args.designs)?;
    let loaded = load(&args.trace, &args.read)?;
    let config = MachineConfig::new(drive);
    let options = DesignOptions { cache_bytes: args.cache.bytes(), ..DesignOptions::default() };
    let mut table = Table::new(&["design", "hit %", "disk reads", "disk writes", "virtual s"]);
    let mut out = Out::new();
    for entry in entries {
        let begun = Instant::now();
        let report = run_one(entry, &config, &options, &loaded)?;
        let rate = loaded.requests.len() as f64 / begun.elapsed().as_secs_f64();
        eprintln!("damelo: {}: {} requests/s simulated", entry.name, thousands(rate as u64));
        let (reads, writes) =
            (report.io.requests_of(Direction::Read), report.io.requests_of(Direction::Write));
        let virtual_s = report.elapsed_ns as f64 / 1e9;
        if args.json {
            out.json(&json!({
                "design": entry.name,
                "drive": args.drive,
                "trace": loaded.identity.name,
                "requests": loaded.requests.len(),
                "hit_percent": report.hit_percent(),
                "disk_reads": reads,
                "disk_writes": writes,
                "io": io_json(&report.io),
                "facts": report.facts.iter().map(|(name, n)| (*name, *n)).collect::<BTreeMap<_, _>>(),
                "virtual_seconds": virtual_s,
            }))?;
        } else {
            table.row(vec![
                entry.name.to_owned(),
                format!("{:.2}", report.hit_percent()),
                thousands(reads),
                thousands(writes),
                format!("{virtual_s:.1}"),
            ]);
        }
    }
    if !args.json {
        out.bytes(table.text().as_bytes())?;
    }
    out.finish()
}

/// Requests and bytes by kind, those that there were.
fn io_json(io: &IoCounts) -> Value {
    let side = |direction| {
        let used = KINDS.iter().filter(|kind| io.requests(direction, **kind) > 0);
        let counts = |kind: &Kind| {
            let (requests, bytes) = (io.requests(direction, *kind), io.bytes(direction, *kind));
            (kind.name(), json!({ "requests": requests, "bytes": bytes }))
        };
        used.map(counts).collect::<BTreeMap<_, _>>()
    };
    json!({ "read": side(Direction::Read), "write": side(Direction::Write) })
}

fn run_one(
    entry: &Entry,
    config: &MachineConfig,
    options: &DesignOptions,
    loaded: &Loaded,
) -> Result<Report, Failure> {
    let disk_bytes = config.drive.size_bytes();
    let context = Context { options, requests: &loaded.requests, disk_bytes };
    let mut design = (entry.make)(&context);
    let mut machine = Machine::new(config);
    play(&mut *design, &mut machine, &loaded.requests, &loaded.names, RunOptions::default())
        .map_err(|source| Failure::Design { design: entry.name, source })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Entry>, Failure> {
    if names.is_empty() {
        return Ok(REGISTRY.iter().collect());
    }
    let find = |name: &String| {
        REGISTRY.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let all: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
            Failure::Usage(format!("there is no design `{name}`; there are {}", all.join(", ")))
        })
    };
    names.iter().map(find).collect()
}
