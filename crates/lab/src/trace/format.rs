//! The trace formats: their names, how to tell them from the first bytes of a trace, and the one
//! entry to their line parsers. Pure.

use super::clf::{self, Tail};
use super::columns::{ColumnOptions, Columns};
use super::fields::TimeUnit;
use super::record::Parsed;
use super::{damelo_csv, lcs, oracle_general, squid, twr};
use crate::error::{BadRecord, TraceError};
use crate::name_hint::there_are;

/// A form of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `time_s,client,method,status,size_bytes,url` with that header.
    Damelo,
    /// Squid's native access.log.
    Squid,
    /// Common log of web servers.
    Common,
    /// Combined log of web servers.
    Combined,
    /// libCacheSim's binary oracleGeneral.
    OracleGeneral,
    /// libCacheSim's binary lcs.
    Lcs,
    /// CloudPhysics' binary vscsi.
    Vscsi,
    /// Twitter's traces of caches in memory.
    Twr,
    /// Columns as options or a header line say.
    Csv,
    /// One object a line.
    Txt,
}

const NAMES: [(&str, Format); 12] = [
    ("damelo", Format::Damelo),
    ("squid", Format::Squid),
    ("common", Format::Common),
    ("combined", Format::Combined),
    ("oracleGeneral", Format::OracleGeneral),
    ("oracleGeneralBin", Format::OracleGeneral),
    ("lcs", Format::Lcs),
    ("vscsi", Format::Vscsi),
    ("twr", Format::Twr),
    ("csv", Format::Csv),
    ("txt", Format::Txt),
    ("clf", Format::Common),
];

impl Format {
    /// A format by its name, without case; `None` for `auto`.
    ///
    /// # Errors
    /// A name that is none, with those that are.
    pub fn by_name(given: &str) -> Result<Option<Format>, TraceError> {
        if given.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        match NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(given)) {
            Some((_, format)) => Ok(Some(*format)),
            None => Err(TraceError::FormatName {
                given: given.to_owned(),
                known: there_are(
                    given,
                    [
                        "auto",
                        "damelo",
                        "squid",
                        "common",
                        "combined",
                        "oracleGeneral",
                        "lcs",
                        "vscsi",
                        "twr",
                        "csv",
                        "txt",
                    ],
                ),
            }),
        }
    }

    /// True if its records are binary.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Format::OracleGeneral | Format::Lcs | Format::Vscsi)
    }

    /// The format's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| *name)
    }
}

/// Lines of the head that are asked; more than one, so that one broken first line decides nothing.
const LINES_ASKED: usize = 20;

/// The form of binary records that a file's name says it has.
pub(crate) fn binary_by_name(name: &str) -> Option<Format> {
    let name = name.to_ascii_lowercase();
    if name.contains("oraclegeneral") {
        return Some(Format::OracleGeneral);
    }
    name.split('.').skip(1).find_map(|part| match part {
        "lcs" => Some(Format::Lcs),
        "vscsi" => Some(Format::Vscsi),
        _ => None,
    })
}

/// Tells the format from file name and first bytes.
pub(crate) fn detect(
    name: &str,
    head: &[u8],
    columns: Option<&ColumnOptions>,
) -> Result<Format, String> {
    // Nothing else begins like that.
    if lcs::looks_like(head) {
        return Ok(Format::Lcs);
    }
    if let Some(named) = binary_by_name(name)
        && !(named == Format::OracleGeneral && is_text(head))
    {
        return Ok(named);
    }
    if head.is_empty() {
        return Err("it is empty".to_owned());
    }
    if memchr::memchr(0, head).is_some() {
        return if oracle_general::looks_like(head) {
            Ok(Format::OracleGeneral)
        } else {
            Err("it is binary, but neither oracleGeneral nor lcs, nor named as vscsi".to_owned())
        };
    }
    let lines = || head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let whole = || lines().filter(|line| !line.is_empty());
    // Comments tell nothing, but the names of columns may stand in one.
    let names = whole().next().filter(|line| is_named_comment(line, columns));
    let said: Vec<&[u8]> = names
        .into_iter()
        .chain(whole().filter(|line| !is_comment(line)))
        .take(LINES_ASKED)
        .collect();
    let all: Vec<&[u8]> = whole().take(LINES_ASKED).collect();
    detect_text(if said.is_empty() { &all } else { &said }, columns)
}

