//! `damelo lab bench`: how many requests per second a policy-only simulation processes on one core,
//! from oracleGeneral and from CSV, and the memory per distinct object. Runs this program as child
//! processes to write a synthetic trace and to simulate on it, so that the system reports each
//! run's memory. This process stays small itself: a child's peak includes its memory from before
//! exec. Threads: the main one.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use damelo_lab::output::TraceIdentity;
use damelo_lab::policy::PolicySpec;
use damelo_lab::trace::{ReadOptions, Trace};
use serde_json::json;

use super::manifest::kept_manifest;
use crate::failure::Failure;
use crate::leftovers::{Leftover, ending_with_us};
use crate::output::{Out, thousands};
use crate::progress::Progress;

const AFTER_HELP: &str = "\
Examples:
  damelo lab bench
  damelo lab bench --requests 20000000 --objects 8000000 --policies lru,s3-fifo,sieve

Build with --release. The trace is gen:zipf, alpha 0.8; the cache has 1 GiB. Each rate is the best
of --rounds runs of the whole command, start and reading included; memory is what the process had at
most, less what it has with lru and a tiny trace.";

/// Speed and memory of the simulator.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Bench {
    /// Requests of the trace
    #[arg(long, value_name = "N", default_value_t = 8_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Objects that the requests are drawn from; not all of them are drawn
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
          value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    objects: u64,
    /// Policies to measure
    #[arg(long, value_name = "NAMES", default_value = "lru,s3-fifo", value_delimiter = ',')]
    policies: Vec<String>,
    /// Runs of each; the best one counts
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where the traces lie while it runs
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: std::path::PathBuf,
    /// Print as JSON, with the manifest of the run
    #[arg(long)]
    json: bool,
}

/// What the tiny trace runs through, whatever is measured: it has no tables but those for objects.
const BASE_POLICY: &str = "lru";
const ZIPF_ALPHA: f64 = 0.8;
const TINY_REQUESTS: u64 = 1000;

struct Row {
    form: &'static str,
    policy: String,
    requests_per_s: f64,
    bytes_per_object: f64,
}

/// Measures and prints.
pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    // Not after the traces are made, and not as the failure of a child.
    args.policies.iter().try_for_each(|policy| PolicySpec::parse(policy).map(drop))?;
    let dir = tempfile::Builder::new().prefix("damelo-lab-bench-").tempdir_in(&args.dir).map_err(
        |source| Failure::io(format!("make a directory in {}", args.dir.display()), source),
    )?;
    let _leftover = Leftover::new(dir.path());
    let mut steps = Steps::new(args);
    let tiny = dir.path().join("tiny.oracleGeneral");
    make(&tiny, TINY_REQUESTS, args.objects, "oracleGeneral")?;
    let base_bytes = simulate(&tiny, BASE_POLICY, &[])?.bytes_max;
    let mut rows = Vec::new();
    let mut objects = 0;
    for (form, name, format) in
        [("oracleGeneral", "t.oracleGeneral", "oracleGeneral"), ("csv", "t.csv", "damelo")]
    {
        let path = dir.path().join(name);
        make(&path, args.requests, args.objects, format)?;
        steps.pass();
        objects = objects_in(&path, &args.policies[0])?;
        steps.pass();
        for policy in &args.policies {
            rows.push(measure(args, &path, form, policy, objects, base_bytes, &mut steps)?);
        }
        std::fs::remove_file(&path)
            .map_err(|source| Failure::io(format!("remove {}", path.display()), source))?;
    }
    print(args, objects, &rows)
}

/// How far it is: each step goes through all requests once, in a process of its own.
struct Steps {
    progress: Progress,
    requests_each: u64,
    done: u64,
    total: u64,
}

/// A trace in each of two forms is made, counted, and simulated on.
const FORMS: u64 = 2;

impl Steps {
    fn new(args: &Bench) -> Steps {
        let (policies, rounds) = (args.policies.len() as u64, u64::from(args.rounds));
        let total = FORMS * (2 + policies * rounds) * args.requests;
        let progress = Progress::count("requests");
        Steps { progress, requests_each: args.requests, done: 0, total }
    }

    /// Nothing is drawn while a step is measured.
    fn pass(&mut self) {
        self.done += self.requests_each;
        self.progress.set(self.done, self.total);
    }
}

