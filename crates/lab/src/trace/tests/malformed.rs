//! Each form of trace with something broken in it: where it is, why, and how many are left out.

use std::io::Write as _;

use crate::error::{Place, TraceError};
use crate::request::Op;
use crate::trace::input::LINE_BYTES_MAX;
use crate::trace::*;

/// Columns may be named, JSON has none all the same; whoever names the form has the say.
#[test]
fn lines_of_json_are_refused_with_columns_named_too() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"{\"time\":1,\"url\":\"a\",\"bytes\":5}\n").expect("written");
    let name = file.path().to_str().expect("a name");
    let columns = ColumnOptions::parse("time-col=1,obj-id-col=2,obj-size-col=3").expect("good");
    let options = ReadOptions { columns: Some(columns), ..ReadOptions::default() };
    let refused = Trace::open(name, &options).err();
    assert!(matches!(refused, Some(TraceError::Json { .. })), "{refused:?}");
    let named = ReadOptions { format: Some(Format::Csv), ..options };
    assert!(Trace::open(name, &named).is_ok());
}

/// A trace of two good requests and what is broken between or behind them.
struct Case {
    format: &'static str,
    columns: Option<&'static str>,
    before: &'static [u8],
    broken: &'static [u8],
    after: &'static [u8],
    /// Place and reason.
    said: &'static str,
}

/// Of 24 bytes each: second 1, object 7, 9 bytes, never again.
const TWO_RECORDS: &[u8; 48] =
    b"\x01\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\
\x01\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f";

const CASES: [Case; 8] = [
    Case {
        format: "damelo",
        columns: None,
        before: b"time_s,client,method,status,size_bytes,url\n1,u,GET,200,5,http://a/\n",
        broken: b"2,u,GET,200,many,http://a/\n",
        after: b"3,u,GET,200,5,http://a/\n",
        said: "line 3: size is `many`, not a number of bytes",
    },
    Case {
        format: "squid",
        columns: None,
        before: b"# a comment\n1.0 1 c TCP_MISS/200 5 GET http://a/ - DIRECT/b text/html\n",
        broken: b"2.0 1 c TCP_MISS 5 GET http://a/ - DIRECT/b text/html\n",
        after: b"\n3.0 1 c TCP_MISS/200 5 GET http://a/ - DIRECT/b text/html\n",
        said: "line 3: result is `TCP_MISS`, not a code and a status as in TCP_MISS/200",
    },
    Case {
        format: "common",
        columns: None,
        before: b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\" 200 5\n",
        broken: b"h - - [01/Aug/1995:25:00:01 -0400] \"GET /a HTTP/1.0\" 200 5\n",
        after: b"h - - [01/Aug/1995:00:00:02 -0400] \"GET /a HTTP/1.0\" 200 5\n",
        said: "line 2: time is `01/Aug/1995:25:00:01 -0400`, not a time as in 10/Oct/2000:13:55:36 -0700",
    },
    Case {
        format: "combined",
        columns: None,
        before: b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\" 200 5 \"-\" \"x\"\n",
        broken: b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\" 200 5 \"-\"\n",
        after: b"h - - [01/Aug/1995:00:00:02 -0400] \"GET /a HTTP/1.0\" 200 5 \"-\" \"x\"\n",
        said: "line 2: 8 fields where 9 (combined log) are expected",
    },
    Case {
        format: "csv",
        columns: Some("time-col=1,obj-id-col=2,obj-size-col=3,has-header=true"),
        before: b"time,id,size\n1,7,5\n",
        broken: b"2,7\n",
        after: b"3,7,5\n",
        said: "line 3: no column 3 (size) in a line of 2 columns",
    },
    Case {
        format: "twr",
        columns: None,
        before: b"0,a:b,3,213,4,get,0\n",
        broken: b"0,a:b,3,213,4,look,0\n",
        after: b"1,a:b,3,213,4,set,60\n",
        said: "line 2: operation is `look`, not one of memcached's as get or set",
    },
    Case {
        format: "txt",
        columns: Some("obj-id-is-num=true"),
        before: b"7\n",
        broken: b"seven\n",
        after: b"7\n",
        said: "line 2: object is `seven`, not a number, though obj-id-is-num says so",
    },
    Case {
        // Records have no boundaries to find again: only the last can be seen to be cut.
        format: "oracleGeneral",
        columns: None,
        before: TWO_RECORDS,
        broken: b"\x01\0\0\0\x07",
        after: b"",
        said: "record 3: the trace ends after 5 of the record's 24 bytes: it was cut off",
    },
];

