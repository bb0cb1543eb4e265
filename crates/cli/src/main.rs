//! The `damelo` command: parses the command line, maps each subcommand to its function, turns a
//! failure into words on stderr and a stable exit code. Owns nothing else; commands live one to a
//! file. Threads: the main thread only; `bench` and `proxy` start their own.

mod admin;
mod bench;
mod check;
mod check_config;
mod descriptors;
mod explain;
mod failure;
mod format;
mod forward;
mod get;
mod lab;
mod ls;
mod names;
mod opening;
mod output;
mod progress;
mod proxy;
mod purge;
mod put;
mod rm;
mod serve_args;
mod serving;
mod signals;
mod stat;
mod supervisor;
mod top;
mod transport_args;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

const AFTER_HELP: &str = "\
Start here:
  damelo proxy --to demo                              a caching proxy with a built-in origin
  damelo forward                                      the same for any origin, as a forward proxy
  damelo format cache.damelo --size 1GiB              make a store
  damelo put cache.damelo hello README.md             put a file into it
  damelo get cache.damelo hello                       and take it out again
  damelo lab sim TRACE lru,s3-fifo auto               which policy, which size: from a trace

Sizes are written as people write them: 4096, 64KiB, 512 MiB, 20GiB (units are powers of two).
PATH is a file or a block device; a store on several volumes is written as PATH,PATH,...

Exit codes:
  0  done
  1  something asked for is not there, `check` found damage, or `lab rerun` a difference
  2  the command line is wrong
  3  the store cannot be opened or made
  4  reading, writing or the network failed, or the store refused";

/// Store for data that can always be fetched again, and the caching proxy built on it.
#[derive(Debug, Parser)]
#[command(name = "damelo", version, about, after_help = AFTER_HELP)]
#[command(arg_required_else_help = true, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Format(format::Format),
    Stat(stat::Stat),
    Check(check::Check),
    CheckConfig(check_config::CheckConfig),
    Ls(ls::Ls),
    Get(get::Get),
    Put(put::Put),
    Rm(rm::Rm),
    Purge(purge::Purge),
    Bench(bench::Bench),
    Proxy(Box<proxy::Proxy>),
    Forward(Box<forward::Forward>),
    Explain(explain::Explain),
    Top(top::Top),
    Lab(lab::Lab),
}

impl Command {
    fn run(&self) -> Result<(), Failure> {
        match self {
            Command::Format(args) => format::run(args),
            Command::Stat(args) => stat::run(args),
            Command::Check(args) => check::run(args),
            Command::CheckConfig(args) => check_config::run(args),
            Command::Ls(args) => ls::run(args),
            Command::Get(args) => get::run(args),
            Command::Put(args) => put::run(args),
            Command::Rm(args) => rm::run(args),
            Command::Purge(args) => purge::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Proxy(args) => proxy::run(args),
            Command::Forward(args) => forward::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Top(args) => top::run(args),
            Command::Lab(args) => lab::run(args),
        }
    }
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}
