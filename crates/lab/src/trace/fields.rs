//! Numbers and dates in text traces. Exact: no floating point, nothing wraps. Pure.

use crate::error::{BadRecord, shortened};

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

/// What the times of a trace count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeUnit {
    /// Seconds, as nearly all traces do.
    #[default]
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Millionths.
    Microseconds,
    /// Of which the lab keeps whole microseconds.
    Nanoseconds,
}

const TIME_UNITS: [(&str, TimeUnit); 4] = [
    ("s", TimeUnit::Seconds),
    ("ms", TimeUnit::Milliseconds),
    ("us", TimeUnit::Microseconds),
    ("ns", TimeUnit::Nanoseconds),
];

impl TimeUnit {
    /// A unit by its name: `s`, `ms`, `us` or `ns`.
    #[must_use]
    pub fn by_name(given: &str) -> Option<TimeUnit> {
        TIME_UNITS.iter().find(|(name, _)| *name == given).map(|(_, unit)| *unit)
    }

    /// The unit's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        TIME_UNITS.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| *name)
    }

    /// So many of it in microseconds; `None` if these are too many.
    #[inline]
    pub(crate) fn us(self, count: u64) -> Option<u64> {
        match self {
            TimeUnit::Seconds => count.checked_mul(US_PER_S),
            TimeUnit::Milliseconds => count.checked_mul(1_000),
            TimeUnit::Microseconds => Some(count),
            TimeUnit::Nanoseconds => Some(count / 1_000),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "seconds as in 807256800 or 807256800.25",
            TimeUnit::Milliseconds => "milliseconds as in 807256800250",
            TimeUnit::Microseconds => "microseconds as in 807256800250000",
            TimeUnit::Nanoseconds => "nanoseconds as in 807256800250000000",
        }
    }
}

/// Where no unit is given, greater times are no seconds: not since 1970, and not since a trace
/// began. Of dates that are written out the latest, in the year 9999, is below.
const SECONDS_MAX: u64 = 300_000_000_000;

/// A time with an optional fraction, in microseconds; `None` also if these are too many.
#[inline]
fn parse_time_us(text: &[u8], unit: TimeUnit) -> Option<u64> {
    let Some(dot) = memchr::memchr(b'.', text) else {
        return unit.us(parse_u64(text)?);
    };
    let whole_us = unit.us(parse_u64(&text[..dot])?)?;
    let fraction = &text[dot + 1..];
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    whole_us.checked_add(match unit {
        TimeUnit::Seconds => leading::<6>(fraction),
        TimeUnit::Milliseconds => leading::<3>(fraction),
        TimeUnit::Microseconds | TimeUnit::Nanoseconds => 0,
    })
}

/// So many digits from the first on as a number; those that are not there are 0.
#[inline]
fn leading<const DIGITS: usize>(fraction: &[u8]) -> u64 {
    let mut number = 0;
    for at in 0..DIGITS {
        number = number * 10 + fraction.get(at).map_or(0, |digit| u64::from(digit - b'0'));
    }
    number
}

/// A time field; the error names it. `None`: seconds, if they can be.
#[inline]
pub(crate) fn time_us(text: &[u8], unit: Option<TimeUnit>) -> Result<u64, BadRecord> {
    match (parse_time_us(text, unit.unwrap_or_default()), unit) {
        (Some(us), Some(_)) => Ok(us),
        (Some(us), None) if us < SECONDS_MAX * US_PER_S => Ok(us),
        _ => Err(no_time(text, unit)),
    }
}

/// Why it is no time of this unit.
#[cold]
fn no_time(text: &[u8], unit: Option<TimeUnit>) -> BadRecord {
    let whole = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let is_number = !whole.is_empty() && text.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    match unit {
        None if is_number && parse_time_us(text, TimeUnit::Seconds).is_some() => {
            BadRecord::NotSeconds { text: shortened(text) }
        }
        None if is_number && parse_u64(whole).is_none_or(|count| count >= SECONDS_MAX) => {
            BadRecord::NotSeconds { text: shortened(text) }
        }
        Some(unit)
            if is_number && parse_u64(whole).is_none_or(|count| unit.us(count).is_none()) =>
        {
            BadRecord::TimeTooLarge { text: shortened(text), unit: unit.name() }
        }
        unit => BadRecord::value("time", text, unit.unwrap_or_default().expected()),
    }
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
    fn times_keep_microseconds() {
        use TimeUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
        for (text, unit, us) in [
            ("785433179.434793", None, 785_433_179_434_793),
            ("5", None, 5_000_000),
            ("5.1", Some(Seconds), 5_100_000),
            ("5.1234567", None, 5_123_456),
            ("18446744073709.5", Some(Seconds), 18_446_744_073_709_500_000),
            ("1700000000123", Some(Milliseconds), 1_700_000_000_123_000),
            ("5.1234", Some(Milliseconds), 5_123),
            ("1700000000123456", Some(Microseconds), 1_700_000_000_123_456),
            ("5.9", Some(Microseconds), 5),
            ("1700000000123456789", Some(Nanoseconds), 1_700_000_000_123_456),
            ("18446744073709551615", Some(Nanoseconds), u64::MAX / 1_000),
        ] {
            assert_eq!(time_us(text.as_bytes(), unit), Ok(us), "{text} {unit:?}");
        }
        for bad in ["", ".5", "5.", "5.x", "1e9", "-5", "1.2.3"] {
            for unit in [None, Some(Milliseconds)] {
                let said = time_us(bad.as_bytes(), unit).expect_err(bad).to_string();
                assert!(said.starts_with(&format!("time is `{bad}`, not ")), "{said}");
            }
        }
    }

    /// Milliseconds, microseconds and nanoseconds of now are no seconds; nobody else knows whether
    /// a number is the one or the other.
    #[test]
    fn a_time_that_is_no_seconds_asks_for_its_unit() {
        for text in [
            "300000000000",
            "1700000000123",
            "1700000000123.5",
            "1700000000123456",
            "1700000000123456789",
            "99999999999999999999",
            "100000000000000000000000",
        ] {
            let said = time_us(text.as_bytes(), None).expect_err(text).to_string();
            let begin = format!("time is `{text}`, too large for seconds: say what it counts");
            assert!(said.starts_with(&begin) && said.contains("--time-unit ms"), "{said}");
        }
        assert_eq!(time_us(b"299999999999", None), Ok(299_999_999_999 * US_PER_S));
        let said = time_us(b"18446744073710", Some(TimeUnit::Seconds)).expect_err("too large");
        assert_eq!(said.to_string(), "time is `18446744073710` s, more than 2^64 us");
        for (name, unit) in TIME_UNITS {
            assert_eq!((TimeUnit::by_name(name), unit.name()), (Some(unit), name));
        }
        assert_eq!(TimeUnit::by_name("h"), None);
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
