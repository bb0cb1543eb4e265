//! Writing traces: our own form, oracleGeneral, libCacheSim's csv and txt; compressed as the name
//! of the file ends (`.gz`, `.zst`). oracleGeneral needs the future, so it is held in memory until
//! the end, 24 bytes a request. What has no body of its own is not in it: libCacheSim passes over
//! requests of no bytes, and does not count them, so that next uses would be of others. In csv,
//! which has no status either, such requests have no size: what is logged of it is that of headers.
//! What a form cannot say is left out and counted, not turned into something else. One thread.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

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

/// Forms that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFormat {
    /// Our own: keeps everything but Squid's result.
    Damelo,
    /// Binary; whole seconds, numbers for objects, sizes below 4 GiB.
    OracleGeneral,
    /// `time,obj_id,obj_size` with that header, numbers for objects.
    Csv,
    /// One object a line, as a number.
    Txt,
}

impl WriteFormat {
    /// A format by its name, without case.
    #[must_use]
    pub fn by_name(given: &str) -> Option<WriteFormat> {
        match given.to_ascii_lowercase().as_str() {
            "damelo" => Some(WriteFormat::Damelo),
            "oraclegeneral" | "oraclegeneralbin" => Some(WriteFormat::OracleGeneral),
            "csv" => Some(WriteFormat::Csv),
            "txt" => Some(WriteFormat::Txt),
            _ => None,
        }
    }

    /// The format that a file's name asks for: `.oracleGeneral`, `.csv`, `.txt` anywhere in it.
    #[must_use]
    pub fn of_file(path: &str) -> Option<WriteFormat> {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let ends = |end: &str| {
            name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name).ends_with(end)
        };
        if name.contains("oraclegeneral") {
            Some(WriteFormat::OracleGeneral)
        } else if ends(".csv") {
            Some(WriteFormat::Damelo)
        } else if ends(".txt") {
            Some(WriteFormat::Txt)
        } else {
            None
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteFormat::Damelo => "damelo",
            WriteFormat::OracleGeneral => "oracleGeneral",
            WriteFormat::Csv => "csv",
            WriteFormat::Txt => "txt",
        }
    }
}

/// What the form that was written could not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Requests to remove an object, refused ones too, left out: all but our own form only ask.
    pub deletes: u64,
    /// Requests without a body of their own, left out: in txt every object has one byte, and of
    /// oracleGeneral they would not be counted.
    pub empty: u64,
    /// Requests written without the result of the cache that logged them, in our own form. The
    /// others have no more to ask rules about anyway.
    pub results: u64,
    /// Requests written with whole seconds though their time has a fraction (oracleGeneral), or
    /// without their time (txt).
    pub times: u64,
    /// Requests written without their size, in txt, other than the one byte that counts there.
    pub sizes: u64,
    /// Requests written without the client, a method other than GET or the status that they had:
    /// all but our own form have no place for these.
    pub fields: u64,
}

