//! What can go wrong with a trace, a policy or a size that somebody named. Words say which input,
//! and what would be right. Plain data, any thread.

use std::io;

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace `{path}`")]
    Open {
        /// As given.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed, or what is compressed does not decompress.
    #[error("cannot read the trace `{path}` after {place}")]
    Read {
        /// As given.
        path: String,
        /// Last line or record that was whole.
        place: Place,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A line or record that is not of the trace's form.
    #[error("{path}: {place}: {reason}")]
    Malformed {
        /// As given.
        path: String,
        /// Which line or record.
        place: Place,
        /// What is wrong with it.
        reason: BadRecord,
        /// The form that it was read as, if no line before it was well formed: it may be another.
        doubted: Option<&'static str>,
    },
    /// Not one line is of the form, though malformed ones were to be skipped.
    #[error(
        "`{path}` has no line of the form {format}, as which it was read: all {count} are malformed, \
         the first, {first}"
    )]
    AllMalformed {
        /// As given.
        path: String,
        /// The form that it was read as.
        format: &'static str,
        /// Malformed lines.
        count: u64,
        /// Which is the first of them, and what is wrong with it.
        first: String,
    },
    /// The first lines are JSON, which is of no known form.
    #[error("the trace `{path}` looks like JSON, which the lab does not read")]
    Json {
        /// As given.
        path: String,
    },
    /// The first bytes are of no known form.
    #[error("cannot tell the form of the trace `{path}`: {reason}; name it with --format")]
    UnknownFormat {
        /// As given.
        path: String,
        /// What was looked for and not found.
        reason: String,
    },
    /// The first bytes are not of the form that was named.
    #[error("the trace `{path}` is not of the form {format}: {reason}")]
    OtherFormat {
        /// As given.
        path: String,
        /// The form that was named.
        format: &'static str,
        /// What was looked for and not found.
        reason: String,
    },
    /// The form is known, but not which column has the objects.
    #[error("cannot tell the columns of the trace `{path}`: {reason}")]
    UnknownColumns {
        /// As given.
        path: String,
        /// What was looked for and not found.
        reason: String,
    },
    /// A name of a format that does not exist.
    #[error("there is no trace format `{given}`; {known}")]
    FormatName {
        /// As given.
        given: String,
        /// All names, and the nearest.
        known: String,
    },
    /// Column options that make no sense.
    #[error("column options `{given}`: {reason}")]
    Columns {
        /// As given.
        given: String,
        /// What is wrong.
        reason: String,
    },
    /// Column options for a trace that has no columns.
    #[error("{path} is of the form {format}, which has no columns to name")]
    NoColumns {
        /// As given.
        path: String,
        /// Its form.
        format: &'static str,
    },
    /// A unit for the times of a trace that has none to choose.
    #[error("{path} is of the form {format}, {reason}: leave --time-unit out")]
    NoUnit {
        /// As given.
        path: String,
        /// Its form.
        format: &'static str,
        /// What its times are.
        reason: &'static str,
    },
    /// An option that says how a file is read, with a generator.
    #[error("{name} is made, not read: {option} does nothing there, leave it out")]
    NoFile {
        /// As given.
        name: String,
        /// Which option.
        option: &'static str,
    },
    /// A `gen:` trace that does not exist, or with parameters that it does not have.
    #[error("generator `{given}`: {reason}")]
    Generator {
        /// As given.
        given: String,
        /// What is wrong.
        reason: String,
    },
    /// What cannot be expressed in the form to be written.
    #[error("cannot write {place} as {format}: {reason}")]
    Unwritable {
        /// Request number, from 1.
        place: Place,
        /// Form to be written.
        format: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// A trace that is read again for each design has become shorter.
    #[error(
        "the trace `{path}` changed while it was played: {counted} requests were counted, and now \
         there are {found}"
    )]
    Changed {
        /// As given.
        path: String,
        /// Requests at first.
        counted: usize,
        /// Requests when it was read again.
        found: usize,
    },
    /// A trace that would have to be read again and cannot be.
    #[error(
        "`{path}` has more than {max} requests: it would have to be read again for each design, \
         and is no file; write it to one, or read fewer (-n {max})"
    )]
    NotAgain {
        /// As given.
        path: String,
        /// How many are kept.
        max: usize,
    },
    /// A trace of which all is kept in memory, which has no room for it.
    #[error(
        "the trace has more than {max} requests, which is what memory has room for; read fewer \
         (-n {max}), or a sample (`damelo lab trace sample`)"
    )]
    NoRoom {
        /// How many fit.
        max: u64,
    },
    /// Writing failed.
    #[error("cannot write `{path}`")]
    Write {
        /// As given.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A request so long after the first that a run cannot keep its pace.
    #[error(
        "{place}: its time is {seconds} s after the first; runs take traces of up to {max} s (do its times count seconds? --time-unit says what)"
    )]
    TooLate {
        /// Which line or record.
        place: Place,
        /// Since the first request that is kept.
        seconds: u64,
        /// What fits.
        max: u64,
    },
    /// What is known of the future cannot be put aside.
    #[error(
        "cannot keep next uses in a file in {dir}; set TMPDIR to a directory with 4 bytes a request"
    )]
    Spill {
        /// The system's directory for files that do not stay.
        dir: String,
        /// What the system said.
        source: io::Error,
    },
    /// More different objects, hosts or clients than ids.
    #[error("more than {max} different {what} in one trace; sample it first")]
    TooMany {
        /// Objects, hosts or clients.
        what: &'static str,
        /// How many fit.
        max: u64,
    },
}