/// Where a test's traces lie.
struct Bed(tempfile::TempDir);

impl Bed {
    fn new() -> Bed {
        Bed(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self, bytes: &[u8]) -> String {
        let path = self.0.path().join("t");
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    }
}

fn options(case: &Case, skip_bad: bool) -> ReadOptions {
    ReadOptions {
        format: Format::by_name(case.format).expect("a format"),
        columns: case.columns.map(|text| ColumnOptions::parse(text).expect("columns")),
        skip_bad,
        ..ReadOptions::default()
    }
}

/// Requests that were read, and what was left out.
fn read(path: &str, options: &ReadOptions) -> Result<(usize, Skipped), TraceError> {
    let mut trace = Trace::open(path, options)?;
    let (requests, _) = load(&mut trace, |_| {})?;
    // A simulation reads in batches, which must say and skip the same.
    let (mut batches, mut raw) = (Trace::open(path, options)?, Vec::new());
    batches.batch(&mut raw, 1 << 20)?;
    assert_eq!(raw.len(), requests.len(), "one by one and in batches");
    assert_eq!(batches.skipped().count, trace.skipped().count, "one by one and in batches");
    Ok((requests.len(), trace.skipped()))
}

fn told(skipped: &Skipped) -> Vec<String> {
    skipped.examples.iter().map(|(place, reason)| format!("{place}: {reason}")).collect()
}

#[test]
fn every_form_names_the_place_and_the_reason_or_skips_and_counts() {
    let bed = Bed::new();
    for case in &CASES {
        let path = bed.file(&[case.before, case.broken, case.after].concat());
        let error = read(&path, &options(case, false)).expect_err(case.format);
        assert_eq!(error.to_string(), format!("{path}: {}", case.said), "{}", case.format);
        let (requests, skipped) = read(&path, &options(case, true)).expect(case.format);
        assert_eq!((requests, skipped.count), (2, 1), "{}", case.format);
        assert_eq!(told(&skipped), [case.said], "{}", case.format);
        let whole = bed.file(&[case.before, case.after].concat());
        let (requests, skipped) = read(&whole, &options(case, false)).expect(case.format);
        assert_eq!((requests, skipped.count), (2, 0), "{} unbroken", case.format);
    }
}

/// Whoever named the form is not told to name it.
#[test]
fn what_a_named_form_lacks_is_told() {
    let bed = Bed::new();
    let path = bed.file(b"1,a,10\n2,b,20\n");
    let said = |format: Option<Format>| {
        let options = ReadOptions { format, ..ReadOptions::default() };
        read(&path, &options).expect_err("no columns").to_string()
    };
    let columns = said(Some(Format::Csv));
    assert!(columns.starts_with("cannot tell the columns of the trace"), "{columns}");
    assert!(columns.contains("write -t time-col=") && !columns.contains("--format"), "{columns}");
    assert!(said(None).ends_with("name it with --format"), "the form is open");
    for (format, reason) in [
        (Format::Lcs, "is not of the form lcs: it does not begin with the mark of lcs"),
        (
            Format::Vscsi,
            "is not of the form vscsi: its first two records are of no version of vscsi; known are 1 and 2",
        ),
    ] {
        let words = said(Some(format));
        assert!(words.ends_with(reason), "{words}");
    }
}

#[test]
fn compression_changes_no_place() {
    let bed = Bed::new();
    for case in &CASES {
        let bytes = [case.before, case.broken, case.after].concat();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).expect("memory");
        let zstd = zstd::encode_all(&bytes[..], 1).expect("memory");
        for compressed in [gzip.finish().expect("memory"), zstd] {
            let path = bed.file(&compressed);
            let error = read(&path, &options(case, false)).expect_err(case.format);
            assert_eq!(error.to_string(), format!("{path}: {}", case.said), "{}", case.format);
            let (requests, skipped) = read(&path, &options(case, true)).expect(case.format);
            assert_eq!((requests, skipped.count), (2, 1), "{}", case.format);
            // What is cut off is no bad line: nobody knows how much is missing.
            let path = bed.file(&compressed[..compressed.len() - 6]);
            let error = read(&path, &options(case, true)).expect_err("a cut file");
            let cut = matches!(error, TraceError::Read { .. } | TraceError::Open { .. });
            assert!(cut, "{}: {error}", case.format);
        }
    }
}

