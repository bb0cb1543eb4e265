//! `rivals loads`: some thirty loads of an embedder, each run by damelo and by foyer with the same
//! memory, disk and operations, in turn; one table. Hit ratios and bytes are counts and hardly
//! depend on who else uses the machine; speeds do.

mod caches;
mod catalogue;
pub mod child;
mod value;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde::Serialize;

use crate::child::fresh_directory;
use crate::contestant::Name;
use crate::foyer_cache::FoyerOptions;
use crate::machine::Machine;
use crate::report;
use catalogue::Load;
use child::{LoadReport, LoadSpec};

/// Options of `rivals loads`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct LoadOptions {
    /// Who takes part: damelo, foyer, foyer-paced.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "damelo,foyer")]
    pub contestants: Vec<Name>,
    /// Only these loads; `--list` names all.
    #[arg(value_name = "LOAD")]
    pub only: Vec<String>,
    /// Name the loads and end.
    #[arg(long)]
    pub list: bool,
    /// Longest time of each, and as long before that for what fills the cache.
    #[arg(long, default_value_t = 40)]
    pub seconds: u64,
    /// Divides the operations of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub divide: u64,
    /// So many tasks as clients, in place of the threads or tasks of each load.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub tasks: Option<u32>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to put the caches while running; what it names is emptied.
    #[arg(long, default_value = "/var/tmp/damelo-rivals")]
    pub dir: PathBuf,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Also keep `run.json` and `table.md` in a new directory DATE-HOST below this one.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Choices for foyer.
    #[command(flatten)]
    pub foyer: FoyerOptions,
}

/// What one contestant did under one load.
#[derive(Debug, Serialize)]
struct Row {
    load: &'static str,
    about: &'static str,
    contestant: Name,
    report: LoadReport,
}

/// Everything a run found.
#[derive(Debug, Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    options: &'a LoadOptions,
    rows: &'a [Row],
}

/// Runs `rivals loads`.
///
/// # Errors
/// If a load is not known, a child cannot be started, or the results cannot be written.
pub fn run(options: &LoadOptions) -> Result<(), Box<dyn Error>> {
    let all = catalogue::all();
    if options.list {
        all.iter().for_each(|load| println!("{:<18} {}", load.name, load.about));
        return Ok(());
    }
    if let Some(name) = options.only.iter().find(|name| all.iter().all(|load| load.name != **name))
    {
        return Err(format!("no load is called {name}: see --list").into());
    }
    let wanted =
        |load: &Load| options.only.is_empty() || options.only.iter().any(|n| n == load.name);
    std::fs::create_dir_all(&options.dir)?;
    let machine = Machine::look(&options.dir);
    let mut rows = Vec::new();
    for (turn, load) in all.into_iter().filter(wanted).enumerate() {
        let mut contestants = options.contestants.clone();
        // Nobody always runs first.
        let first = turn % contestants.len();
        contestants.rotate_left(first);
        for contestant in contestants {
            let report = start(options, load.name, contestant)?;
            announce(load.name, contestant, &report);
            rows.push(Row { load: load.name, about: load.about, contestant, report });
        }
    }
    rows.sort_by_key(|row| row.contestant != Name::Damelo);
    let markdown = markdown(&rows, &machine);
    let results = Results { machine: &machine, options, rows: &rows };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{markdown}");
    }
    if let Some(base) = &options.out {
        let kept = report::keep(base, &machine, &results, &markdown)?;
        eprintln!("kept in {}", kept.display());
    }
    Ok(())
}

fn start(
    options: &LoadOptions,
    load: &str,
    contestant: Name,
) -> Result<LoadReport, Box<dyn Error>> {
    let directory = options.dir.join(contestant.name());
    fresh_directory(&directory)?;
    let spec = LoadSpec {
        contestant,
        load: load.to_owned(),
        divide: options.divide,
        seconds: options.seconds,
        tasks: options.tasks,
        seed: options.seed,
        directory: directory.clone(),
        foyer: options.foyer,
    };
    let report = child(&spec);
    fresh_directory(Path::new(&directory))?;
    report
}

fn child(spec: &LoadSpec) -> Result<LoadReport, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .arg("load-child")
        .arg(serde_json::to_string(spec)?)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let error = || Some(format!("child ended with {}", output.status));
    Ok(report.unwrap_or_else(|| LoadReport { error: error(), ..LoadReport::default() }))
}

fn per(count: u64, all: u64) -> f64 {
    count as f64 / all.max(1) as f64
}

fn announce(load: &str, contestant: Name, report: &LoadReport) {
    eprintln!(
        "{load:<18} {:<11} {:>8.0} ops/s, hit {:.4}, wrong {}, failed {}{}",
        contestant.name(),
        report.operations as f64 / report.seconds,
        per(report.hits, report.reads),
        report.wrong,
        report.failed,
        report.error.as_ref().map_or(String::new(), |e| format!("; ERROR {e}")),
    );
}

fn markdown(rows: &[Row], machine: &Machine) -> String {
    let mut text = format!(
        "{machine}.\nThe same memory, disk and operations for each; what a load is, `rivals loads --list` says. \
         `written` is what the process wrote for each byte created; p99 in microseconds.\n\n"
    );
    let head = [
        "load",
        "contestant",
        "hit ratio",
        "of memory",
        "ops/s",
        "damelo is",
        "p99 read",
        "p99 create",
        "written",
        "KiB read/op",
        "cpu us/op",
        "least/most",
        "wrong",
        "failed",
        "RSS MiB",
    ];
    let ours = rows.iter().filter(|row| row.contestant == Name::Damelo);
    let body = ours.flat_map(|ours| {
        let same = rows.iter().filter(|row| row.load == ours.load);
        same.map(|row| line(row, ours))
    });
    text.push_str(&report::table(&head.map(str::to_owned), &body.collect::<Vec<_>>()));
    for row in rows {
        if let Some(error) = &row.report.error {
            text.push_str(&format!(
                "No figures: {}, {}: {error}\n",
                row.load,
                row.contestant.name()
            ));
        }
    }
    text
}

fn line(row: &Row, ours: &Row) -> Vec<String> {
    let report = &row.report;
    let speed = |report: &LoadReport| report.operations as f64 / report.seconds;
    let hits = |report: &LoadReport| per(report.hits, report.reads);
    let is_damelo = row.contestant == Name::Damelo;
    let lost = if hits(&ours.report) + 0.005 < hits(report) { " MORE" } else { "" };
    let ratio = speed(&ours.report) / speed(report);
    let slower = if ratio < 1.0 { " SLOWER" } else { "" };
    vec![
        row.load.to_owned(),
        row.contestant.name().to_owned(),
        format!("{:.3}{lost}", hits(report)),
        format!("{:.3}", per(report.memory_hits, report.reads)),
        format!("{:.0}", speed(report)),
        if is_damelo { String::new() } else { format!("{ratio:.2}x{slower}") },
        format!("{:.0}", report.read_us[1]),
        format!("{:.0}", report.create_us[1]),
        format!("{:.2}", per(report.written_bytes, report.create_bytes)),
        format!("{:.1}", per(report.read_bytes, report.operations) / 1024.0),
        format!("{:.1}", per(report.cpu_us, report.operations)),
        format!("{:.2}", per(report.fairness.0, report.fairness.1)),
        report.wrong.to_string(),
        report.failed.to_string(),
        (report.rss_bytes >> 20).to_string(),
    ]
}
