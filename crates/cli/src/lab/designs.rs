//! `damelo lab designs`: its options, and runs of published designs and our store on one trace and
//! a modelled disk. Designs with pages run at every requested combination of memory, page and
//! grouping.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use damelo::ByteSize;
use damelo_lab::SimError;
use damelo_lab::design::{
    DesignInputs, DesignOptions, DesignSpec, GROUP_RULES, GroupRule, Grouper, Hinted, REGISTRY,
    Values, mapped_bytes_max, parse_choice, parse_size,
};
use damelo_lab::disk::Drive;
use damelo_lab::machine::{
    Machine, MachineConfig, MachineError, Pace, RealPlace, Report, RunOptions, run as play,
};
use damelo_lab::output::Manifest;

use super::design_report::MODELLED;
use super::design_runs::{Played, Run, Setting, run_all};
use super::designs_real as real;
use super::load::Playable;
use super::manifest::{NewPage, Read, drive_identity, manifest};
use super::reading::{ReadArgs, check_times};
use super::system_args::SystemArgs;
use super::watched::Watched;
use crate::failure::Failure;
use crate::output::{say, thousands};

const AFTER_HELP: &str = "\
Examples:
  damelo lab designs access.log                      every design on the disk of UCFS
  damelo lab designs access.log ucfs,damelo,store --drive nvme-1tb --cache 1GiB
  damelo lab designs access.log store --page 16KiB,64KiB,256KiB --group host,host-path,page
  damelo lab designs access.log store,store:disk=lru,store:admission=second-hit
  damelo lab designs 'gen:web?requests=50000' squid,squidml --html report.html
  damelo lab designs access.log store,squid --real /var/tmp --cache 1GiB

Disk reads and writes are requests to the modelled disk, disk s is how long it was busy with them.
Virtual time is until the last client was served, clients asking as fast as they are: nobody waits
for what is written later. Requests without a body of their own (304, HEAD, no bytes, and 206 and
what was broken off, which are not the whole) are hits if their object is stored, else left out (no
body), as DELETE and PURGE that were refused are. With --real one client asks, time is the wall clock's, and bytes are those that the system counted
(/proc/self/io). A design that cannot be run has its reason in the column `failed` (in JSON and CSV
`error`); the others run all the same, and the exit code is 4. docs/lab/designs.md in the source
tells what each design is. A trace of more than 4,194,304 requests is read again for each design, so
that it may be larger than memory; what grows with it are the names of its objects.";

const CACHE_DEFAULT_BYTES: u64 = 4 << 30;
/// A page, as designs have them by default. Some want more, and say so.
const CACHE_BYTES_MIN: u64 = 64 << 10;

/// Run published designs and the store over a trace, on a modelled disk
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, after_long_help = after_long_help())]
pub(crate) struct Designs {
    /// A file, or gen:NAME?...
    pub(super) trace: String,
    /// Designs with parameters, separated by commas, such as store:disk=lru; all if not given
    #[arg(value_name = "DESIGNS", value_delimiter = ',')]
    designs: Vec<String>,
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    pub(super) system: SystemArgs,
    /// Disk space for objects; cern and mmap-infinite ignore it and keep everything
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize::new(CACHE_DEFAULT_BYTES))]
    pub(super) cache: ByteSize,
    /// Memory of designs that manage their own [default: 128MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    memory: Vec<ByteSize>,
    /// Page or cluster of designs that have one: powers of two, 16KiB to 1MiB [default: 64KiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = page_bytes)]
    page: Vec<u32>,
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rule, help = rule_help())]
    group: Vec<NamedRule>,
    /// Clients that each have one request at a time
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) clients: u32,
    /// Issue requests at the times of the trace, from which responses then count, not as fast as
    /// they are served; requests out of order are sorted first
    #[arg(long)]
    pub(super) at_trace_pace: bool,
    /// Leave the first N requests out of the count (warm-up)
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) warmup_req: usize,
    /// After the warm-up, love the SHARE of groups that had most requests in it, such as top=0.1,
    /// and hate the others: for designs that take hints (damelo, store)
    #[arg(long, value_name = "top=SHARE", value_parser = love_top)]
    pub(super) love: Option<f64>,
    /// Run on a real disk instead of a modelled one: in a directory or, for designs that need no
    /// files, on a file or device whose contents are lost
    #[arg(long, value_name = "DIR|DEVICE",
          conflicts_with_all = ["drive", "files", "mapped", "system_memory", "scheduler", "clients", "at_trace_pace", "warmup_req", "love"])]
    pub(super) real: Option<PathBuf>,
    /// Print one JSON object a run, each with the manifest
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print as CSV, the manifest before it as a comment
    #[arg(long)]
    pub(super) csv: bool,
    /// Write a report with charts to this file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

