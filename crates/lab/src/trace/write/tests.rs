//! Traces that are written are read again; what a form cannot say is left out and counted.

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
        assert_eq!(read(&path("t.csv")), [(1_500_000, a, 5), (2_000_000, b, 7), (2_000_001, a, 6)]);
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
    let bare =
        Record { client: b"", method: b"", status: 0, size_bytes: 1, ..record(0, "http://a/", 1) };
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
            let mut writer = TraceWriter::to("t", Box::new(io::sink()), format).expect("memory");
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
