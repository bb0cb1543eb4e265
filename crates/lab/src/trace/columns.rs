//! libCacheSim's csv and txt traces: which column holds what is said by options in its notation
//! (`time-col=1,obj-id-col=2,obj-size-col=3,delimiter=,,has-header=true`) or by a header line with
//! names that are understood. A txt trace has one object a line and nothing else. Pure.

mod field;
mod options;

pub(crate) use field::push_undoubled;
pub use options::ColumnOptions;

use field::{Field, take_field};

use super::fields;
use super::record::{Parsed, ParsedName, Span};
use crate::error::BadRecord;

/// In the order in which libCacheSim prefers them when they are equally frequent.
const DELIMITERS: [u8; 6] = [b'\t', b',', b'|', b':', b';', b' '];

/// Everything known that is needed to read a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    time: Option<usize>,
    object: usize,
    size: Option<usize>,
    last: usize,
    delimiter: u8,
    number: Option<bool>,
    has_header: bool,
    /// Number of the line that is no blank one, from 1.
    first_line: u64,
}

impl Columns {
    /// Completes options by the first line; says what is missing.
    pub(crate) fn new(options: &ColumnOptions, first_line: &[u8]) -> Result<Columns, String> {
        let delimiter = options.delimiter.unwrap_or_else(|| guess_delimiter(first_line));
        let mut columns = Columns {
            time: options.time_column,
            object: 0,
            size: options.size_column,
            last: 0,
            delimiter,
            number: options.object_is_number,
            has_header: false,
            first_line: 1,
        };
        if let Some(object) = options.object_column {
            columns.object = object;
            columns.has_header =
                options.has_header.unwrap_or_else(|| columns.looks_like_header(first_line));
        } else {
            columns.by_header(first_line, options)?;
        }
        columns.last = columns.object.max(columns.time.unwrap_or(0)).max(columns.size.unwrap_or(0));
        Ok(columns)
    }

    /// True if a time or a size is known besides the object.
    pub(crate) fn has_more_than_objects(&self) -> bool {
        self.time.is_some() || self.size.is_some()
    }

    /// One object a line.
    pub(crate) fn whole_line(options: &ColumnOptions) -> Columns {
        Columns {
            time: None,
            object: 1,
            size: None,
            last: 1,
            // No delimiter can occur within a line.
            delimiter: b'\n',
            number: options.object_is_number,
            has_header: options.has_header.unwrap_or(false),
            first_line: 1,
        }
    }

    /// The same for a file whose first line that is not blank has this number.
    pub(crate) fn headed_by_line(self, number: u64) -> Columns {
        Columns { first_line: number, ..self }
    }

    /// True of the line that names the columns.
    pub(crate) fn is_header(&self, number: u64) -> bool {
        self.has_header && number == self.first_line
    }

    fn by_header(&mut self, line: &[u8], options: &ColumnOptions) -> Result<(), String> {
        if options.has_header == Some(false) {
            return Err(
                "no column is named: write -t time-col=..,obj-id-col=..,obj-size-col=..".to_owned()
            );
        }
        let (mut time, mut object, mut size) = (Best::NONE, Best::NONE, Best::NONE);
        let mut at = 0;
        let mut rest = Some(line);
        while let Some(text) = rest {
            let (name, after) = take_field(text, self.delimiter)
                .map_err(|reason| format!("of its first line {reason}"))?;
            at += 1;
            rest = after;
            let name = name.text.trim_ascii().to_ascii_lowercase();
            time.consider(&name, &TIME_NAMES, at);
            object.consider(&name, &OBJECT_NAMES, at);
            size.consider(&name, &SIZE_NAMES, at);
        }
        self.object = object.column("objects", "obj-id-col")?.unwrap_or(0);
        if self.time.is_none() {
            self.time = time.column("times", "time-col")?;
        }
        if self.size.is_none() {
            self.size = size.column("sizes", "obj-size-col")?;
        }
        if self.object == 0 {
            return Err("its first line names no column of objects, and no option does: write \
                        -t time-col=..,obj-id-col=..,obj-size-col=.."
                .to_owned());
        }
        self.has_header = true;
        Ok(())
    }

    /// A header has a time or size that is a word; without either it has more letters than digits,
    /// and no URL.
    /// A column that is not there, or is no number and no word, says nothing: that is an error of
    /// this line, too.
    fn looks_like_header(&self, line: &[u8]) -> bool {
        let numbers = [self.time, self.size];
        if numbers.iter().any(Option::is_some) {
            let texts = numbers.iter().flatten().filter_map(|column| self.column(line, *column));
            return texts.into_iter().any(is_word);
        }
        // No column is called by a URL.
        if memchr::memmem::find(line, b"://").is_some() {
            return false;
        }
        let digits = line.iter().filter(|byte| byte.is_ascii_digit()).count();
        let letters = line.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
        letters > digits
    }

