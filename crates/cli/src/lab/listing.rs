//! `damelo lab policies` and `damelo lab generators`: what may stand in a command, with parameters
//! and defaults. Main thread only.

use clap::Args;
use damelo_lab::output::Table;
use damelo_lab::policy::POLICIES;
use damelo_lab::workload::GENERATORS;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Out;

/// How to print a list.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Prints the policies.
pub(crate) fn policies(args: &Listing) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        let all = POLICIES.iter().map(|info| {
            json!({
                "policy": info.name,
                "aliases": info.aliases,
                "parameters": info.parameters_text(),
                "about": info.about,
            })
        });
        out.json(&all.collect::<Value>())?;
        return out.finish();
    }
    let mut table = Table::new(&["policy", "parameters and defaults", "what goes first, and why"]);
    for info in &POLICIES {
        table.row(vec![info.name.to_owned(), info.parameters_text(), info.about.to_owned()]);
    }
    out.bytes(table.text().as_bytes())?;
    out.finish()
}

/// Prints the generators.
pub(crate) fn generators(args: &Listing) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        let all = GENERATORS.iter().map(|(name, about, defaults)| {
            let (generator, all) = (format!("gen:{name}"), format!("gen:{name}?{defaults}"));
            json!({ "generator": generator, "with_defaults": all, "about": about })
        });
        out.json(&all.collect::<Value>())?;
        return out.finish();
    }
    for (name, about, defaults) in GENERATORS {
        out.line(format_args!("gen:{name}: {about}\n  gen:{name}?{defaults}"))?;
    }
    out.finish()
}
