//! libCacheSim's csv and txt traces: which column holds what is said by options in its notation
//! (`time-col=1,obj-id-col=2,obj-size-col=3,delimiter=,,has-header=true`) or by a header line with
//! names that are understood. A txt trace has one object a line and nothing else. Pure.

mod field;
mod header;
mod options;

pub(crate) use field::push_undoubled;
pub use options::ColumnOptions;

use field::{Field, take_field};
use header::Named;

use super::fields::{self, TimeUnit};
use super::operation::{key_and_value_bytes, operation};
use super::record::{Parsed, ParsedName, Span};
use crate::error::BadRecord;
use crate::request::Op;

/// In the order in which libCacheSim prefers them when they are equally frequent.
const DELIMITERS: [u8; 6] = [b'\t', b',', b'|', b':', b';', b' '];

/// Everything known that is needed to read a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    time: Option<usize>,
    /// What the time counts, if somebody said so.
    unit: Option<TimeUnit>,
    object: usize,
    /// Of the whole object; without it those of its key and its value count.
    size: Option<usize>,
    key_size: Option<usize>,
    value_size: Option<usize>,
    operation: Option<usize>,
    last: usize,
    delimiter: u8,
    number: Option<bool>,
    has_header: bool,
    /// Number of the line that is no blank one, from 1.
    first_line: u64,
    /// What whoever looks at the result must know of how it was read.
    notes: Vec<String>,
}

impl Columns {
    /// Completes options by the first line; says what is missing.
    pub(crate) fn new(options: &ColumnOptions, first_line: &[u8]) -> Result<Columns, String> {
        let delimiter = options.delimiter.unwrap_or_else(|| guess_delimiter(first_line));
        let mut columns = Columns {
            time: options.time_column,
            size: options.size_column,
            key_size: options.key_size_column,
            value_size: options.value_size_column,
            operation: options.operation_column,
            delimiter,
            ..Columns::whole_line(options)
        };
        let mut named = None;
        if let Some(object) = options.object_column {
            columns.object = object;
            columns.has_header =
                options.has_header.unwrap_or_else(|| columns.looks_like_header(first_line));
        } else {
            named = Some(columns.by_header(first_line, options)?);
        }
        if columns.has_header {
            let name = columns.time.and_then(|time| columns.column(first_line, time));
            columns.unit = name.and_then(header::unit_of);
        }
        let read = columns.read();
        columns.last = read.iter().copied().max().unwrap_or(columns.object);
        columns.note(named.map_or_else(Vec::new, |named| named.unread(&read)));
        Ok(columns)
    }

    /// Numbers of the columns that are read.
    fn read(&self) -> Vec<usize> {
        let optional = [self.time, self.size, self.key_size, self.value_size, self.operation];
        optional.into_iter().flatten().chain([self.object]).collect()
    }

    fn note(&mut self, unread: Vec<String>) {
        if self.size.is_none() && self.value_size.is_none() {
            let words = "no column is known as that of sizes: every size is 1 (-t obj-size-col=..)";
            self.notes.push(words.to_owned());
        }
        if !unread.is_empty() {
            let columns = unread.join(", ");
            self.notes.push(format!("not read, though they are named: columns {columns}"));
        }
    }

    /// What whoever looks at the result must know of how the trace was read.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// True if a time or a size is known besides the object.
    pub(crate) fn has_more_than_objects(&self) -> bool {
        self.time.is_some() || self.size.is_some() || self.value_size.is_some()
    }

    /// One object a line.
    pub(crate) fn whole_line(options: &ColumnOptions) -> Columns {
        Columns {
            time: None,
            unit: None,
            object: 1,
            size: None,
            key_size: None,
            value_size: None,
            operation: None,
            last: 1,
            // No delimiter can occur within a line.
            delimiter: b'\n',
            number: options.object_is_number,
            has_header: options.has_header.unwrap_or(false),
            first_line: 1,
            notes: Vec::new(),
        }
    }

    /// The same for a file whose first line that is not blank has this number.
    pub(crate) fn headed_by_line(self, number: u64) -> Columns {
        Columns { first_line: number, ..self }
    }

    /// The same with what its times count, if it is not as their column is named.
    pub(crate) fn counting(self, unit: Option<TimeUnit>) -> Columns {
        Columns { unit: unit.or(self.unit), ..self }
    }

    /// True if there is a column of times.
    pub(crate) fn has_times(&self) -> bool {
        self.time.is_some()
    }

    /// True if a line begins with the name of its object, which may be anything.
    pub(crate) fn begins_with_object(&self) -> bool {
        self.object == 1
    }

    /// True if the first line names the columns.
    pub(crate) fn has_header(&self) -> bool {
        self.has_header
    }

    /// True of the line that names the columns.
    pub(crate) fn is_header(&self, number: u64) -> bool {
        self.has_header && number == self.first_line
    }

