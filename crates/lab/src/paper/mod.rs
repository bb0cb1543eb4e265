//! The papers' tables and figures measured again: the published number beside ours.
//!
//! Each paper is a file here and a page in `docs/lab`. What was published as a picture only is
//! known as far as the text says it; such a row has no published number, and its table says so.
//! Invariant: the same options give the same tables. Threads: one user.

mod beside;
mod cfs;
mod damelo;
mod damelo_beside;
mod hades;
mod playing;
mod polygraph;
mod real;
mod squid;
mod squid_mapped;
#[cfg(test)]
mod tests;
mod ucfs;
mod workload;

pub use playing::{PlayCount, requests_to_play};

use crate::error::TraceError;
use crate::machine::{MachineError, RealError};
use crate::output::{Series, Table, Unit};
use crate::request::{Catalogue, Request};
use crate::trace::Filter;

/// A paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Paper {
    /// McCormick and Ledlie 2000.
    Cfs,
    /// Maltzahn, Richardson and Grunwald 1999.
    Squid,
    /// Ledlie 2000.
    Damelo,
    /// Wang, Min, Zhu and Hu 2002.
    Ucfs,
    /// Konsta and Anastasiadis 2009.
    Hades,
}

/// All papers with their names.
pub const PAPERS: [(&str, Paper); 5] = [
    ("cfs", Paper::Cfs),
    ("squid", Paper::Squid),
    ("damelo", Paper::Damelo),
    ("ucfs", Paper::Ucfs),
    ("hades", Paper::Hades),
];

impl Paper {
    /// The paper of that name.
    pub fn named(name: &str) -> Option<Paper> {
        PAPERS.iter().find(|(n, _)| *n == name).map(|(_, paper)| *paper)
    }

    /// Whether its tables are measured with a trace, if there is one; others have benchmarks of
    /// their own.
    pub fn takes_trace(self) -> bool {
        matches!(self, Paper::Cfs | Paper::Squid | Paper::Ucfs)
    }

    /// By which rule its authors chose from the requests that their proxies logged, if they say so.
    pub fn filter(self) -> Option<Filter> {
        match self {
            Paper::Squid => Some(Filter::SquidDiskIo),
            Paper::Ucfs => Some(Filter::Ucfs),
            Paper::Cfs | Paper::Damelo | Paper::Hades => None,
        }
    }

    /// Whether anything is drawn at random, with a trace or without.
    pub fn takes_seed(self, has_trace: bool) -> bool {
        !(self.takes_trace() && has_trace)
    }

    /// By how much its synthetic workloads can be divided with anything left to measure; none if
    /// that has no limit.
    fn scale_down_max(self, has_trace: bool) -> Option<u32> {
        match self {
            Paper::Squid | Paper::Ucfs if has_trace => None,
            Paper::Squid => Some(squid::SCALE_DOWN_MAX),
            Paper::Ucfs => Some(ucfs::SCALE_DOWN_MAX),
            Paper::Damelo => Some(damelo::SCALE_DOWN_MAX),
            Paper::Hades => Some(hades::SCALE_DOWN_MAX),
            // It has a thousand files at least.
            Paper::Cfs => None,
        }
    }

    /// Whether anything is made smaller by `scale_down`, with a trace or without.
    pub fn takes_scale(self, has_trace: bool) -> bool {
        self.takes_seed(has_trace) || self == Paper::Cfs
    }
}

/// A trace in memory.
#[derive(Debug, Clone, Copy)]
pub struct Trace<'a> {
    /// What it is called in notes.
    pub name: &'a str,
    /// In time order.
    pub requests: &'a [Request],
    /// Names of keys and hosts.
    pub names: &'a Catalogue,
}

/// How a paper is measured.
#[derive(Debug, Clone, Copy)]
pub struct PaperOptions<'a> {
    /// Seed of everything random.
    pub seed: u64,
    /// Requests in place of the paper's; without one a synthetic workload is made.
    pub trace: Option<Trace<'a>>,
    /// Divides the number of objects and requests (and memory with them) of the papers' synthetic
    /// workloads; 1 is the paper's size.
    pub scale_down: u32,
    /// A directory, device or file: the paper's designs also play its workloads there. What a
    /// device or file holds is overwritten.
    pub real: Option<&'a std::path::Path>,
    /// Counts the requests that are played.
    pub played: Option<&'a PlayCount>,
}

