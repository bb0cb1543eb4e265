//! A trace file as a stream of records: line or record counts for errors, lines skipped on request.
//!
//! Invariant: [`RecordSource::record`] is valid until the next [`RecordSource::advance`]. One
//! thread at a time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::binary::{BinaryRecord, Layout};
use super::columns::{ColumnOptions, push_undoubled};
use super::format::{Format, LineParser, binary_by_name};
use super::input::{Input, LINE_BYTES_MAX, Line, ReadPosition};
use super::opening::{check_unit, format_of, layout, line_parser};
use super::oracle_general::{OracleRecord, RECORD_BYTES};
use super::record::{ObjectName, Parsed, ParsedName, Record};
use super::source::object_name;
use crate::error::{BadRecord, Place, TraceError};
use crate::request::Op;
use crate::trace::clf::{push_site, push_unescaped};
use crate::trace::fields::TimeUnit;

/// How to read traces.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The format; told from the file if `None`.
    pub format: Option<Format>,
    /// For csv and txt.
    pub columns: Option<ColumnOptions>,
    /// Malformed lines are counted, not an error.
    pub skip_bad: bool,
    /// Put before URLs that are only a path, as in logs of a single server.
    pub url_prefix: String,
    /// What the times count; seconds, if they can be, or what a header says, if `None`.
    pub time_unit: Option<TimeUnit>,
    /// End after so many requests.
    pub requests_max: Option<u64>,
}

impl ReadOptions {
    /// An option that is given and only means something for a file.
    pub(crate) fn given_for_files(&self) -> Option<&'static str> {
        let given = [
            (self.format.is_some(), "the format"),
            (self.columns.is_some(), "the columns (-t)"),
            (self.skip_bad, "--skip-bad"),
            (!self.url_prefix.is_empty(), "--url-prefix"),
            (self.time_unit.is_some(), "--time-unit"),
        ];
        given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }
}

/// What was skipped as malformed, and examples of it; and what is well formed, but no request to
/// the cache.
#[derive(Debug, Clone, Default)]
pub struct Skipped {
    /// How many lines or records are malformed.
    pub count: u64,
    /// The first few.
    pub examples: Vec<(Place, BadRecord)>,
    /// How many lines are no requests, by what they are.
    pub left_out: BTreeMap<&'static str, u64>,
}

const EXAMPLES_MAX: usize = 5;
/// What is left out of a trace, see [`Skipped::left_out`] and [`Record::no_request`].
const COMMENT: &str = "comments";
const UNASKED: &str = "connections on which nothing was asked";
/// What some programs write before text to say that it is UTF-8; no part of the first line.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// One request as far as a policy cares: no names, a number for the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRequest {
    /// The object's number, or a hash of its name.
    pub object: u64,
    /// Its size, 0 if the answer has no body of its own: see [`Record::has_body`].
    pub size_bytes: u64,
    /// When, in microseconds.
    pub time_us: u64,
    /// What is asked.
    pub op: Op,
}

impl RawRequest {
    #[inline]
    fn of(record: &Record<'_>) -> RawRequest {
        RawRequest {
            object: object_name(record.object),
            size_bytes: record.body_bytes(),
            time_us: record.time_us,
            op: record.op(),
        }
    }

    #[inline]
    fn of_binary(record: BinaryRecord, unit: TimeUnit) -> RawRequest {
        RawRequest {
            object: record.object,
            size_bytes: record.size_bytes,
            time_us: binary_time_us(record, unit),
            op: record.op,
        }
    }
}

#[inline]
fn binary_time_us(record: BinaryRecord, unit: TimeUnit) -> u64 {
    unit.us(u64::from(record.time)).expect("2^32 s are less than 2^64 us")
}

/// A stream of requests: a file, or a generator.
pub trait RecordSource: Send {
    /// Goes on to the next request; false at the end.
    ///
    /// # Errors
    /// When the trace cannot be read, or is malformed and that is not to be skipped.
    fn advance(&mut self) -> Result<bool, TraceError>;

