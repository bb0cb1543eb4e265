//! A whole trace in memory with its names, as designs and paper reproductions need it.

use damelo_lab::output::TraceIdentity;
use damelo_lab::trace::{Filter, Record, Trace, load_kept, sort_by_time};
use damelo_lab::{Catalogue, Request};

use super::reading::{ReadArgs, Reading, remarks};
use crate::failure::Failure;
use crate::output::{say, thousands};

/// Requests in order, and what their ids stand for.
pub(crate) struct Loaded {
    pub(crate) identity: TraceIdentity,
    pub(crate) requests: Vec<Request>,
    pub(crate) names: Catalogue,
    /// Whether the requests have times that differ.
    pub(crate) has_times: bool,
    /// Requests that a rule left out.
    pub(crate) left_out: u64,
}

impl Loaded {
    /// Puts requests into the order of their times, for who plays them at these, and says how many
    /// were not.
    pub(crate) fn sort_by_time(&mut self) {
        let moved = sort_by_time(&mut self.requests);
        if moved > 0 {
            let count = thousands(moved as u64);
            let words = "requests stood behind later ones and are played at their times";
            say(format_args!("damelo: {count} {words}"));
        }
    }
}

/// Reads all of a trace.
pub(crate) fn load(name: &str, args: &ReadArgs) -> Result<Loaded, Failure> {
    load_by(name, args, None)
}

/// Reads what a rule lets through.
pub(crate) fn load_by(
    name: &str,
    args: &ReadArgs,
    rule: Option<Filter>,
) -> Result<Loaded, Failure> {
    let mut trace = Trace::open(name, &args.options(None)?)?;
    let mut reading = Reading::of(&trace);
    let mut left_out = 0;
    let keeps = |record: &Record<'_>| {
        let keeps = rule.is_none_or(|rule| rule.keeps(record));
        left_out += u64::from(!keeps);
        keeps
    };
    let (requests, names) = load_kept(&mut trace, keeps, |requests| reading.set(requests))?;
    drop(reading);
    remarks(&trace);
    // Whatever is said of times of which there are none, the first is the earliest.
    let has_times = requests.iter().any(|request| request.time_us > 0);
    Ok(Loaded { identity: TraceIdentity::of(&trace), requests, names, has_times, left_out })
}
