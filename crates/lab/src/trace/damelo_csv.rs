//! Our own form: `time_s,client,method,status,size_bytes,url`, commas in URLs escaped, so that a
//! line always splits on exactly five. Status 0 and client `-` mean that the source does not log
//! them. A URL that is only a number is the number of an object that has no name, as it came from a
//! trace that has numbers. Pure.

use super::fields::{self, TimeUnit};
use super::record::{Parsed, ParsedName, Span};
use crate::error::BadRecord;

/// First line of every file of this form.
pub(crate) const HEADER: &[u8] = b"time_s,client,method,status,size_bytes,url";

/// Methods by which lines without that header are known to be of this form.
const METHODS: [&[u8]; 14] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"PURGE",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"REPORT",
    b"ICP_QUERY",
    b"NONE",
];

/// Whether a line is of this form where no header says so: six columns with numbers in three places
/// are not enough.
pub(crate) fn looks_like(line: &[u8]) -> bool {
    // Whatever its time counts.
    parse(line, Some(TimeUnit::Nanoseconds))
        .is_ok_and(|parsed| METHODS.contains(&parsed.record(line).method))
}

pub(crate) fn parse(line: &[u8], unit: Option<TimeUnit>) -> Result<Parsed, BadRecord> {
    let mut parts = [&line[..0]; 6];
    let mut rest = line;
    for (found, part) in parts.iter_mut().enumerate().take(5) {
        let Some(comma) = memchr::memchr(b',', rest) else {
            return Err(BadRecord::FieldCount { expected: "6", found: found + 1 });
        };
        (*part, rest) = (&rest[..comma], &rest[comma + 1..]);
    }
    if memchr::memchr(b',', rest).is_some() {
        let found = memchr::memchr_iter(b',', line).count() + 1;
        return Err(BadRecord::FieldCount { expected: "6", found });
    }
    parts[5] = rest;
    let [time, client, method, status, size, url] = parts;
    if url.is_empty() {
        return Err(BadRecord::Empty { field: "url" });
    }
    let client = if client == b"-" { &client[..0] } else { client };
    Ok(Parsed {
        time_us: fields::time_us(time, unit)?,
        client: Span::of(line, client),
        method: Span::of(line, method),
        status: fields::status(status)?,
        cache_result: Span::default(),
        size_bytes: fields::size_bytes(size)?,
        object: match fields::number_of_object(url) {
            Some(id) => ParsedName::Id(id),
            None => ParsedName::Text(Span::of(line, url)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::ObjectName;

    #[test]
    fn a_line_has_six_fields() {
        let line = b"785433179.434793,u8,GET,200,1934,http://cs-www.bu.edu/";
        let parsed = parse(line, None).expect("well formed");
        let record = parsed.record(line);
        assert_eq!(record.time_us, 785_433_179_434_793);
        assert_eq!((record.client, record.method), (&b"u8"[..], &b"GET"[..]));
        assert_eq!((record.status, record.size_bytes), (200, 1934));
        assert_eq!(record.object, ObjectName::Text(b"http://cs-www.bu.edu/"));
    }

    #[test]
    fn a_number_is_the_number_of_an_object() {
        for (url, id) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("07", None),
            ("7a", None),
            ("-7", None),
        ] {
            let line = format!("1,u,GET,200,5,{url}");
            let object = parse(line.as_bytes(), None).expect(url).record(line.as_bytes()).object;
            assert_eq!(object, id.map_or(ObjectName::Text(url.as_bytes()), ObjectName::Id));
        }
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, reason) in [
            ("1,u,GET,0,5", "5 fields where 6 are expected"),
            ("1,u,GET,0,5,http://a/,b", "7 fields where 6 are expected"),
            ("", "1 fields where 6 are expected"),
            ("x,u,GET,0,5,u", "time is `x`, not seconds as in 807256800 or 807256800.25"),
            ("1,u,GET,0,-5,u", "size is `-5`, not a number of bytes"),
            ("1,u,GET,1000,5,u", "status is `1000`, not an HTTP status"),
            ("1,u,GET,0,5,", "url is empty"),
        ] {
            assert_eq!(parse(line.as_bytes(), None).expect_err(line).to_string(), reason);
        }
    }
}