/// True of an object, or a list of them.
pub(crate) fn is_json(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"[").map_or(text, <[u8]>::trim_ascii_start);
    let inner = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    inner.is_some_and(|inner| matches!(inner.first(), None | Some(b'"' | b'}')))
}

fn is_comment(line: &[u8]) -> bool {
    line.first() == Some(&b'#')
}

/// True of a comment that names columns.
pub(crate) fn is_named_comment(line: &[u8], columns: Option<&ColumnOptions>) -> bool {
    let named = || Columns::new(columns.unwrap_or(&ColumnOptions::default()), line);
    is_comment(line) && named().is_ok_and(|columns| columns.has_header())
}

/// The first line that may name columns or be the first of those that have some, and its number.
pub(crate) fn first_line<'a>(
    head: &'a [u8],
    columns: Option<&ColumnOptions>,
) -> Option<(u64, &'a [u8])> {
    let numbered = || {
        let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        (1..).zip(lines).filter(|(_, line)| !line.is_empty())
    };
    let first = numbered().next().filter(|(_, line)| is_named_comment(line, columns));
    first.or_else(|| numbered().find(|(_, line)| !is_comment(line))).or_else(|| numbered().next())
}

/// Whether the first bytes cannot be binary records: libCacheSim's converter writes text under a
/// name that goes on behind `oracleGeneral`. Records have control bytes, or 0xff where nothing
/// follows.
fn is_text(head: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\r' | b'\n');
    let is_utf8 = std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true);
    !head.is_empty() && is_utf8 && !head.iter().any(is_control)
}

fn detect_text(lines: &[&[u8]], columns: Option<&ColumnOptions>) -> Result<Format, String> {
    let Some(first) = lines.first() else { return Err("its lines are empty".to_owned()) };
    if *first == damelo_csv::HEADER {
        return Ok(Format::Damelo);
    }
    if columns.is_some_and(|columns| columns.object_column.is_some()) {
        return Ok(Format::Csv);
    }
    for (format, parse) in LOGS {
        if lines.iter().any(|line| parse(line).is_ok()) {
            return Ok(if format == Format::Combined { common_or_combined(lines) } else { format });
        }
    }
    // Before our own form, which any six columns look like that have numbers where it has some.
    if is_json(first) {
        return Err("its lines look like JSON".to_owned());
    }
    let named = Columns::new(columns.unwrap_or(&ColumnOptions::default()), first);
    if named.as_ref().is_ok_and(Columns::has_more_than_objects) {
        return Ok(Format::Csv);
    }
    if lines.iter().any(|line| twr::parse(line, ANY_UNIT).is_ok()) {
        return Ok(Format::Twr);
    }
    let ours = lines.iter().filter(|line| damelo_csv::looks_like(line)).count();
    if 2 * ours > lines.len() {
        return Ok(Format::Damelo);
    }
    let no_blank = |line: &&[u8]| !line.iter().any(|byte| b" \t,|;".contains(byte));
    if lines.iter().all(no_blank) {
        return Ok(Format::Txt);
    }
    named
        .map(|_| Format::Csv)
        .map_err(|reason| format!("it is no log of Squid or a web server, and as columns {reason}"))
}

/// What most lines of a web server's log are: a log may have both, if its server was told to write
/// more.
fn common_or_combined(lines: &[&[u8]]) -> Format {
    let count = |tail| lines.iter().filter(|line| clf::parse(line, tail).is_ok()).count();
    match count(Tail::Common) > count(Tail::Combined) {
        true => Format::Common,
        false => Format::Combined,
    }
}

/// Any number fits nanoseconds: a trace has its form, whatever its times count.
const ANY_UNIT: Option<TimeUnit> = Some(TimeUnit::Nanoseconds);

type LineTest = fn(&[u8]) -> Result<Parsed, BadRecord>;

/// From the strictest on; what one takes the next ones would not.
const LOGS: [(Format, LineTest); 3] = [
    (Format::Squid, |line| squid::parse(line, ANY_UNIT)),
    (Format::Combined, |line| clf::parse(line, Tail::Combined)),
    (Format::Common, |line| clf::parse(line, Tail::Common)),
];

/// Reads lines of one text format, with what its times count, if somebody said so.
#[derive(Debug, Clone)]
pub(crate) enum LineParser {
    Damelo(Option<TimeUnit>),
    Squid(Option<TimeUnit>),
    Clf(Tail),
    Twr(Option<TimeUnit>),
    Columns(Columns),
}

