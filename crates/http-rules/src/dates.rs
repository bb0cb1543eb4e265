//! HTTP dates (RFC 9110 §5.6.7) as seconds since 1970. No clock is read here.
//!
//! All three formats are accepted, strictly except for case, which a cache ignores (RFC 9111 §4.2);
//! only IMF-fixdate is written. Invalid dates are `None`: other zones, missing digits, other
//! spacing, days that a month does not have. The day of the week must be a valid name, but need not
//! be right.

use std::time::{Duration, UNIX_EPOCH};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// Latest second that can be written as an HTTP date: the end of the year 9999.
const DATE_MAX_S: u64 = 253_402_300_799;
const DAY_S: u64 = 86_400;
/// A two-digit year further ahead than this belongs to the past.
const YEARS_AHEAD_MAX: u64 = 50;

const DAYS: [&[u8]; 7] =
    [b"monday", b"tuesday", b"wednesday", b"thursday", b"friday", b"saturday", b"sunday"];

/// Days of a year before each month, without a leap day.
const DAYS_BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// Reads an HTTP date; `now_s` is needed for the two-digit years of the second format.
pub fn parse(text: &[u8], now_s: u64) -> Option<u64> {
    let text = text.trim_ascii();
    match text.iter().position(|b| *b == b',') {
        Some(3) => imf_fixdate(text),
        Some(_) => rfc850_date(text, now_s),
        None => asctime_date(text),
    }
}

/// Reads header `name` as a date; `None` if it is missing, invalid, or repeated with another value.
pub fn header(headers: &HeaderMap, name: &HeaderName, now_s: u64) -> Option<u64> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    if lines.any(|line| line != first) {
        return None;
    }
    parse(first.as_bytes(), now_s)
}

/// Writes an HTTP date.
pub fn format(unix_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s.min(DATE_MAX_S)))
}

