//! Stored parts of representations: their byte ranges, and when two can be joined (RFC 9111 §3.3,
//! §3.4; RFC 9110 §14.4, §15.3.7).
//!
//! Invariants: a part is one known range within a known length; two parts are joined only if they
//! touch and share a strong validator, so that no body mixes two versions.

use std::ops::Range;

use http::HeaderMap;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, DATE, HeaderName, LAST_MODIFIED};

use crate::dates;
use crate::preconditions::{entity_tag, strongly};

/// Fields that describe the bytes of one message: with other bytes of the same representation they
/// would be wrong (RFC 9530 §2).
const OF_ONE_MESSAGE: [HeaderName; 2] =
    [HeaderName::from_static("content-digest"), HeaderName::from_static("content-md5")];

/// Removes what is true only of the bytes that came with these fields, and not of a part of them,
/// nor of a whole or a part that they are joined to.
pub fn remove_digests(headers: &mut HeaderMap) {
    for name in &OF_ONE_MESSAGE {
        headers.remove(name);
    }
}

/// The byte range of a 206, and the length of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Length of the whole.
    pub complete_bytes: u64,
}

impl Part {
    /// Reads `Content-Range` of a single-part 206; `None` if the range or the length is unknown.
    pub fn of(response: &HeaderMap) -> Option<Part> {
        let mut lines = response.get_all(CONTENT_RANGE).iter();
        let (line, None) = (lines.next()?, lines.next()) else { return None };
        let multipart = response.get(CONTENT_TYPE).is_some_and(|media_type| {
            let start = media_type.as_bytes().trim_ascii_start();
            start.len() >= 20 && start[..20].eq_ignore_ascii_case(b"multipart/byteranges")
        });
        if multipart {
            return None;
        }
        let text = std::str::from_utf8(line.as_bytes()).ok()?.trim();
        let (unit, rest) = text.split_once(' ')?;
        let (stretch, complete) = rest.trim_start().split_once('/')?;
        let (first, last) = stretch.split_once('-')?;
        let part = Part {
            start: number(first)?,
            end: number(last)?.checked_add(1)?,
            complete_bytes: number(complete)?,
        };
        let sound = part.start < part.end && part.end <= part.complete_bytes;
        (unit.eq_ignore_ascii_case("bytes") && sound).then_some(part)
    }

    /// Length of the part.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// True if nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.start == 0 && self.end == self.complete_bytes
    }

    /// Position of `range` of the whole within the stored bytes, if they hold all of it.
    pub fn locate(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let held = self.start <= range.start && range.end <= self.end;
        held.then(|| range.start - self.start..range.end - self.start)
    }

    /// The part that this one and a newer one form together, if they touch.
    pub fn joined(&self, newer: &Part) -> Option<Part> {
        let touch = self.start <= newer.end && newer.start <= self.end;
        (touch && self.complete_bytes == newer.complete_bytes).then(|| Part {
            start: self.start.min(newer.start),
            end: self.end.max(newer.end),
            complete_bytes: self.complete_bytes,
        })
    }
}

/// A large resource divided into slices of one size, each fetched and stored separately when a
/// range needs it. The last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slices {
    /// Length of a slice; not zero.
    pub slice_bytes: u64,
}

impl Slices {
    /// Numbers of the slices that hold bytes `first` to `last`; `None` if they are more than `max`.
    pub fn covering(&self, first: u64, last: u64, max: u64) -> Option<Range<u64>> {
        let (from, to) = (first / self.slice_bytes, last / self.slice_bytes + 1);
        (from < to && to - from <= max).then_some(from..to)
    }

    /// First and last byte of a slice.
    pub fn bounds(&self, index: u64) -> (u64, u64) {
        let first = index.saturating_mul(self.slice_bytes);
        (first, first.saturating_add(self.slice_bytes - 1))
    }