    fn column<'a>(&self, line: &'a [u8], column: usize) -> Option<&'a [u8]> {
        let mut rest = line;
        for _ in 1..column {
            rest = take_field(rest, self.delimiter).ok()?.1?;
        }
        Some(take_field(rest, self.delimiter).ok()?.0.text.trim_ascii())
    }

    pub(crate) fn parse(&self, line: &[u8]) -> Result<Parsed, BadRecord> {
        let (mut time, mut object, mut size) = (None, None, None);
        let mut rest = Some(line);
        let mut found = 0;
        for at in 1..=self.last {
            let Some(text) = rest else { break };
            let (field, after) = take_field(text, self.delimiter)?;
            (rest, found) = (after, at);
            let text = field.text.trim_ascii();
            if at == self.object {
                object = Some(Field { text, ..field });
            }
            if self.time == Some(at) {
                time = Some(text);
            }
            if self.size == Some(at) {
                size = Some(text);
            }
        }
        // If one is missing, all that there are were looked at.
        let missing = |column: usize, field| BadRecord::NoColumn { column, field, found };
        let object = object.ok_or_else(|| missing(self.object, "object"))?;
        let time_us = match self.time {
            Some(column) => fields::time_us(time.ok_or_else(|| missing(column, "time"))?)?,
            None => 0,
        };
        let size_bytes = match self.size {
            Some(column) => {
                fields::column_size_bytes(size.ok_or_else(|| missing(column, "size"))?)?
            }
            None => 1,
        };
        Ok(Parsed {
            time_us,
            client: Span::default(),
            method: Span::default(),
            status: 0,
            cache_result: Span::default(),
            size_bytes,
            object: self.name(line, object)?,
        })
    }

    fn name(&self, line: &[u8], field: Field<'_>) -> Result<ParsedName, BadRecord> {
        let text = field.text;
        if text.is_empty() {
            return Err(BadRecord::Empty { field: "object" });
        }
        let number = match self.number {
            Some(true) => fields::parse_u64(text),
            Some(false) => None,
            None => fields::number_of_object(text),
        };
        match (number, self.number) {
            (Some(id), _) => Ok(ParsedName::Id(id)),
            (None, Some(true)) => {
                Err(BadRecord::value("object", text, "a number, though obj-id-is-num says so"))
            }
            (None, _) if field.is_doubled => Ok(ParsedName::Doubled(Span::of(line, text))),
            (None, _) => Ok(ParsedName::Text(Span::of(line, text))),
        }
    }
}

/// Names of columns that are understood, from the most exact on; those of one rank say the same.
type Ranks = [&'static [&'static [u8]]; 3];

const TIME_NAMES: Ranks = [&[b"time_s", b"clock_time"], &[b"time", b"timestamp"], &[b"ts"]];
const OBJECT_NAMES: Ranks =
    [&[b"obj_id", b"obj-id", b"object_id", b"object"], &[b"key", b"url"], &[b"id"]];
const SIZE_NAMES: Ranks =
    [&[b"obj_size", b"obj-size", b"object_size"], &[b"size", b"size_bytes"], &[b"bytes"]];

/// The column whose name is the most exact so far.
struct Best {
    rank: usize,
    column: usize,
    /// Another one is as exact.
    tied: Option<usize>,
}

impl Best {
    const NONE: Best = Best { rank: usize::MAX, column: 0, tied: None };

    fn consider(&mut self, name: &[u8], ranks: &Ranks, column: usize) {
        let Some(rank) = ranks.iter().position(|names| names.contains(&name)) else { return };
        if rank < self.rank {
            *self = Best { rank, column, tied: None };
        } else if rank == self.rank {
            self.tied.get_or_insert(column);
        }
    }

    /// The column, if any was named; of two that are as exact nobody knows which was meant.
    fn column(&self, what: &str, option: &str) -> Result<Option<usize>, String> {
        match self.tied {
            Some(other) => Err(format!(
                "its first line names two columns of {what}, {} and {other}: write which, as in \
                 -t time-col=..,obj-id-col=..,obj-size-col=.. (`{option}`)",
                self.column
            )),
            None => Ok((self.rank < usize::MAX).then_some(self.column)),
        }
    }
}

/// What no number begins like, but a name does.
fn is_word(text: &[u8]) -> bool {
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
    text.first().is_some_and(|byte| begins(byte) || matches!(byte, b'"' | b'#' | b'_'))
}