impl Default for PaperOptions<'_> {
    fn default() -> Self {
        PaperOptions { seed: 1, trace: None, scale_down: 1, real: None, played: None }
    }
}

/// A published number, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Published {
    /// Printed in the text or a table.
    Value(f64),
    /// A range printed in the text; the ratio is to its middle.
    Range(f64, f64),
    /// At least so much ("over 60%"); the ratio is to that.
    AtLeast(f64),
    /// Roughly this, also where the text has it in words only ("similar", "on par").
    About(f64),
    /// Only in a picture that the text gives no number for.
    Picture,
    /// Not in the paper: ours alone.
    Ours,
}

impl Published {
    /// Its lower and upper end, as far as there are any.
    pub fn ends(self) -> (Option<f64>, Option<f64>) {
        match self {
            Published::Value(value) | Published::About(value) => (Some(value), Some(value)),
            Published::Range(low, high) => (Some(low), Some(high)),
            Published::AtLeast(low) => (Some(low), None),
            Published::Picture | Published::Ours => (None, None),
        }
    }

    /// What kind of a number it is, for programs; nothing for what is ours alone.
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Published::Value(_) => Some("value"),
            Published::Range(..) => Some("range"),
            Published::AtLeast(_) => Some("at least"),
            Published::About(_) => Some("about"),
            Published::Picture => Some("picture only"),
            Published::Ours => None,
        }
    }

    /// What ours is divided by.
    fn base(self) -> Option<f64> {
        match self.ends() {
            (Some(low), Some(high)) => Some((low + high) / 2.0),
            (low, _) => low,
        }
    }
}

/// As tables print it. What is rounded in the text is not given decimals.
impl std::fmt::Display for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Published::Value(value) => f.write_str(&number(value)),
            Published::Range(low, high) => write!(f, "{} to {}", number(low), number(high)),
            Published::AtLeast(low) => write!(f, "over {low}"),
            Published::About(value) => write!(f, "about {value}"),
            Published::Picture => f.write_str("picture only"),
            Published::Ours => Ok(()),
        }
    }
}

/// One number of ours beside a published one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is.
    pub label: String,
    /// Of both numbers.
    pub unit: &'static str,
    /// Theirs.
    pub published: Published,
    /// Ours.
    pub measured: f64,
}

impl Row {
    /// Ours divided by theirs, if theirs is known and not 0.
    pub fn ratio(&self) -> Option<f64> {
        let published = self.published.base()?;
        (published != 0.0).then(|| self.measured / published)
    }
}

/// A number of the paper that is not measured again, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct NotMeasured {
    /// What it is.
    pub label: String,
    /// Of the number.
    pub unit: &'static str,
    /// Theirs.
    pub published: Published,
    /// Why there is none of ours.
    pub reason: &'static str,
}

/// A table or figure measured again.
#[derive(Debug, Clone, PartialEq)]
pub struct Exhibit {
    /// As in the paper: `table 2`, `figure 5 (a)`.
    pub what: String,
    /// Title.
    pub title: String,
    /// Numbers.
    pub rows: Vec<Row>,
    /// What the paper has besides.
    pub not_measured: Vec<NotMeasured>,
    /// Curves, for figures.
    pub series: Vec<Series>,
    /// What their x is, with its unit unless `x_unit` has it.
    pub x_label: &'static str,
    /// What their x is of.
    pub x_unit: Unit,
    /// What their y is, with its unit.
    pub y_label: &'static str,
    /// Why ours differ, in a paragraph.
    pub why: &'static str,
}

impl Exhibit {
    pub(crate) fn new(what: &str, title: &str, why: &'static str) -> Exhibit {
        let (what, title) = (what.to_owned(), title.to_owned());
        Exhibit {
            what,
            title,
            rows: Vec::new(),
            not_measured: Vec::new(),
            series: Vec::new(),
            x_label: "",
            x_unit: Unit::Number,
            y_label: "",
            why,
        }
    }

    pub(crate) fn row(
        &mut self,
        label: impl Into<String>,
        unit: &'static str,
        published: Published,
        measured: f64,
    ) {
        self.rows.push(Row { label: label.into(), unit, published, measured });
    }

