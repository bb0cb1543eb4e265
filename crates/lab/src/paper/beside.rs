//! Every design on a paper's workload, the shipped store among them: what is best, and by how much
//! the store is behind where it is not.
//!
//! Invariants: all designs have the same requests, memory, space and drive; a design that cannot
//! run the workload (no room, parameters that do not go together) has no rows, but for the store,
//! without which there is no table. Threads: none.

use super::playing::Play;
use super::{Exhibit, PaperError, PaperOptions, Published};
use crate::design::{
    Design, DesignInputs, DesignOptions, DesignSpec, Entry, REGISTRY, mapped_bytes_max,
};
use crate::disk::Direction;
use crate::machine::{Machine, MachineConfig, Report, RunOptions};
use crate::request::{Catalogue, Request};

/// Our own, by its name in the registry.
const STORE: &str = "store";
/// It knows the future: it is printed, and not among those that the store is compared with.
const LOOKS_AHEAD: &str = "mmap-future";
/// A design that hits less by more than so many points does not do the same work.
const HIT_POINTS: f64 = 1.0;
/// Least memory of a store and of what else has its own, and pages in it. A workload that was
/// scaled down may have less.
const MEMORY_BYTES_MIN: u64 = 4 << 20;
const MEMORY_PAGES_MIN: u64 = 16;
/// What a store on a modelled disk has room for, and all others with it.
pub(super) const CACHE_BYTES_MAX: u64 = 4 << 30;

/// Requests that are played in one go.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) requests: &'a [Request],
    pub(super) run: RunOptions,
    /// Before it the first so many groups are loved, of so many; the others are hated.
    pub(super) loved_groups: Option<(u32, u32)>,
}

impl<'a> Stage<'a> {
    /// One before which nothing is loved.
    pub(super) fn of(requests: &'a [Request], run: RunOptions) -> Stage<'a> {
        Stage { requests, run, loved_groups: None }
    }
}

/// A workload that every design plays.
pub(super) struct Workload<'a> {
    pub(super) paper: &'a PaperOptions<'a>,
    /// One after the other on one machine.
    pub(super) stages: &'a [Stage<'a>],
    pub(super) names: &'a Catalogue,
    /// Memory of files' buffers is what each system has, be it for blocks of files or of a device.
    pub(super) config: &'a MachineConfig,
    pub(super) options: &'a DesignOptions,
    /// For errors.
    pub(super) what: &'static str,
}

/// What a design did, by its name.
pub(super) type Named = (String, Report);

/// What a design did in each stage, by its name.
pub(super) type Staged = (String, Vec<Report>);

/// What all did in one of the stages.
pub(super) fn stage_of(rows: &[Staged], at: usize) -> Vec<Named> {
    rows.iter().map(|(name, reports)| (name.clone(), reports[at].clone())).collect()
}

/// What all did in the end.
pub(super) fn last_stage(rows: Vec<Staged>) -> Vec<Named> {
    let last = |(name, mut reports): Staged| Some((name, reports.pop()?));
    rows.into_iter().filter_map(last).collect()
}

/// Plays a workload of one stage over every design that can run it.
pub(super) fn all(
    paper: &PaperOptions<'_>,
    Play { requests, names, run, what }: Play<'_>,
    config: &MachineConfig,
    options: &DesignOptions,
) -> Result<Vec<Named>, PaperError> {
    let stages = &[Stage::of(requests, run)];
    Ok(last_stage(Workload { paper, stages, names, config, options, what }.all()?))
}

