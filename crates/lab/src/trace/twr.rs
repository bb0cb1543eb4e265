//! Twitter's traces of its caches in memory (Yang, Yue, Rashmi, OSDI 2020), as they are published:
//! lines of `time,key,key size,value size,client,operation,ttl`, without a header. Pure.
//!
//! A key may hold commas: it is what stands between the first field and the last five. An object
//! has the bytes of key and value, as for libCacheSim. A `get` with a value of no bytes missed when
//! it was traced, so that nobody knows the size: it is a request without a body, which libCacheSim
//! leaves out, too. What stores is a write, `delete` deletes; the lifetime is not read.

use super::fields::{self, TimeUnit};
use super::operation::{key_and_value_bytes, operation};
use super::record::{Parsed, ParsedName, Span};
use crate::error::BadRecord;
use crate::request::Op;

/// Of these only; that they are memcached's is how the form is known.
const OPERATIONS: [&[u8]; 11] = [
    b"get", b"gets", b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"delete", b"incr",
    b"decr",
];

pub(crate) fn parse(line: &[u8], unit: Option<TimeUnit>) -> Result<Parsed, BadRecord> {
    let found = memchr::memchr_iter(b',', line).count() + 1;
    let fields = BadRecord::FieldCount { expected: "7 or more", found };
    let Some((time, mut rest)) = split(line, memchr::memchr(b',', line)) else {
        return Err(fields);
    };
    let mut last = [&line[..0]; 5];
    for field in last.iter_mut().rev() {
        let Some(parts) = split(rest, memchr::memrchr(b',', rest)) else { return Err(fields) };
        (rest, *field) = parts;
    }
    let (key, [key_size, value_size, client, name, ttl]) = (rest, last);
    if key.is_empty() {
        return Err(BadRecord::Empty { field: "key" });
    }
    let Some(op) = operation(name).filter(|_| OPERATIONS.contains(&name)) else {
        return Err(BadRecord::value("operation", name, "one of memcached's as get or set"));
    };
    if fields::parse_u64(ttl).is_none() {
        return Err(BadRecord::value("ttl", ttl, "a number of seconds"));
    }
    let (key_bytes, value_bytes) = (fields::size_bytes(key_size)?, fields::size_bytes(value_size)?);
    Ok(Parsed {
        time_us: fields::time_us(time, unit)?,
        client: Span::of(line, client),
        method: if op == Op::Read { Span::default() } else { Span::of(line, name) },
        status: 0,
        cache_result: Span::default(),
        size_bytes: key_and_value_bytes(op, key_bytes, value_bytes),
        object: match fields::number_of_object(key) {
            Some(id) => ParsedName::Id(id),
            None => ParsedName::Text(Span::of(line, key)),
        },
    })
}

/// What stands before and after a delimiter.
fn split(text: &[u8], at: Option<usize>) -> Option<(&[u8], &[u8])> {
    at.map(|at| (&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::ObjectName;

    #[test]
    fn a_line_has_seven_fields_and_a_key_may_have_commas() {
        for (line, client, size_bytes, key, op) in [
            ("0,nz:u:eeW511W3,17,213,4,get,0", "4", 230, "nz:u:eeW511W3", Op::Read),
            ("0,nz:u:eeW511W3,17,0,4,gets,0", "4", 0, "nz:u:eeW511W3", Op::Read),
            ("7.5,a,b,,3,0,12,set,3600", "12", 3, "a,b,", Op::Write),
            ("7,a,1,5,,delete,0", "", 6, "a", Op::Delete),
            ("7,a,1,5,x,incr,9", "x", 6, "a", Op::Write),
        ] {
            let parsed = parse(line.as_bytes(), None).expect(line);
            let record = parsed.record(line.as_bytes());
            assert_eq!(record.object, ObjectName::Text(key.as_bytes()));
            assert_eq!((record.client, record.op()), (client.as_bytes(), op), "{line}");
            assert_eq!(record.size_bytes, size_bytes, "{line}");
        }
        let number = parse(b"1,77,8,8,c,get,0", None).expect("a number").object;
        assert!(matches!(number, ParsedName::Id(77)));
        let huge = format!("1,a,{0},{0},c,set,0", u64::MAX);
        assert_eq!(parse(huge.as_bytes(), None).expect("huge").size_bytes, u64::MAX);
        for known in OPERATIONS {
            let op = match known {
                b"get" | b"gets" => Op::Read,
                b"delete" => Op::Delete,
                _ => Op::Write,
            };
            let line = [b"1,a,1,1,c,", known, b",0"].concat();
            assert_eq!(parse(&line, None).expect("known").record(&line).op(), op);
        }
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, reason) in [
            ("", "1 fields where 7 or more are expected"),
            ("0,a,1,5,4,get", "6 fields where 7 or more are expected"),
            ("0,,1,5,4,get,0", "key is empty"),
            ("0,a,1,5,4,GET,0", "operation is `GET`, not one of memcached's as get or set"),
            ("0,a,1,5,4,get,-1", "ttl is `-1`, not a number of seconds"),
            ("0,a,1,-5,4,get,0", "size is `-5`, not a number of bytes"),
            ("x,a,1,5,4,get,0", "time is `x`, not seconds as in 807256800 or 807256800.25"),
        ] {
            assert_eq!(parse(line.as_bytes(), None).expect_err(line).to_string(), reason);
        }
    }
}
