//! A trace with its names, as designs and paper reproductions play it: whole in memory, or, for
//! designs and if it is long, read again by each of them.
//!
//! Invariant: of a trace of any length designs have [`KEPT_MAX`] requests in memory at most,
//! besides what grows with the number of objects; what has to be kept and does not fit is refused
//! before anything is played. Threads: one.

use damelo_lab::output::TraceIdentity;
use damelo_lab::trace::{
    AllRequests, Filter, Record, RequestFacts, Trace, load_kept, load_or_stream, sort_by_time,
};
use damelo_lab::{Catalogue, Request, Requests};

use super::reading::{ReadArgs, Reading, remarks};
use crate::failure::Failure;
use crate::output::{say, thousands};

/// Requests in order, and what their ids stand for.
pub(crate) struct Loaded {
    pub(crate) identity: TraceIdentity,
    pub(crate) requests: Vec<Request>,
    pub(crate) names: Catalogue,
    /// Requests that a rule left out.
    pub(crate) left_out: u64,
}

/// Requests that a trace may have to be kept in memory where designs play it, of 40 bytes each.
const KEPT_MAX: usize = 1 << 22;

/// Requests for designs, in order, and what their ids stand for.
pub(super) struct Playable {
    pub(super) identity: TraceIdentity,
    requests: AllRequests,
    pub(super) names: Catalogue,
    pub(super) facts: RequestFacts,
}

impl Playable {
    /// Reads all of a trace.
    pub(super) fn load(name: &str, args: &ReadArgs) -> Result<Playable, Failure> {
        let options = args.options(None)?;
        let mut trace = Trace::open(name, &options)?;
        let mut reading = Reading::of(&trace);
        let tell = |requests| reading.set(requests);
        let (requests, names, facts) = load_or_stream(&mut trace, &options, KEPT_MAX, tell)?;
        drop(reading);
        remarks(&trace);
        let playable = Playable { identity: TraceIdentity::of(&trace), requests, names, facts };
        if matches!(playable.requests, AllRequests::Streamed(_)) {
            let count = thousands(playable.requests().len() as u64);
            say(format_args!("damelo: {name}: {count} requests, read again for each design"));
        }
        Ok(playable)
    }

    /// The requests, to be gone through as often as wanted.
    pub(super) fn requests(&self) -> Requests<'_> {
        self.requests.get()
    }

    /// That what was made of the requests so far was made of all of them.
    pub(super) fn check(&self) -> Result<(), Failure> {
        Ok(self.requests.check()?)
    }

    /// Puts requests into the order of their times, for who plays them at these, and says how many
    /// were not.
    pub(super) fn sort_by_time(&mut self) -> Result<(), Failure> {
        let requests = match &mut self.requests {
            AllRequests::Streamed(_) if self.facts.is_in_order => return Ok(()),
            AllRequests::Streamed(_) => {
                return Err(Failure::Usage(format!(
                    "--at-trace-pace wants requests in the order of their times, and in {} some stand \
                     behind later ones: of more than {} sort them first, or read fewer (-n)",
                    self.identity.name,
                    thousands(KEPT_MAX as u64)
                )));
            }
            AllRequests::Kept(requests) => requests,
        };
        let moved = sort_by_time(requests);
        if moved > 0 {
            let count = thousands(moved as u64);
            let words = "requests stood behind later ones and are played at their times";
            say(format_args!("damelo: {count} {words}"));
        }
        Ok(())
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
    let kept_max = requests_max(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let tell = |requests| reading.set(requests);
    let (requests, names) = load_kept(&mut trace, keeps, kept_max, tell)?;
    drop(reading);
    remarks(&trace);
    Ok(Loaded { identity: TraceIdentity::of(&trace), requests, names, left_out })
}

/// Memory for each request of a trace that is kept: its own 40 bytes, as much again while the list
/// grows, and what papers make of it, which play the trace in an order or with sizes of their own.
const BYTES_EACH: u64 = 160;

/// Requests that there is room for, by what the system says (`/proc/meminfo`); any number if it
/// does not say.
fn requests_max(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024 / BYTES_EACH)
}

#[cfg(test)]
mod tests {
    use super::requests_max;

    #[test]
    fn there_is_room_for_what_the_system_says() {
        let meminfo = "MemTotal:  24000 kB\nMemAvailable:    16000 kB\nBuffers: 1 kB\n";
        assert_eq!(requests_max(meminfo), 16_000 * 1024 / 160);
        assert_eq!(requests_max("MemTotal: 5 kB"), u64::MAX);
    }
}