/// Of a compressed trace that is cut off, what can be read is; the error says behind which line or
/// record.
#[test]
fn what_was_read_before_the_damage_is_handed_out() {
    let bed = Bed::new();
    let mut rng = fastrand::Rng::with_seed(3);
    let lines: Vec<String> =
        (0..40_000).map(|n| format!("{n},c,GET,200,{},http://a/{n}\n", rng.u32(..))).collect();
    let records: Vec<u8> = (0..40_000_u32)
        .flat_map(|n| {
            let fields =
                [n.to_le_bytes(), rng.u32(..).to_le_bytes(), [0; 4], [1; 4], [0; 4], [0; 4]];
            fields.concat()
        })
        .collect();
    for (format, bytes) in [("damelo", lines.concat().into_bytes()), ("oracleGeneral", records)] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).expect("memory");
        let zstd = zstd::encode_all(&bytes[..], 1).expect("memory");
        for compressed in [gzip.finish().expect("memory"), zstd] {
            let path = bed.file(&compressed[..compressed.len() * 3 / 4]);
            for skip_bad in [false, true] {
                let format = Format::by_name(format).expect("a format");
                let options = ReadOptions { format, skip_bad, ..ReadOptions::default() };
                let mut trace = Trace::open(&path, &options).expect("the beginning is whole");
                let mut raw = Vec::new();
                let error = trace.batch(&mut raw, 1 << 20).expect_err("cut off");
                assert!(raw.len() > 20_000, "{} of 40,000", raw.len());
                let TraceError::Read { place, .. } = error else { panic!("{error}") };
                let (Place::Line(last) | Place::Record(last)) = place;
                assert_eq!(last, raw.len() as u64, "{error}");
            }
        }
    }
}

/// Of a trace so small that it is one compressed block nothing is left: the error says after which
/// line, not record.
#[test]
fn a_cut_trace_of_text_has_lines() {
    let bed = Bed::new();
    let text: String = (0..100).map(|n| format!("{n},c,GET,200,5,http://a/{n}\n")).collect();
    let zstd = zstd::encode_all(text.as_bytes(), 1).expect("memory");
    let path = bed.file(&zstd[..zstd.len() / 2]);
    let place = |format| {
        let options = ReadOptions { format, ..ReadOptions::default() };
        match Trace::open(&path, &options).map(|_| ()).expect_err("cut off") {
            TraceError::Read { place, .. } => place,
            error => panic!("{error}"),
        }
    };
    assert_eq!(place(None), Place::Line(0));
    assert_eq!(place(Some(Format::Squid)), Place::Line(0));
    assert_eq!(place(Some(Format::OracleGeneral)), Place::Record(0));
}

/// Options that name columns mean nothing where a line is an object, and are not passed over.
#[test]
fn a_txt_trace_has_no_columns_to_name() {
    let bed = Bed::new();
    let path = bed.file(b"7,1\n7,2\n");
    let with = |columns: &str| ReadOptions {
        format: Some(Format::Txt),
        columns: Some(ColumnOptions::parse(columns).expect("columns")),
        ..ReadOptions::default()
    };
    for columns in ["time-col=1", "obj-id-col=1", "obj-size-col=2", "delimiter=,"] {
        let error = read(&path, &with(columns)).expect_err(columns);
        assert!(matches!(error, TraceError::NoColumns { .. }), "{columns}: {error}");
    }
    assert_eq!(read(&path, &with("has-header=true")).expect("means something").0, 1);
}

/// Blank lines are passed over before the names of columns as they are behind them.
#[test]
fn the_first_line_that_is_not_blank_names_the_columns() {
    let bed = Bed::new();
    let named = "time,obj_id,size\n1,7,5\n2,7,5\n";
    let options = |columns: Option<&str>| ReadOptions {
        columns: columns.map(|text| ColumnOptions::parse(text).expect("columns")),
        ..ReadOptions::default()
    };
    for before in ["", "\n", "\r\n\n"] {
        let path = bed.file(format!("{before}{named}").as_bytes());
        assert_eq!(read(&path, &options(None)).expect("named").0, 2, "{before:?}");
        let by_number = options(Some("time-col=1,obj-id-col=2,obj-size-col=3"));
        assert_eq!(read(&path, &by_number).expect("a header").0, 2, "{before:?}");
        let path = bed.file(format!("{before}1,7,5\n2,7,5\n").as_bytes());
        assert_eq!(read(&path, &by_number).expect("no header").0, 2, "{before:?}");
    }
}