/// Where in a trace: lines count from 1, so do records of binary traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Text.
    Line(u64),
    /// Binary.
    Record(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Record(n) => write!(f, "record {n}"),
        }
    }
}

/// Why one line or record is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRecord {
    /// Too few or too many fields.
    #[error("{found} fields where {expected} are expected")]
    FieldCount {
        /// How many the form has.
        expected: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A column that was named is not there.
    #[error("no column {column} ({field}) in a line of {found} columns")]
    NoColumn {
        /// From 1.
        column: usize,
        /// What it should hold.
        field: &'static str,
        /// How many there are.
        found: usize,
    },
    /// Something that should be a number is not, or does not fit 64 bits.
    #[error("{field} is `{text}`, not {expected}")]
    Value {
        /// Which field.
        field: &'static str,
        /// What it holds, shortened.
        text: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A time that cannot be in seconds, where nobody said what it counts.
    #[error(
        "time is `{text}`, too large for seconds: say what it counts with --time-unit ms, us or ns"
    )]
    NotSeconds {
        /// What it holds.
        text: String,
    },
    /// A time that does not fit.
    #[error("time is `{text}` {unit}, more than 2^64 us")]
    TimeTooLarge {
        /// What it holds.
        text: String,
        /// What it counts.
        unit: &'static str,
    },
    /// A field that must say something is empty.
    #[error("{field} is empty")]
    Empty {
        /// Which field.
        field: &'static str,
    },
    /// A connection that ended before anything was asked on it: well formed, but no request.
    #[error("nothing was asked")]
    NoRequest,
    /// A quoted or bracketed part does not end.
    #[error("{field} does not end: {closing} is missing")]
    Unclosed {
        /// Which field.
        field: &'static str,
        /// What should end it.
        closing: &'static str,
    },
    /// The line has no end within the limit.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// Longest line taken.
        limit: usize,
    },
    /// The file ends within a record.
    #[error("the trace ends after {found} of the record's {expected} bytes: it was cut off")]
    Truncated {
        /// Bytes there are.
        found: usize,
        /// Bytes of a record.
        expected: usize,
    },
}

impl BadRecord {
    /// A field whose text is not what it should be; long text is cut.
    pub(crate) fn value(field: &'static str, text: &[u8], expected: &'static str) -> BadRecord {
        BadRecord::Value { field, text: shortened(text), expected }
    }
}

/// The beginning of a text that strangers wrote, as it may be shown.
pub(crate) fn shortened(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 40;
    let cut = text.len() > SHOWN_BYTES;
    let mut shown = shown(&String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]));
    if cut {
        shown.push_str("...");
    }
    shown
}

/// Text that strangers wrote, with what could steer a terminal written out.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Why a simulation cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A policy that does not exist.
    #[error("there is no policy `{given}`; {known}")]
    Policy {
        /// As given.
        given: String,
        /// All names, and the nearest.
        known: String,
    },
    /// A parameter that the policy does not have, or with a value out of range.
    #[error("policy `{policy}`: parameter `{given}`: {reason}")]
    Parameter {
        /// Name of the policy.
        policy: &'static str,
        /// As given.
        given: String,
        /// What would be right.
        reason: String,
    },
    /// A size that is none.
    #[error("cache size `{given}`: {reason}")]
    Size {
        /// As given.
        given: String,
        /// What would be right.
        reason: String,
    },
    /// The trace holds nothing to simulate.
    #[error("the trace `{path}` has no request with a size")]
    NoRequests {
        /// As given.
        path: String,
    },
    /// The trace is not what it should be.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