impl Designs {
    /// What is printed may be looked at later, and says how it came about.
    fn is_kept(&self) -> bool {
        self.json || self.csv || self.html.is_some()
    }
}

fn after_long_help() -> String {
    let mut text = format!("{AFTER_HELP}\n\nDesigns, and their parameters with defaults:\n");
    for entry in &REGISTRY {
        text.push_str(&format!("  {}\n", entry.name));
        for parameter in entry.parameters {
            let given = format!("{}={}", parameter.name, parameter.default);
            let range = match parameter.values {
                Values::Range(least, most) => format!(" ({least} to {most})"),
                Values::OneOf(_) => String::new(),
            };
            text.push_str(&format!("      {given:<22} {}{range}\n", parameter.about));
        }
    }
    text
}

fn rule_help() -> String {
    let rules = GROUP_RULES.map(|(name, _)| name).join(", ");
    format!("How designs with pages group objects: {rules}; host if not given")
}

/// A rule as it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamedRule(&'static str, GroupRule);

fn rule(given: &str) -> Result<NamedRule, String> {
    parse_choice(given, &GROUP_RULES.map(|(name, rule)| (name, NamedRule(name, rule))))
}

/// `top=0.1`, or `top=10%`.
fn love_top(given: &str) -> Result<f64, String> {
    let share = |text: &str| {
        let percent = text.strip_suffix('%');
        let number: f64 = percent.unwrap_or(text).parse().ok()?;
        Some(if percent.is_some() { number / 100.0 } else { number })
    };
    let share = given.strip_prefix("top=").and_then(share);
    let inside = share.filter(|share| *share > 0.0 && *share < 1.0);
    inside.ok_or_else(|| "write top= and a share between 0 and 1, such as top=0.1".to_owned())
}

fn page_bytes(given: &str) -> Result<u32, String> {
    parse_size(given, 16 << 10..=1 << 20)
}

/// Room for objects as asked for, which there must be. The default takes what there is.
pub(super) fn cache_bytes(args: &Designs, there: u64, name: &str) -> Result<u64, Failure> {
    let asked = args.cache.bytes();
    if asked < CACHE_BYTES_MIN {
        let least = ByteSize::new(CACHE_BYTES_MIN);
        return Err(Failure::Usage(format!("--cache is {}: write at least {least}", args.cache)));
    }
    if asked > there && asked != CACHE_DEFAULT_BYTES {
        let there = ByteSize::new(there);
        return Err(Failure::Usage(format!(
            "--cache is {}, more than the {there} of {name}",
            args.cache
        )));
    }
    Ok(asked.min(there))
}

