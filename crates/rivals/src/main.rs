//! `rivals`: damelo against foyer and against one file per object, on one machine in one run.
//!
//! See `benchmarks/README.md` for what is measured and how to read it.

mod cache;
mod cgroup;
mod child;
mod contestant;
mod counters;
#[cfg(feature = "damelo")]
mod damelo_store;
mod drive;
mod files;
#[cfg(feature = "damelo")]
mod fio;
mod foyer_cache;
#[cfg(feature = "damelo")]
mod loads;
mod machine;
mod micro;
mod report;
mod run;
mod settings;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures damelo against foyer and against one file per object.
#[derive(Debug, Parser)]
#[command(name = "rivals", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The thesis's fifteen microbenchmarks for every contestant.
    Micro(settings::Settings),
    /// Random single-object reads with 32 at once, against fio with the same size and depth.
    #[cfg(feature = "damelo")]
    Fio(fio::FioOptions),
    /// Reads with the disk held to so many reads a second (needs root and blkio cgroups).
    #[command(mut_arg("scale", |a| a.default_value("8")))]
    #[command(mut_arg("rounds", |a| a.default_value("1")))]
    #[command(mut_arg("threads", |a| a.default_value("4")))]
    #[command(mut_arg("contestants", |a| a.default_value("damelo,files")))]
    Throttled(micro::ThrottledOptions),
    /// A cache in use: reads by Zipf's law over more objects than the disk holds, what is missing
    /// is created.
    #[command(mut_arg("objects", |a| a.default_value("262144")))]
    #[command(mut_arg("disk", |a| a.default_value("1GiB")))]
    #[command(mut_arg("threads", |a| a.default_value("4")))]
    #[command(mut_arg("contestants", |a| a.default_value("damelo,foyer,foyer-paced")))]
    Cache(cache::CacheOptions),
    /// Loads of an embedder, from expiry to purges: hit ratios, speeds, bytes, beside foyer.
    #[cfg(feature = "damelo")]
    Loads(loads::LoadOptions),
    /// One contestant under one load; started by `loads`.
    #[cfg(feature = "damelo")]
    #[command(hide = true)]
    LoadChild {
        /// What to do, as JSON.
        spec: String,
    },
    /// One contestant's turn; started by the other commands.
    #[command(hide = true)]
    Child {
        /// What to do, as JSON.
        spec: String,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Micro(settings) => micro::micro(&settings),
        #[cfg(feature = "damelo")]
        Command::Fio(options) => fio::compare(&options),
        Command::Throttled(options) => micro::throttled(&options),
        Command::Cache(options) => cache::run(&options),
        #[cfg(feature = "damelo")]
        Command::Loads(options) => loads::run(&options),
        #[cfg(feature = "damelo")]
        Command::LoadChild { spec } => {
            loads::child::main(&spec);
            Ok(())
        }
        Command::Child { spec } => {
            child::main(&spec);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rivals: {e}");
            ExitCode::FAILURE
        }
    }
}