    /// The request that `advance` went to.
    fn record(&self) -> Record<'_>;

    /// Goes on by many requests at once, and appends them until there are `len` or the trace ends.
    /// Costs one indirect call for all, where `advance` and `record` cost two each.
    ///
    /// # Errors
    /// As [`RecordSource::advance`].
    fn batch(&mut self, requests: &mut Vec<RawRequest>, len: usize) -> Result<(), TraceError> {
        while requests.len() < len && self.advance()? {
            requests.push(RawRequest::of(&self.record()));
        }
        Ok(())
    }

    /// Line or record of the request that `advance` went to, of a file.
    fn place(&self) -> Option<Place> {
        None
    }

    /// Malformed lines so far, and those that are no requests.
    fn skipped(&self) -> Skipped {
        Skipped::default()
    }
}

enum Body {
    Lines { parser: LineParser, line: Range<usize>, parsed: Option<Parsed> },
    Records { layout: Layout, chunk: Range<usize>, record: BinaryRecord },
}

/// Reads one trace file.
pub(crate) struct TraceReader {
    path: String,
    input: Input,
    body: Body,
    format: Format,
    /// Of the line or record last taken, from 1.
    number: u64,
    skip_bad: bool,
    skipped: Skipped,
    /// Any line was well formed.
    has_good: bool,
    has_times: bool,
    url_prefix: Vec<u8>,
    /// Of records; parsers of lines have their own.
    unit: TimeUnit,
    /// The object's name, where the line does not have it as it is.
    renamed: Vec<u8>,
    is_renamed: bool,
}

impl TraceReader {
    /// Opens a trace; also says how large its file is.
    pub(crate) fn open(
        path: &str,
        options: &ReadOptions,
        position: ReadPosition,
    ) -> Result<(TraceReader, u64), TraceError> {
        let opening = |source| TraceError::Open { path: path.to_owned(), source };
        let (input, bytes) = Input::open(Path::new(path), position).map_err(opening)?;
        Ok((TraceReader::of(path, input, options)?, bytes))
    }

    /// Reads a trace from its start; `path` is for errors, and its end may tell the format.
    pub(super) fn of(
        path: &str,
        mut input: Input,
        options: &ReadOptions,
    ) -> Result<TraceReader, TraceError> {
        let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        let head = input.head().map_err(|source| {
            let is_binary = match options.format {
                Some(format) => format.is_binary(),
                None => binary_by_name(&name).is_some(),
            };
            let place = if is_binary { Place::Record(0) } else { Place::Line(0) };
            TraceError::Read { path: path.to_owned(), place, source }
        })?;
        let text = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head);
        let format = format_of(path, &name, head, text, options)?;
        let layout = layout(path, format, options.format.is_some(), head)?;
        let before_bytes = layout.map_or(head.len() - text.len(), Layout::header_bytes);
        let body = match layout {
            Some(layout) => {
                let record = BinaryRecord { time: 0, object: 0, size_bytes: 0, op: Op::Read };
                Body::Records { layout, chunk: 0..0, record }
            }
            None => {
                let parser = line_parser(format, text, options).map_err(|reason| {
                    TraceError::UnknownColumns { path: path.to_owned(), reason }
                })?;
                Body::Lines { parser, line: 0..0, parsed: None }
            }
        };
        let has_times = match &body {
            Body::Lines { parser, .. } => parser.has_times(),
            Body::Records { .. } => true,
        };
        check_unit(path, format, has_times, options)?;
        input.skip(before_bytes);
        Ok(TraceReader {
            path: path.to_owned(),
            input,
            body,
            format,
            number: 0,
            skip_bad: options.skip_bad,
            skipped: Skipped::default(),
            has_good: false,
            has_times,
            url_prefix: options.url_prefix.clone().into_bytes(),
            unit: options.time_unit.unwrap_or_default(),
            renamed: Vec::new(),
            is_renamed: false,
        })
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// True if the form has times, and a place for them is known.
    pub(crate) fn has_times(&self) -> bool {
        self.has_times
    }

