//! `damelo lab paper`: reproduces a paper's tables and figures, the published number beside ours.
//! Owns which requests a paper plays, its own or those of a trace that its rule lets through, and
//! the words that say so.
//!
//! Invariants: an option that would change nothing is refused before anything is read or measured.
//! A trace is read once for each rule, however many papers play it. Except on real disks, the same
//! command prints the same. Threads: the main one, besides those of the store on real disks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use damelo_lab::machine::RealPlace;
use damelo_lab::output::{Manifest, Table, TraceIdentity};
use damelo_lab::paper::{
    Exhibit, PAPERS, Paper, PaperOptions, PlayCount, Published, Trace, requests_to_play,
    run as measure,
};
use damelo_lab::trace::Filter;
use serde_json::{Value, json};

use super::load::{Loaded, load_by};
use super::manifest::{NewPage, Read, manifest};
use super::paper_report::page;
use super::reading::ReadArgs;
use crate::failure::Failure;
use crate::leftovers::OwnPlace;
use crate::output::{Out, say, thousands};
use crate::progress::{is_shown, watched};

const AFTER_HELP: &str = "\
Examples:
  damelo lab paper cfs                            with the paper's own synthetic workload
  damelo lab paper squid --trace bu95.csv.zst     with requests that somebody made
  damelo lab paper damelo --real /var/tmp         its workloads on a real file system as well
  damelo lab paper all --scale-down 10            everything, a tenth of the size

Of a trace, squid and ucfs play what their papers' rules let through, as the authors did
(`damelo lab trace filter --help` has the rules); the output says how much that is.

Papers keep a trace in memory, with what they make of it 160 bytes a request: a longer one than there
is room for is refused before anything is measured; -n N takes the first N of it. On real disks the
papers' sizes take minutes and gigabytes; --scale-down N takes an N-th of them. What came out and
what did not is told in docs/lab in the source.";

