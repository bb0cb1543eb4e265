//! The `damelo` command: parses the command line, maps each subcommand to its function, turns a
//! failure into words on stderr and a stable exit code. Owns nothing else; commands live one to a
//! file. Threads: the main thread only; `bench`, `lab` and `proxy` start their own.

// The commands, one to a file.
mod bench;
mod lab;
mod proxy;
mod store;

// What they share.
mod allocator;
mod descriptors;
mod failure;
mod leftovers;
mod names;
mod output;
mod progress;
mod signals;

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

Errors and warnings are text on standard error, also with --json.

Exit codes:
  0  done
  1  something asked for is not there, `check` found damage, or `lab rerun` a difference
  2  the command line is wrong
  3  the store cannot be opened or made
  4  reading, writing or the network failed, or the store refused";

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

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
    Format(store::format::Format),
    Stat(store::stat::Stat),
    Check(store::check::Check),
    CheckConfig(proxy::check_config::CheckConfig),
    Ls(store::ls::Ls),
    Get(store::get::Get),
    Put(store::put::Put),
    Rm(store::rm::Rm),
    Purge(proxy::purge::Purge),
    Bench(bench::Bench),
    Proxy(Box<proxy::reverse::Proxy>),
    Forward(Box<proxy::forward::Forward>),
    Explain(proxy::explain::Explain),
    Top(proxy::top::Top),
    Lab(lab::Lab),
}

impl Command {
    fn run(&self) -> Result<(), Failure> {
        match self {
            Command::Format(args) => store::format::run(args),
            Command::Stat(args) => store::stat::run(args),
            Command::Check(args) => store::check::run(args),
            Command::CheckConfig(args) => proxy::check_config::run(args),
            Command::Ls(args) => store::ls::run(args),
            Command::Get(args) => store::get::run(args),
            Command::Put(args) => store::put::run(args),
            Command::Rm(args) => store::rm::run(args),
            Command::Purge(args) => proxy::purge::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Proxy(args) => proxy::reverse::run(args),
            Command::Forward(args) => proxy::forward::run(args),
            Command::Explain(args) => proxy::explain::run(args),
            Command::Top(args) => proxy::top::run(args),
            Command::Lab(args) => lab::run(args),
        }
    }
}

fn main() -> ExitCode {
    signals::ignore_file_size();
    match Cli::try_parse() {
        Ok(cli) => ended(cli.command.run()),
        // Mistakes, help and the version: the last two are what was asked for, and go to standard
        // output, where a command fails that cannot write.
        Err(told) => match told.print() {
            Err(source) if !told.use_stderr() => ended(Err(output::failed(source))),
            _ => ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2)),
        },
    }
}

fn ended(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}
