//! `damelo lab bench`: how many requests a second policy-only simulation takes on one core, from
//! oracleGeneral and from CSV, and how much memory each distinct object costs. It writes a synthetic
//! trace to a directory of its own and runs this same program on it, one run at a time, so that the
//! memory of a run can be asked of the system. Threads: none but the child's one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use damelo_lab::trace::{ReadOptions, RecordSource, Trace, TraceWriter, WriteFormat};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Out, thousands};

const AFTER_HELP: &str = "\
Examples:
  damelo lab bench
  damelo lab bench --requests 20000000 --objects 8000000 --policies lru,s3-fifo,sieve

Build with --release. The trace is gen:zipf, alpha 0.8; the cache has 1 GiB. Each figure is the best of --rounds runs of the whole command, start and
reading included.";

/// Speed and memory of the simulator.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Bench {
    /// Requests of the trace
    #[arg(long, value_name = "N", default_value_t = 8_000_000)]
    requests: u64,
    /// Objects that the requests are drawn from; not all come up
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    objects: u64,
    /// Policies to measure
    #[arg(long, value_name = "NAMES", default_value = "lru,s3-fifo", value_delimiter = ',')]
    policies: Vec<String>,
    /// Runs of each, of which the best counts
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where the traces lie while it runs
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: std::path::PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

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
    let dir = tempfile::Builder::new().prefix("damelo-lab-bench-").tempdir_in(&args.dir).map_err(
        |source| Failure::io(format!("make a directory in {}", args.dir.display()), source),
    )?;
    let tiny = dir.path().join("tiny.oracleGeneral");
    make(&tiny, TINY_REQUESTS, args.objects, WriteFormat::OracleGeneral)?;
    let mut rows = Vec::new();
    // The base must be measured first: the system tells the greatest child so far.
    simulate(&tiny, &args.policies[0], "--csv")?;
    let mut objects = 0;
    let base_bytes = greatest_child_bytes()?;
    for (form, name, format) in [
        ("oracleGeneral", "t.oracleGeneral", WriteFormat::OracleGeneral),
        ("csv", "t.csv", WriteFormat::Damelo),
    ] {
        let path = dir.path().join(name);
        make(&path, args.requests, args.objects, format)?;
        objects = objects_in(&path, &args.policies[0])?;
        for policy in &args.policies {
            let mut best_s = f64::INFINITY;
            for _ in 0..args.rounds {
                let start = Instant::now();
                simulate(&path, policy, "--csv")?;
                best_s = best_s.min(start.elapsed().as_secs_f64());
            }
            let grown = greatest_child_bytes()?.saturating_sub(base_bytes);
            rows.push(Row {
                form,
                policy: policy.clone(),
                requests_per_s: args.requests as f64 / best_s,
                bytes_per_object: grown as f64 / objects.max(1) as f64,
            });
        }
        std::fs::remove_file(&path)
            .map_err(|source| Failure::io(format!("remove {}", path.display()), source))?;
    }
    print(args, objects, &rows)
}

fn make(path: &Path, requests: u64, objects: u64, format: WriteFormat) -> Result<(), Failure> {
    let name = format!("gen:zipf?requests={requests}&objects={objects}&alpha={ZIPF_ALPHA}");
    let mut trace = Trace::open(&name, &ReadOptions::default())?;
    let mut writer = TraceWriter::create(&path.to_string_lossy(), format)?;
    while trace.advance()? {
        writer.write(&trace.record())?;
    }
    writer.finish()?;
    Ok(())
}

/// Size of the simulated cache. Room for some tens of thousands of objects of `gen:zipf`, so that all of
/// hits, misses and evictions are frequent.
const CACHE_BYTES: &str = "1GiB";

/// Distinct objects of a trace.
fn objects_in(path: &Path, policy: &str) -> Result<u64, Failure> {
    let report: serde_json::Value = serde_json::from_slice(&simulate(path, policy, "--json")?)?;
    Ok(report["objects"].as_u64().unwrap_or(0))
}

/// Runs one simulation in a process of its own; what it printed.
fn simulate(path: &Path, policy: &str, form: &str) -> Result<Vec<u8>, Failure> {
    let program = std::env::current_exe().map_err(|source| Failure::io("find myself", source))?;
    let output = Command::new(program)
        .args(["lab", "sim"])
        .arg(path)
        .args([policy, CACHE_BYTES, "--num-thread", "1", form])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Failure::io("start a simulation", source))?;
    if !output.status.success() {
        return Err(Failure::Child(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(output.stdout)
}

/// Memory of the largest child that has ended.
fn greatest_child_bytes() -> Result<u64, Failure> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a writable rusage that outlives the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    if result != 0 {
        return Err(Failure::io("ask for the memory of a child", std::io::Error::last_os_error()));
    }
    // SAFETY: the call succeeded and so filled it; all zeroes would be valid too.
    let usage = unsafe { usage.assume_init() };
    // Linux counts in KiB, and never below 0.
    Ok(usage.ru_maxrss.max(0) as u64 * 1024)
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
        out.json(&json!({
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
            "{:<14} {:<12} {:>7.2} million requests/s",
            row.form,
            row.policy,
            row.requests_per_s / 1e6
        ))?;
    }
    if let Some(last) = rows.last() {
        out.line(format_args!(
            "memory above that of a tiny trace: at most {:.1} bytes for each distinct object",
            last.bytes_per_object
        ))?;
    }
    out.finish()
}