/// The most frequent of the usual ones, weighted as libCacheSim does: tabs over commas over bars.
/// Unlike there, a colon counts only where no URL is: it has some of its own.
fn guess_delimiter(line: &[u8]) -> u8 {
    let weight = |at: usize| DELIMITERS.len() - at;
    let has_url = memchr::memmem::find(line, b"://").is_some();
    let count = |delimiter: u8| match delimiter {
        b':' if has_url => 0,
        delimiter => memchr::memchr_iter(delimiter, line).count(),
    };
    (0..DELIMITERS.len())
        .max_by_key(|at| (count(DELIMITERS[*at]) * weight(*at), weight(*at)))
        .map_or(b',', |at| DELIMITERS[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::{ObjectName, Record};

    fn columns(options: &str, first_line: &str) -> Columns {
        let options = ColumnOptions::parse(options).expect(options);
        Columns::new(&options, first_line.as_bytes()).expect(first_line)
    }

    fn record<'a>(columns: &Columns, line: &'a str) -> Record<'a> {
        columns.parse(line.as_bytes()).expect(line).record(line.as_bytes())
    }

    /// Found in the field: `http` was the object, and the first line a header.
    #[test]
    fn colons_of_urls_delimit_nothing() {
        for (column, line, object) in [
            (1, "http://a/x", "http://a/x"),
            (2, "10,http://a:80/x:y", "http://a:80/x:y"),
            (2, "10:7:5", "7"),
        ] {
            let columns = columns(&format!("obj-id-col={column},header=false"), line);
            let object = match object.parse() {
                Ok(id) => ObjectName::Id(id),
                Err(_) => ObjectName::Text(object.as_bytes()),
            };
            assert_eq!(record(&columns, line).object, object, "{line}");
        }
    }

    #[test]
    fn columns_are_taken_by_number() {
        let columns = columns("time-col=1,obj-id-col=3,obj-size-col=2", "10,4096,77,x");
        assert!(!columns.has_header);
        let r = record(&columns, "10.5,4096,77,x");
        assert_eq!((r.time_us, r.size_bytes), (10_500_000, 4096));
        assert_eq!(r.object, ObjectName::Id(77));
        assert_eq!(record(&columns, "1,2,\"a,b\",x").object, ObjectName::Text(b"a,b"));
        let short = columns.parse(b"1,2").expect_err("short").to_string();
        assert_eq!(short, "no column 3 (object) in a line of 2 columns");
        assert_eq!(columns.parse(b"1,2,").expect_err("empty").to_string(), "object is empty");
    }

    /// As pandas writes a column of whole numbers in which some are missing.
    #[test]
    fn sizes_may_have_a_fraction_of_nothing() {
        let columns = columns("time-col=1,obj-id-col=2,obj-size-col=3", "1,2,3");
        for (size, bytes) in [("10.0", 10), ("10.000", 10), ("18446744073709551615.0", u64::MAX)] {
            assert_eq!(record(&columns, &format!("1,7,{size}")).size_bytes, bytes, "{size}");
        }
        for size in ["10.5", "10.", ".0", "10.0.0", "10.0e1", "1e1", "-10.0", "nan", ""] {
            let said = columns.parse(format!("1,7,{size}").as_bytes()).expect_err(size).to_string();
            assert_eq!(said, format!("size is `{size}`, not a number of bytes"));
        }
    }

    /// As spreadsheets and Python's csv write them.
    #[test]
    fn quotes_hold_delimiters_and_quotes() {
        let columns = columns("time-col=1,obj-id-col=3,obj-size-col=2", "1,2,3");
        let parsed = |line: &str| columns.parse(line.as_bytes());
        for (line, name) in [
            (r#"1,2,"a,""x"",1""#, r#"a,"x",1"#),
            (r#"1,2,"""",x"#, r#"""#),
            (r#"1,2,"""a""""","b""#, r#""a"""#),
            (r#""1","2","a" ,x"#, "a"),
            (r#"1,2,a"b,x"#, r#"a"b"#),
        ] {
            let span = match parsed(line).expect(line).object {
                ParsedName::Text(span) | ParsedName::Doubled(span) => span,
                other => panic!("{other:?}"),
            };
            let (mut undoubled, text) = (Vec::new(), span.in_line(line.as_bytes()));
            push_undoubled(&mut undoubled, text);
            let is_doubled = matches!(parsed(line).expect(line).object, ParsedName::Doubled(_));
            let expected = if is_doubled { &undoubled[..] } else { text };
            assert_eq!(String::from_utf8_lossy(expected), name, "{line}");
            assert_eq!(is_doubled, text != name.as_bytes(), "{line}");
        }
        for line in [r#"1,2,"a"#, r#"1,2,"a"""#, r#""1,2,a"#, r#"1,2,"a"b,x"#] {
            let said = "a column in quotes does not end: a quote at the column's end is missing";
            assert_eq!(parsed(line).expect_err(line).to_string(), said, "{line}");
        }
        let unclosed = Columns::new(&ColumnOptions::default(), b"time,\"id").expect_err("a quote");
        assert!(unclosed.contains("a quote at the column's end is missing"), "{unclosed}");
        let short = parsed(r#"1,"2,2""#).expect_err("short").to_string();
        assert_eq!(short, "no column 3 (object) in a line of 2 columns");
    }

    #[test]
    fn columns_are_taken_by_names_of_a_header() {
        let columns = columns("", "timestamp\tkey\tsize\tother");
        assert!(columns.has_header);
        let r = record(&columns, "3\tab\t9\tz");
        assert_eq!((r.time_us, r.size_bytes), (3_000_000, 9));
        assert_eq!(r.object, ObjectName::Text(b"ab"));
        let unnamed = Columns::new(&ColumnOptions::default(), b"1,2,3").expect_err("no header");
        assert!(unnamed.contains("-t time-col="), "{unnamed}");
    }

    /// A number of the row, and the object; what is logged, and the object's size.
    #[test]
    fn the_most_exact_name_of_a_header_is_taken() {
        for line in ["id,timestamp,obj_id,obj_size", "id,ts,obj_id,size,obj_size,time", "key,id"] {
            let columns = columns("", line);
            let names: Vec<&str> = line.split(',').collect();
            let named = |column: usize| names[column - 1];
            assert!(matches!(named(columns.object), "obj_id" | "key"), "{line}");
            assert!(columns.size.is_none_or(|size| named(size) == "obj_size"), "{line}");
            assert!(columns.time.is_none_or(|time| named(time) != "ts"), "{line}");
        }
        for (line, reason) in [
            ("time,key,url", "names two columns of objects, 2 and 3"),
            ("time,obj_id,time", "names two columns of times, 1 and 3"),
            ("time,id,size,size_bytes", "names two columns of sizes, 3 and 4"),
        ] {
            let said = Columns::new(&ColumnOptions::default(), line.as_bytes()).expect_err(line);
            assert!(said.contains(reason) && said.contains("-t time-col="), "{said}");
        }
        let told = ColumnOptions::parse("time-col=3").expect("good");
        let columns = Columns::new(&told, b"time,obj_id,time").expect("told which");
        assert_eq!((columns.time, columns.object), (Some(3), 2));
    }

    #[test]
    fn headers_are_told_from_requests() {
        let header = |options: &str, line: &str| columns(options, line).has_header;
        assert!(header("obj-id-col=2,time-col=1", "time,id,size"));
        assert!(!header("obj-id-col=2,time-col=1", "5,longname,7"));
        assert!(header("obj-id-col=1", "object,x"));
        assert!(!header("obj-id-col=1", "12345,6"));
        assert!(!header("obj-id-col=1,has-header=false", "object,x"));
        assert!(!header("time-col=1,obj-id-col=2,obj-size-col=9", "5,7,100"), "a column too many");
        assert!(header("time-col=1,obj-id-col=2,obj-size-col=9", "time,id,size"));
        assert!(header("time-col=1,obj-id-col=2,obj-size-col=3", "\"# time\",\"id\",size"));
        for line in ["-1,5,10", "5,5,-10", "1e9,5,10", ",5,10", "0x10,5,10", "5,\"a,10"] {
            assert!(!header("time-col=1,obj-id-col=2,obj-size-col=3", line), "{line}");
        }
    }

    #[test]
    fn a_txt_line_is_one_object() {
        let columns = Columns::whole_line(&ColumnOptions::default());
        assert_eq!(record(&columns, "123").object, ObjectName::Id(123));
        assert_eq!(record(&columns, "a, b").object, ObjectName::Text(b"a, b"));
        assert_eq!(record(&columns, "\"a").object, ObjectName::Text(b"\"a"));
        assert_eq!(record(&columns, "123").size_bytes, 1);
        let strict = ColumnOptions { object_is_number: Some(true), ..ColumnOptions::default() };
        assert!(Columns::whole_line(&strict).parse(b"abc").is_err());
    }

    /// Two names of two objects, unless it is said that they are numbers.
    #[test]
    fn a_number_with_a_zero_before_it_is_another_name() {
        for (text, strict_id) in [("007", 7), ("00", 0)] {
            let columns = Columns::whole_line(&ColumnOptions::default());
            assert_eq!(record(&columns, text).object, ObjectName::Text(text.as_bytes()));
            let strict = ColumnOptions { object_is_number: Some(true), ..ColumnOptions::default() };
            let columns = Columns::whole_line(&strict);
            assert_eq!(record(&columns, text).object, ObjectName::Id(strict_id));
        }
        assert_eq!(
            record(&Columns::whole_line(&ColumnOptions::default()), "0").object,
            ObjectName::Id(0)
        );
    }
}
