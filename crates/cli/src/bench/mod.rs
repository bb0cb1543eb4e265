//! `damelo bench`: measures the store and its baselines, in one run on one machine. One benchmark
//! per file; `workload` defines the operations, `stage` runs them, `report` prints the results.

mod cgroup;
mod disk;
mod files_side;
mod fill;
mod hits;
mod http;
mod index;
mod latency;
mod micro;
mod open;
mod queue;
mod randread;
mod raw;
mod report;
mod scratch;
mod stage;
mod store_side;
mod workload;
mod wrap;
mod zipf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::leftovers;

const AFTER_HELP: &str = "\
Examples:
  damelo bench micro                              the thesis's fifteen microbenchmarks
  damelo bench micro --against /tmp --json        beside one file per object under /tmp
  damelo bench hits                               hits in memory, beside memcpy
  damelo bench open --objects 10000000            how soon a killed store serves again
  damelo bench http zipf --against URL            the proxy, beside another one

Each benchmark makes a store of its own and removes it at the end. Build with --release.";

/// Measure the store and the proxy.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    Micro(micro::Micro),
    Hits(hits::Hits),
    Randread(randread::Randread),
    Index(index::Index),
    Open(open::Open),
    Wrap(wrap::Wrap),
    Http(Box<http::Http>),
    #[command(hide = true)]
    MicroFiles(files_side::MicroFiles),
    #[command(hide = true)]
    Fill(fill::Fill),
}

/// Runs the requested benchmark.
pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    leftovers::watch()?;
    match &args.which {
        Which::Micro(args) => micro::run(args),
        Which::Hits(args) => hits::run(args),
        Which::Randread(args) => randread::run(args),
        Which::Index(args) => index::run(args),
        Which::Open(args) => open::run(args),
        Which::Wrap(args) => wrap::run(args),
        Which::Http(args) => http::run(args),
        Which::MicroFiles(args) => files_side::run(args),
        Which::Fill(args) => fill::run(args),
    }
}
