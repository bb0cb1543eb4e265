//! Numbers and dates in text traces. Exact: no floating point, nothing wraps. Pure.

use crate::error::BadRecord;

/// Microseconds in a second.
pub(crate) const US_PER_S: u64 = 1_000_000;

/// Decimal digits, nothing else, that fit 64 bits.
#[inline]
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A name that is a number, as it is written in one way only: `07` is another name than `7`.
#[inline]
pub(crate) fn number_of_object(name: &[u8]) -> Option<u64> {
    let has_zero_before = name.len() > 1 && name[0] == b'0';
    parse_u64(name).filter(|_| !has_zero_before)
}

/// Seconds with an optional fraction, of which six digits count.
#[inline]
pub(crate) fn parse_seconds_us(text: &[u8]) -> Option<u64> {
    let Some(dot) = memchr::memchr(b'.', text) else {
        return parse_u64(text)?.checked_mul(US_PER_S);
    };
    let whole = parse_u64(&text[..dot])?.checked_mul(US_PER_S)?;
    let fraction = &text[dot + 1..];
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut us = 0;
    for at in 0..6 {
        us = us * 10 + fraction.get(at).map_or(0, |digit| u64::from(digit - b'0'));
    }
    whole.checked_add(us)
}

/// A time field; the error names it.
pub(crate) fn time_us(text: &[u8]) -> Result<u64, BadRecord> {
    parse_seconds_us(text)
        .ok_or_else(|| BadRecord::value("time", text, "seconds as in 807256800 or 807256800.25"))
}

/// A size field; the error names it.
pub(crate) fn size_bytes(text: &[u8]) -> Result<u64, BadRecord> {
    parse_u64(text).ok_or_else(|| BadRecord::value("size", text, "a number of bytes"))
}

/// A size in a column: programs that know no whole numbers with gaps, as pandas, write `10.0`.
pub(crate) fn column_size_bytes(text: &[u8]) -> Result<u64, BadRecord> {
    size_bytes(text).or_else(|bad| {
        let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
        let fraction = text.get(dot + 1..).unwrap_or_default();
        let is_zero = !fraction.is_empty() && fraction.iter().all(|digit| *digit == b'0');
        parse_u64(&text[..dot]).filter(|_| is_zero).ok_or(bad)
    })
}

/// A three-digit status, or what logs write where there was none (`-`, `0`).
pub(crate) fn status(text: &[u8]) -> Result<u16, BadRecord> {
    match parse_u64(text) {
        Some(number) if number < 1000 => Ok(number as u16),
        None if text == b"-" => Ok(0),
        _ => Err(BadRecord::value("status", text, "an HTTP status")),
    }
}

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// `10/Oct/2000:13:55:36 -0700`, the time of common and combined logs, as microseconds since 1970.
pub(crate) fn clf_time_us(text: &[u8]) -> Result<u64, BadRecord> {
    clf_seconds(text)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .and_then(|seconds| seconds.checked_mul(US_PER_S))
        .ok_or_else(|| BadRecord::value("time", text, "a time as in 10/Oct/2000:13:55:36 -0700"))
}

fn clf_seconds(text: &[u8]) -> Option<i64> {
    let shape = text.len() == 26
        && [2, 6].iter().all(|at| text[*at] == b'/')
        && [11, 14, 17].iter().all(|at| text[*at] == b':')
        && text[20] == b' ';
    if !shape {
        return None;
    }
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(&text[3..6]))? as i64 + 1;
    let number = |at: usize, end: usize, max: u64| {
        parse_u64(&text[at..end]).filter(|n| *n <= max).map(|n| n as i64)
    };
    let (day, year) = (number(0, 2, 31)?, number(7, 11, 9999)?);
    let (hour, minute, second) = (number(12, 14, 23)?, number(15, 17, 59)?, number(18, 20, 60)?);
    let zone = number(22, 24, 23)? * 3600 + number(24, 26, 59)? * 60;
    let offset = match text[21] {
        b'+' => zone,
        b'-' => -zone,
        _ => return None,
    };
    if day == 0 || day > days_of(year, month) {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of the Gregorian calendar; counts years from March, so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let days_before_month = (153 * month_from_march + 2) / 5;
    let days_before_year = 365 * year + year / 4 - year / 100 + year / 400;
    days_before_year + days_before_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_refused() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["18446744073709551616", "", "-1", "+1", "1 ", "0x1", "1e3"] {
            assert_eq!(parse_u64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn seconds_keep_microseconds() {
        assert_eq!(parse_seconds_us(b"785433179.434793"), Some(785_433_179_434_793));
        assert_eq!(parse_seconds_us(b"5"), Some(5_000_000));
        assert_eq!(parse_seconds_us(b"5.1"), Some(5_100_000));
        assert_eq!(parse_seconds_us(b"5.1234567"), Some(5_123_456));
        for bad in ["", ".5", "5.", "5.x", "1e9", "18446744073710"] {
            assert_eq!(parse_seconds_us(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn log_times_count_from_1970_in_utc() {
        let us = |text: &str| clf_time_us(text.as_bytes()).ok();
        assert_eq!(us("01/Jan/1970:00:00:00 +0000"), Some(0));
        // `date -u -d '2000-10-10 20:55:36' +%s`
        assert_eq!(us("10/Oct/2000:13:55:36 -0700"), Some(971_211_336 * US_PER_S));
        assert_eq!(us("29/Feb/2024:00:00:00 +0530"), Some(1_709_145_000 * US_PER_S));
        assert_eq!(us("01/Aug/1995:00:00:01 -0400"), Some(807_249_601 * US_PER_S));
        assert_eq!(us("29/Feb/2000:00:00:00 +0000"), Some(951_782_400 * US_PER_S));
        for day in ["31/Feb/1995", "29/Feb/1995", "29/Feb/1900", "31/Apr/1995", "00/May/1995"] {
            assert_eq!(us(&format!("{day}:00:00:00 +0000")), None, "{day}");
        }
        for bad in
            ["10/Oct/2000:13:55:36", "10/Okt/2000:13:55:36 -0700", "", "31/Dec/1969:23:59:59 +0000"]
        {
            assert_eq!(us(bad), None, "{bad}");
        }
    }
}
