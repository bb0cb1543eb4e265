//! Writing traces: our own form, oracleGeneral, libCacheSim's csv and txt; compressed as the name
//! of the file ends (`.gz`, `.zst`). oracleGeneral needs the future, so it is held in memory until
//! the end, 24 bytes a request. What has no body of its own is not in it: libCacheSim passes over
//! requests of no bytes, and does not count them, so that next uses would be of others. In csv,
//! which has no status either, such requests have no size: what is logged of it is that of headers.
//! What a form cannot say is left out and counted, not turned into something else. One thread.

mod form;
#[cfg(test)]
mod tests;

pub use form::{Lost, WriteFormat};

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::damelo_csv::HEADER;
use super::fields::US_PER_S;
use super::oracle_general::{NEVER, OracleRecord};
use super::record::{ObjectName, Record};
use super::source::object_name;
use crate::error::{Place, TraceError};
use crate::new_file::NewFile;

const BUFFER_BYTES: usize = 256 << 10;
/// zstd's default: a good half of what the slowest levels gain, at disk speed.
const ZSTD_LEVEL: i32 = 3;

enum Sink {
    Plain(Box<dyn Write + Send>),
    Gzip(flate2::write::GzEncoder<Box<dyn Write + Send>>),
    Zstd(zstd::stream::write::Encoder<'static, Box<dyn Write + Send>>),
}

impl Sink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Sink::Plain(writer) => writer,
            Sink::Gzip(writer) => writer,
            Sink::Zstd(writer) => writer,
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Plain(mut writer) => writer.flush(),
            Sink::Gzip(writer) => writer.finish()?.flush(),
            Sink::Zstd(writer) => writer.finish()?.flush(),
        }
    }
}

/// Writes one trace.
pub struct TraceWriter {
    path: String,
    sink: Sink,
    /// Moves a file to its name at the end.
    new: Option<NewFile>,
    format: WriteFormat,
    requests: u64,
    lost: Lost,
    line: Vec<u8>,
    /// oracleGeneral only.
    held: Vec<OracleRecord>,
}

