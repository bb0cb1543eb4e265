//! `damelo lab paper`: a paper's tables and figures measured again, the published number beside ours.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use damelo_lab::paper::{PAPERS, Paper, PaperOptions, Published, Table, Trace, run as measure};
use serde_json::{Value, json};

use super::load::load;
use super::reading::ReadArgs;
use crate::failure::Failure;
use crate::output::Out;

const AFTER_HELP: &str = "\
Examples:
  damelo lab paper cfs                            with the paper's own synthetic workload
  damelo lab paper squid --trace bu95.csv.zst     with requests that somebody made
  damelo lab paper damelo --real /var/tmp         its designs on a real file system as well
  damelo lab paper all --scale-down 10            everything, a tenth of the size

What came out and what did not is told in docs/lab in the source.";

/// Measure a paper's tables and figures again
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PaperArgs {
    /// cfs, squid, damelo, ucfs, hades, or all
    #[arg(value_parser = parse)]
    paper: Which,
    /// Requests in place of a synthetic workload
    #[arg(long, value_name = "TRACE")]
    trace: Option<String>,
    #[command(flatten)]
    read: ReadArgs,
    /// Run the designs here too: a directory, or a file or device whose contents are lost
    #[arg(long, value_name = "DIR|DEVICE")]
    real: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Divide objects, requests and memory of the synthetic workloads by this
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..))]
    scale_down: u32,
    /// Print one JSON object a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
enum Which {
    All,
    One(&'static str, Paper),
}

fn parse(given: &str) -> Result<Which, String> {
    if given == "all" {
        return Ok(Which::All);
    }
    let names = || PAPERS.map(|(name, _)| name).join(", ");
    let found = PAPERS.iter().find(|(name, _)| *name == given);
    found
        .map(|(name, paper)| Which::One(name, *paper))
        .ok_or_else(|| format!("there is no such paper; there are {} and all", names()))
}

/// Measures and prints.
pub(crate) fn run(args: &PaperArgs) -> Result<(), Failure> {
    let loaded = args.trace.as_deref().map(|name| load(name, &args.read)).transpose()?;
    let trace =
        loaded.as_ref().map(|l| Trace { name: &l.name, requests: &l.requests, names: &l.names });
    let real = args.real.as_deref();
    let options = PaperOptions { seed: args.seed, trace, scale_down: args.scale_down, real };
    let wanted: Vec<(&str, Paper)> = match args.paper {
        Which::All => PAPERS.to_vec(),
        Which::One(name, paper) => vec![(name, paper)],
    };
    let mut out = Out::new();
    for (name, paper) in wanted {
        let begun = Instant::now();
        eprintln!("damelo: measuring {name}");
        let tables = measure(paper, &options).map_err(|e| Failure::Usage(e.to_string()))?;
        for table in &tables {
            if args.json {
                out.json(&json_of(name, table))?;
            } else {
                out.line(format_args!("{name} {table}"))?;
            }
        }
        out.flush()?;
        eprintln!("damelo: {name} took {:.1} s", begun.elapsed().as_secs_f64());
    }
    out.finish()
}

fn json_of(paper: &str, table: &Table) -> Value {
    let published = |p: Published| match p {
        Published::Value(value) => json!(value),
        Published::Range(low, high) => json!([low, high]),
        Published::Picture | Published::Ours => Value::Null,
    };
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            json!({
                "label": row.label,
                "unit": row.unit,
                "published": published(row.published),
                "picture_only": row.published == Published::Picture,
                "measured": row.measured,
                "ratio": row.ratio(),
            })
        })
        .collect();
    let series: Vec<Value> =
        table.series.iter().map(|s| json!({ "name": s.name, "points": s.points })).collect();
    json!({
        "paper": paper,
        "what": table.what,
        "title": table.title,
        "rows": rows,
        "series": series,
        "why": table.why,
    })
}
