//! Range requests and their responses (RFC 9110 §14).
//!
//! Invariants: resulting ranges lie within the representation, in the requested order, without
//! overlap, and are at most `ranges_max`; a field that is invalid or requests more is ignored.
//! Lengths are those of the stored bytes.

use std::ops::Range;

use http::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, RANGE};
use http::{HeaderMap, Method};

/// Maximum number of ranges parsed in a field.
const SPECS_MAX: usize = 256;

/// One requested range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spec {
    /// `first-` or `first-last`, both included.
    From {
        /// First byte.
        first: u64,
        /// Last byte, if given.
        last: Option<u64>,
    },
    /// `-length`: the last `length` bytes.
    Suffix {
        /// Number of bytes.
        length: u64,
    },
}

impl Spec {
    /// The bytes of a representation of this length, empty if there are none.
    pub fn within(self, length: u64) -> Range<u64> {
        match self {
            Spec::From { first, last } => {
                let end = last.map_or(length, |last| last.saturating_add(1)).min(length);
                first.min(end)..end
            }
            Spec::Suffix { length: wanted } => length - wanted.min(length)..length,
        }
    }
}

/// How to answer a request that may ask for ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The whole representation, status 200.
    Whole,
    /// One part, status 206 with `Content-Range`.
    One(Range<u64>),
    /// Several parts, status 206 as `multipart/byteranges`.
    Several(Vec<Range<u64>>),
    /// None of the requested bytes exists, status 416.
    Unsatisfiable,
}