impl Workload<'_> {
    /// Plays it over every design that can run it.
    pub(super) fn all(&self) -> Result<Vec<Staged>, PaperError> {
        let requests: Vec<Request> =
            self.stages.iter().flat_map(|stage| stage.requests).copied().collect();
        let mut rows = Vec::new();
        for entry in &REGISTRY {
            let options = match DesignSpec::plain(entry).options(&self.options_of_all()) {
                Ok(options) => options,
                Err(_) if entry.name != STORE => continue,
                // It takes the least that it can live with.
                Err(_) => self.options_of_all(),
            };
            match self.one(entry, &options, &requests) {
                Ok(reports) => rows.push((entry.name.to_owned(), reports)),
                Err(_) if entry.name != STORE => {}
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }

    /// The same for each of them.
    fn options_of_all(&self) -> DesignOptions {
        let page_bytes = u64::from(self.options.page_bytes);
        let least_bytes = MEMORY_BYTES_MIN.max(MEMORY_PAGES_MIN * page_bytes);
        let space_bytes = self.config.drive.size_bytes().min(CACHE_BYTES_MAX);
        DesignOptions {
            memory_bytes: self.options.memory_bytes.max(least_bytes),
            cache_bytes: self.options.cache_bytes.min(space_bytes),
            ..self.options.clone()
        }
    }

    fn one(
        &self,
        entry: &Entry,
        options: &DesignOptions,
        requests: &[Request],
    ) -> Result<Vec<Report>, PaperError> {
        if self.paper.is_rehearsal() {
            self.paper.count(requests.len());
            return Ok(vec![Report::default(); self.stages.len()]);
        }
        let config = self.machine_of(entry, requests);
        let inputs = DesignInputs { options, requests: requests.into(), drive: &config.drive };
        let mut design = (entry.make)(&inputs);
        let mut machine = Machine::new(&config);
        let mut reports = Vec::new();
        for (at, stage) in self.stages.iter().enumerate() {
            match self.play(&mut *design, &mut machine, stage) {
                Ok(report) => reports.push(report),
                Err(error) => {
                    let later = self.stages[at + 1..].iter().map(|stage| stage.requests.len());
                    self.paper.count(later.sum());
                    return Err(error);
                }
            }
        }
        Ok(reports)
    }

    fn play(
        &self,
        design: &mut dyn Design,
        machine: &mut Machine,
        stage: &Stage<'_>,
    ) -> Result<Report, PaperError> {
        if let Some((loved, groups)) = stage.loved_groups {
            (0..loved).for_each(|group| design.love(u64::from(group)));
            (loved..groups).for_each(|group| design.hate(u64::from(group)));
        }
        let &Stage { requests, run, .. } = stage;
        let play = Play { requests, names: self.names, run, what: self.what };
        self.paper.play(design, machine, play)
    }

    /// What maps some objects beside files shares its memory and its disk between the two.
    fn machine_of(&self, entry: &Entry, requests: &[Request]) -> MachineConfig {
        let mut config = self.config.clone();
        let memory_bytes = config.files.buffer_cache_bytes;
        let share = if entry.maps_beside_files { memory_bytes / 2 } else { memory_bytes };
        config.files.buffer_cache_bytes = share;
        config.mapped.memory_bytes = share;
        config.buffered.memory_bytes = memory_bytes;
        let mapped_bytes =
            if entry.maps_beside_files { mapped_bytes_max(requests.into()) } else { 0 };
        entry.on_one_disk(&config, mapped_bytes)
    }
}

fn seconds(report: &Report) -> f64 {
    report.disk_total_ns() as f64 / 1e9
}

/// The table; `why` tells what the numbers of this workload come from.
pub(super) fn exhibit(workload: &str, rows: &[Named], why: &'static str) -> Exhibit {
    let title = format!("Every design and the shipped store, {workload}");
    let mut table = Exhibit::new(STORE, &title, why);
    for (name, report) in rows {
        let mut add = |what: &str, unit, value| {
            table.row(format!("{name}, {what}"), unit, Published::Ours, value);
        };
        add("hit rate", "%", report.hit_percent());
        add("disk reads", "requests", report.io.requests_of(Direction::Read) as f64);
        add("disk writes", "requests", report.io.requests_of(Direction::Write) as f64);
        add("disk time", "s", seconds(report));
        add("mean response", "ms", report.responses.mean_ms());
    }
    compare(&mut table, rows);
    table
}

/// The store against the best of the others, each number by itself.
fn compare(table: &mut Exhibit, rows: &[Named]) {
    let Some((_, store)) = rows.iter().find(|(name, _)| name == STORE) else { return };
    let others = || rows.iter().filter(|(name, _)| name != STORE && name != LOOKS_AHEAD);
    let hits_most = others().max_by(|a, b| a.1.hit_percent().total_cmp(&b.1.hit_percent()));
    // Creates and deletes hit nothing.
    if let Some((name, report)) = hits_most.filter(|_| store.reads > 0) {
        let points = store.hit_percent() - report.hit_percent();
        let label = format!("hit rate of the store less the highest other's ({name})");
        table.row(label, "points", Published::Ours, points);
    }
    let as_good = |report: &Report| report.hit_percent() >= store.hit_percent() - HIT_POINTS;
    let like_it = if store.reads > 0 { " that hits as often" } else { "" };
    type Number = fn(&Report) -> f64;
    let mean_ms: Number = |report| report.responses.mean_ms();
    for (what, unit, number) in
        [("disk time", "s", seconds as Number), ("mean response", "ms", mean_ms)]
    {
        let least = others()
            .filter(|(_, report)| as_good(report))
            .min_by(|a, b| number(&a.1).total_cmp(&number(&b.1)));
        let Some((name, report)) = least else { continue };
        // Of nothing there is no multiple.
        if number(report) == 0.0 {
            let label = format!("{what} of the store, where another{like_it} has none ({name})");
            table.row(label, unit, Published::Ours, number(store));
        } else {
            let times = number(store) / number(report);
            let label = format!("{what} of the store over the least other's{like_it} ({name})");
            table.row(label, "times", Published::Ours, times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Drive;
    use crate::request::Op;

    fn report(hits: u64, disk_s: u64) -> Report {
        let mut report = Report { reads: 100, hits, ..Report::default() };
        report.disks[0].read_ns = disk_s * 1_000_000_000;
        report
    }

    fn value(table: &Exhibit, label: &str) -> f64 {
        let row = table.rows.iter().find(|row| row.label == label);
        row.unwrap_or_else(|| panic!("{label} is not in {table}")).measured
    }

    /// Who hits a point less is compared with, who hits two points less is not, nor is who knows
    /// the future.
    #[test]
    fn the_store_is_compared_with_those_that_do_its_work() {
        let rows = [
            ("store".to_owned(), report(50, 30)),
            ("lazy".to_owned(), report(48, 1)),
            ("near".to_owned(), report(49, 20)),
            ("slow".to_owned(), report(53, 60)),
            (LOOKS_AHEAD.to_owned(), report(60, 5)),
        ];
        let table = exhibit("a test", &rows, "Because.");
        let of_time = "disk time of the store over the least other's that hits as often (near)";
        assert_eq!(value(&table, of_time), 1.5);
        let of_hits = "hit rate of the store less the highest other's (slow)";
        assert_eq!(value(&table, of_hits), -3.0);
        assert_eq!(value(&table, "mmap-future, hit rate"), 60.0);
    }

    /// Who writes nothing at all is not divided by.
    #[test]
    fn of_nothing_the_store_is_no_multiple() {
        let mut deletes = [("store".to_owned(), report(0, 3)), ("lazy".to_owned(), report(0, 0))];
        deletes.iter_mut().for_each(|(_, report)| report.reads = 0);
        let table = exhibit("a test", &deletes, "Because.");
        assert_eq!(value(&table, "disk time of the store, where another has none (lazy)"), 3.0);
        assert!(table.rows.iter().all(|row| !row.label.starts_with("hit rate of the store")));
    }

    /// All are there, and each has seen the requests of both stages: what the first one stored is
    /// hit by the second, but for what a design does not keep.
    #[test]
    fn every_design_plays_every_stage() {
        let request = |key| Request { key, size_bytes: 1_000, op: Op::Read, ..Request::default() };
        let requests: Vec<Request> = (0..50).map(request).collect();
        let config = MachineConfig::new(Drive::named("atlas-10k").expect("known"));
        let stage = Stage::of(&requests, RunOptions::default());
        let hinted = Stage { loved_groups: Some((1, 2)), ..stage };
        let workload = Workload {
            paper: &PaperOptions::default(),
            stages: &[stage, hinted],
            names: &Catalogue::new(),
            config: &config,
            options: &DesignOptions::default(),
            what: "a test",
        };
        let rows = workload.all().expect("runs");
        let names: Vec<&str> = rows.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, REGISTRY.map(|entry| entry.name));
        for (name, reports) in &rows {
            let counts = |at: usize| (reports[at].requests, reports[at].hits);
            assert_eq!((counts(0), counts(1)), ((50, 0), (50, 50)), "{name}");
        }
        assert_eq!(stage_of(&rows, 1), last_stage(rows));
    }

    /// A cache that is too small for two of them leaves these out, and no other.
    #[test]
    fn what_cannot_run_has_no_rows() {
        let requests = [Request { size_bytes: 1_000, op: Op::Read, ..Request::default() }];
        let config = MachineConfig::new(Drive::named("atlas-10k").expect("known"));
        // Two pages for each of Dámelo's groups are more than that, as are UCFS's clusters.
        let options = DesignOptions {
            cache_bytes: 8 << 20,
            damelo: crate::design::DameloOptions { groups: 128, ..DesignOptions::default().damelo },
            ..DesignOptions::default()
        };
        let (names, run, what) = (&Catalogue::new(), RunOptions::default(), "a test");
        let play = Play { requests: &requests, names, run, what };
        let rows = all(&PaperOptions::default(), play, &config, &options);
        let names: Vec<String> = rows.expect("runs").into_iter().map(|(name, _)| name).collect();
        let cannot = ["damelo", "ucfs"];
        let others = REGISTRY.map(|entry| entry.name).into_iter().filter(|n| !cannot.contains(n));
        assert_eq!(names, others.collect::<Vec<_>>());
    }
}