/// Measure a paper's tables and figures again
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PaperArgs {
    /// cfs, squid, damelo, ucfs, hades, or all
    #[arg(value_parser = parse)]
    paper: Which,
    /// Requests in place of a synthetic workload, for cfs (table 6), squid and ucfs
    #[arg(long, value_name = "TRACE")]
    pub(super) trace: Option<String>,
    #[command(flatten)]
    read: ReadArgs,
    /// Play all requests of the trace, also those that the paper's own rule leaves out
    #[arg(long)]
    unfiltered: bool,
    /// Also play the papers' workloads through their designs on a real disk: in a directory or, for
    /// designs that need no files, on a file or device whose contents are lost
    #[arg(long, value_name = "DIR|DEVICE")]
    pub(super) real: Option<PathBuf>,
    /// Seed of everything random; 1 if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Divide objects, requests and memory of the synthetic workloads by this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    scale_down: Option<u32>,
    /// Print one JSON object a table
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the rows of all tables as CSV, the manifest before it as a comment
    #[arg(long)]
    csv: bool,
    /// Write a report with charts to this file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
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

/// Refuses what would do nothing, rather than let somebody believe that it did.
fn check(args: &PaperArgs) -> Result<(), Failure> {
    let has_trace = args.trace.is_some();
    if !has_trace && let Some(option) = args.read.given() {
        return Err(Failure::Usage(format!("{option} is about --trace, which is not given")));
    }
    if args.unfiltered {
        let chooses = |paper: Paper| paper.filter().is_some();
        match args.paper {
            _ if !has_trace => {
                let words = "--unfiltered is about --trace, which is not given".to_owned();
                return Err(Failure::Usage(words));
            }
            Which::One(name, paper) if !chooses(paper) => {
                let words = format!("--unfiltered changes nothing for {name}: leave it out");
                return Err(Failure::Usage(words));
            }
            _ => {}
        }
    }
    let Which::One(name, paper) = args.paper else { return Ok(()) };
    let idle = if has_trace && !paper.takes_trace() {
        Some("--trace")
    } else if args.seed.is_some() && !paper.takes_seed(has_trace) {
        Some("--seed")
    } else if args.scale_down.is_some() && !paper.takes_scale(has_trace) {
        Some("--scale-down")
    } else {
        None
    };
    // What matters for none of a paper's requests is not said to be the trace's fault.
    let with = if has_trace && idle != Some("--trace") { " with a trace" } else { "" };
    idle.map_or(Ok(()), |option| {
        Err(Failure::Usage(format!("{option} changes nothing for {name}{with}: leave it out")))
    })
}

/// Measures and prints.
pub(crate) fn run(args: &PaperArgs) -> Result<(), Failure> {
    check(args)?;
    // Not only after everything else was measured.
    let place = args.real.as_deref().map(RealPlace::of).transpose()?;
    let own = place.as_ref().map(OwnPlace::at).transpose()?;
    let real = own.as_ref().map(|own| own.place().path());
    let reads: Vec<Read<'_>> = args.trace.iter().map(|name| Read::Trace(name)).collect();
    if let Some(path) = &args.real {
        reads.iter().try_for_each(|read| read.check_is_not("--real", path))?;
    }
    let new_page = NewPage::begin(args.html.as_deref(), &reads)?;
    let wanted: Vec<(&'static str, Paper)> = match args.paper {
        Which::All => PAPERS.to_vec(),
        Which::One(name, paper) => vec![(name, paper)],
    };
    let traces = Traces::load(args, &wanted)?;
    let loaded = traces.0.first().map(|(_, loaded)| loaded);
    let own = wanted.iter().any(|(_, paper)| !paper.takes_trace());
    let is_kept = args.json || args.csv || args.html.is_some();
    let manifest = manifest(identity(args, loaded, own), is_kept)?;
    let mut out = Out::new().failing_late(new_page.is_some());
    let (mut all, mut all_words) = (Vec::new(), Vec::from_iter(scaled(args)));
    if let (Some(words), false) = (all_words.first(), args.json || args.csv) {
        out.line(format_args!("{words}\n"))?;
    }
    let count = wanted.len();
    for (at, (name, paper)) in wanted.into_iter().enumerate() {
        let begun = Instant::now();
        say(format_args!("damelo: measuring {name} ({} of {count})", at + 1));
        let chosen = traces.of(args, paper);
        if let Some(words) = chosen.and_then(|chosen| chosen.words(name)) {
            match args.json || args.csv {
                true => say(format_args!("damelo: {words}")),
                false => out.line(format_args!("{words}\n"))?,
            }
            all_words.push(words);
        }
        let tables = watched_measure(name, paper, &paper_options(args, real, chosen))?;
        print(args, &mut out, name, &tables, |table| json_of(name, table, chosen, &manifest))?;
        say(format_args!("damelo: {name} took {:.1} s", begun.elapsed().as_secs_f64()));
        all.push((name, chosen, tables));
    }
    if args.csv {
        out.bytes(manifest.csv_comment().as_bytes())?;
        out.bytes(exact_table(&all).csv().as_bytes())?;
    }
    if let Some(new_page) = new_page {
        let synthetic = loaded.is_none_or(|loaded| loaded.identity.synthetic) || own;
        all_words.insert(0, requests_of(args, loaded, own));
        let tables: Vec<_> = all.iter().map(|(name, _, tables)| (*name, &tables[..])).collect();
        new_page.write(&page(&tables, &all_words, synthetic).finish(&manifest))?;
    }
    out.finish()
}

/// Measures; says on a terminal how far it is. What there is to play is gone through once before,
/// which costs as much as making the requests.
fn watched_measure(
    name: &'static str,
    paper: Paper,
    options: &PaperOptions<'_>,
) -> Result<Vec<Exhibit>, Failure> {
    let count = PlayCount::default();
    let total = if is_shown() { requests_to_play(paper, options)? } else { 0 };
    let options = PaperOptions { played: Some(&count), ..*options };
    let label = format!("{name}: requests");
    Ok(watched(label, || (count.requests(), total), || measure(paper, &options))?)
}

/// Prints a paper's tables as soon as they are there. CSV has those of all papers in one, at the
/// end.
fn print(
    args: &PaperArgs,
    out: &mut Out,
    name: &str,
    tables: &[Exhibit],
    json: impl Fn(&Exhibit) -> Value,
) -> Result<(), Failure> {
    for table in tables {
        if args.json {
            out.json(&json(table))?;
        } else if !args.csv {
            out.line(format_args!("{name} {table}"))?;
        }
    }
    out.flush()
}

/// The trace that is given, as papers want it: by a rule or whole.
struct Traces(Vec<(Option<Filter>, Loaded)>);

/// What a paper plays of it.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    rule: Option<Filter>,
    loaded: &'a Loaded,
}