    /// What whoever looks at the result must know of how it is read.
    pub(crate) fn notes(&self) -> Vec<String> {
        match &self.body {
            Body::Lines { parser: LineParser::Columns(columns), .. } => columns.notes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Where it is, for errors.
    fn reached(&self) -> Place {
        match self.body {
            Body::Lines { .. } => Place::Line(self.number),
            Body::Records { .. } => Place::Record(self.number),
        }
    }

    fn read_failed(&self, source: std::io::Error) -> TraceError {
        TraceError::Read { path: self.path.clone(), place: self.reached(), source }
    }

    /// An error, or one more skipped.
    fn malformed(&mut self, reason: BadRecord) -> Result<(), TraceError> {
        let place = self.reached();
        if !self.skip_bad {
            let is_doubted = !self.has_good && matches!(self.body, Body::Lines { .. });
            let doubted = is_doubted.then(|| self.format.name());
            return Err(TraceError::Malformed { path: self.path.clone(), place, reason, doubted });
        }
        self.skipped.count += 1;
        if self.skipped.examples.len() < EXAMPLES_MAX {
            self.skipped.examples.push((place, reason));
        }
        Ok(())
    }

    /// Nothing follows. That nothing well formed came is no empty trace.
    fn end_of_lines(&self) -> Result<bool, TraceError> {
        match self.skipped.examples.first() {
            Some((place, reason)) if !self.has_good => Err(TraceError::AllMalformed {
                path: self.path.clone(),
                format: self.format.name(),
                count: self.skipped.count,
                first: format!("{place}: {reason}"),
            }),
            _ => Ok(false),
        }
    }

    fn leave_out(&mut self, what: &'static str) {
        *self.skipped.left_out.entry(what).or_default() += 1;
    }

    fn next_line(&mut self) -> Result<bool, TraceError> {
        loop {
            let taken = match self.input.line().map_err(|source| self.read_failed(source))? {
                Line::End => return self.end_of_lines(),
                Line::TooLong => {
                    self.number += 1;
                    self.malformed(BadRecord::TooLong { limit: LINE_BYTES_MAX })?;
                    continue;
                }
                Line::Whole(taken) => taken,
            };
            self.number += 1;
            let Body::Lines { parser, line, parsed } = &mut self.body else {
                unreachable!("lines are taken of text only")
            };
            let text = self.input.bytes(taken.clone());
            if text.is_empty() || parser.is_header(text, self.number) {
                continue;
            }
            if parser.is_comment(text) {
                self.leave_out(COMMENT);
                continue;
            }
            match parser.parse(text) {
                Ok(found) => {
                    self.has_good = true;
                    if let Some(what) = found.no_request(text) {
                        self.leave_out(what);
                        continue;
                    }
                    (*line, *parsed) = (taken, Some(found));
                    self.rename();
                    return Ok(true);
                }
                Err(BadRecord::NoRequest) => {
                    self.has_good = true;
                    self.leave_out(UNASKED);
                }
                Err(reason) => self.malformed(reason)?,
            }
        }
    }

    /// Puts the site of the line, or else the prefix, before a URL that is only a path, and what is
    /// meant where something else stands for it.
    fn rename(&mut self) {
        self.is_renamed = false;
        let Body::Lines { line, parsed: Some(parsed), .. } = &self.body else { return };
        let is_plain = matches!(parsed.object, ParsedName::Text(_) | ParsedName::Id(_));
        if self.url_prefix.is_empty() && is_plain {
            return;
        }
        let text = self.input.bytes(line.clone());
        let record = parsed.record(text);
        let ObjectName::Text(url) = record.object else { return };
        let is_path = url.starts_with(b"/");
        if !is_path && is_plain {
            return;
        }
        self.renamed.clear();
        match parsed.object {
            ParsedName::OnSite { site, .. } => push_site(&mut self.renamed, site.in_line(text)),
            _ if is_path => self.renamed.extend_from_slice(&self.url_prefix),
            _ => {}
        }
        match parsed.object {
            ParsedName::Doubled(_) => push_undoubled(&mut self.renamed, url),
            ParsedName::Escaped(_) | ParsedName::OnSite { .. } => {
                push_unescaped(&mut self.renamed, url);
            }
            ParsedName::Text(_) | ParsedName::Id(_) => self.renamed.extend_from_slice(url),
        }
        self.is_renamed = true;
    }

    /// Decodes records straight from the buffer while it holds whole ones.
    fn batch_records(&mut self, requests: &mut Vec<RawRequest>, len: usize) {
        let Body::Records { layout, chunk, .. } = &mut self.body else { return };
        let unit = self.unit;
        let (bytes, before, room) =
            (self.input.bytes(chunk.clone()), requests.len(), len - requests.len());
        match layout {
            // Of a length that the compiler knows.
            Layout::OracleGeneral => {
                let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
                let records = records.iter().map(|bytes| OracleRecord::decode(bytes).into());
                requests
                    .extend(records.take(room).map(|record| RawRequest::of_binary(record, unit)));
            }
            // Up to one that is malformed, of which `next_record` tells.
            Layout::Lcs(version) => {
                let records = bytes.chunks_exact(version.record_bytes());
                let records = records.map_while(|bytes| version.decode(bytes).ok());
                requests
                    .extend(records.take(room).map(|record| RawRequest::of_binary(record, unit)));
            }
            Layout::Vscsi(version) => {
                let records = bytes.chunks_exact(version.record_bytes());
                let records = records.map_while(|bytes| version.decode(bytes).ok());
                requests
                    .extend(records.take(room).map(|record| RawRequest::of_binary(record, unit)));
            }
        }
        let taken = requests.len() - before;
        chunk.start += taken * layout.record_bytes();
        self.number += taken as u64;
    }

    fn next_record(&mut self) -> Result<bool, TraceError> {
        loop {
            let Body::Records { layout, chunk, record } = &mut self.body else {
                unreachable!("records are taken of binary traces only")
            };
            if chunk.start == chunk.end {
                *chunk = match self.input.records(layout.record_bytes()) {
                    Ok(taken) => taken,
                    Err(source) => return Err(self.read_failed(source)),
                };
                if chunk.start == chunk.end {
                    return Ok(false);
                }
            }
            self.number += 1;
            let decoded = layout.decode(self.input.bytes(chunk.clone()));
            // What is shorter than a record is the end.
            chunk.start = chunk.end.min(chunk.start + layout.record_bytes());
            match decoded {
                Ok(decoded) => {
                    *record = decoded;
                    return Ok(true);
                }
                Err(reason) => self.malformed(reason)?,
            }
        }
    }
}

impl RecordSource for TraceReader {
    fn advance(&mut self) -> Result<bool, TraceError> {
        match self.body {
            Body::Lines { .. } => self.next_line(),
            Body::Records { .. } => self.next_record(),
        }
    }

    fn batch(&mut self, requests: &mut Vec<RawRequest>, len: usize) -> Result<(), TraceError> {
        while requests.len() < len {
            self.batch_records(requests, len);
            if requests.len() == len || !self.advance()? {
                break;
            }
            requests.push(RawRequest::of(&self.record()));
        }
        Ok(())
    }

    fn record(&self) -> Record<'_> {
        match &self.body {
            Body::Lines { line, parsed, .. } => {
                let parsed = parsed.as_ref().expect("`advance` has returned true");
                let mut record = parsed.record(self.input.bytes(line.clone()));
                if self.is_renamed {
                    record.object = ObjectName::Text(&self.renamed);
                }
                record
            }
            Body::Records { record, .. } => Record {
                time_us: binary_time_us(*record, self.unit),
                client: b"",
                method: record.method(),
                status: 0,
                cache_result: b"",
                size_bytes: record.size_bytes,
                object: ObjectName::Id(record.object),
            },
        }
    }

    fn place(&self) -> Option<Place> {
        Some(self.reached())
    }

    fn skipped(&self) -> Skipped {
        self.skipped.clone()
    }
}