impl Lost {
    /// True if nothing was lost.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Lost::default()
    }
}

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

    /// True if the form has no such requests; counts what is lost.
    fn leaves_out(&mut self, record: &Record<'_>) -> bool {
        let is_ours = self.format == WriteFormat::Damelo;
        if is_ours {
            self.lost.results += u64::from(!record.cache_result.is_empty());
            return false;
        }
        let deletes = record.asks_to_delete();
        let only_bodies = matches!(self.format, WriteFormat::Txt | WriteFormat::OracleGeneral);
        let is_empty = only_bodies && !record.has_body() && !deletes;
        self.lost.deletes += u64::from(deletes);
        self.lost.empty += u64::from(is_empty);
        deletes || is_empty
    }

    /// Counts what is written of a request without all that is known of it.
    fn count_cut(&mut self, record: &Record<'_>) {
        let (cuts_time, cuts_size) = match self.format {
            WriteFormat::Damelo => return,
            WriteFormat::OracleGeneral => (!record.time_us.is_multiple_of(US_PER_S), false),
            WriteFormat::Csv => (false, false),
            WriteFormat::Txt => (record.time_us > 0, record.size_bytes != 1),
        };
        // Without a method all are GET.
        let has_method = !matches!(record.method, b"" | b"GET");
        let has_fields = !record.client.is_empty() || has_method || record.status != 0;
        self.lost.times += u64::from(cuts_time);
        self.lost.sizes += u64::from(cuts_size);
        self.lost.fields += u64::from(has_fields);
    }

    /// Adds a request, or counts it as left out.
    ///
    /// # Errors
    /// When its time or size does not fit the form, or writing fails.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), TraceError> {
        if self.leaves_out(record) {
            return Ok(());
        }
        self.count_cut(record);
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
    write!(line, ",{},{},", record.status, record.size_bytes)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{ReadOptions, RecordSource, Trace};

    fn record(time_us: u64, url: &str, size_bytes: u64) -> Record<'_> {
        Record {
            time_us,
            client: b"u1",
            method: b"GET",
            status: 200,
            cache_result: b"",
            size_bytes,
            object: ObjectName::Text(url.as_bytes()),
        }
    }

    fn write(path: &str, format: WriteFormat) {
        let mut writer = TraceWriter::create(path, format).expect("a file");
        for (time, url, size) in [
            (1_500_000, "http://a/x y", 5),
            (2_000_000, "http://b/", 7),
            (2_000_001, "http://a/x y", 6),
        ] {
            writer.write(&record(time, url, size)).expect("written");
        }
        assert_eq!(writer.finish().expect("finished"), 3);
    }

    fn read(path: &str) -> Vec<(u64, u64, u64)> {
        let mut trace = Trace::open(path, &ReadOptions::default()).expect("opened");
        let mut all = Vec::new();
        while trace.advance().expect("read") {
            let record = trace.record();
            all.push((record.time_us, object_name(record.object), record.size_bytes));
        }
        all
    }

    #[test]
    fn what_is_written_is_read_again_plain_and_compressed() {
        let dir = tempfile::tempdir().expect("a directory");
        let hash = |url: &str| object_name(ObjectName::Text(url.as_bytes()));
        for end in ["", ".gz", ".zst"] {
            let path = |name: &str| dir.path().join(format!("{name}{end}")).display().to_string();
            write(&path("t.csv"), WriteFormat::Damelo);
            let (a, b) = (hash("http://a/x%20y"), hash("http://b/"));
            assert_eq!(
                read(&path("t.csv")),
                [(1_500_000, a, 5), (2_000_000, b, 7), (2_000_001, a, 6)]
            );
            write(&path("t.oracleGeneral"), WriteFormat::OracleGeneral);
            let a = hash("http://a/x y");
            let whole = [(1_000_000, a, 5), (2_000_000, b, 7), (2_000_000, a, 6)];
            assert_eq!(read(&path("t.oracleGeneral")), whole);
            write(&path("t.columns"), WriteFormat::Csv);
            assert_eq!(read(&path("t.columns"))[2], (2_000_001, a, 6));
            write(&path("t.txt"), WriteFormat::Txt);
            assert_eq!(read(&path("t.txt"))[1], (0, b, 1));
        }
    }

    /// As the form is: `T.CSV.GZ` is our own form, and no plain text under the name of another.
    #[test]
    fn names_in_capitals_are_compressed_too() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, magic) in [("T.CSV.GZ", &b"\x1f\x8b"[..]), ("T.CSV.ZST", b"\x28\xb5\x2f\xfd")] {
            assert_eq!(WriteFormat::of_file(name), Some(WriteFormat::Damelo));
            let path = dir.path().join(name).display().to_string();
            write(&path, WriteFormat::Damelo);
            assert!(std::fs::read(&path).expect("read").starts_with(magic), "{name}");
        }
    }

    #[test]
    fn batches_bring_the_same_as_single_requests() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, format) in
            [("t.csv", WriteFormat::Damelo), ("t.oracleGeneral", WriteFormat::OracleGeneral)]
        {
            let path = dir.path().join(name).display().to_string();
            write(&path, format);
            for requests_max in [None, Some(0), Some(2), Some(9)] {
                let options = ReadOptions { requests_max, ..ReadOptions::default() };
                let mut trace = Trace::open(&path, &options).expect("opened");
                let mut raw = Vec::new();
                for len in 1..9 {
                    trace.batch(&mut raw, len).expect("read");
                }
                let batched: Vec<(u64, u64, u64)> =
                    raw.iter().map(|raw| (raw.time_us, raw.object, raw.size_bytes)).collect();
                let wanted = requests_max.unwrap_or(3).min(3) as usize;
                assert_eq!(batched, read(&path)[..wanted], "{name} {requests_max:?}");
            }
        }
    }

    /// A delete is no request for the object, and nothing is no object of one byte.
    #[test]
    fn what_a_form_cannot_say_is_left_out_and_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let requests = [("GET", 5), ("DELETE", 0), ("GET", 0), ("PURGE", 9), ("PUT", 7)];
        for (name, format, kept, lost) in [
            ("t.csv", WriteFormat::Damelo, 5, [0, 0, 5, 0, 0, 0]),
            ("t.oracleGeneral", WriteFormat::OracleGeneral, 2, [2, 1, 0, 0, 0, 2]),
            ("t.columns", WriteFormat::Csv, 3, [2, 0, 0, 0, 0, 3]),
            ("t.txt", WriteFormat::Txt, 2, [2, 1, 0, 0, 2, 2]),
        ] {
            let path = dir.path().join(name).display().to_string();
            let mut writer = TraceWriter::create(&path, format).expect("a file");
            for (method, size) in requests {
                let method = method.as_bytes();
                let cache_result = &b"TCP_MISS"[..];
                let record = Record { method, cache_result, ..record(0, "http://a/", size) };
                writer.write(&record).expect("written");
            }
            let [deletes, empty, results, times, sizes, fields] = lost;
            let lost = Lost { deletes, empty, results, times, sizes, fields };
            assert_eq!(writer.lost(), lost, "{name}");
            assert_eq!(writer.finish().expect("finished"), kept, "{name}");
            assert_eq!(read(&path).len() as u64, kept, "{name}");
        }
    }

    /// What is written with less than was known: the time, the size, and who asked how.
    #[test]
    fn what_a_form_has_no_place_for_is_counted() {
        let bare = Record {
            client: b"",
            method: b"",
            status: 0,
            size_bytes: 1,
            ..record(0, "http://a/", 1)
        };
        for (request, oracle_general, csv, txt) in [
            (bare, [0, 0, 0], [0, 0, 0], [0, 0, 0]),
            (Record { method: b"GET", ..bare }, [0, 0, 0], [0, 0, 0], [0, 0, 0]),
            (Record { time_us: 2_000_000, ..bare }, [0, 0, 0], [0, 0, 0], [1, 0, 0]),
            (Record { time_us: 1_250_000, ..bare }, [1, 0, 0], [0, 0, 0], [1, 0, 0]),
            (Record { size_bytes: 9, ..bare }, [0, 0, 0], [0, 0, 0], [0, 1, 0]),
            (Record { client: b"u", ..bare }, [0, 0, 1], [0, 0, 1], [0, 0, 1]),
            (Record { method: b"POST", ..bare }, [0, 0, 1], [0, 0, 1], [0, 0, 1]),
            (Record { status: 200, ..bare }, [0, 0, 1], [0, 0, 1], [0, 0, 1]),
        ] {
            for (format, counts) in [
                (WriteFormat::Damelo, [0, 0, 0]),
                (WriteFormat::OracleGeneral, oracle_general),
                (WriteFormat::Csv, csv),
                (WriteFormat::Txt, txt),
            ] {
                let mut writer =
                    TraceWriter::to("t", Box::new(io::sink()), format).expect("memory");
                writer.write(&request).expect("written");
                let [times, sizes, fields] = counts;
                let lost = Lost { times, sizes, fields, ..Lost::default() };
                assert_eq!(writer.lost(), lost, "{format:?} {request:?}");
            }
        }
    }

    /// What Squid logs of a validation is the size of headers, and nothing in these forms tells it
    /// from an object's.
    #[test]
    fn what_has_no_body_has_no_size_where_no_status_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, format, sizes) in [
            ("t.csv", WriteFormat::Damelo, vec![250, 900]),
            ("t.oracleGeneral", WriteFormat::OracleGeneral, vec![900]),
            ("t.columns", WriteFormat::Csv, vec![0, 900]),
            ("t.txt", WriteFormat::Txt, vec![1]),
        ] {
            let path = dir.path().join(name).display().to_string();
            let mut writer = TraceWriter::create(&path, format).expect("a file");
            let validated = Record { status: 304, ..record(0, "http://a/", 250) };
            writer.write(&validated).expect("written");
            writer.write(&record(0, "http://a/", 900)).expect("written");
            writer.finish().expect("finished");
            let found: Vec<u64> = read(&path).into_iter().map(|(.., size)| size).collect();
            assert_eq!(found, sizes, "{name}");
        }
    }

    /// There and back: a sample of either keeps the same objects.
    #[test]
    fn numbers_of_objects_stay_in_our_own_form() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (binary, text) = (path("t.oracleGeneral"), path("t.csv"));
        write(&binary, WriteFormat::OracleGeneral);
        let mut trace = Trace::open(&binary, &ReadOptions::default()).expect("opened");
        let mut writer = TraceWriter::create(&text, WriteFormat::Damelo).expect("a file");
        while trace.advance().expect("read") {
            writer.write(&trace.record()).expect("written");
        }
        writer.finish().expect("finished");
        assert_eq!(read(&text), read(&binary));
    }

    /// Counted from 1, as libCacheSim does when it reads them, and of the requests that are there:
    /// a validation is none.
    #[test]
    fn next_uses_are_written_into_oracle_general() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.oracleGeneral");
        let name = path.to_str().expect("text");
        let mut writer = TraceWriter::create(name, WriteFormat::OracleGeneral).expect("a file");
        for (url, status) in [("a", 200), ("a", 200), ("b", 200), ("b", 304), ("a", 200)] {
            writer.write(&Record { status, ..record(0, url, 5) }).expect("written");
        }
        writer.finish().expect("finished");
        let bytes = std::fs::read(path).expect("read");
        let (records, rest) = bytes.as_chunks::<24>();
        assert!(rest.is_empty());
        let next: Vec<i64> =
            records.iter().map(|record| OracleRecord::decode(record).next_access).collect();
        assert_eq!(next, [2, 4, NEVER, NEVER]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut writer =
            TraceWriter::to("t", Box::new(io::sink()), WriteFormat::OracleGeneral).expect("memory");
        let delete = Record { method: b"DELETE", ..record(0, "x", 1 << 32) };
        writer.write(&delete).expect("left out");
        let error = writer.write(&record(0, "x", 1 << 32)).expect_err("too large").to_string();
        assert_eq!(
            error,
            "cannot write record 2 as oracleGeneral: its size is 4294967296 bytes, of 32 bits"
        );
    }
}