    /// Says why a number of the paper is not here.
    pub(crate) fn not_measured(
        &mut self,
        label: impl Into<String>,
        unit: &'static str,
        published: Published,
        reason: &'static str,
    ) {
        self.not_measured.push(NotMeasured { label: label.into(), unit, published, reason });
    }

    /// Names the axes of the curves.
    pub(crate) fn axes(&mut self, x_label: &'static str, y_label: &'static str) {
        (self.x_label, self.y_label) = (x_label, y_label);
    }

    pub(crate) fn series(&mut self, name: impl Into<String>, points: Vec<(f64, f64)>) {
        self.series.push(Series { name: name.into(), points });
    }
}

impl Exhibit {
    /// The rows as a table: published, measured, ratio; behind them what is not measured.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["", "published", "measured", "ratio"]);
        for row in &self.rows {
            let published = row.published.to_string();
            let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let label = format!("{} [{}]", row.label, row.unit);
            table.row(vec![label, published, number(row.measured), ratio]);
        }
        for row in &self.not_measured {
            let label = format!("{} [{}]", row.label, row.unit);
            let cells = [label, row.published.to_string(), NOT_MEASURED.to_owned(), String::new()];
            table.row(cells.to_vec());
        }
        table
    }

    /// Why what is not measured is not, in words; those of one reason together.
    pub fn reasons(&self) -> Vec<String> {
        let groups = self.not_measured.chunk_by(|a, b| a.reason == b.reason);
        let words = |rows: &[NotMeasured]| {
            let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
            format!("{NOT_MEASURED}: {}: {}", labels.join("; "), rows[0].reason)
        };
        groups.map(words).collect()
    }
}

/// Stands where a number would.
const NOT_MEASURED: &str = "not measured";

/// Points of a curve that are printed in a line of text.
const POINTS_SHOWN: usize = 12;

impl std::fmt::Display for Exhibit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.what, self.title)?;
        for line in self.table().text().lines() {
            writeln!(f, "  {line}")?;
        }
        for series in &self.series {
            let every = series.points.len().div_ceil(POINTS_SHOWN).max(1);
            let shown = series.points.iter().step_by(every);
            let line: Vec<String> =
                shown.map(|(x, y)| format!("{}:{}", number(*x), number(*y))).collect();
            writeln!(f, "  {}: {}", series.name, line.join(" "))?;
        }
        for reason in self.reasons() {
            writeln!(f, "  {reason}")?;
        }
        writeln!(f, "  {}", self.why)
    }
}

fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Why a paper could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// A run failed.
    #[error("cannot measure {what}")]
    Machine {
        /// What was measured.
        what: &'static str,
        /// Why.
        source: MachineError,
    },
    /// The synthetic workload cannot be made.
    #[error("cannot make the synthetic workload")]
    Workload(#[from] TraceError),
    /// A run on real disks failed.
    #[error("cannot measure on real disks")]
    Real(#[from] RealError),
    /// Too little is left of a synthetic workload.
    #[error(
        "scaled down by {given} too little is left of the workload to measure; at most {max} for this paper"
    )]
    ScaledTooFar {
        /// As given.
        given: u32,
        /// What is possible.
        max: u32,
    },
    /// The trace has nothing to measure.
    #[error(
        "there are {requests} requests of the trace, {needed} are needed; use a longer one or none"
    )]
    TraceTooShort {
        /// What it has.
        requests: usize,
        /// What is needed.
        needed: usize,
    },
}

pub(crate) fn in_what(what: &'static str) -> impl Fn(MachineError) -> PaperError {
    move |source| PaperError::Machine { what, source }
}

/// Measures every table and figure of a paper.
///
/// # Errors
/// See [`PaperError`].
pub fn run(paper: Paper, options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let given = options.scale_down;
    if let Some(max) = paper.scale_down_max(options.trace.is_some()).filter(|max| given > *max) {
        return Err(PaperError::ScaledTooFar { given, max });
    }
    let mut tables = match paper {
        Paper::Cfs => cfs::run(options)?,
        Paper::Squid => squid::run(options)?,
        Paper::Damelo => damelo::run(options)?,
        Paper::Ucfs => ucfs::run(options)?,
        Paper::Hades => hades::run(options)?,
    };
    if let Some(path) = options.real {
        tables.extend(real::run(paper, options, path)?);
    }
    Ok(tables)
}