/// Writes an HTTP date as a header value.
pub fn value(unix_s: u64) -> HeaderValue {
    // A formatted date is visible ASCII; the fallback cannot be reached.
    HeaderValue::try_from(format(unix_s)).unwrap_or(HeaderValue::from_static(""))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &[u8]) -> Option<u64> {
    let (day_name, rest) = text.split_at_checked(3)?;
    let fixed: &[u8; 26] = rest.try_into().ok()?;
    let separators = [(0, b','), (1, b' '), (4, b' '), (8, b' '), (13, b' '), (22, b' ')];
    let in_place = separators.iter().all(|(at, byte)| fixed[*at] == *byte);
    if !in_place || !is_day(day_name) || !fixed[23..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    let year = digits(&fixed[9..13])?;
    seconds(year, month(&fixed[5..8])?, digits(&fixed[2..4])?, time_of_day(&fixed[14..22])?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850_date(text: &[u8], now_s: u64) -> Option<u64> {
    let comma = text.iter().position(|b| *b == b',')?;
    let (day_name, rest) = text.split_at(comma);
    let fixed: &[u8; 24] = rest.try_into().ok()?;
    let separators = [(1, b' '), (4, b'-'), (8, b'-'), (11, b' '), (20, b' ')];
    let in_place = separators.iter().all(|(at, byte)| fixed[*at] == *byte);
    let full = DAYS.iter().any(|day| day.eq_ignore_ascii_case(day_name));
    if !in_place || !full || !fixed[21..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    let short = digits(&fixed[9..11])?;
    let (month, day) = (month(&fixed[5..8])?, digits(&fixed[2..4])?);
    let time_s = time_of_day(&fixed[12..20])?;
    // The latest year with these two digits that is no more than 50 years ahead.
    let latest = year_of(now_s) + YEARS_AHEAD_MAX;
    let year = latest - (latest + 100 - short) % 100;
    let limit_s = seconds_same_date(now_s, YEARS_AHEAD_MAX);
    match seconds(year, month, day, time_s) {
        Some(then) if then > limit_s => seconds(year.checked_sub(100)?, month, day, time_s),
        other => other,
    }
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime_date(text: &[u8]) -> Option<u64> {
    let fixed: &[u8; 24] = text.try_into().ok()?;
    let separators = [(3, b' '), (7, b' '), (10, b' '), (19, b' ')];
    let in_place = separators.iter().all(|(at, byte)| fixed[*at] == *byte);
    if !in_place || !is_day(&fixed[..3]) {
        return None;
    }
    let day = if fixed[8] == b' ' { digits(&fixed[9..10])? } else { digits(&fixed[8..10])? };
    let year = digits(&fixed[20..])?;
    seconds(year, month(&fixed[4..7])?, day, time_of_day(&fixed[11..19])?)
}

fn is_day(name: &[u8]) -> bool {
    matches!(
        three_letters(name).as_ref(),
        Some(b"mon" | b"tue" | b"wed" | b"thu" | b"fri" | b"sat" | b"sun")
    )
}

/// 1 to 12.
fn month(name: &[u8]) -> Option<u64> {
    Some(match &three_letters(name)? {
        b"jan" => 1,
        b"feb" => 2,
        b"mar" => 3,
        b"apr" => 4,
        b"may" => 5,
        b"jun" => 6,
        b"jul" => 7,
        b"aug" => 8,
        b"sep" => 9,
        b"oct" => 10,
        b"nov" => 11,
        b"dec" => 12,
        _ => return None,
    })
}

/// In lower case.
fn three_letters(name: &[u8]) -> Option<[u8; 3]> {
    let name: [u8; 3] = name.try_into().ok()?;
    Some(name.map(|letter| letter.to_ascii_lowercase()))
}

fn digits(text: &[u8]) -> Option<u64> {
    let all = text.iter().all(u8::is_ascii_digit);
    all.then(|| text.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// `08:49:37` in seconds. A leap second counts as the one before it.
fn time_of_day(text: &[u8]) -> Option<u64> {
    if text[2] != b':' || text[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(&text[..2])?, digits(&text[3..5])?, digits(&text[6..8])?);
    let valid = hour <= 23 && minute <= 59 && second <= 60;
    valid.then(|| hour * 3600 + minute * 60 + second.min(59))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970 to the first of January of `year`.
fn days_before_year(year: u64) -> u64 {
    let leaps = |y: u64| y / 4 - y / 100 + y / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

/// Dates before 1970 count as 1970: a cache only needs to know that they are past.
fn seconds(year: u64, month: u64, day: u64, time_s: u64) -> Option<u64> {
    if day == 0 || day > month_days(year, month) {
        return None;
    }
    if year < 1970 {
        return Some(0);
    }
    let leap_day = u64::from(month > 2 && is_leap(year));
    let days_in_months = DAYS_BEFORE_MONTH[month as usize - 1] + leap_day;
    Some((days_before_year(year) + days_in_months + day - 1) * DAY_S + time_s)
}

fn year_of(unix_s: u64) -> u64 {
    let days = unix_s.min(DATE_MAX_S) / DAY_S;
    // At most one year too late: a year has at most 366 days.
    let mut year = 1970 + days / 366;
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    year
}

/// The same moment, to the day, `years` years later.
fn seconds_same_date(now_s: u64, years: u64) -> u64 {
    let year = year_of(now_s);
    let into_year_s = now_s.min(DATE_MAX_S) - days_before_year(year) * DAY_S;
    days_before_year(year + years) * DAY_S + into_year_s
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000; // in the year 2026

    #[test]
    fn three_formats_and_nothing_else() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Sun Nov 06 08:49:37 1994", Some(784_111_777)),
            ("sun, 06 NOV 1994 08:49:37 gmt", Some(784_111_777)),
            (" Sun, 06 Nov 1994 08:49:37 GMT ", Some(784_111_777)),
            ("Thu, 29 Feb 2024 00:00:00 GMT", Some(1_709_164_800)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Mon, 01 Jan 1900 00:00:00 GMT", Some(0)),
            ("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_799)),
            ("0", None),
            ("-1", None),
            ("", None),
            ("tomorrow", None),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("Sun, 06 Nov 1994 08:49:37 +0000", None),
            ("Sun 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 94 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 8:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08.49.37 GMT", None),
            ("Sun, 06 Nov 1994 08.49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49.37 GMT", None),
            ("Sun, 06 Nov 1994 08:60:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:61 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 UTC", None),
            ("Sunnyday, 06-Nov-94 08:49:37 GMT", None),
            ("Xyz Nov  6 08:49:37 1994", None),
            ("Sun Nov  0 08:49:37 1994", None),
            ("Thu, 29 Feb 1900 00:00:00 GMT", None),
            ("Mon, 29 Feb 2100 00:00:00 GMT", None),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Mon, 01 Mar 2100 00:00:00 GMT", Some(4_107_542_400)),
            ("Sun, 06 Nov 1994 08:49 GMT", None),
            ("Sun,  06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06-Nov-1994 08:49:37 GMT", None),
            ("Sun, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 36 Nov 1994 08:49:37 GMT", None),
            ("Sun, 00 Nov 1994 08:49:37 GMT", None),
            ("Wed, 29 Feb 2023 00:00:00 GMT", None),
            ("Sun, 06 Nov 1994 24:00:00 GMT", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Xyz, 06 Nov 1994 08:49:37 GMT", None),
            ("Sunday, 06-Nov-1994 08:49:37 GMT", None),
        ] {
            assert_eq!(parse(text.as_bytes(), NOW), expected, "{text}");
        }
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn two_digit_years_are_at_most_fifty_ahead() {
        for (text, same) in [
            ("Thursday, 18-Aug-50 02:01:18 GMT", "Thu, 18 Aug 2050 02:01:18 GMT"),
            ("Thursday, 18-Aug-75 02:01:18 GMT", "Thu, 18 Aug 2075 02:01:18 GMT"),
            ("Friday, 18-Aug-78 02:01:18 GMT", "Fri, 18 Aug 1978 02:01:18 GMT"),
            ("Tuesday, 18-Aug-26 02:01:18 GMT", "Tue, 18 Aug 2026 02:01:18 GMT"),
            ("Friday, 31-Dec-76 02:01:18 GMT", "Fri, 31 Dec 1976 02:01:18 GMT"),
        ] {
            assert_eq!(parse(text.as_bytes(), NOW), parse(same.as_bytes(), NOW), "{text}");
        }
        // To the second, also as a year begins.
        let new_year = parse(b"Thu, 01 Jan 2026 00:00:00 GMT", NOW).unwrap();
        let ahead = parse(b"Wed, 01 Jan 2076 00:00:00 GMT", NOW);
        let past = parse(b"Thu, 01 Jan 1976 00:00:00 GMT", NOW);
        let text = b"Wednesday, 01-Jan-76 00:00:00 GMT";
        assert_eq!((parse(text, new_year), parse(text, new_year - 1)), (ahead, past));
    }

    #[test]
    fn written_dates_are_read_back() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let then = random.u64(..=DATE_MAX_S);
            assert_eq!(parse(format(then).as_bytes(), NOW), Some(then));
        }
    }

    #[test]
    fn repeated_headers_must_agree() {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("expires");
        headers.append(&name, value(10));
        headers.append(&name, value(10));
        assert_eq!(header(&headers, &name, NOW), Some(10));
        headers.append(&name, value(20));
        assert_eq!(header(&headers, &name, NOW), None);
    }
}
