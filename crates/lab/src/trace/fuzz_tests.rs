//! The trace readers as the fuzz target drives them: no input panics, a trace reads the same in
//! pieces and in batches, and what was read can be written and read again. No threads.
//!
//! Compiled for tests, which try damaged samples, and with the feature `fuzzing`; part of no
//! interface.

use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::input::Input;
use super::reader::TraceReader;
use super::*;
use crate::error::TraceError;
use crate::request::Op;

/// Bytes that come a few at a time, as from a decompressor.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.1);
        self.0.read(&mut buffer[..len])
    }
}

/// A file in memory that its writer gives away.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record that outlives its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    time_us: u64,
    client: Vec<u8>,
    method: Vec<u8>,
    status: u16,
    cache_result: Vec<u8>,
    size_bytes: u64,
    object: Result<Vec<u8>, u64>,
}

impl Owned {
    fn of(record: &Record<'_>) -> Owned {
        Owned {
            time_us: record.time_us,
            client: record.client.to_vec(),
            method: record.method.to_vec(),
            status: record.status,
            cache_result: record.cache_result.to_vec(),
            size_bytes: record.size_bytes,
            object: match record.object {
                ObjectName::Text(name) => Ok(name.to_vec()),
                ObjectName::Id(id) => Err(id),
            },
        }
    }

    fn record(&self) -> Record<'_> {
        Record {
            time_us: self.time_us,
            client: &self.client,
            method: &self.method,
            status: self.status,
            cache_result: &self.cache_result,
            size_bytes: self.size_bytes,
            object: match &self.object {
                Ok(name) => ObjectName::Text(name),
                Err(id) => ObjectName::Id(*id),
            },
        }
    }

    /// What every form of trace keeps.
    fn numbers(&self) -> (u64, u64, Op) {
        (self.time_us, self.record().size_without_result(), self.record().op())
    }
}

fn open(body: &[u8], options: &ReadOptions, piece: usize) -> Result<TraceReader, TraceError> {
    let pieces = Pieces(Cursor::new(body.to_vec()), piece);
    TraceReader::of("t", Input::new(Box::new(pieces)), options)
}

/// All records one by one; an error of the trace's end stays.
fn read(
    body: &[u8],
    options: &ReadOptions,
    piece: usize,
) -> (Vec<Owned>, u64, Result<(), TraceError>) {
    let mut records = Vec::new();
    let mut reader = match open(body, options, piece) {
        Ok(reader) => reader,
        Err(error) => return (records, 0, Err(error)),
    };
    loop {
        match reader.advance() {
            Ok(true) => records.push(Owned::of(&reader.record())),
            Ok(false) => return (records, reader.skipped().count, Ok(())),
            Err(error) => return (records, reader.skipped().count, Err(error)),
        }
    }
}