impl Traces {
    /// Reads it once for each rule.
    fn load(args: &PaperArgs, wanted: &[(&str, Paper)]) -> Result<Traces, Failure> {
        let mut traces: Vec<(Option<Filter>, Loaded)> = Vec::new();
        let Some(name) = &args.trace else { return Ok(Traces(traces)) };
        for (_, paper) in wanted {
            let rule = rule(args, *paper);
            if !traces.iter().any(|(known, _)| *known == rule) {
                traces.push((rule, load_by(name, &args.read, rule)?));
            }
        }
        Ok(Traces(traces))
    }

    fn of(&self, args: &PaperArgs, paper: Paper) -> Option<Chosen<'_>> {
        let wanted = rule(args, paper);
        let (rule, loaded) = self.0.iter().find(|(rule, _)| *rule == wanted)?;
        Some(Chosen { rule: *rule, loaded })
    }
}

fn rule(args: &PaperArgs, paper: Paper) -> Option<Filter> {
    if args.unfiltered { None } else { paper.filter() }
}

impl Chosen<'_> {
    /// What the rule does, if there is one.
    fn words(&self, paper: &str) -> Option<String> {
        let kept = self.loaded.requests.len() as u64;
        Some(format!(
            "{paper}: {} of {} requests, those that the paper's own rule ({}) lets through; --unfiltered plays all",
            thousands(kept),
            thousands(kept + self.loaded.left_out),
            self.rule?.name()
        ))
    }

    fn rule_name(&self) -> Option<&'static str> {
        self.rule.map(Filter::name)
    }
}

fn paper_options<'a>(
    args: &PaperArgs,
    real: Option<&'a Path>,
    chosen: Option<Chosen<'a>>,
) -> PaperOptions<'a> {
    let trace = chosen.map(|Chosen { loaded, .. }| Trace {
        name: &loaded.identity.name,
        requests: &loaded.requests,
        names: &loaded.names,
    });
    let scale_down = args.scale_down.unwrap_or(1);
    PaperOptions { seed: seed(args), trace, scale_down, real, played: None }
}

fn seed(args: &PaperArgs) -> u64 {
    args.seed.unwrap_or(1)
}

/// Where the requests come from; `own` if some papers have workloads of their own whatever the
/// trace.
fn requests_of(args: &PaperArgs, loaded: Option<&Loaded>, own: bool) -> String {
    let seed = seed(args);
    match loaded {
        Some(loaded) if own => format!(
            "Requests of {} for cfs (table 6), squid and ucfs; the papers' own, made with seed {seed}, for the others.",
            loaded.identity.name
        ),
        Some(loaded) => format!("Requests of {}.", loaded.identity.name),
        None => format!("Requests made with seed {seed}."),
    }
}

/// That what is played is not of the papers' size, which their notes tell.
fn scaled(args: &PaperArgs) -> Option<String> {
    let by = args.scale_down.filter(|by| *by > 1)?;
    Some(format!(
        "Synthetic workloads, and memory with them, are divided by {by}, also where a note tells their full size."
    ))
}