    fn by_header(&mut self, line: &[u8], options: &ColumnOptions) -> Result<Named, String> {
        if options.has_header == Some(false) {
            return Err(
                "no column is named: write -t time-col=..,obj-id-col=..,obj-size-col=..".to_owned()
            );
        }
        let given = [options.time_column, options.size_column];
        let named = Named::of(line, self.delimiter, given)?;
        self.object = named.object.ok_or_else(|| {
            "its first line names no column of objects, and no option does: write \
             -t time-col=..,obj-id-col=..,obj-size-col=.."
                .to_owned()
        })?;
        self.time = self.time.or(named.time);
        self.operation = self.operation.or(named.operation);
        // That of the whole object, if it is there, says all.
        if self.size.is_none() && self.value_size.is_none() {
            self.size = named.size;
        }
        if self.size.is_none() {
            self.value_size = self.value_size.or(named.value_size);
            self.key_size = self.key_size.or(named.key_size.filter(|_| self.value_size.is_some()));
        }
        self.has_header = true;
        Ok(named)
    }

    /// A header has a time or size that is a word; without either it has more letters than digits,
    /// and no URL.
    /// A column that is not there, or is no number and no word, says nothing: that is an error of
    /// this line, too.
    fn looks_like_header(&self, line: &[u8]) -> bool {
        let numbers = [self.time, self.size, self.value_size];
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
        let mut taken = Taken::default();
        let mut rest = Some(line);
        for at in 1..=self.last {
            let Some(text) = rest else { break };
            let (field, after) = take_field(text, self.delimiter)?;
            (rest, taken.found) = (after, at);
            self.take(&mut taken, at, field);
        }
        let object = taken.object.ok_or_else(|| taken.missing(self.object, "object"))?;
        let time = self.time.map(|column| taken.of(taken.time, column, "time")).transpose()?;
        let (method, operation) = self.method(line, &taken)?;
        Ok(Parsed {
            time_us: time.map_or(Ok(0), |text| fields::time_us(text, self.unit))?,
            client: Span::default(),
            method,
            status: 0,
            cache_result: Span::default(),
            size_bytes: self.size_bytes(&taken, operation)?,
            object: self.name(line, object)?,
        })
    }

    #[inline]
    fn take<'a>(&self, taken: &mut Taken<'a>, at: usize, field: Field<'a>) {
        let text = field.text.trim_ascii();
        if at == self.object {
            taken.object = Some(Field { text, ..field });
        }
        for (column, place) in [
            (self.time, &mut taken.time),
            (self.size, &mut taken.size),
            (self.key_size, &mut taken.key_size),
            (self.value_size, &mut taken.value_size),
            (self.operation, &mut taken.operation),
        ] {
            if column == Some(at) {
                *place = Some(text);
            }
        }
    }

    /// Of the whole object, or of its key and value; 1 if nothing says it.
    fn size_bytes(&self, taken: &Taken<'_>, operation: Op) -> Result<u64, BadRecord> {
        if let Some(column) = self.size {
            return fields::column_size_bytes(taken.of(taken.size, column, "size")?);
        }
        let Some(column) = self.value_size else { return Ok(1) };
        let value = fields::column_size_bytes(taken.of(taken.value_size, column, "value size")?)?;
        let key = match self.key_size {
            Some(column) => {
                fields::column_size_bytes(taken.of(taken.key_size, column, "key size")?)?
            }
            None => 0,
        };
        Ok(key_and_value_bytes(operation, key, value))
    }

    /// What is done, as a method that `Record::op` knows: none for a read, and HTTP's own as they
    /// are.
    fn method(&self, line: &[u8], taken: &Taken<'_>) -> Result<(Span, Op), BadRecord> {
        let Some(column) = self.operation else { return Ok((Span::default(), Op::Read)) };
        let text = taken.of(taken.operation, column, "operation")?;
        let is_of_http = !text.is_empty() && text.iter().all(u8::is_ascii_uppercase);
        match operation(text) {
            Some(Op::Read) if !is_of_http => Ok((Span::default(), Op::Read)),
            Some(operation) => Ok((Span::of(line, text), operation)),
            None if is_of_http => Ok((Span::of(line, text), Op::Read)),
            None => {
                let expected = "one of memcached's, CacheLib's or HTTP's as get, SET or DELETE";
                Err(BadRecord::value("operation", text, expected))
            }
        }
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

/// The fields of a line that are read, as far as they are there.
#[derive(Default)]
struct Taken<'a> {
    object: Option<Field<'a>>,
    time: Option<&'a [u8]>,
    size: Option<&'a [u8]>,
    key_size: Option<&'a [u8]>,
    value_size: Option<&'a [u8]>,
    operation: Option<&'a [u8]>,
    /// Columns that were looked at: all there are, if one is missing.
    found: usize,
}

impl<'a> Taken<'a> {
    fn missing(&self, column: usize, field: &'static str) -> BadRecord {
        BadRecord::NoColumn { column, field, found: self.found }
    }