fn write(records: &[Owned], format: WriteFormat) -> Result<Vec<u8>, TraceError> {
    let sink = Shared::default();
    let mut writer = TraceWriter::to("t", Box::new(sink.clone()), format)?;
    for record in records {
        writer.write(&record.record())?;
    }
    let lost = writer.lost();
    assert_eq!(writer.finish()? + lost.deletes + lost.empty, records.len() as u64);
    Ok(std::mem::take(&mut *sink.0.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// How the first line of the input says that the rest is to be read: the letter of a format (any
/// other stands for "find out"), and the columns behind it.
fn options(order: &[u8]) -> Option<ReadOptions> {
    let format = match order.first() {
        Some(b'd') => Some(Format::Damelo),
        Some(b's') => Some(Format::Squid),
        Some(b'c') => Some(Format::Common),
        Some(b'C') => Some(Format::Combined),
        Some(b'o') => Some(Format::OracleGeneral),
        Some(b'l') => Some(Format::Lcs),
        Some(b'V') => Some(Format::Vscsi),
        Some(b'w') => Some(Format::Twr),
        Some(b'v') => Some(Format::Csv),
        Some(b't') => Some(Format::Txt),
        _ => None,
    };
    let columns = std::str::from_utf8(order.get(1..).unwrap_or_default()).ok()?.trim();
    let columns = match columns.is_empty() {
        true => None,
        false => Some(ColumnOptions::parse(columns).ok()?),
    };
    Some(ReadOptions { format, columns, skip_bad: true, ..ReadOptions::default() })
}

/// Any trace in any form: see [`options`] for its first line.
pub fn fuzz_trace(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let Some(mut options) = options(&data[..end]) else { return };
    let body = data.get(end + 1..).unwrap_or_default();
    let (records, skipped, ended) = read(body, &options, usize::MAX);
    for record in &records {
        assert_ne!(record.object, Ok(Vec::new()));
        let texts = [&record.client, &record.method, &record.cache_result];
        for text in texts {
            assert!(memchr::memmem::find(body, text).is_some());
        }
        if let Ok(name) = &record.object {
            assert!(is_named(body, name), "{} of {}", name.escape_ascii(), body.escape_ascii());
        }
        assert!(record.record().host().len() <= body.len());
    }
    let (in_pieces, skipped_in_pieces, _) = read(body, &options, 7);
    assert_eq!((&in_pieces, skipped_in_pieces), (&records, skipped));
    check_batches(body, &options, &records);
    options.skip_bad = false;
    let (before, _, strictly) = read(body, &options, usize::MAX);
    assert!(records.starts_with(&before));
    assert_eq!(strictly.is_err(), skipped > 0 || ended.is_err());
    check_written(&records);
}

/// Whether a trace says such a name: as it is, escaped, or in two parts of a site and a path.
fn is_named(body: &[u8], name: &[u8]) -> bool {
    let on_site = |rest: &[u8]| {
        let paths = memchr::memchr_iter(b'/', rest).filter(|at| *at > 0);
        paths.map(|at| rest.split_at(at)).any(|(site, path)| {
            memchr::memmem::find(body, site).is_some() && is_written(body, path)
        })
    };
    let schemes = [&b"http://"[..], b"https://"];
    is_written(body, name)
        || schemes.iter().any(|scheme| name.strip_prefix(*scheme).is_some_and(on_site))
}

/// As it is; with quotes that stand twice within quotes; or with what servers escape.
fn is_written(body: &[u8], name: &[u8]) -> bool {
    let is_there = |text: &[u8]| memchr::memmem::find(body, text).is_some();
    let doubled = name.split(|byte| *byte == b'"').collect::<Vec<_>>().join(&b"\"\""[..]);
    is_there(name) || is_there(&doubled) || (0..body.len()).any(|at| is_escaped(&body[at..], name))
}

fn is_escaped(mut rest: &[u8], name: &[u8]) -> bool {
    name.iter().all(|byte| {
        let len = escaped_len(rest, *byte);
        rest = &rest[len.unwrap_or_default()..];
        len.is_some()
    })
}

/// How long a byte of a name is in a log that goes on like this and escapes by a backslash; `None`
/// if it does not begin with that byte.
fn escaped_len(rest: &[u8], byte: u8) -> Option<usize> {
    let letter = match byte {
        b'"' | b'\\' => Some(byte),
        0x08 => Some(b'b'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        0x0b => Some(b'v'),
        _ => None,
    };
    match rest {
        [b'\\', b'x', hex @ ..] if hex.len() >= 2 => {
            let is_it = hex[..2].eq_ignore_ascii_case(format!("{byte:02x}").as_bytes());
            is_it.then_some(4)
        }
        [b'\\', second, ..] => (letter == Some(*second)).then_some(2),
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

fn check_batches(body: &[u8], options: &ReadOptions, records: &[Owned]) {
    let Ok(mut reader) = open(body, options, usize::MAX) else { return };
    let mut raw = Vec::new();
    for len in [1, 2, usize::MAX] {
        let _ = reader.batch(&mut raw, len);
    }
    let singly: Vec<RawRequest> = records
        .iter()
        .map(|record| RawRequest {
            object: source::object_name(record.record().object),
            size_bytes: record.record().body_bytes(),
            time_us: record.time_us,
            op: record.record().op(),
        })
        .collect();
    assert_eq!(raw, singly);
}

/// What was read is written and read again: our own form keeps all but what it escapes, and is the
/// same when it is written a second time.
fn check_written(records: &[Owned]) {
    let form = |format| ReadOptions { format: Some(format), ..ReadOptions::default() };
    let written = write(records, WriteFormat::Damelo).expect("memory takes all");
    let (again, _, ended) = read(&written, &form(Format::Damelo), usize::MAX);
    assert!(ended.is_ok(), "{ended:?}");
    let numbers = |records: &[Owned]| records.iter().map(Owned::numbers).collect::<Vec<_>>();
    assert_eq!(numbers(&again), numbers(records));
    let twice = write(&again, WriteFormat::Damelo).expect("memory takes all");
    assert_eq!(twice, written);
    // Of the others, what fits them.
    let asking: Vec<&Owned> =
        records.iter().filter(|record| record.record().op() != Op::Delete).collect();
    if let Ok(written) = write(records, WriteFormat::OracleGeneral) {
        let (again, _, ended) = read(&written, &form(Format::OracleGeneral), usize::MAX);
        let bodies = asking.iter().filter(|record| record.record().has_body()).count();
        assert!(ended.is_ok() && again.len() == bodies);
        assert_eq!(write(&again, WriteFormat::OracleGeneral).ok(), Some(written));
    }
    for (to, from) in [(WriteFormat::Csv, Format::Csv), (WriteFormat::Txt, Format::Txt)] {
        let written = write(records, to).expect("memory takes all");
        let (again, _, _) = read(&written, &form(from), usize::MAX);
        let name = |record: &Owned| source::object_name(record.record().object);
        let fits = |record: &&&Owned| to != WriteFormat::Txt || record.record().has_body();
        let names: Vec<u64> = asking.iter().filter(fits).map(|record| name(record)).collect();
        assert_eq!(again.iter().map(name).collect::<Vec<_>>(), names, "{}", to.name());
    }
}

#[cfg(test)]
mod tests {
    use damelo_store_sim::damaged;

    use super::*;

    /// The target's seeds, whole and damaged.
    #[test]
    fn no_trace_is_too_odd() {
        let mut random = fastrand::Rng::with_seed(7);
        let seeds = format!("{}/../../fuzz/seeds/trace", env!("CARGO_MANIFEST_DIR"));
        for file in std::fs::read_dir(seeds).expect("seeds") {
            let sample = std::fs::read(file.expect("a seed").path()).expect("a seed");
            fuzz_trace(&sample);
            for _ in 0..300 {
                fuzz_trace(&damaged(&sample, &mut random));
            }
        }
    }
}