/// What the manifest says of the requests, the seed of whatever the papers draw themselves among
/// it.
fn identity(args: &PaperArgs, loaded: Option<&Loaded>, own: bool) -> TraceIdentity {
    let seed = seed(args);
    match loaded {
        Some(loaded) if own => TraceIdentity { seed: Some(seed), ..loaded.identity.clone() },
        Some(loaded) => loaded.identity.clone(),
        None => TraceIdentity {
            name: format!("the papers' workloads, seed {seed}"),
            synthetic: true,
            seed: Some(seed),
            ..TraceIdentity::default()
        },
    }
}

/// For programs: nothing rounded. Published numbers are a range, of which both ends are the same
/// for most, and the upper one is not there for "over 60"; neither is for what is ours alone, or in
/// a picture only. `published_as` tells them apart.
fn exact_table(papers: &[(&str, Option<Chosen<'_>>, Vec<Exhibit>)]) -> Table {
    let mut table = Table::new(&[
        "paper",
        "what",
        "label",
        "unit",
        "published_from",
        "published_to",
        "published_as",
        "measured",
        "ratio",
        "rule",
        "not_measured",
    ]);
    let text = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    for (paper, chosen, exhibits) in papers {
        let rule = chosen.and_then(|chosen| chosen.rule_name()).unwrap_or_default();
        for (exhibit, row) in exhibits.iter().flat_map(|e| e.rows.iter().map(move |row| (e, row))) {
            let (from, to) = row.published.ends();
            let mut cells =
                [*paper, &exhibit.what, &row.label, row.unit].map(str::to_owned).to_vec();
            cells.extend([from, to].map(text));
            cells.push(row.published.kind().unwrap_or_default().to_owned());
            cells.extend([Some(row.measured), row.ratio()].map(text));
            cells.extend([rule.to_owned(), String::new()]);
            table.row(cells);
        }
        for (exhibit, row) in
            exhibits.iter().flat_map(|e| e.not_measured.iter().map(move |row| (e, row)))
        {
            let (from, to) = row.published.ends();
            let mut cells =
                [*paper, &exhibit.what, &row.label, row.unit].map(str::to_owned).to_vec();
            cells.extend([from, to].map(text));
            cells.push(row.published.kind().unwrap_or_default().to_owned());
            cells.extend([const { String::new() }; 2]);
            cells.extend([rule, row.reason].map(str::to_owned));
            table.row(cells);
        }
    }
    table
}

/// What every row has, measured or not.
fn json_of_row(label: &str, unit: &str, published: Published) -> Value {
    let ends = match published.ends() {
        (Some(low), Some(high)) if low == high => json!(low),
        (None, None) => Value::Null,
        (low, high) => json!([low, high]),
    };
    json!({ "label": label, "unit": unit, "published": ends, "published_as": published.kind() })
}

fn json_of(paper: &str, table: &Exhibit, chosen: Option<Chosen<'_>>, manifest: &Manifest) -> Value {
    let measured = table.rows.iter().map(|row| {
        let mut one = json_of_row(&row.label, row.unit, row.published);
        one["picture_only"] = json!(row.published == Published::Picture);
        one["measured"] = json!(row.measured);
        one["ratio"] = json!(row.ratio());
        one
    });
    let not_measured = table.not_measured.iter().map(|row| {
        let mut one = json_of_row(&row.label, row.unit, row.published);
        one["reason"] = json!(row.reason);
        one
    });
    let (rows, not_measured): (Vec<_>, Vec<_>) = (measured.collect(), not_measured.collect());
    let series: Vec<Value> =
        table.series.iter().map(|s| json!({ "name": s.name, "points": s.points })).collect();
    json!({
        "manifest": manifest,
        "paper": paper,
        "what": table.what,
        "title": table.title,
        "rows": rows,
        "not_measured": not_measured,
        "series": series,
        "why": table.why,
        "rule": chosen.and_then(|chosen| chosen.rule_name()),
        "requests_left_out": chosen.map(|chosen| chosen.loaded.left_out),
    })
}
