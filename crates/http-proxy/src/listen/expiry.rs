//! When a certificate ends, read from its bytes (RFC 5280 §4.1).
//!
//! Invariant: what is not understood has no end, and is no error: the library that serves it is the
//! judge of certificates. Pure, no threads.

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The explicit tag of the version, which may be left out.
const VERSION: u8 = 0xa0;

/// The end of a certificate's validity, in seconds since 1970; before that it is 0.
pub(super) fn not_after_s(certificate: &[u8]) -> Option<u64> {
    let (content, _) = tagged(certificate, SEQUENCE)?;
    let (mut fields, _) = tagged(content, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, signature and issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (validity, _) = tagged(fields, SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, time, _) = element(rest)?;
    seconds_of(tag, time)
}

/// The first element: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    if first < 0x80 {
        let (content, rest) = rest.split_at_checked(usize::from(first))?;
        return Some((tag, content, rest));
    }
    let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
    if length.is_empty() || length.len() > 4 {
        return None;
    }
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The first element's content, and what follows it, if it has this tag.
fn tagged(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// `YYMMDDHHMMSSZ` of 1950 to 2049, or `YYYYMMDDHHMMSSZ` (RFC 5280 §4.1.2.5).
fn seconds_of(tag: u8, time: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year: u64 = text[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        (GENERALIZED_TIME, 14) => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    if year < 1970 {
        return Some(0);
    }
    let part = |place: usize| rest[2 * place..2 * place + 2].parse::<u64>().ok();
    let (month, day) = (part(0)?, part(1)?);
    let (hour, minute, second) = (part(2)?, part(3)?, part(4)?);
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !is_time {
        return None;
    }
    Some((days_until(year, month, day) * 24 + hour) * 3600 + minute * 60 + second)
}

/// Days from 1970 to this date. Years are counted from March on, so that leap days come last.
fn days_until(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - DAYS_UNTIL_1970
}

/// Days from the first of March of the year 0 to 1970.
const DAYS_UNTIL_1970: u64 = 719_468;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn issued(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read_in_both_forms() {
        // Times before 2050 are of the short form.
        for (date, seconds) in [
            ((2000, 2, 29), 951_782_400),
            ((2026, 1, 1), 1_767_225_600),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000),
            ((9999, 12, 31), 253_402_214_400),
        ] {
            let (year, month, day) = date;
            assert_eq!(not_after_s(&issued(year, month, day)), Some(seconds), "{date:?}");
        }
        assert_eq!(seconds_of(UTC_TIME, b"991231235959Z"), Some(946_684_799));
        assert_eq!(seconds_of(UTC_TIME, b"500101000000Z"), Some(0));
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let whole = issued(2026, 1, 1);
        for length in 0..whole.len().min(150) {
            assert_eq!(not_after_s(&whole[..length]), None, "{length}");
        }
        for (tag, text) in [
            (UTC_TIME, "260101000000"),
            (UTC_TIME, "261301000000Z"),
            (UTC_TIME, "260001000000Z"),
            (UTC_TIME, "20260101000000Z"),
            (GENERALIZED_TIME, "260101000000Z"),
            (GENERALIZED_TIME, "+0260101000000Z"),
            (SEQUENCE, "20260101000000Z"),
        ] {
            assert_eq!(seconds_of(tag, text.as_bytes()), None, "{text}");
        }
    }
}