    /// Whether a part is all of this slice that there is.
    pub fn is_slice(&self, index: u64, part: &Part) -> bool {
        let (first, last) = self.bounds(index);
        part.start == first && part.end == last.saturating_add(1).min(part.complete_bytes)
    }
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Whether two responses certainly have the same representation: equal strong entity tags or,
/// without tags, equal strong modification dates (RFC 9111 §3.4).
pub fn may_combine(stored: &HeaderMap, newer: &HeaderMap, response_time_s: u64) -> bool {
    match (entity_tag(stored), entity_tag(newer)) {
        (Some(a), Some(b)) => strongly(a, b),
        (None, None) => {
            let date = |headers, name| dates::header(headers, name, response_time_s);
            let modified = date(stored, &LAST_MODIFIED);
            let strong = |headers| date(headers, &DATE) > modified;
            modified.is_some()
                && modified == date(newer, &LAST_MODIFIED)
                && strong(stored)
                && strong(newer)
        }
        _ => false,
    }
}

/// The bytes of the joined part: all of the newer one, completed by the older.
pub fn joined_bytes(older: (&Part, &[u8]), newer: (&Part, &[u8])) -> Option<Vec<u8>> {
    let ((old, old_bytes), (new, new_bytes)) = (older, newer);
    let whole = old.joined(new)?;
    let fits = old_bytes.len() as u64 == old.length_bytes()
        && new_bytes.len() as u64 == new.length_bytes();
    if !fits {
        return None;
    }
    let before = usize::try_from(new.start.saturating_sub(old.start)).ok()?;
    let after = usize::try_from(old.end.saturating_sub(new.end)).ok()?;
    let mut bytes = Vec::with_capacity(usize::try_from(whole.length_bytes()).ok()?);
    bytes.extend_from_slice(old_bytes.get(..before)?);
    bytes.extend_from_slice(new_bytes);
    bytes.extend_from_slice(old_bytes.get(old_bytes.len() - after..)?);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    fn part(start: u64, end: u64) -> Part {
        Part { start, end, complete_bytes: 10 }
    }

    /// RFC 9110 §14.4.
    #[test]
    fn content_ranges() {
        for (value, expected) in [
            ("bytes 0-4/10", Some(part(0, 5))),
            ("Bytes 0-9/10", Some(part(0, 10))),
            ("bytes 0-4/*", None),
            ("bytes */10", None),
            ("bytes 4-0/10", None),
            ("bytes 0-10/10", None),
            ("bytes 0-4", None),
            ("lines 0-4/10", None),
            ("bytes 0-18446744073709551615/18446744073709551615", None),
            ("bytes +0-4/10", None),
            ("", None),
        ] {
            assert_eq!(Part::of(&headers(&[("content-range", value)])), expected, "{value}");
        }
        let twice = [("content-range", "bytes 0-4/10"); 2];
        assert_eq!(Part::of(&headers(&twice)), None);
        let several = [("content-range", "bytes 0-4/10"), ("content-type", "Multipart/Byteranges")];
        assert_eq!(Part::of(&headers(&several)), None);
    }

    #[test]
    fn what_a_part_holds() {
        assert_eq!(part(2, 6).locate(&(3..5)), Some(1..3));
        assert_eq!(part(2, 6).locate(&(2..6)), Some(0..4));
        assert_eq!(part(2, 6).locate(&(1..3)), None);
        assert_eq!(part(2, 6).locate(&(5..7)), None);
        assert!(part(0, 10).is_whole() && !part(0, 9).is_whole() && !part(1, 10).is_whole());
    }

    #[test]
    fn slices_cover_ranges() {
        let slices = Slices { slice_bytes: 4 };
        for (first, last, expected) in [
            (0, 0, Some(0..1)),
            (0, 3, Some(0..1)),
            (3, 4, Some(0..2)),
            (5, 11, Some(1..3)),
            (0, 11, Some(0..3)),
            (0, 12, None),
            (0, u64::MAX, None),
        ] {
            assert_eq!(slices.covering(first, last, 3), expected, "{first}-{last}");
        }
        assert_eq!(slices.bounds(2), (8, 11));
        assert!(slices.is_slice(1, &part(4, 8)) && slices.is_slice(2, &part(8, 10)));
        assert!(!slices.is_slice(2, &part(8, 9)) && !slices.is_slice(1, &part(4, 9)));
        assert!(!slices.is_slice(0, &part(1, 4)));
    }

    /// RFC 9111 §3.4.
    #[test]
    fn parts_that_touch_are_joined() {
        let bytes = b"0123456789";
        for start_a in 0..10 {
            for end_a in start_a + 1..=10 {
                for start_b in 0..10 {
                    for end_b in start_b + 1..=10 {
                        let (a, b) = (part(start_a, end_a), part(start_b, end_b));
                        let of = |p: &Part| bytes[p.start as usize..p.end as usize].to_vec();
                        let joined = joined_bytes((&a, &of(&a)), (&b, &of(&b)));
                        let touch = start_a <= end_b && start_b <= end_a;
                        assert_eq!(joined.is_some(), touch, "{a:?} {b:?}");
                        if let Some(joined) = joined {
                            assert_eq!(joined, of(&a.joined(&b).unwrap()));
                        }
                    }
                }
            }
        }
        assert_eq!(joined_bytes((&part(0, 5), b"0123"), (&part(5, 6), b"5")), None);
        assert_eq!(joined_bytes((&part(0, 5), b"01234"), (&part(5, 7), b"5")), None);
        assert_eq!(part(0, 5).joined(&Part { complete_bytes: 11, ..part(5, 6) }), None);
    }

    /// RFC 9111 §3.4.
    #[test]
    fn only_the_same_version_is_combined() {
        let old = "Sun, 06 Nov 1994 08:49:37 GMT";
        let new = "Mon, 07 Nov 1994 08:49:37 GMT";
        let dated = [("last-modified", old), ("date", new)];
        for (a, b, expected) in [
            (&[("etag", "\"1\"")][..], &[("etag", "\"1\"")][..], true),
            (&[("etag", "\"1\"")], &[("etag", "\"2\"")], false),
            (&[("etag", "W/\"1\"")], &[("etag", "W/\"1\"")], false),
            (&[("etag", "w/\"1\"")], &[("etag", "w/\"1\"")], false),
            (&[("etag", "\"1\"")], &[], false),
            (&[("etag", "")], &[("etag", "")], false),
            (&[], &[], false),
            (&dated, &dated, true),
            (&[("last-modified", old), ("date", old)], &dated, false),
            (&dated, &[("last-modified", old), ("date", old)], false),
            (&dated, &[("last-modified", new), ("date", new)], false),
            (&dated, &[("last-modified", old), ("date", new), ("etag", "\"1\"")], false),
            (&[("last-modified", old)], &[("last-modified", old)], false),
        ] {
            assert_eq!(may_combine(&headers(a), &headers(b), 1_000_000_000), expected, "{a:?}");
        }
    }
}
