//! `damelo lab trace`: inspects a trace, or makes another one from it. Owns the arguments, and what
//! `stat` prints; what is written is `rewrite`'s.
//!
//! Invariants: standard output has results alone, progress and remarks go to standard error. What
//! [`Trace::product`] names can be made again from the command line, without a file of its own
//! choice. Threads: the main one.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use damelo_lab::output::TraceIdentity;
use damelo_lab::shown;
use damelo_lab::trace::{
    FILTERS, Filter, Quantiles, SampleBy, Sampler, Trace as Requests, TraceStat, trace_curves,
};
use serde_json::json;

use super::manifest::{NewPage, Read, manifest};
use super::reading::{ReadArgs, Reading, TOO_MANY_BYTES, is_too_many, remarks};
use super::rewrite::{Choice, Output, rewrite};
use super::trace_report::{page, table};
use crate::failure::Failure;
use crate::output::{Out, say, thousands};

const US_PER_DAY: f64 = 86_400e6;

/// Look at a trace, or make another one of it.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Trace {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Requests, objects, bytes, popularity, reuse, hosts
    Stat(Stat),
    /// Show requests as lines of `time_s,client,method,status,size_bytes,url`
    Print(Print),
    /// Write in another form
    Convert(Convert),
    /// Keep a share of objects, clients, hosts or requests
    Sample(Sample),
    /// Keep what a rule lets through
    Filter(FilterArgs),
}

#[derive(Debug, Args)]
struct Stat {
    /// The trace
    trace: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Print as JSON, with the manifest of the run
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print figures and points of curves as CSV, the manifest before them as a comment
    #[arg(long)]
    csv: bool,
    /// Write a report with charts of popularity, reuse and sizes to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What there is to compare when a command is run again.
pub(super) enum Product {
    /// What it prints.
    Report,
    /// What it writes, and the manifest beside that.
    Trace,
}

impl Trace {
    /// The trace that is read, and what comes of it that can be compared with another run; why
    /// nothing does.
    pub(super) fn product(self) -> Result<(String, Product), &'static str> {
        let (trace, output) = match self.which {
            Which::Stat(stat) if stat.html.is_some() => return Err("it would overwrite a report"),
            Which::Stat(stat) => return Ok((stat.trace, Product::Report)),
            Which::Convert(args) => (args.trace, args.output),
            Which::Sample(args) => (args.trace, args.output),
            Which::Filter(args) => (args.trace, args.output),
            Which::Print(_) => return Err("it writes no report"),
        };
        match output {
            output if output.is_stdout() => Err("it writes no report"),
            output if output.instead_in.is_some() => {
                Err("it would write into a directory of its own choice")
            }
            _ => Ok((trace, Product::Trace)),
        }
    }
}

#[derive(Debug, Args)]
struct Print {
    /// The trace
    trace: String,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Debug, Args)]
struct Convert {
    /// The trace
    trace: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    Object,
    Client,
    Host,
    Request,
}

#[derive(Debug, Args)]
struct Sample {
    /// The trace
    trace: String,
    #[command(flatten)]
    output: Output,
    /// Share to keep, above 0 and at most 1, or in percent (10%)
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: f64,
    /// What is kept or left out as one
    #[arg(long, value_enum, default_value = "object")]
    by: By,
    /// Seed of the choice: another one keeps others
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!("Rules:{}", rules()))]
struct FilterArgs {
    /// The trace
    trace: String,
    #[command(flatten)]
    output: Output,
    /// Rule that a request must pass; several: all of them
    #[arg(long, value_name = "RULE", required = true, value_parser = rule)]
    rule: Vec<Filter>,
    #[command(flatten)]
    read: ReadArgs,
}

fn rule(given: &str) -> Result<Filter, String> {
    Filter::by_name(given).ok_or_else(|| format!("the rules are:{}", rules()))
}

/// All rules, each on a line of its own.
fn rules() -> String {
    FILTERS.iter().map(|(name, _, words)| format!("\n  {name}: {words}")).collect()
}

/// Runs the subcommand.
pub(crate) fn run(args: &Trace) -> Result<(), Failure> {
    match &args.which {
        Which::Stat(args) => stat(args),
        Which::Print(args) => rewrite(&args.trace, &args.read, &Output::shown(), None, Choice::All),
        Which::Convert(args) => rewrite(&args.trace, &args.read, &args.output, None, Choice::All),
        Which::Sample(args) => sample(args),
        Which::Filter(args) => {
            rewrite(&args.trace, &args.read, &args.output, None, Choice::Rules(&args.rule))
        }
    }
}

/// `0.1`, or `10%`, as sizes of caches may be written.
fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let number: Result<f64, _> = number.trim().parse();
    number.map(|n| n / whole).map_err(|_| "write a share such as 0.1 or 10%".to_owned())
}

fn sample(args: &Sample) -> Result<(), Failure> {
    let by = match args.by {
        By::Object => SampleBy::Object,
        By::Client => SampleBy::Client,
        By::Host => SampleBy::Host,
        By::Request => SampleBy::Request,
    };
    let sampler = Sampler::new(by, args.share, args.seed).ok_or_else(|| {
        Failure::Usage(format!("--share {}: write a share above 0, at most 1", args.share))
    })?;
    rewrite(&args.trace, &args.read, &args.output, Some(args.seed), Choice::Share(sampler))
}

