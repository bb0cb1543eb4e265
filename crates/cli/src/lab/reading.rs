//! How the lab's commands read traces: one set of arguments, progress by bytes of the file, and a
//! note on stderr about skipped input.

use std::time::Instant;

use clap::Args;
use damelo_lab::output::TraceIdentity;
use damelo_lab::trace::{
    ColumnOptions, Format, ReadOptions, RecordSource, Skipped, TimeUnit, Trace,
};

use crate::failure::Failure;
use crate::output::say;
use crate::progress::Progress;

/// The form is told from the file.
const FORMAT_AUTO: &str = "auto";

/// What is said if the sum of sizes went beyond 64 bits, where it stays.
pub(super) const TOO_MANY_BYTES: &str = "the requests add up to more than 2^64 bytes, of which no \
    more are counted: numbers and ratios of bytes are wrong";

/// True for a sum of bytes that may have been more.
pub(super) fn is_too_many(bytes: u64) -> bool {
    bytes == u64::MAX
}

/// How to read a trace.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    /// Format of the trace, told from the file if not given:
    /// damelo, squid, common, combined, oracleGeneral, lcs, vscsi, twr, csv, txt
    #[arg(long, short = 'f', value_name = "FORMAT", default_value = FORMAT_AUTO)]
    pub(crate) format: String,
    /// Columns of a csv trace, as for libCacheSim:
    /// time-col=1,obj-id-col=2,obj-size-col=3,op-col=4,delimiter=,,has-header=true,obj-id-is-num=true;
    /// key-size-col and value-size-col where no column has the size of both
    #[arg(long, short = 't', value_name = "OPTIONS")]
    pub(crate) trace_type_params: Option<String>,
    /// Leave malformed lines out and count them, instead of stopping at the first
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Put this before URLs that are only a path, as in the log of a single server
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    pub(crate) url_prefix: String,
    /// Unit of the trace's times: s, ms, us or ns [default: seconds, or what the name of a csv's
    /// column says, such as `time_ms`]
    #[arg(long, value_name = "UNIT", value_parser = time_unit)]
    pub(crate) time_unit: Option<TimeUnit>,
    /// Stop after N requests, including those left out later; -1: no limit
    #[arg(long, short = 'n', value_name = "N", value_parser = num_req, allow_negative_numbers = true)]
    pub(crate) num_req: Option<u64>,
}

/// libCacheSim's -1 is no limit.
fn num_req(given: &str) -> Result<u64, String> {
    match given {
        "-1" => Ok(u64::MAX),
        _ => given.parse().map_err(|_| "write a number of requests, or -1 for all".to_owned()),
    }
}

fn time_unit(given: &str) -> Result<TimeUnit, String> {
    TimeUnit::by_name(given).ok_or_else(|| "write s, ms, us or ns".to_owned())
}

impl ReadArgs {
    /// The library's options; the format may be given by position, too.
    pub(crate) fn options(&self, trace_type: Option<&str>) -> Result<ReadOptions, Failure> {
        let columns = self.trace_type_params.as_deref().map(ColumnOptions::parse).transpose()?;
        let by_place = trace_type.map(Format::by_name).transpose()?.flatten();
        let by_option = Format::by_name(&self.format)?;
        if by_place.and(by_option).is_some() && by_place != by_option {
            return Err(Failure::Usage(format!(
                "--format {} and the type {} are two forms: leave one of them out",
                self.format,
                trace_type.unwrap_or_default()
            )));
        }
        Ok(ReadOptions {
            format: by_place.or(by_option),
            columns,
            skip_bad: self.skip_bad,
            url_prefix: self.url_prefix.clone(),
            time_unit: self.time_unit,
            requests_max: self.num_req,
        })
    }
}

impl ReadArgs {
    /// An option that was given, for commands that may have no trace to read.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.format != FORMAT_AUTO, "--format"),
            (self.trace_type_params.is_some(), "--trace-type-params"),
            (self.skip_bad, "--skip-bad"),
            (!self.url_prefix.is_empty(), "--url-prefix"),
            (self.time_unit.is_some(), "--time-unit"),
            (self.num_req.is_some(), "--num-req"),
        ];
        given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }
}

/// That a trace has times for an option that goes by them.
pub(crate) fn check_times(name: &str, has_times: bool, option: &str) -> Result<(), Failure> {
    match has_times {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "{option} goes by the times of requests, and {name} has none: leave it out (of a csv \
             trace -t time-col=.. says which column has them)"
        ))),
    }
}

/// Progress through a trace: by bytes where the file's size is known, else by requests.
pub(crate) struct Reading {
    progress: Progress,
    position: damelo_lab::trace::ReadPosition,
    file_bytes: u64,
    /// That a generator will make; 0 if it does not say.
    requests: u64,
}

impl Reading {
    pub(crate) fn of(trace: &Trace) -> Reading {
        let progress = match trace.file_bytes() {
            0 => Progress::count("requests"),
            _ => Progress::bytes("trace"),
        };
        let requests = trace.requests_to_come().unwrap_or(0);
        Reading { progress, position: trace.position(), file_bytes: trace.file_bytes(), requests }
    }

    /// For one that was begun before anything could be said of it.
    pub(crate) fn since(self, start: Instant) -> Reading {
        Reading { progress: self.progress.since(start), ..self }
    }

    /// Says how far it is.
    pub(crate) fn set(&mut self, requests: u64) {
        if self.file_bytes > 0 {
            self.progress.set(self.position.bytes(), self.file_bytes);
        } else {
            self.progress.set(requests, self.requests);
        }
    }
}

/// Says on stderr what was left out of a trace, how it was read if that must be known, and that a
/// synthetic one is synthetic.
pub(crate) fn remarks(trace: &Trace) {
    remarks_of(&TraceIdentity::of(trace), &trace.skipped());
}

/// The same where the trace is gone already.
pub(crate) fn remarks_of(trace: &TraceIdentity, skipped: &Skipped) {
    let name = &trace.name;
    if skipped.count > 0 {
        say(format_args!("damelo: {name}: {} malformed lines skipped", skipped.count));
        for (place, reason) in &skipped.examples {
            say(format_args!("  {place}: {reason}"));
        }
    }
    for words in trace.words_of_left_out() {
        say(format_args!("damelo: {name}: {words}"));
    }
    for note in &trace.notes {
        say(format_args!("damelo: {name}: {note}"));
    }
    if trace.synthetic {
        say(format_args!("damelo: {name}: synthetic, no one made these requests"));
    }
}