impl TraceWriter {
    /// Makes a file, or replaces what is there, at the end and if all went well.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn create(path: &str, format: WriteFormat) -> Result<TraceWriter, TraceError> {
        let failed = |source| TraceError::Write { path: path.to_owned(), source };
        let (file, new) = NewFile::begin(Path::new(path)).map_err(failed)?;
        let writer = TraceWriter::to(path, Box::new(file), format)?;
        Ok(TraceWriter { new: Some(new), ..writer })
    }

    /// Writes to something else than a file; `path` is for errors, and its end says how to
    /// compress.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub fn to(
        path: &str,
        sink: Box<dyn Write + Send>,
        format: WriteFormat,
    ) -> Result<TraceWriter, TraceError> {
        let failed = |source| TraceError::Write { path: path.to_owned(), source };
        let buffered: Box<dyn Write + Send> =
            Box::new(BufWriter::with_capacity(BUFFER_BYTES, sink));
        // Without case, as the form is told.
        let name = path.to_ascii_lowercase();
        let sink = if name.ends_with(".gz") {
            Sink::Gzip(flate2::write::GzEncoder::new(buffered, flate2::Compression::default()))
        } else if name.ends_with(".zst") {
            let encoder = zstd::stream::write::Encoder::new(buffered, ZSTD_LEVEL);
            Sink::Zstd(encoder.map_err(failed)?)
        } else {
            Sink::Plain(buffered)
        };
        let mut writer = TraceWriter {
            path: path.to_owned(),
            sink,
            new: None,
            format,
            requests: 0,
            lost: Lost::default(),
            line: Vec::new(),
            held: Vec::new(),
        };
        match format {
            WriteFormat::Damelo => writer.put(&[HEADER, b"\n"].concat())?,
            WriteFormat::Csv => writer.put(b"time,obj_id,obj_size\n")?,
            WriteFormat::OracleGeneral | WriteFormat::Txt => {}
        }
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let written = self.sink.writer().write_all(bytes);
        written.map_err(|source| TraceError::Write { path: self.path.clone(), source })
    }

    /// What could not be said so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Adds a request, or counts it as left out.
    ///
    /// # Errors
    /// When its time or size does not fit the form, or writing fails.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), TraceError> {
        if self.lost.note(record, self.format) {
            return Ok(());
        }
        self.requests += 1;
        if self.format == WriteFormat::OracleGeneral {
            let held = self.oracle_record(record)?;
            self.held.push(held);
            return Ok(());
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let formatted = match self.format {
            WriteFormat::Damelo => damelo_line(&mut line, record),
            WriteFormat::Csv => {
                let (name, size) = (object_name(record.object), record.body_bytes());
                write_seconds(&mut line, record.time_us)
                    .and_then(|()| writeln!(line, ",{name},{size}"))
            }
            WriteFormat::Txt | WriteFormat::OracleGeneral => {
                writeln!(line, "{}", object_name(record.object))
            }
        };
        let written = formatted
            .map_err(|source| TraceError::Write { path: self.path.clone(), source })
            .and_then(|()| self.put(&line));
        self.line = line;
        written
    }

    fn oracle_record(&self, record: &Record<'_>) -> Result<OracleRecord, TraceError> {
        let unwritable = |reason: String| TraceError::Unwritable {
            place: Place::Record(self.requests + self.lost.deletes + self.lost.empty),
            format: self.format.name(),
            reason,
        };
        let seconds = record.time_us / US_PER_S;
        Ok(OracleRecord {
            time_s: u32::try_from(seconds)
                .map_err(|_| unwritable(format!("its time is {seconds} s, of 32 bits")))?,
            object: object_name(record.object),
            size_bytes: u32::try_from(record.body_bytes()).map_err(|_| {
                unwritable(format!("its size is {} bytes, of 32 bits", record.size_bytes))
            })?,
            next_access: NEVER,
        })
    }

    /// Writes what is held back and closes; says how many requests were written.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        let mut held = std::mem::take(&mut self.held);
        let mut next: HashMap<u64, i64> = HashMap::new();
        // As libCacheSim's converter does: the first request is number 1.
        for (at, record) in held.iter_mut().enumerate().rev() {
            record.next_access = next.insert(record.object, at as i64 + 1).unwrap_or(NEVER);
        }
        for record in &held {
            self.put(&record.encode())?;
        }
        let path = self.path.clone();
        let new = self.new.take();
        let ended = self.sink.finish().and_then(|()| new.map_or(Ok(()), NewFile::keep));
        ended.map_err(|source| TraceError::Write { path, source })?;
        Ok(self.requests)
    }
}

fn damelo_line(line: &mut Vec<u8>, record: &Record<'_>) -> io::Result<()> {
    let or_dash = |text: &[u8]| if text.is_empty() { b"-".to_vec() } else { text.to_vec() };
    write_seconds(line, record.time_us)?;
    line.push(b',');
    push_escaped(line, &or_dash(record.client));
    line.push(b',');
    push_escaped(line, if record.method.is_empty() { b"GET" } else { record.method });
    write!(line, ",{},{},", record.status, record.size_without_result())?;
    match record.object {
        ObjectName::Text(url) => push_escaped(line, url),
        ObjectName::Id(id) => write!(line, "{id}")?,
    }
    line.push(b'\n');
    Ok(())
}

/// Seconds with as many digits as they need.
fn write_seconds(line: &mut Vec<u8>, time_us: u64) -> io::Result<()> {
    let (seconds, us) = (time_us / US_PER_S, time_us % US_PER_S);
    write!(line, "{seconds}")?;
    if us > 0 {
        write!(line, ".{us:06}")?;
        while line.last() == Some(&b'0') {
            line.pop();
        }
    }
    Ok(())
}

/// Space, comma, quote and control bytes are %-escaped, so that a line always splits on five
/// commas.
fn push_escaped(line: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        if byte <= b' ' || byte == b',' || byte == b'"' || byte == 0x7f {
            let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
            line.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        } else {
            line.push(byte);
        }
    }
}
