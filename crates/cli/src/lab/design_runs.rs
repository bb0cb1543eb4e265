//! Runs of designs, one after the other, and their output in the form asked for; on modelled disks
//! and real ones. Invariant: one that fails does not take the results of others with it, which may
//! have taken hours. Threads: the main one.

use damelo::ByteSize;
use damelo_lab::design::{DesignOptions, DesignSpec, GroupRule};
use damelo_lab::machine::Report;
use damelo_lab::output::{Manifest, Report as Page, Table};
use serde_json::Value;

use super::design_report::{columns_of, json_about};
use super::designs::Designs;
use super::load::Playable;
use super::manifest::NewPage;
use crate::failure::Failure;
use crate::output::{Out, heard};

/// What a design with pages is made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) memory_bytes: u64,
    pub(super) page_bytes: u32,
    pub(super) group: &'static str,
    pub(super) rule: GroupRule,
}

impl Setting {
    /// What a design is made with: these, if it takes them.
    pub(super) fn base(setting: Option<Setting>, cache_bytes: u64, real: bool) -> DesignOptions {
        let mut options = DesignOptions { cache_bytes, real, ..DesignOptions::default() };
        if real {
            options = options.without_fetching();
        }
        if let Some(setting) = setting {
            options.memory_bytes = setting.memory_bytes;
            options.page_bytes = setting.page_bytes;
            options.grouping = setting.rule;
        }
        options
    }

    /// Its cells in a table: memory, page, group; empty where a design takes none.
    pub(super) fn cells(setting: Option<Setting>) -> [String; 3] {
        setting.map_or([const { String::new() }; 3], |setting| {
            let page = ByteSize::new(u64::from(setting.page_bytes)).to_string();
            [ByteSize::new(setting.memory_bytes).to_string(), page, setting.group.to_owned()]
        })
    }
}

/// How the requests are played, for what is printed of it.
pub(super) struct Played<'a> {
    pub(super) args: &'a Designs,
    pub(super) loaded: &'a Playable,
    pub(super) cache_bytes: u64,
    pub(super) manifest: Manifest,
}

impl Played<'_> {
    pub(super) fn clients(&self) -> u32 {
        self.args.clients
    }

    pub(super) fn warmup_requests(&self) -> usize {
        self.args.warmup_req
    }

    pub(super) fn pace(&self) -> &'static str {
        if self.args.at_trace_pace { "trace" } else { "as fast as served" }
    }
}

/// One run, and what the machine says of it.
pub(super) struct Done<R = Report> {
    /// With its parameters.
    pub(super) design: String,
    /// `None` of designs without pages.
    pub(super) setting: Option<Setting>,
    pub(super) report: R,
}

/// A design as it is to run.
pub(super) type Run<'a> = (&'a DesignSpec, Option<Setting>);

/// How runs on one kind of disk are shown.
pub(super) struct Forms<R> {
    pub(super) json: fn(&Played<'_>, &Done<R>) -> Value,
    /// What of JSON is in CSV.
    pub(super) columns: &'static [&'static str],
    pub(super) table: fn(&[Done<R>]) -> Table,
    pub(super) page: fn(&Played<'_>, &[Done<R>]) -> Page,
}

/// A run that ended before its time, and why.
type Failed = Done<String>;

/// For CSV, where any run failed.
const ERROR_COLUMN: &str = "error";

/// Runs one after the other and prints in the form asked for, JSON of each as soon as it is there.
pub(super) fn run_all<'a, R>(
    played: &Played<'_>,
    runs: impl ExactSizeIterator<Item = Run<'a>>,
    new_page: Option<NewPage<'_>>,
    forms: &Forms<R>,
    mut run_one: impl FnMut(&DesignSpec, Option<Setting>) -> Result<R, Failure>,
) -> Result<(), Failure> {
    let args = played.args;
    let mut out = Out::new().failing_late(new_page.is_some());
    let asked = runs.len();
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for (spec, setting) in runs {
        let design = spec.label().to_owned();
        match run_one(spec, setting) {
            Ok(report) => {
                let done = Done { design, setting, report };
                if args.json {
                    out.json(&(forms.json)(played, &done))?;
                }
                all.push(done);
            }
            // It is told as that of the command.
            Err(failure) if asked == 1 => return Err(failure),
            Err(failure) => {
                failure.print();
                let failed = Failed { design, setting, report: failure.line() };
                if args.json {
                    out.json(&failed_json(played, &failed))?;
                }
                failures.push(failed);
            }
        }
        out.flush()?;
    }
    print_all(played, &mut out, forms, &all, &failures)?;
    if let Some(new_page) = new_page.filter(|_| !all.is_empty()) {
        let mut page = (forms.page)(played, &all);
        add_failures(&mut page, &failures);
        new_page.write(&page.finish(&played.manifest))?;
    }
    heard(out.finish())?;
    match failures.len() {
        0 => Ok(()),
        failed => Err(Failure::SomeDesigns { failed, asked }),
    }
}

fn add_failures(page: &mut Page, failures: &[Failed]) {
    if !failures.is_empty() {
        page.section("Failed");
    }
    for Failed { design, setting, report: reason } in failures {
        let cells = Setting::cells(*setting).join(" ");
        page.paragraph(&format!("{}: {reason}", format!("{design} {cells}").trim_end()));
    }
}

/// Rows of what ran, and behind them of what did not.
fn print_all<R>(
    played: &Played<'_>,
    out: &mut Out,
    forms: &Forms<R>,
    all: &[Done<R>],
    failures: &[Failed],
) -> Result<(), Failure> {
    if played.args.csv {
        out.bytes(played.manifest.csv_comment().as_bytes())?;
        let rows = all.iter().map(|done| (forms.json)(played, done));
        let rows = rows.chain(failures.iter().map(|failed| failed_json(played, failed)));
        let error = (!failures.is_empty()).then_some(ERROR_COLUMN);
        let columns: Vec<&str> = forms.columns.iter().copied().chain(error).collect();
        return out.bytes(columns_of(&columns, rows).csv().as_bytes());
    }
    if played.args.json {
        return Ok(());
    }
    let mut table = (forms.table)(all);
    if !failures.is_empty() {
        table.column("failed");
    }
    for Failed { design, setting, report: reason } in failures {
        let cells = [std::slice::from_ref(design), &Setting::cells(*setting)].concat();
        table.row_of_ends(cells, reason.clone());
    }
    out.bytes(table.text().as_bytes())
}

/// One that failed, for programs.
fn failed_json(played: &Played<'_>, failed: &Failed) -> Value {
    let mut json = json_about(played, &failed.design, failed.setting);
    json[ERROR_COLUMN] = failed.report.as_str().into();
    json
}