/// The best time of some runs, and the greatest memory.
fn measure(
    args: &Bench,
    path: &Path,
    form: &'static str,
    policy: &str,
    objects: u64,
    base_bytes: u64,
    steps: &mut Steps,
) -> Result<Row, Failure> {
    let (mut best_s, mut bytes_max) = (f64::INFINITY, 0);
    for _ in 0..args.rounds {
        let start = Instant::now();
        let run = simulate(path, policy, &[])?;
        best_s = best_s.min(start.elapsed().as_secs_f64());
        steps.pass();
        bytes_max = run.bytes_max.max(bytes_max);
    }
    Ok(Row {
        form,
        policy: policy.to_owned(),
        requests_per_s: args.requests as f64 / best_s,
        bytes_per_object: bytes_max.saturating_sub(base_bytes) as f64 / objects.max(1) as f64,
    })
}

fn make(path: &Path, requests: u64, objects: u64, format: &str) -> Result<(), Failure> {
    let name = generator(requests, objects);
    let path = path.to_string_lossy();
    run_self(&["lab", "trace", "convert", &name, &path, "--to", format]).map(|_| ())
}

fn generator(requests: u64, objects: u64) -> String {
    format!("gen:zipf?requests={requests}&objects={objects}&alpha={ZIPF_ALPHA}")
}

/// Size of the simulated cache. Room for some tens of thousands of objects of `gen:zipf`, so that
/// all of hits, misses and evictions are frequent.
const CACHE_BYTES: &str = "1GiB";

/// Distinct objects of a trace.
fn objects_in(path: &Path, policy: &str) -> Result<u64, Failure> {
    let report: serde_json::Value =
        serde_json::from_slice(&simulate(path, policy, &["--json"])?.output)?;
    Ok(report["objects"].as_u64().unwrap_or(0))
}

/// Runs one simulation on one core.
fn simulate(path: &Path, policy: &str, form: &[&str]) -> Result<Run, Failure> {
    let path = path.to_string_lossy();
    let args = ["lab", "sim", &path, policy, CACHE_BYTES, "--num-thread", "1"];
    run_self(&[&args[..], form].concat())
}

/// What a child printed, and its memory at most.
struct Run {
    output: Vec<u8>,
    bytes_max: u64,
}

/// Runs this program with other arguments.
fn run_self(args: &[&str]) -> Result<Run, Failure> {
    let program = std::env::current_exe().map_err(|source| Failure::io("find myself", source))?;
    let mut child = Command::new(program);
    child.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = ending_with_us(&mut child).spawn();
    let mut child = child.map_err(|source| Failure::io("start a simulation", source))?;
    let reading = |source| Failure::io("read what a simulation printed", source);
    let (mut output, mut words) = (Vec::new(), Vec::new());
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_end(&mut output).map_err(reading)?;
    }
    // Less than a pipe holds, so it could wait until the other one was at its end.
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_end(&mut words).map_err(reading)?;
    }
    let (succeeded, bytes_max) = reap(child.id())?;
    if !succeeded {
        return Err(Failure::Child(String::from_utf8_lossy(&words).into_owned()));
    }
    Ok(Run { output, bytes_max })
}

/// Waits for a child; whether it ended well, and its memory at most.
fn reap(process: u32) -> Result<(bool, u64), Failure> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: both pointers are to writable memory that outlives the call; the process is a child
    // that nobody else waits for.
    let result =
        unsafe { libc::wait4(process as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr()) };
    if result < 0 {
        return Err(Failure::io("wait for a simulation", std::io::Error::last_os_error()));
    }
    // SAFETY: the call succeeded and so filled it; all zeroes would be valid too.
    let usage = unsafe { usage.assume_init() };
    // Linux counts in KiB, and never below 0.
    Ok((status == 0, usage.ru_maxrss.max(0) as u64 * 1024))
}

fn print(args: &Bench, objects: u64, rows: &[Row]) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "form": row.form,
                    "policy": row.policy,
                    "requests_per_s": row.requests_per_s,
                    "bytes_per_object_max": row.bytes_per_object,
                })
            })
            .collect();
        let trace = Trace::open(&generator(args.requests, args.objects), &ReadOptions::default())?;
        out.json(&json!({
            "manifest": kept_manifest(TraceIdentity::of(&trace))?,
            "requests": args.requests,
            "objects": objects,
            "synthetic": true,
            "rows": rows,
        }))?;
        return out.finish();
    }
    out.line(format_args!(
        "gen:zipf (synthetic): {} requests, {} distinct objects, one core",
        thousands(args.requests),
        thousands(objects)
    ))?;
    for row in rows {
        out.line(format_args!(
            "{:<14} {:<12} {:>7.2} million requests/s {:>7.1} bytes for each distinct object",
            row.form,
            row.policy,
            row.requests_per_s / 1e6,
            row.bytes_per_object
        ))?;
    }
    out.finish()
}