/// Parses `Range`; `None` without a valid byte range set (RFC 9110 §14.2).
pub fn parse(request: &HeaderMap) -> Option<Vec<Spec>> {
    let mut lines = request.get_all(RANGE).iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let text = line.as_bytes().trim_ascii();
    let (unit, set) = text.split_at_checked(text.iter().position(|b| *b == b'=')?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let members = set[1..].split(|b| *b == b',').map(<[u8]>::trim_ascii);
    let mut specs = Vec::new();
    for member in members.filter(|member| !member.is_empty()) {
        if specs.len() == SPECS_MAX {
            return None;
        }
        specs.push(spec(member)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn spec(text: &[u8]) -> Option<Spec> {
    let dash = text.iter().position(|b| *b == b'-')?;
    let (first, last) = (&text[..dash], &text[dash + 1..]);
    if first.is_empty() {
        return Some(Spec::Suffix { length: number(last)? });
    }
    let first = number(first)?;
    let last = if last.is_empty() { None } else { Some(number(last)?) };
    last.is_none_or(|last| last >= first).then_some(Spec::From { first, last })
}

/// Parses digits; too large a number saturates.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(text.iter().fold(0, add))
}

/// What to send of a representation of `length` bytes, after evaluating `If-Range`.
pub fn answer(method: &Method, request: &HeaderMap, length: u64, ranges_max: usize) -> Answer {
    if *method != Method::GET || !request.contains_key(RANGE) {
        return Answer::Whole;
    }
    let Some(specs) = parse(request) else { return Answer::Whole };
    // The last bytes of an empty representation are satisfiable, but have no Content-Range.
    if length == 0 && specs.iter().any(|spec| matches!(spec, Spec::Suffix { length: 1.. })) {
        return Answer::Whole;
    }
    let ranges = specs.iter().map(|spec| spec.within(length)).filter(|range| !range.is_empty());
    let mut ranges = coalesced(ranges);
    match ranges.len() {
        0 => Answer::Unsatisfiable,
        1 => Answer::One(ranges.swap_remove(0)),
        count if count <= ranges_max => Answer::Several(ranges),
        _ => Answer::Whole,
    }
}

/// Merges overlapping and adjacent ranges at the position of the first of them, so that no byte is
/// sent twice (RFC 9110 §14.2, §15.3.7.2).
fn coalesced(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut kept: Vec<Range<u64>> = Vec::new();
    for mut range in ranges {
        let mut place = kept.len();
        let mut index = 0;
        while index < kept.len() {
            if range.start <= kept[index].end && kept[index].start <= range.end {
                let other = kept.remove(index);
                range = range.start.min(other.start)..range.end.max(other.end);
                place = place.min(index);
                // The grown range may now touch ranges that it did not touch before.
                index = 0;
            } else {
                index += 1;
            }
        }
        kept.insert(place.min(kept.len()), range);
    }
    kept
}

/// `Content-Range` of one part.
pub fn content_range(range: &Range<u64>, length: u64) -> HeaderValue {
    let last = range.end.saturating_sub(1);
    header(format!("bytes {}-{last}/{length}", range.start))
}

/// `Content-Range` of a 416.
pub fn unsatisfied(length: u64) -> HeaderValue {
    header(format!("bytes */{length}"))
}

fn header(text: String) -> HeaderValue {
    // Digits and a few signs; the fallback cannot be reached.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// The frame around the parts of a `multipart/byteranges` body (RFC 9110 §14.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// Bytes before each part.
    pub heads: Vec<Vec<u8>>,
    /// Bytes after the last part.
    pub tail: Vec<u8>,
    /// Length of the whole body.
    pub length_bytes: u64,
    /// `Content-Type` of the answer.
    pub content_type: HeaderValue,
}

impl Multipart {
    /// The frame for `ranges` of a representation with these fields and this length. `boundary`
    /// must not occur in the body: 64 random bits suffice.
    pub fn new(stored: &HeaderMap, ranges: &[Range<u64>], length: u64, boundary: u64) -> Multipart {
        let mut heads = Vec::with_capacity(ranges.len());
        // Lengths come from origins: no sum of them may overflow.
        let mut length_bytes = 0_u64;
        for (index, range) in ranges.iter().enumerate() {
            let mut head = Vec::with_capacity(128);
            head.extend_from_slice(if index == 0 { b"--" } else { b"\r\n--" });
            head.extend_from_slice(format!("{boundary:016x}\r\n").as_bytes());
            if let Some(media_type) = stored.get(CONTENT_TYPE) {
                write_line(&mut head, &CONTENT_TYPE, media_type);
            }
            write_line(&mut head, &CONTENT_RANGE, &content_range(range, length));
            head.extend_from_slice(b"\r\n");
            let part_bytes = (range.end - range.start).saturating_add(head.len() as u64);
            length_bytes = length_bytes.saturating_add(part_bytes);
            heads.push(head);
        }
        let tail = format!("\r\n--{boundary:016x}--\r\n").into_bytes();
        length_bytes = length_bytes.saturating_add(tail.len() as u64);
        let content_type = header(format!("multipart/byteranges; boundary={boundary:016x}"));
        Multipart { heads, tail, length_bytes, content_type }
    }
}

fn write_line(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    fn asked(value: &str, length: u64) -> Answer {
        answer(&Method::GET, &headers(&[("range", value)]), length, 4)
    }

    /// RFC 9110 §14.1.1, §14.1.2, §14.2.
    #[test]
    fn single_ranges() {
        for (value, expected) in [
            ("bytes=0-0", Answer::One(0..1)),
            ("bytes=2-5", Answer::One(2..6)),
            ("Bytes=2-5", Answer::One(2..6)),
            ("bytes= 2-5 ", Answer::One(2..6)),
            ("bytes=2-", Answer::One(2..10)),
            ("bytes=2-99", Answer::One(2..10)),
            ("bytes=-3", Answer::One(7..10)),
            ("bytes=-99", Answer::One(0..10)),
            ("bytes=0-99999999999999999999999", Answer::One(0..10)),
            ("bytes=10-", Answer::Unsatisfiable),
            ("bytes=99999999999999999999999-", Answer::Unsatisfiable),
            ("bytes=-0", Answer::Unsatisfiable),
            ("bytes=5-2", Answer::Whole),
            ("bytes=a-b", Answer::Whole),
            ("bytes=1", Answer::Whole),
            ("bytes=", Answer::Whole),
            ("bytes", Answer::Whole),
            ("lines=0-1", Answer::Whole),
            ("bytes=--1", Answer::Whole),
            ("bytes=1-2,x", Answer::Whole),
        ] {
            assert_eq!(asked(value, 10), expected, "{value}");
        }
        assert_eq!(asked("bytes=-5", 0), Answer::Whole);
        assert_eq!(asked("bytes=0-", 0), Answer::Unsatisfiable);
        assert_eq!(asked("bytes=-0", 0), Answer::Unsatisfiable);
        let twice = headers(&[("range", "bytes=0-1"), ("range", "bytes=2-3")]);
        assert_eq!(answer(&Method::GET, &twice, 10, 4), Answer::Whole);
        let head = headers(&[("range", "bytes=0-1")]);
        assert_eq!(answer(&Method::HEAD, &head, 10, 4), Answer::Whole);
    }

    /// RFC 9110 §14.2, §15.3.7.2.
    #[test]
    fn several_ranges() {
        for (value, expected) in [
            ("bytes=0-1, 4-5", Answer::Several(vec![0..2, 4..6])),
            ("bytes=4-5,,0-1", Answer::Several(vec![4..6, 0..2])),
            ("bytes=0-1, 99-", Answer::One(0..2)),
            ("bytes=0-3, 2-5", Answer::One(0..6)),
            ("bytes=0-1, 2-3", Answer::One(0..4)),
            ("bytes=0-1, 8-9, 2-7", Answer::One(0..10)),
            ("bytes=6-7, 0-1, 7-8", Answer::Several(vec![6..9, 0..2])),
            ("bytes=0-0,2-2,4-4,6-6", Answer::Several(vec![0..1, 2..3, 4..5, 6..7])),
            ("bytes=0-0,2-2,4-4,6-6,8-8", Answer::Whole),
            ("bytes=-1,0-0", Answer::Several(vec![9..10, 0..1])),
        ] {
            assert_eq!(asked(value, 10), expected, "{value}");
        }
        assert_eq!(asked(&format!("bytes={}", "0-0,".repeat(257)), 10), Answer::Whole);
    }

    /// RFC 9110 §14.4, §14.6.
    #[test]
    fn what_is_written() {
        assert_eq!(content_range(&(0..2), 10), "bytes 0-1/10");
        assert_eq!(unsatisfied(10), "bytes */10");
        let stored = headers(&[("content-type", "text/plain")]);
        let frame = Multipart::new(&stored, &[0..2, 4..6], 10, 0xab);
        let body = [&frame.heads[0][..], b"01", &frame.heads[1], b"45", &frame.tail].concat();
        let expected = "--00000000000000ab\r\ncontent-type: text/plain\r\ncontent-range: bytes \
             0-1/10\r\n\r\n01\r\n--00000000000000ab\r\ncontent-type: text/plain\r\ncontent-range: \
             bytes 4-5/10\r\n\r\n45\r\n--00000000000000ab--\r\n";
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert_eq!(frame.length_bytes, expected.len() as u64);
        assert_eq!(frame.content_type, "multipart/byteranges; boundary=00000000000000ab");
    }

    /// An origin may say of a resource that it is as long as a number can be.
    #[test]
    fn no_length_is_too_large_to_frame() {
        let ranges = [0..6, 10..u64::MAX];
        let frame = Multipart::new(&HeaderMap::new(), &ranges, u64::MAX, 7);
        assert_eq!(frame.length_bytes, u64::MAX);
    }
}