/// Runs and prints.
pub(crate) fn run(args: &Designs) -> Result<(), Failure> {
    let specs = chosen(&args.designs)?;
    check(args, &specs)?;
    let reads = [Read::Trace(&args.trace), Read::Drive(&args.system.drive)];
    // Before the trace is read, which may take long.
    let place = real_place(args, &specs, &reads)?;
    let drive = Drive::open(&args.system.drive)?;
    let cache_bytes = match &place {
        Some(place) => {
            cache_bytes(args, place.space_bytes()?, &place.path().display().to_string())?
        }
        None => cache_bytes(args, drive.size_bytes(), &format!("the drive {}", args.system.drive))?,
    };
    let runs: Vec<Run<'_>> = specs
        .iter()
        .flat_map(|spec| settings(args, spec).into_iter().map(move |setting| (spec, setting)))
        .collect();
    // What does not go together is found now, not when those before it have run.
    let mut options = Vec::new();
    for (spec, setting) in &runs {
        options.push(spec.options(&Setting::base(*setting, cache_bytes, place.is_some()))?);
    }
    let new_page = NewPage::begin(args.html.as_deref(), &reads)?;
    let loaded = load_measured(args)?;
    for ((spec, _), options) in runs.iter().zip(&options) {
        spec.check_names(options, &loaded.names)?;
    }
    tell_of_no_hosts(&loaded, &runs);
    tell_unlimited(args, &specs);
    let manifest = Manifest {
        drive: drive_identity(&args.system.drive, args.is_kept())?,
        ..manifest(loaded.identity.clone(), args.is_kept())?
    };
    let played = Played { args, loaded: &loaded, cache_bytes, manifest };
    let runs = runs.into_iter();
    match place {
        Some(place) => real::run(&played, runs, &place, &drive, new_page),
        None => {
            let config = args.system.machine(drive);
            let maps = specs.iter().any(|spec| spec.entry.maps_beside_files);
            let mapped_bytes = if maps { mapped_bytes_max(loaded.requests()) } else { 0 };
            run_all(&played, runs, new_page, &MODELLED, |spec, setting| {
                run_one(&played, spec, setting, &spec.entry.on_one_disk(&config, mapped_bytes))
            })
        }
    }
}

/// Refuses options that would change nothing for any of the designs.
fn check(args: &Designs, specs: &[DesignSpec]) -> Result<(), Failure> {
    let is_varied = !(args.memory.is_empty() && args.page.is_empty() && args.group.is_empty());
    if is_varied && !specs.iter().any(|spec| spec.entry.has_pages) {
        return Err(Failure::Usage(
            "--memory, --page and --group change nothing for these designs: leave them out".into(),
        ));
    }
    check_love(args, specs)?;
    args.system.check(specs)
}

/// Hints are for those who take them, and made of a warm-up.
fn check_love(args: &Designs, specs: &[DesignSpec]) -> Result<(), Failure> {
    if args.love.is_none() {
        return Ok(());
    }
    if !specs.iter().any(|spec| spec.entry.takes_hints) {
        let words = "--love changes nothing for these designs: leave it out";
        return Err(Failure::Usage(words.to_owned()));
    }
    if args.warmup_req == 0 {
        let words = "--love ranks groups by the warm-up: say how long that is by --warmup-req";
        return Err(Failure::Usage(words.to_owned()));
    }
    Ok(())
}