/// A column too many is missing in the first line, too, which was taken for a header.
#[test]
fn a_column_that_is_nowhere_is_missing_from_the_first_line_on() {
    let bed = Bed::new();
    let path = bed.file(b"1,7,5\n2,7,5\n");
    let columns = ColumnOptions::parse("time-col=1,obj-id-col=2,obj-size-col=9").expect("columns");
    let options = |skip_bad| ReadOptions {
        format: Some(Format::Csv),
        columns: Some(columns.clone()),
        skip_bad,
        ..ReadOptions::default()
    };
    let error = read(&path, &options(false)).expect_err("no column 9").to_string();
    assert_eq!(error, format!("{path}: line 1: no column 9 (size) in a line of 3 columns"));
    let error = read(&path, &options(true)).expect_err("nothing is left").to_string();
    let all = "has no line of the form csv, as which it was read: all 2 are malformed, the first";
    assert!(error.contains(all) && error.contains("line 1: no column 9 (size)"), "{error}");
}

/// A first line that is no request is a header only if it has names.
#[test]
fn a_malformed_first_line_is_no_header() {
    let bed = Bed::new();
    let path = bed.file(b"-1,5,10\n2,7,5\n");
    let columns = ColumnOptions::parse("time-col=1,obj-id-col=2,obj-size-col=3").expect("columns");
    let options = |skip_bad| ReadOptions {
        columns: Some(columns.clone()),
        skip_bad,
        ..ReadOptions::default()
    };
    let error = read(&path, &options(false)).expect_err("a time below zero").to_string();
    assert!(error.starts_with(&format!("{path}: line 1: time is `-1`, not seconds")), "{error}");
    assert_eq!(read(&path, &options(true)).expect("skipped").1.count, 1);
}

/// What programs of Windows write before text is no part of it: the first line is as others are.
#[test]
fn a_byte_order_mark_is_passed_over_in_text_and_only_there() {
    let bed = Bed::new();
    for case in CASES.iter().filter(|case| case.format != "oracleGeneral") {
        let whole = [case.before, case.after].concat();
        let marked = bed.file(&[&b"\xef\xbb\xbf"[..], &whole].concat());
        let told = ReadOptions { format: None, ..options(case, false) };
        for options in [options(case, false), told] {
            let mut trace = Trace::open(&marked, &options).expect(case.format);
            let (with, names) = load(&mut trace, |_| {}).expect(case.format);
            let mut trace = Trace::open(&bed.file(&whole), &options).expect(case.format);
            let (without, bare) = load(&mut trace, |_| {}).expect(case.format);
            assert_eq!(with, without, "{}", case.format);
            assert_eq!(names.url(0), bare.url(0), "{}", case.format);
            bed.file(&[&b"\xef\xbb\xbf"[..], &whole].concat());
        }
    }
    // Second 12,565,487: the same three bytes, and no mark.
    let records = TWO_RECORDS.as_chunks::<24>().0;
    let marked: Vec<u8> =
        records.iter().flat_map(|r| [&b"\xef\xbb\xbf\0"[..], &r[4..]].concat()).collect();
    let path = bed.file(&marked);
    for format in [None, Some(Format::OracleGeneral)] {
        let options = ReadOptions { format, ..ReadOptions::default() };
        assert_eq!(read(&path, &options).expect("two records").0, 2);
    }
}

/// What no run could keep the pace of, 292 years after the first request, is refused where the
/// trace is loaded; the first request may have any time.
#[test]
fn a_request_after_centuries_is_named() {
    let bed = Bed::new();
    let load_all = |text: &str| {
        let path = bed.file(text.as_bytes());
        let time_unit = Some(TimeUnit::Seconds);
        let mut trace = Trace::open(&path, &ReadOptions { time_unit, ..ReadOptions::default() })?;
        load(&mut trace, |_| {}).map(|(requests, _)| requests)
    };
    let first = "18446744073000,u,GET,200,5,a\n";
    let loaded = load_all(&format!("{first}18446744073709,u,GET,200,5,a\n")).expect("soon after");
    assert_eq!(loaded[1].time_us, 709_000_000);
    let error = load_all("7,u,GET,200,5,a\n\n9223372044,u,GET,200,5,a\n").expect_err("later");
    let said = "line 3: its time is 9223372037 s after the first; runs take traces of up to";
    assert!(error.to_string().starts_with(said), "{error}");
    assert_eq!(load_all("7,u,GET,200,5,a\n9223372043,u,GET,200,5,a\n").expect("fits").len(), 2);
}

