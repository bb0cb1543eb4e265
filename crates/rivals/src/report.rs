//! Medians, ratios, the table, and the directory that keeps a run.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::contestant::Name;
use crate::drive::Measured;
use crate::machine::Machine;
use crate::run::Sample;
use crate::settings::Settings;
use crate::workload::{Ordering, Stage};

/// One contestant's medians in one benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Who.
    pub contestant: Name,
    /// Operations a second; failed and missing ones count too, to the rival's advantage.
    pub ops_per_s: f64,
    /// The same with the time until everything was on disk.
    pub settled_ops_per_s: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// Largest latency of all rounds.
    pub max_us: f64,
    /// Device reads per operation, by the kernel's count for the whole device.
    pub reads_per_op: f64,
    /// KiB this process had fetched from storage, per operation.
    pub read_kib_per_op: f64,
    /// Processor time per operation.
    pub cpu_us_per_op: f64,
    /// Objects lost after create, worst round.
    pub lost: u64,
    /// Reads that found nothing, worst round.
    pub missing: u64,
    /// Wrong contents or failed operations, worst round. Anything but 0 voids the row.
    pub wrong_or_failed: u64,
    /// Largest resident size, worst round.
    pub peak_rss_bytes: u64,
    /// More than 1% of the objects were not there: a read of nothing costs nothing, and a create
    /// that is dropped is no create. Its speed is no measure of work done.
    pub lossy: bool,
    /// Damelo's operations a second divided by this contestant's: median over rounds.
    pub damelo_ratio: Option<f64>,
}

/// One benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Create, read or delete.
    pub stage: Stage,
    /// In which order.
    pub ordering: Ordering,
    /// With how many clients.
    pub threads: usize,
    /// In the order of `--contestants`.
    pub results: Vec<Summary>,
}

/// The middle of some figures; the mean of the two middle ones of an even number.
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        n if n % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

/// Whether a stage's speed owes something to objects that were not there.
fn lossy(sample: &Sample, measured: &Measured, stage: Stage) -> bool {
    let gone = if stage == Stage::Read { measured.missing } else { sample.report.lost };
    gone > measured.operations / 100
}

/// Which samples make up a row.
#[derive(Clone, Copy)]
struct Cell<'a> {
    samples: &'a [Sample],
    stage: Stage,
    ordering: Ordering,
    threads: usize,
}

impl<'a> Cell<'a> {
    /// A contestant's samples with the measurements of this stage, in order of rounds.
    fn of(self, contestant: Name) -> Vec<(&'a Sample, &'a Measured)> {
        let fits = move |s: &&Sample| {
            s.contestant == contestant && s.ordering == self.ordering && s.threads == self.threads
        };
        let stage = self.stage as usize;
        let with = move |s: &'a Sample| s.report.stages.get(stage).map(|m| (s, m));
        self.samples.iter().filter(fits).filter_map(with).collect()
    }

    fn ratio(self, contestant: Name) -> Option<f64> {
        let rival = self.of(contestant);
        let ratios = self.of(Name::Damelo).into_iter().filter_map(|(ours, measured)| {
            let (_, theirs) = rival.iter().find(|(s, _)| s.round == ours.round)?;
            Some(measured.ops_per_s / theirs.ops_per_s)
        });
        median(ratios.collect())
    }

    fn summary(self, contestant: Name) -> Option<Summary> {
        let found = self.of(contestant);
        let mid = |f: &dyn Fn(&Measured) -> f64| median(found.iter().map(|(_, m)| f(m)).collect());
        let worst = |f: &dyn Fn(&Sample, &Measured) -> u64| {
            found.iter().map(|(s, m)| f(s, m)).max().unwrap_or(0)
        };
        let per_op = |m: &Measured, n: u64| n as f64 / m.operations.max(1) as f64;
        Some(Summary {
            contestant,
            ops_per_s: mid(&|m| m.ops_per_s)?,
            settled_ops_per_s: mid(&|m| m.operations as f64 / m.settled_seconds)?,
            p99_us: mid(&|m| m.p99_us)?,
            max_us: found.iter().map(|(_, m)| m.max_us).fold(0.0, f64::max),
            reads_per_op: mid(&|m| per_op(m, m.counters.device_reads))?,
            read_kib_per_op: mid(&|m| per_op(m, m.counters.process_read_bytes) / 1024.0)?,
            cpu_us_per_op: mid(&|m| per_op(m, m.counters.cpu_us))?,
            lost: worst(&|s, _| s.report.lost),
            missing: worst(&|_, m| m.missing),
            wrong_or_failed: worst(&|s, m| m.wrong + m.failed + s.report.undeleted),
            peak_rss_bytes: worst(&|s, _| s.report.peak_rss_bytes),
            lossy: found.iter().any(|(s, m)| lossy(s, m, self.stage)),
            damelo_ratio: self.ratio(contestant),
        })
    }
}

/// All rows of a run.
pub fn rows(samples: &[Sample], contestants: &[Name], threads: &[usize]) -> Vec<Row> {
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        for ordering in Ordering::ALL {
            for &threads in threads {
                let cell = Cell { samples, stage, ordering, threads };
                let results: Vec<Summary> =
                    contestants.iter().filter_map(|name| cell.summary(*name)).collect();
                if !results.is_empty() {
                    rows.push(Row { stage, ordering, threads, results });
                }
            }
        }
    }
    rows
}