impl LineParser {
    #[inline]
    pub(crate) fn parse(&self, line: &[u8]) -> Result<Parsed, BadRecord> {
        match self {
            LineParser::Damelo(unit) => damelo_csv::parse(line, *unit),
            LineParser::Squid(unit) => squid::parse(line, *unit),
            LineParser::Clf(tail) => clf::parse(line, *tail),
            LineParser::Twr(unit) => twr::parse(line, *unit),
            LineParser::Columns(columns) => columns.parse(line),
        }
    }

    /// True if requests have times.
    pub(crate) fn has_times(&self) -> bool {
        match self {
            LineParser::Columns(columns) => columns.has_times(),
            _ => true,
        }
    }

    /// True for a header. Ours, which is no request anywhere, stands again where one trace was put
    /// behind another, as `cat` does with compressed ones, too.
    pub(crate) fn is_header(&self, line: &[u8], number: u64) -> bool {
        match self {
            LineParser::Damelo(_) => line == damelo_csv::HEADER,
            LineParser::Columns(columns) => columns.is_header(number),
            _ => false,
        }
    }

    /// True for lines that begin with `#`, which tools put into copies of logs and before columns.
    /// Where a line may begin with an object's name, a blank must follow.
    pub(crate) fn is_comment(&self, line: &[u8]) -> bool {
        let is_marked = line.first() == Some(&b'#');
        match self {
            LineParser::Columns(columns) if columns.begins_with_object() => {
                is_marked && line.get(1).is_none_or(u8::is_ascii_whitespace)
            }
            _ => is_marked,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::record::ObjectName;

    const GOOD: [&str; 6] = [
        "1,u,GET,0,5,http://x/",
        "982799997.1 9 c TCP_MISS/200 5 GET http://a/ x y - DIRECT/b text/html [A: b]",
        "h - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 5",
        "h - u [01/Aug/1995:00:00:01 -0400] \"GET /a b HTTP/1.0\" 200 - \"r\" \"a\"",
        "5,\"a,b\",7",
        "0,nz:u:eeW511W3,17,213,4,get,0",
    ];

    fn parsers() -> Vec<LineParser> {
        let options = ColumnOptions::parse("time-col=1,obj-id-col=2,obj-size-col=3").expect("good");
        vec![
            LineParser::Damelo(None),
            LineParser::Squid(None),
            LineParser::Clf(Tail::Common),
            LineParser::Clf(Tail::Combined),
            LineParser::Twr(None),
            LineParser::Columns(Columns::new(&options, b"1,2,3").expect("good")),
            LineParser::Columns(Columns::whole_line(&ColumnOptions::default())),
        ]
    }

    /// What is taken names an object, and hands out parts of the line; all else is refused in
    /// words.
    fn parse_with_all(line: &[u8]) {
        for parser in parsers() {
            match parser.parse(line).map(|parsed| parsed.record(line)) {
                Ok(record) => assert_ne!(record.object, ObjectName::Text(b""), "{parser:?}"),
                Err(reason) => assert!(!reason.to_string().is_empty()),
            }
        }
        let _ = detect("t", line, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(line in prop::collection::vec(any::<u8>(), 0..120)) {
            parse_with_all(&line);
        }

        #[test]
        fn damaged_lines_are_taken_or_refused(
            which in 0..GOOD.len(),
            cut in 0usize..100,
            changes in prop::collection::vec((0usize..100, prop_oneof![any::<u8>(), Just(b' '), Just(b'"'), Just(b'[')]), 0..4),
        ) {
            let mut line = GOOD[which].as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at % line.len();
                line[at] = byte;
            }
            line.truncate(line.len().saturating_sub(cut / 2));
            parse_with_all(&line);
        }
    }

    fn detected(name: &str, head: &str) -> Result<Format, String> {
        detect(name, head.as_bytes(), None)
    }

    #[test]
    fn each_format_is_told_from_its_first_lines() {
        let clf = "h - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 5";
        let squid = "1.0 1 c TCP_MISS/200 5 GET http://a/ - DIRECT/b text/html";
        for (head, format) in [
            (
                "time_s,client,method,status,size_bytes,url\n1,u,GET,0,5,x\n".to_owned(),
                Format::Damelo,
            ),
            ("1,u,GET,0,5,http://x/\n".to_owned(), Format::Damelo),
            (squid.to_owned(), Format::Squid),
            (format!("garbage\n{squid}\n"), Format::Squid),
            (clf.to_owned(), Format::Common),
            (format!("{clf} \"-\" \"Mozilla/5.0 (X)\""), Format::Combined),
            (format!("{clf} TCP_MISS:DIRECT\n"), Format::Common),
            (format!("{clf} \"-\" \"Mozilla/5.0 (X)\" TCP_MISS:DIRECT\n"), Format::Combined),
            (format!("{clf}\n{clf}\n{clf} \"-\" \"A\"\n"), Format::Common),
            (format!("{clf}\n{clf} \"-\" \"A\"\n{clf} \"-\" \"B\"\n"), Format::Combined),
            ("time,obj_id,size\n1,2,3\n".to_owned(), Format::Csv),
            // Six columns, and numbers where our own form has some; but they are named.
            ("time,obj_id,op,ttl,obj_size,tenant\n1,7,get,60,4096,3\n".to_owned(), Format::Csv),
            ("0,q:q:1:8WTf,17,213,4,get,0\n".to_owned(), Format::Twr),
            // Named columns, of whatever looks like Twitter's.
            ("time,key,key_size,size,client,op,ttl\n0,a,1,5,4,get,0\n".to_owned(), Format::Csv),
            ("12\n13\n12\n".to_owned(), Format::Txt),
        ] {
            assert_eq!(detected("t", &head), Ok(format), "{head}");
        }
    }

    #[test]
    fn names_and_nul_bytes_mean_binary() {
        let record = [&b"0123456789ab4096"[..], &(-1i64).to_le_bytes()].concat();
        assert_eq!(detect("w.oracleGeneral.bin.zst", &record, None), Ok(Format::OracleGeneral));
        assert_eq!(detected("w.oracleGeneral", "\0"), Ok(Format::OracleGeneral));
        assert_eq!(detected("w.lcs.zst", "12\n"), Ok(Format::Lcs));
        assert_eq!(detected("w.vscsi.gz", "12\n"), Ok(Format::Vscsi));
        assert_eq!(detected("lcs.txt", "12\n"), Ok(Format::Txt));
        assert!(detected("t", "\0\0").is_err());
        let mark = [0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12];
        assert_eq!(detect("t.oracleGeneral", &mark, None), Ok(Format::Lcs));
        assert_eq!(detected("t", ""), Err("it is empty".to_owned()));
    }

    /// `traceConv` with text beside it writes `X.oracleGeneral.txt`: time, object, size, next use.
    #[test]
    fn text_is_text_under_the_name_of_a_binary_form_too() {
        let lines = "1,12,4096,2\n1,12,4096,-1\n2,13,512,-1\n";
        let reason = detected("w.oracleGeneral.txt", lines).expect_err("columns without names");
        assert!(reason.contains("-t time-col="), "{reason}");
        let options = ColumnOptions::parse("time-col=1,obj-id-col=2").expect("good");
        let told = detect("w.oracleGeneral.txt", lines.as_bytes(), Some(&options));
        assert_eq!(told, Ok(Format::Csv));
        assert_eq!(detected("w.oracleGeneral.txt", "12\n13\n"), Ok(Format::Txt));
    }

    /// Six columns of another form, whose object would be the last.
    #[test]
    fn six_columns_are_ours_if_most_lines_have_a_method_of_http() {
        let ours = "1,u,GET,0,5,http://x/\n";
        for lines in [
            "1,7,get,60,4096,3\n2,8,get,60,4096,3\n".to_owned(),
            "1,7,R,60,4096,3\n2,8,W,60,4096,3\n".to_owned(),
            format!("1,7,get,60,4096,3\n{ours}"),
        ] {
            let reason = detected("t", &lines).expect_err("no form");
            assert!(reason.contains("-t time-col="), "{reason}");
        }
        assert_eq!(detected("t", &format!("broken\n{ours}{ours}")), Ok(Format::Damelo));
    }

    #[test]
    fn what_is_not_understood_says_how_to_name_it() {
        let reason = detected("t", "1 2 3\n4 5 6\n").expect_err("no form");
        assert!(reason.contains("-t time-col="), "{reason}");
    }
}