/// Two objects that differ behind a quote are two, whichever way they are read.
#[test]
fn a_quote_in_a_name_does_not_end_it() {
    let bed = Bed::new();
    let path = bed.file(b"ts,size,id\n1,100,\"a,\"\"x\"\",1\"\n2,100,\"/\"\"y\"\n3,100,\"\"\"\"\n");
    let url_prefix = "http://h".to_owned();
    let options = ReadOptions { url_prefix, ..ReadOptions::default() };
    let mut trace = Trace::open(&path, &options).expect("told by its header");
    let (requests, names) = load(&mut trace, |_| {}).expect("well formed");
    let named: Vec<_> = requests.iter().filter_map(|r| names.url_text(r.key)).collect();
    assert_eq!(named, ["a,\"x\",1", "http://h/\"y", "\""]);
    read(&path, &options).expect("the same in batches");
}

/// The same path on two sites is two objects; a prefix is for lines without a site.
#[test]
fn sites_in_front_of_lines_are_hosts() {
    let bed = Bed::new();
    let rest = "- - [01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\" 200 5 \"-\" \"A\"\n";
    let lines = [
        "a.example:443 c",
        "b.example:80 c",
        "b.example:8080 c",
        "d.example c",
        "e.example c",
        "c",
    ];
    let path = bed.file(lines.map(|who| format!("{who} {rest}")).concat().as_bytes());
    let url_prefix = "http://h".to_owned();
    let options = ReadOptions { url_prefix, ..ReadOptions::default() };
    let mut trace = Trace::open(&path, &options).expect("a combined log");
    let (requests, names) = load(&mut trace, |_| {}).expect("well formed");
    let named: Vec<_> = requests.iter().filter_map(|r| names.url_text(r.key)).collect();
    let expected = [
        "https://a.example/a",
        "http://b.example/a",
        "http://b.example:8080/a",
        "http://d.example/a",
        "http://e.example/a",
        "http://h/a",
    ];
    assert_eq!(named, expected);
}