    fn of(
        &self,
        text: Option<&'a [u8]>,
        column: usize,
        field: &'static str,
    ) -> Result<&'a [u8], BadRecord> {
        text.ok_or_else(|| self.missing(column, field))
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

    /// As Twitter's and CacheLib's traces are published with a header.
    #[test]
    fn keys_values_and_operations_of_a_header_are_read() {
        use Op::{Delete, Read, Write};
        let twitter = columns("", "timestamp,key,key_size,value_size,client_id,op,TTL");
        for (line, bytes, op) in [
            ("1,a,3,100,7,get,0", 103, Read),
            ("1,a,3,0,7,get,0", 0, Read),
            ("1,a,3,100,7,set,60", 103, Write),
            ("1,a,3,0,7,delete,0", 3, Delete),
        ] {
            let r = record(&twitter, line);
            assert_eq!((r.size_bytes, r.op(), r.time_us), (bytes, op, 1_000_000), "{line}");
        }
        assert!(twitter.notes().is_empty(), "{:?}", twitter.notes());
        let bad = twitter.parse(b"1,a,3,1,7,look,0").expect_err("no operation").to_string();
        assert!(bad.starts_with("operation is `look`, not one of"), "{bad}");

        let cachelib = columns("", "op_time,key,key_size,op,op_count,size,cache_hits,ttl");
        for (line, bytes, op) in [
            ("5,k,3,GET,1,100,0,0", 100, Read),
            ("5,k,3,GET_LEASE,1,0,0,0", 0, Read),
            ("5,k,3,SET,1,100,0,0", 100, Write),
            ("5,k,3,DELETE,1,0,0,0", 0, Delete),
            ("5,k,3,POST,1,9,0,0", 9, Read),
        ] {
            let r = record(&cachelib, line);
            assert_eq!((r.size_bytes, r.op(), r.time_us), (bytes, op, 5_000_000), "{line}");
        }
        let said = "not read, though they are named: columns 3 (`key_size`), 5 (`op_count`)";
        assert_eq!(cachelib.notes(), [said]);
        let told = columns("obj-id-col=1,key-size-col=2,value-size-col=3,op-col=4", "a,1,2,set");
        assert!(!told.has_header);
        assert_eq!(record(&told, "a,1,2,set").size_bytes, 3);
    }

    /// A column that is named after its unit is certain; a number is not.
    #[test]
    fn names_of_times_tell_their_unit() {
        for (name, us) in [
            ("time", 7_000_000),
            ("time_s", 7_000_000),
            ("time_ms", 7_000),
            ("timestamp (ms)", 7_000),
            ("ts_us", 7),
            ("timestamp_micros", 7),
            ("timeMillis", 7_000),
            ("time_ns", 0),
        ] {
            let columns = columns("", &format!("{name},obj_id,size"));
            assert_eq!(record(&columns, "7,a,5").time_us, us, "{name}");
            let told = columns.counting(Some(TimeUnit::Milliseconds));
            assert_eq!(record(&told, "7,a,5").time_us, 7_000, "{name}");
        }
    }

    /// Whoever writes which column has the times need not write once more what it is named after.
    #[test]
    fn a_column_of_times_that_an_option_chose_tells_its_unit_too() {
        for (name, us) in [
            ("time_ms", 7_000),
            ("\"timestamp (us)\"", 7),
            ("begin [ms]", 7_000),
            ("arrival_seconds", 7_000_000),
            // Neither a word for times nor one of its own.
            ("items", 7_000_000),
            ("ms", 7_000_000),
        ] {
            let first = format!("op,{name},obj_id,size");
            for options in ["time-col=2", "time-col=2,obj-id-col=3", "time-col=2,obj-size-col=4"] {
                let columns = columns(options, &first);
                assert_eq!(record(&columns, "get,7,a,5").time_us, us, "{name}, {options}");
                let told = columns.counting(Some(TimeUnit::Nanoseconds));
                assert_eq!(record(&told, "get,7000,a,5").time_us, 7, "{name}, {options}");
            }
        }
        let no_header = columns("time-col=1,obj-id-col=2,has-header=false", "time_ms,a");
        assert_eq!(no_header.unit, None);
    }

    #[test]
    fn columns_that_are_not_known_are_told() {
        let sizes = columns("", "time,key,val_sz_in_bytes,op");
        assert_eq!(sizes.notes().len(), 2);
        assert!(sizes.notes()[0].contains("every size is 1 (-t obj-size-col=..)"));
        assert!(sizes.notes()[1].ends_with("columns 3 (`val_sz_in_bytes`)"), "{:?}", sizes.notes());
        let keys = columns("", "time,key,key_size");
        assert!(keys.notes()[1].ends_with("columns 3 (`key_size`)"), "{:?}", keys.notes());
        assert!(columns("", "time,obj_id,size").notes().is_empty());
        let by_number = columns("obj-id-col=1", "5,7");
        assert!(by_number.notes()[0].starts_with("no column is known as that of sizes"));
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