/// Where the designs run if not on a modelled disk: a place that each of them can use, and that is
/// nothing of what is read.
fn real_place(
    args: &Designs,
    specs: &[DesignSpec],
    reads: &[Read<'_>],
) -> Result<Option<RealPlace>, Failure> {
    let Some(path) = args.real.as_deref() else { return Ok(None) };
    let place = RealPlace::of(path)?;
    reads.iter().try_for_each(|read| read.check_is_not("--real", path))?;
    specs.iter().try_for_each(|spec| place.check(spec.entry))?;
    Ok(Some(place))
}

/// The trace, of which the warm-up leaves something to measure.
fn load_measured(args: &Designs) -> Result<Playable, Failure> {
    let mut loaded = Playable::load(&args.trace, &args.read)?;
    if args.at_trace_pace {
        check_times(&args.trace, loaded.facts.has_times, "--at-trace-pace")?;
        loaded.sort_by_time()?;
    }
    let (warmup, count) = (args.warmup_req, loaded.requests().len());
    // A DELETE has no body either, and may well be all that is left of a trace to somebody.
    if !loaded.facts.has_body {
        return Err(SimError::NoRequests { path: args.trace.clone() }.into());
    }
    if warmup >= count {
        let words = format!("--warmup-req {warmup} of {count} requests");
        return Err(Failure::Usage(format!("nothing is left to measure: {words}")));
    }
    Ok(loaded)
}

/// Designs that put what is of one host into one directory.
const BY_HOST: [&str; 2] = ["cern", "squidl"];

/// Says of a trace of numbers or keys that what goes by hosts has one of them to go by.
fn tell_of_no_hosts(loaded: &Playable, runs: &[Run<'_>]) {
    let is_by_host = |(spec, setting): &Run<'_>| {
        let is_grouped =
            setting.is_some_and(|s| matches!(s.rule, GroupRule::Host | GroupRule::HostPath));
        is_grouped || BY_HOST.contains(&spec.entry.name)
    };
    if !loaded.names.has_hosts() && runs.iter().any(is_by_host) {
        let (rules, designs) = ("host and host-path", BY_HOST.join(" and "));
        say(format_args!("damelo: the trace names no hosts: groups by {rules}, {designs} see one"));
    }
}

/// Says of designs that keep everything that room for objects, if it was asked for, is not theirs.
fn tell_unlimited(args: &Designs, specs: &[DesignSpec]) {
    let unlimited = specs.iter().filter(|spec| spec.entry.is_unlimited);
    let names: Vec<&str> = unlimited.map(|spec| spec.entry.name).collect();
    if args.cache.bytes() != CACHE_DEFAULT_BYTES && !names.is_empty() {
        say(format_args!("damelo: --cache changes nothing for {}: no limit", names.join(", ")));
    }
}

/// Every combination that a design takes.
fn settings(args: &Designs, spec: &DesignSpec) -> Vec<Option<Setting>> {
    if !spec.entry.has_pages {
        return vec![None];
    }
    let defaults = DesignOptions::default();
    let memory = or(&args.memory, ByteSize::new(defaults.memory_bytes));
    let pages = or(&args.page, defaults.page_bytes);
    let groups = or(&args.group, NamedRule("host", defaults.grouping));
    let mut settings = Vec::new();
    for memory_bytes in memory.iter().map(|size| size.bytes()) {
        for &page_bytes in &pages {
            for &NamedRule(group, rule) in &groups {
                settings.push(Some(Setting { memory_bytes, page_bytes, group, rule }));
            }
        }
    }
    settings
}

/// What was given, or else the default.
fn or<T: Copy>(given: &[T], default: T) -> Vec<T> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

/// Points of the curve of response times.
const POINTS: usize = 60;

fn run_one(
    played: &Played<'_>,
    spec: &DesignSpec,
    setting: Option<Setting>,
    config: &MachineConfig,
) -> Result<Report, Failure> {
    let begun = Instant::now();
    let &Played { args, loaded, cache_bytes, .. } = played;
    let options = spec.options(&Setting::base(setting, cache_bytes, false))?;
    let inputs =
        DesignInputs { options: &options, requests: loaded.requests(), drive: &config.drive };
    let mut design = spec.make(&inputs);
    if let Some(top_share) = args.love.filter(|_| spec.entry.takes_hints) {
        let grouper = Grouper::new(options.grouping, loaded.requests());
        design = Box::new(Hinted::new(design, grouper, top_share));
    }
    let mut design = Watched::new(design, loaded.requests().len());
    let mut machine = Machine::new(config);
    let run = RunOptions {
        clients: args.clients,
        pace: if args.at_trace_pace { Pace::Trace } else { Pace::AsFastAsPossible },
        warmup: args.warmup_req,
        series_every: (loaded.requests().len() / POINTS).max(1),
        ..RunOptions::default()
    };
    let report = play(&mut design, &mut machine, loaded.requests(), &loaded.names, run)
        .map_err(|source| failure_of(spec, source))?;
    loaded.check()?;
    let rate = loaded.requests().len() as f64 / begun.elapsed().as_secs_f64();
    say(format_args!("damelo: {}: {} requests/s simulated", spec.label(), thousands(rate as u64)));
    Ok(report)
}

fn failure_of(spec: &DesignSpec, source: MachineError) -> Failure {
    let (design, is_unlimited) = (spec.label().to_owned(), spec.entry.is_unlimited);
    Failure::Design { design, is_unlimited, source }
}

fn chosen(names: &[String]) -> Result<Vec<DesignSpec>, Failure> {
    if names.is_empty() {
        return Ok(REGISTRY.iter().map(DesignSpec::plain).collect());
    }
    Ok(names.iter().map(|name| DesignSpec::parse(name)).collect::<Result<_, _>>()?)
}