/// One URL is one object, whichever server logged it, with a site in front or without.
#[test]
fn escapes_of_servers_are_read_back() {
    let bed = Bed::new();
    let rest = "- - [01/Aug/1995:00:00:01 -0400] \"GET";
    let tail = "HTTP/1.0\" 200 5 \"-\" \"A \\\"B\\\"\"";
    let line = |who: &str, url: &str| format!("{who} {rest} {url} {tail}\n");
    let lines = [
        line("c", r#"/a\"b"#),
        line("c", r"/a\x22b"),
        line("h:80 c", r"/a\x22b"),
        line("c", r"http://h/a\x22b"),
        line("c", r"/a\q"),
    ];
    let path = bed.file(lines.concat().as_bytes());
    let url_prefix = "http://h".to_owned();
    let options = ReadOptions { url_prefix, ..ReadOptions::default() };
    let mut trace = Trace::open(&path, &options).expect("a combined log");
    let (requests, names) = load(&mut trace, |_| {}).expect("well formed");
    let named: Vec<_> = requests.iter().filter_map(|r| names.url_text(r.key)).collect();
    let one = r#"http://h/a"b"#;
    assert_eq!(named, [one, one, one, one, r"http://h/a\q"]);
    read(&path, &options).expect("the same in batches");
}

/// All are counted, the first five are told.
#[test]
fn many_broken_lines_are_counted_and_some_told() {
    let bed = Bed::new();
    for case in CASES.iter().filter(|case| case.format != "oracleGeneral") {
        let path = bed.file(&[case.before, &case.broken.repeat(8), case.after].concat());
        let (requests, skipped) = read(&path, &options(case, true)).expect(case.format);
        assert_eq!((requests, skipped.count), (2, 8), "{}", case.format);
        assert_eq!((told(&skipped).len(), told(&skipped)[0].as_str()), (5, case.said));
    }
}

#[test]
fn a_line_without_an_end_is_malformed_in_every_text_form() {
    let bed = Bed::new();
    let long = [vec![b'x'; LINE_BYTES_MAX + (1 << 20)], b"\n".to_vec()].concat();
    for case in CASES.iter().filter(|case| case.format != "oracleGeneral") {
        let path = bed.file(&[case.before, &long, case.after].concat());
        let (place, _) = case.said.split_once(':').expect("a place");
        let error = read(&path, &options(case, false)).expect_err(case.format).to_string();
        assert!(error.starts_with(&format!("{path}: {place}: ")), "{}: {error}", case.format);
        let (requests, skipped) = read(&path, &options(case, true)).expect(case.format);
        assert_eq!((requests, skipped.count), (2, 1), "{}", case.format);
    }
}

/// A trace of lcs version 3 with these objects and sizes, second 1, all asked for.
fn lcs(objects: &[(u64, i64)]) -> Vec<u8> {
    let mark = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    let mut bytes = vec![0; 8192];
    bytes[..8].copy_from_slice(&mark);
    bytes[8] = 3;
    bytes[8184..].copy_from_slice(&mark);
    for (object, size) in objects {
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend((-1_i64).to_le_bytes());
    }
    bytes
}

/// One by one and many at once, behind a size that is none and before half a record.
#[test]
fn records_of_lcs_are_read_around_those_that_are_malformed() {
    let bed = Bed::new();
    let objects = [(7, 5_000_000_000), (8, -1), (7, 5_000_000_000), (9, 0)];
    let whole = lcs(&objects);
    let path = bed.file(&whole[..whole.len() - 20]);
    let with = |skip_bad| ReadOptions { skip_bad, ..ReadOptions::default() };
    let error = read(&path, &with(false)).expect_err("record 2");
    assert!(error.to_string().contains("record 2: size is `-1`"), "{error}");
    let (read_one_by_one, skipped) = read(&path, &with(true)).expect("the others");
    assert_eq!((read_one_by_one, skipped.count), (2, 2));
    let mut trace = Trace::open(&path, &with(true)).expect("a trace");
    assert_eq!(trace.form(), "lcs");
    let mut raw = Vec::new();
    trace.batch(&mut raw, 100).expect("the others");
    let expected =
        RawRequest { object: 7, size_bytes: 5_000_000_000, time_us: 1_000_000, op: Op::Read };
    assert_eq!(raw, [expected, expected]);
    assert_eq!(trace.skipped().count, 2);
    let cut = bed.file(&whole[..8000]);
    let error = Trace::open(&cut, &with(true)).map(|_| ()).expect_err("no header");
    assert!(error.to_string().contains("ends within the 8192 bytes of the header"), "{error}");
}

/// The same in every form that has numbers for times; the others refuse a unit.
#[test]
fn times_count_what_is_said() {
    let bed = Bed::new();
    let records = TWO_RECORDS.as_slice();
    let lcs = lcs(&[(7, 9)]);
    let squid = "1700000000123 1 c TCP_MISS/200 5 GET http://a/ - DIRECT/b text/html\n";
    for (bytes, form, first_us) in [
        (b"1700000000123,u,GET,200,5,http://a/\n".as_slice(), "damelo", 1_700_000_000_123_000),
        (squid.as_bytes(), "squid", 1_700_000_000_123_000),
        (b"1700000000123,a,3,5,u,get,0\n", "twr", 1_700_000_000_123_000),
        (b"time,obj_id\n1700000000123,7\n", "csv", 1_700_000_000_123_000),
        (records, "oracleGeneral", 1_000),
        (&lcs, "lcs", 1_000),
    ] {
        let path = bed.file(bytes);
        let with = |time_unit| ReadOptions { time_unit, ..ReadOptions::default() };
        let options = with(Some(TimeUnit::Milliseconds));
        let mut trace = Trace::open(&path, &options).expect(form);
        assert!(trace.advance().expect(form) && trace.form() == form, "{form}");
        assert_eq!(trace.record().time_us, first_us, "{form}");
        let (mut batches, mut raw) = (Trace::open(&path, &options).expect(form), Vec::new());
        batches.batch(&mut raw, 9).expect(form);
        assert_eq!(raw[0].time_us, first_us, "{form}");
        let mut seconds = Trace::open(&path, &with(None)).expect(form);
        match seconds.advance() {
            Ok(_) => assert_eq!(seconds.record().time_us, 1_000_000, "{form}"),
            Err(error) => assert!(error.to_string().contains("--time-unit ms"), "{error}"),
        }
    }
    for (bytes, said) in [
        ("7\n8\n", "is of the form txt, and has no times: leave --time-unit out"),
        ("obj_id,size\n7,8\n", "is of the form csv, and has no times: leave --time-unit out"),
        (
            "h - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 5\n",
            "is of the form common, whose times are dates: leave --time-unit out",
        ),
    ] {
        let path = bed.file(bytes.as_bytes());
        let time_unit = Some(TimeUnit::Seconds);
        let options = ReadOptions { time_unit, ..ReadOptions::default() };
        let error = Trace::open(&path, &options).map(|_| ()).expect_err(said).to_string();
        assert!(error.ends_with(said), "{error}");
    }
}