/// A Markdown table whose columns line up in a terminal too.
pub fn table(head: &[String], body: &[Vec<String>]) -> String {
    let width = |i: usize| body.iter().map(|row| row[i].len()).fold(head[i].len(), usize::max);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, w)| format!(" {cell:>w$} |"));
        format!("|{}\n", padded.collect::<String>())
    };
    let rule: String = widths.iter().map(|w| format!("{}:|", "-".repeat(w + 1))).collect();
    let lines: String = body.iter().map(|row| line(row)).collect();
    format!("{}|{rule}\n{lines}", line(head))
}

/// The header of the results' table.
fn head(contestants: &[Name]) -> Vec<String> {
    let mut head: Vec<String> =
        ["stage", "ordering", "threads"].into_iter().map(str::to_owned).collect();
    head.extend(contestants.iter().map(|name| format!("{} ops/s", name.name())));
    let rivals = contestants.iter().filter(|name| **name != Name::Damelo);
    head.extend(rivals.map(|name| format!("damelo/{}", name.name())));
    let columns =
        ["p99 us", "device reads/op", "KiB read/op", "lost", "missing", "wrong, failed", "RSS MiB"];
    head.extend(columns.map(str::to_owned));
    head
}

/// A figure per contestant in one cell, in their order.
fn joined(row: &Row, figure: impl Fn(&Summary) -> String) -> String {
    row.results.iter().map(figure).collect::<Vec<_>>().join(" / ")
}

fn body_line(row: &Row, contestants: &[Name]) -> Vec<String> {
    let of = |name: Name| row.results.iter().find(|s| s.contestant == name);
    let mut cells =
        vec![row.stage.name().to_owned(), row.ordering.name().to_owned(), row.threads.to_string()];
    let ops = |name: &Name| match of(*name) {
        Some(s) => format!("{:.0}{}", s.ops_per_s, if s.lossy { " (lossy)" } else { "" }),
        None => "-".to_owned(),
    };
    cells.extend(contestants.iter().map(ops));
    let rivals = contestants.iter().filter(|name| **name != Name::Damelo);
    cells.extend(rivals.map(|name| of(*name).map_or("-".to_owned(), ratio_cell)));
    cells.push(joined(row, |s| format!("{:.0}", s.p99_us)));
    cells.push(joined(row, |s| format!("{:.3}", s.reads_per_op)));
    cells.push(joined(row, |s| format!("{:.1}", s.read_kib_per_op)));
    cells.push(joined(row, |s| s.lost.to_string()));
    cells.push(joined(row, |s| s.missing.to_string()));
    cells.push(joined(row, |s| s.wrong_or_failed.to_string()));
    cells.push(joined(row, |s| (s.peak_rss_bytes >> 20).to_string()));
    cells
}

/// A ratio, with a mark where the rival is faster and where its speed owes to lost objects.
fn ratio_cell(summary: &Summary) -> String {
    let Some(ratio) = summary.damelo_ratio else { return "-".to_owned() };
    let slower = if ratio < 1.0 { " SLOWER" } else { "" };
    let lossy = if summary.lossy { " (lossy)" } else { "" };
    format!("{ratio:.2}{slower}{lossy}")
}

/// The whole table; cells with several figures have them in the order of the contestants.
pub fn results_table(rows: &[Row], contestants: &[Name]) -> String {
    let body: Vec<Vec<String>> = rows.iter().map(|row| body_line(row, contestants)).collect();
    table(&head(contestants), &body)
}

/// A new directory DATE-HOST below `base`; `-2`, `-3`, ... if there is one already.
///
/// # Errors
/// Whatever the file system reports.
pub fn new_directory(base: &Path, machine: &Machine) -> std::io::Result<PathBuf> {
    fs::create_dir_all(base)?;
    let name = format!("{}-{}", machine.date, machine.host);
    for attempt in 1_u32.. {
        let name = if attempt == 1 { name.clone() } else { format!("{name}-{attempt}") };
        match fs::create_dir(base.join(&name)) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| base.join(&name)),
        }
    }
    Err(std::io::Error::other("no free name"))
}

/// Prints a run as it was asked for, and keeps it if that was.
///
/// # Errors
/// Whatever the file system reports.
pub fn publish(
    settings: &Settings,
    machine: &Machine,
    results: &impl Serialize,
    markdown: &str,
) -> Result<(), Box<dyn Error>> {
    if settings.json {
        println!("{}", serde_json::to_string_pretty(results)?);
    } else {
        print!("{markdown}");
    }
    if let Some(base) = &settings.out {
        let kept = keep(base, machine, results, markdown)?;
        eprintln!("kept in {}", kept.display());
    }
    Ok(())
}

/// Keeps a run: `run.json` (circumstances, rows, every sample) and `table.md`.
///
/// # Errors
/// Whatever the file system reports.
pub fn keep(
    base: &Path,
    machine: &Machine,
    content: &impl Serialize,
    markdown: &str,
) -> Result<PathBuf, Box<dyn Error>> {
    let directory = new_directory(base, machine)?;
    let mut text = serde_json::to_string_pretty(content)?;
    text.push('\n');
    fs::write(directory.join("run.json"), text)?;
    fs::write(directory.join("table.md"), markdown)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn tables_line_up() {
        let cells = |row: [&str; 2]| row.map(str::to_owned).to_vec();
        let text = table(&cells(["a", "long"]), &[cells(["100", "2"])]);
        assert_eq!(text, "|   a | long |\n|----:|-----:|\n| 100 |    2 |\n");
    }
}