fn stat(args: &Stat) -> Result<(), Failure> {
    let new_page = NewPage::begin(args.html.as_deref(), &[Read::Trace(&args.trace)])?;
    let mut trace = Requests::open(&args.trace, &args.read.options(None)?)?;
    let mut reading = Reading::of(&trace);
    let (stat, curves) = trace_curves(&mut trace, |requests| reading.set(requests))?;
    drop(reading);
    let is_kept = args.json || args.csv || new_page.is_some();
    let manifest = manifest(TraceIdentity::of(&trace), is_kept)?;
    let mut out = Out::new().failing_late(new_page.is_some());
    if args.json {
        out.json(&json!({
            "manifest": manifest,
            "trace": trace.name(),
            "format": trace.form(),
            "synthetic": trace.is_synthetic(),
            "stat": stat,
        }))?;
    } else if args.csv {
        out.bytes(manifest.csv_comment().as_bytes())?;
        out.bytes(table(&stat, &curves).csv().as_bytes())?;
    } else {
        print_stat(&mut out, &trace, &stat)?;
    }
    if let Some(new_page) = new_page {
        let page = page(trace.name(), trace.is_synthetic(), &stat, &curves);
        new_page.write(&page.finish(&manifest))?;
    }
    out.finish()?;
    remarks(&trace);
    if is_too_many(stat.bytes) {
        say(format_args!("damelo: {TOO_MANY_BYTES}"));
    }
    Ok(())
}

fn print_stat(out: &mut Out, trace: &Requests, stat: &TraceStat) -> Result<(), Failure> {
    let synthetic = if trace.is_synthetic() { ", synthetic" } else { "" };
    out.line(format_args!("trace            {} ({}{synthetic})", trace.name(), trace.form()))?;
    out.line(format_args!("requests         {}", thousands(stat.requests)))?;
    let identity = TraceIdentity::of(trace);
    for words in identity.words_of_left_out().chain(identity.notes.iter().cloned()) {
        out.line(format_args!("                 {words}"))?;
    }
    out.line(format_args!("clients          {}", or_none(stat.clients)))?;
    out.line(format_args!("hosts            {}", or_none(stat.hosts)))?;
    out.line(format_args!("objects          {}", thousands(stat.objects)))?;
    out.line(format_args!("bytes            {}", thousands(stat.bytes)))?;
    out.line(format_args!("working set      {} bytes", thousands(stat.working_set_bytes)))?;
    let days = (stat.last_us - stat.first_us) as f64 / US_PER_DAY;
    out.line(format_args!(
        "time             {:.6} to {:.6} s, {days:.2} days, {} requests out of order",
        stat.first_us as f64 / 1e6,
        stat.last_us as f64 / 1e6,
        thousands(stat.out_of_order)
    ))?;
    print_shares(out, stat)?;
    print_locality(out, stat)?;
    let counts = |counts: Vec<(String, u64)>| {
        let mut counts = counts;
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let shown = counts.iter().take(8).map(|(name, n)| format!("{name} {}", thousands(*n)));
        shown.collect::<Vec<_>>().join(", ")
    };
    let named =
        |name: String| if name.is_empty() { "none logged".to_owned() } else { shown(&name) };
    let methods = stat.methods.iter().map(|(name, n)| (named(name.clone()), *n)).collect();
    out.line(format_args!("methods          {}", counts(methods)))?;
    let named = |status: u16| if status == 0 { "none logged".into() } else { status.to_string() };
    let statuses = stat.statuses.iter().map(|(status, n)| (named(*status), *n)).collect();
    out.line(format_args!("statuses         {}", counts(statuses)))
}

fn print_shares(out: &mut Out, stat: &TraceStat) -> Result<(), Failure> {
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    out.line(format_args!(
        "asked for once   {} objects ({:.1}%)",
        thousands(stat.one_timers),
        percent(stat.one_timers, stat.objects)
    ))?;
    out.line(format_args!(
        "up to 8 KiB      {:.1}% of requests; empty {}, size changed {}",
        percent(stat.small_requests, stat.requests),
        thousands(stat.empty_requests),
        thousands(stat.changed_requests)
    ))?;
    out.line(format_args!("object bytes     {}", quantiles(stat.object_bytes)))?;
    out.line(format_args!(
        "unlimited cache  hits {:.2}% of requests, {:.2}% of bytes",
        100.0 * stat.hit_ratio_max,
        100.0 * stat.byte_hit_ratio_max
    ))
}

fn print_locality(out: &mut Out, stat: &TraceStat) -> Result<(), Failure> {
    if let (Some(slope), Some(fit)) = (stat.popularity_slope, stat.popularity_fit) {
        out.line(format_args!("popularity       1/rank^{slope:.3} (r2 of the fit {fit:.3})"))?;
    }
    out.line(format_args!("reuse distance   {} other objects", quantiles(stat.reuse_distance)))?;
    if let (Some(same), Some(recent)) = (stat.same_host_ratio, stat.recent_host_ratio) {
        out.line(format_args!(
            "host locality    {:.1}% to the host before, {:.1}% to one of the last ten",
            100.0 * same,
            100.0 * recent
        ))?;
        out.line(format_args!("host distance    {} other hosts", quantiles(stat.host_distance)))?;
    }
    Ok(())
}

fn or_none(count: u64) -> String {
    if count == 0 { "none named".to_owned() } else { thousands(count) }
}

fn quantiles(quantiles: Option<Quantiles>) -> String {
    match quantiles {
        Some(q) => format!(
            "half {}, 90% {}, 99% {}, most {}",
            thousands(q.p50),
            thousands(q.p90),
            thousands(q.p99),
            thousands(q.max)
        ),
        None => "no".to_owned(),
    }
}
