//! `damelo lab`: cache designs and policies measured on traces. One subcommand per file; `reading`
//! has the shared part: how a trace is named and read, and what was skipped of it. Threads: the
//! main one, those that a subcommand starts, and one that waits for Ctrl-C and SIGTERM.

mod bench;
mod design_report;
mod design_runs;
mod designs;
mod designs_real;
mod listing;
mod load;
mod manifest;
mod paper;
mod paper_report;
mod reading;
mod rerun;
mod rewrite;
mod sim;
mod system_args;
mod trace;
mod trace_report;
mod watched;

pub(crate) use load::{Loaded, load};
pub(crate) use reading::ReadArgs;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::leftovers;

const AFTER_HELP: &str = "\
Examples:
  damelo lab trace stat access.log.gz             what is in a trace
  damelo lab trace convert access.log t.oracleGeneral.zst
  damelo lab sim access.log lru,s3-fifo auto      miss ratios, policy by policy, size by size
  damelo lab designs access.log                   published designs on a modelled disk
  damelo lab paper squid --trace access.log       a paper's tables and figures again
  damelo lab rerun report.html                    a report's run once more: is it the same?

A trace is a file in one of these forms, plain, gzip or zstd, told from its first bytes:
  damelo         time_s,client,method,status,size_bytes,url
  squid          Squid's native access.log
  common         common log of web servers; combined: with referer and agent
  oracleGeneral  libCacheSim's binary form; lcs: its other one, with a header
  vscsi          CloudPhysics' traces of virtual disks
  twr            Twitter's: time,key,key size,value size,client,operation,ttl
  csv            columns, named by a header or by -t as for libCacheSim
  txt            one object a line
or a generator, such as gen:web?seed=1&requests=100000: `damelo lab generators` lists them.
docs/lab/README.md in the source has more.";

/// Measure caches on traces.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    Trace(trace::Trace),
    Sim(sim::Sim),
    /// List the policies and their parameters
    Policies(listing::Listing),
    /// List the generators that can stand where a trace is expected, with their parameters
    Generators(listing::Listing),
    Designs(Box<designs::Designs>),
    Paper(paper::PaperArgs),
    Rerun(rerun::Rerun),
    Bench(bench::Bench),
}

/// Runs the part of the lab asked for.
pub(crate) fn run(args: &Lab) -> Result<(), Failure> {
    leftovers::watch()?;
    match &args.which {
        Which::Trace(args) => trace::run(args),
        Which::Sim(args) => sim::run(args),
        Which::Policies(args) => listing::policies(args),
        Which::Generators(args) => listing::generators(args),
        Which::Designs(args) => designs::run(args),
        Which::Paper(args) => paper::run(args),
        Which::Rerun(args) => rerun::run(args),
        Which::Bench(args) => bench::run(args),
    }
}
