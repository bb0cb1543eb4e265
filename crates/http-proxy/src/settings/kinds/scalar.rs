//! Kinds of single values: numbers, sizes, times, text, paths. Pure, no threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use damelo::ByteSize;

use super::{Kind, Value, quoted};
use crate::config::{LogFormat, LogTarget, WriteLimit};

/// `true` or `false`.
pub(crate) struct Flag;
/// A number of things, at least 1.
pub(crate) struct Count;
/// 0 to 100.
pub(crate) struct Percent;
/// A size in bytes.
pub(crate) struct Size;
/// A length of time.
pub(crate) struct Time;
/// Text that is not empty.
pub(crate) struct Text;
/// Paths, each with an optional size.
pub(crate) struct CachePath;
/// A format of the access log.
pub(crate) struct Format;
/// Where the access log goes.
pub(crate) struct LogFile;
/// Bytes in a time.
pub(crate) struct Writes;
/// A file.
pub(crate) struct File;
/// A number of things, 0 for no limit.
pub(crate) struct Limit;

impl Kind<bool> for Flag {
    const WRITTEN: &'static str = "true or false";
    fn read(value: &Value) -> Result<bool, String> {
        match value {
            Value::Flag(flag) => Ok(*flag),
            other => Err(other.wanted(<Self as Kind<bool>>::WRITTEN)),
        }
    }
    fn show(value: &bool) -> String {
        value.to_string()
    }
}

impl Kind<Option<bool>> for Flag {
    const WRITTEN: &'static str = "true, false or \"auto\"";
    fn read(value: &Value) -> Result<Option<bool>, String> {
        match value {
            Value::Flag(flag) => Ok(Some(*flag)),
            other if other.plain().is_some_and(|text| text == "auto") => Ok(None),
            other => Err(other.wanted(<Self as Kind<Option<bool>>>::WRITTEN)),
        }
    }
    fn show(value: &Option<bool>) -> String {
        value.map_or_else(|| quoted("auto"), |flag| flag.to_string())
    }
}

impl Kind<usize> for Count {
    const WRITTEN: &'static str = "a number from 1 on";
    fn read(value: &Value) -> Result<usize, String> {
        let number = value.plain().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
        number.ok_or_else(|| value.wanted(<Self as Kind<usize>>::WRITTEN))
    }
    fn show(value: &usize) -> String {
        value.to_string()
    }
}

impl Kind<u8> for Percent {
    const WRITTEN: &'static str = "a number from 0 to 100";
    fn read(value: &Value) -> Result<u8, String> {
        let number = value.plain().and_then(|text| text.parse().ok()).filter(|n| *n <= 100);
        number.ok_or_else(|| value.wanted(Self::WRITTEN))
    }
    fn show(value: &u8) -> String {
        value.to_string()
    }
}

impl Kind<u64> for Size {
    const WRITTEN: &'static str = "a size such as 512MiB";
    fn read(value: &Value) -> Result<u64, String> {
        let text = value.plain().ok_or_else(|| value.wanted(<Self as Kind<u64>>::WRITTEN))?;
        text.parse::<ByteSize>().map(ByteSize::bytes).map_err(|error| error.to_string())
    }
    fn show(value: &u64) -> String {
        // Exactly: what is shown is read again.
        quoted(format_args!("{:#}", ByteSize::new(*value)))
    }
}

impl Kind<ByteSize> for Size {
    const WRITTEN: &'static str = <Size as Kind<u64>>::WRITTEN;
    fn read(value: &Value) -> Result<ByteSize, String> {
        <Size as Kind<u64>>::read(value).map(ByteSize::new)
    }
    fn show(value: &ByteSize) -> String {
        <Size as Kind<u64>>::show(&value.bytes())
    }
}

impl Kind<usize> for Size {
    const WRITTEN: &'static str = <Size as Kind<u64>>::WRITTEN;
    fn read(value: &Value) -> Result<usize, String> {
        let bytes = <Size as Kind<u64>>::read(value)?;
        usize::try_from(bytes).map_err(|_| value.wanted("a size that fits in memory"))
    }
    fn show(value: &usize) -> String {
        <Size as Kind<u64>>::show(&(*value as u64))
    }
}

impl Kind<Duration> for Time {
    const WRITTEN: &'static str = "a time such as 500ms, 30s, 5m, 2h or 1d";
    fn read(value: &Value) -> Result<Duration, String> {
        read_time(value, <Self as Kind<Duration>>::WRITTEN)
    }
    fn show(value: &Duration) -> String {
        quoted(show_duration(*value))
    }
}

/// A duration, of a key that takes what `written` says.
fn read_time(value: &Value, written: &str) -> Result<Duration, String> {
    let time = match value {
        Value::Text(text) => parse_duration(text),
        _ => None,
    };
    match time {
        Some(time) if time > TIME_MAX => Err(value.beyond(&show_duration(TIME_MAX))),
        Some(time) => Ok(time),
        None => Err(value.wanted(written)),
    }
}

const TIME_UNITS_MS: [(&str, u64); 6] = [
    ("d", 24 * 3600 * 1000),
    ("h", 3600 * 1000),
    ("ms", 1),
    ("m", 60 * 1000),
    ("s", 1000),
    ("w", 7 * 24 * 3600 * 1000),
];

/// Longest duration that may be written: ten years, beyond which sums with clock times might
/// overflow.
const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// `1h30m`, `250ms`, `0s`: whole numbers, each with its unit. Saturates.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total_ms = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        // Digits that do not fit are a number too large, not none.
        let number: u64 =
            rest.get(..digits).filter(|text| !text.is_empty())?.parse().unwrap_or(u64::MAX);
        rest = &rest[digits..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (_, unit_ms) = TIME_UNITS_MS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        total_ms = total_ms.saturating_add(number.saturating_mul(*unit_ms));
        rest = rest[end..].trim_start();
    }
    Some(Duration::from_millis(total_ms))
}

/// Shows a duration in the largest unit that divides it.
fn show_duration(time: Duration) -> String {
    let ms = time.as_millis() as u64;
    for (unit, unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") }
}

impl Kind<String> for Text {
    const WRITTEN: &'static str = "text";
    fn read(value: &Value) -> Result<String, String> {
        value.text(<Self as Kind<String>>::WRITTEN).map(str::to_owned)
    }
    fn show(value: &String) -> String {
        quoted(value)
    }
}

impl Kind<Option<String>> for Text {
    const WRITTEN: &'static str = "text, or \"none\"";
    fn read(value: &Value) -> Result<Option<String>, String> {
        let text = <Text as Kind<String>>::read(value)?;
        Ok((text != "none").then_some(text))
    }
    fn show(value: &Option<String>) -> String {
        quoted(value.as_deref().unwrap_or("none"))
    }
}

impl Kind<Option<String>> for CachePath {
    const WRITTEN: &'static str = "PATH or PATH:SIZE, or several with commas between them";
    fn read(value: &Value) -> Result<Option<String>, String> {
        match value {
            Value::Text(text)
                if text.split(',').all(|path| !(path.is_empty() || path.starts_with(':'))) =>
            {
                text.split(',').try_for_each(has_no_mistyped_size)?;
                Ok(Some(text.clone()))
            }
            other => Err(other.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &Option<String>) -> String {
        value.as_deref().map_or_else(|| "by the name of the origin".to_owned(), quoted)
    }
}

/// Refuses `PATH:5XB`, which would otherwise be a path of a store with the default size. What
/// exists under the whole name is a path: names of devices by their bus end so.
fn has_no_mistyped_size(volume: &str) -> Result<(), String> {
    let Some((_, size)) = volume.rsplit_once(':') else { return Ok(()) };
    let looks_like_size = size.is_empty() || size.starts_with(|c: char| c.is_ascii_digit());
    if !looks_like_size || size.contains('/') || Path::new(volume).exists() {
        return Ok(());
    }
    size.parse::<ByteSize>().map(drop).map_err(|error| format!("`{volume}`: {error}"))
}

impl Kind<Option<WriteLimit>> for Writes {
    const WRITTEN: &'static str = "a size and a time such as 200GiB/1d or 20MiB/1s, or none";
    fn read(value: &Value) -> Result<Option<WriteLimit>, String> {
        let wanted = || value.wanted(Self::WRITTEN);
        let text = value.text(Self::WRITTEN)?;
        if text == "none" {
            return Ok(None);
        }
        let (size, time) = text.split_once('/').ok_or_else(wanted)?;
        let bytes = size.trim().parse::<ByteSize>().map_err(|error| error.to_string())?.bytes();
        let window = parse_duration(time).ok_or_else(wanted)?;
        match bytes == 0 || window.is_zero() || window > TIME_MAX {
            true => Err(wanted()),
            false => Ok(Some(WriteLimit { bytes, window })),
        }
    }
    fn show(value: &Option<WriteLimit>) -> String {
        let Some(WriteLimit { bytes, window }) = value else { return quoted("none") };
        quoted(format_args!("{:#}/{}", ByteSize::new(*bytes), show_duration(*window)))
    }
}

impl Kind<LogFormat> for Format {
    const WRITTEN: &'static str = "combined, squid or json";
    fn read(value: &Value) -> Result<LogFormat, String> {
        let Value::Text(text) = value else { return Err(value.wanted(Self::WRITTEN)) };
        LogFormat::of(text).ok_or_else(|| value.wanted(Self::WRITTEN))
    }
    fn show(value: &LogFormat) -> String {
        quoted(value.name())
    }
}

impl Kind<LogTarget> for LogFile {
    const WRITTEN: &'static str = "a path, stdout or none";
    fn read(value: &Value) -> Result<LogTarget, String> {
        Ok(LogTarget::of(value.text(Self::WRITTEN)?))
    }
    fn show(value: &LogTarget) -> String {
        quoted(value)
    }
}

impl Kind<Option<PathBuf>> for File {
    const WRITTEN: &'static str = "a path, or none";
    fn read(value: &Value) -> Result<Option<PathBuf>, String> {
        Ok(<Text as Kind<Option<String>>>::read(value)?.map(PathBuf::from))
    }
    fn show(value: &Option<PathBuf>) -> String {
        <Text as Kind<Option<String>>>::show(&value.as_ref().map(|path| path.display().to_string()))
    }
}

impl Kind<usize> for Limit {
    const WRITTEN: &'static str = "a number, 0 for no limit";
    fn read(value: &Value) -> Result<usize, String> {
        let number = value.plain().and_then(|text| text.parse().ok());
        number.ok_or_else(|| value.wanted(<Self as Kind<usize>>::WRITTEN))
    }
    fn show(value: &usize) -> String {
        value.to_string()
    }
}

impl Kind<u32> for Limit {
    const WRITTEN: &'static str = <Limit as Kind<usize>>::WRITTEN;
    fn read(value: &Value) -> Result<u32, String> {
        let number = <Limit as Kind<usize>>::read(value)?;
        u32::try_from(number).map_err(|_| value.wanted("a number below 2^32"))
    }
    fn show(value: &u32) -> String {
        value.to_string()
    }
}

impl Kind<u32> for Count {
    const WRITTEN: &'static str = <Count as Kind<usize>>::WRITTEN;
    fn read(value: &Value) -> Result<u32, String> {
        let number = <Count as Kind<usize>>::read(value)?;
        u32::try_from(number).map_err(|_| value.wanted("a number below 2^32"))
    }
    fn show(value: &u32) -> String {
        value.to_string()
    }
}

impl Kind<Option<Duration>> for Time {
    const WRITTEN: &'static str = "a time such as 30s, or none";
    fn read(value: &Value) -> Result<Option<Duration>, String> {
        if *value == Value::Text("none".to_owned()) {
            return Ok(None);
        }
        read_time(value, <Self as Kind<Option<Duration>>>::WRITTEN).map(Some)
    }
    fn show(value: &Option<Duration>) -> String {
        value.as_ref().map_or_else(|| quoted("none"), <Time as Kind<Duration>>::show)
    }
}

impl Kind<Option<u64>> for Size {
    const WRITTEN: &'static str = "a size such as 512MiB, or none";
    fn read(value: &Value) -> Result<Option<u64>, String> {
        if *value == Value::Text("none".to_owned()) {
            return Ok(None);
        }
        <Size as Kind<u64>>::read(value).map(Some)
    }
    fn show(value: &Option<u64>) -> String {
        value.as_ref().map_or_else(|| quoted("none"), <Size as Kind<u64>>::show)
    }
}

/// As whole seconds: HTTP counts lifetimes and ages so.
impl Kind<u64> for Time {
    const WRITTEN: &'static str = "a time in whole seconds such as 30s, 5m, 2h or 1d";
    fn read(value: &Value) -> Result<u64, String> {
        let time = read_time(value, <Self as Kind<u64>>::WRITTEN)?;
        let whole = time.subsec_nanos() == 0;
        whole.then_some(time.as_secs()).ok_or_else(|| value.wanted(<Self as Kind<u64>>::WRITTEN))
    }
    fn show(value: &u64) -> String {
        <Time as Kind<Duration>>::show(&Duration::from_secs(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, ms) in [
            ("0s", Some(0)),
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("1d 2h", Some(93_600_000)),
            ("2w", Some(1_209_600_000)),
            ("", None),
            ("30", None),
            ("-5s", None),
            ("5 parsecs", None),
            ("s", None),
            ("99999999999999999999s", Some(u64::MAX)),
        ] {
            let got = parse_duration(text).map(|time| time.as_millis() as u64);
            assert_eq!(got, ms, "{text}");
        }
        for text in ["250ms", "30s", "90m", "2h", "1d", "0s"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn bytes_in_a_time_are_a_size_and_a_time() {
        let read = |text: &str| Writes::read(&Value::Text(text.to_owned()));
        let day = WriteLimit { bytes: 200 << 30, window: Duration::from_secs(24 * 3600) };
        assert_eq!(read("200GiB/1d"), Ok(Some(day)));
        assert_eq!(read("200 GiB / 24h"), Ok(Some(day)));
        assert_eq!(read("none"), Ok(None));
        for bad in ["", "200GiB", "/1d", "200GiB/", "0/1d", "1GiB/0s", "1GiB/20000d", "1GiB/day"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for text in ["200GiB/1d", "20MiB/1s", "none"] {
            assert_eq!(Writes::show(&read(text).unwrap()), format!("\"{text}\""));
        }
    }

    #[test]
    fn a_mistyped_size_of_a_cache_is_no_part_of_its_path() {
        let read = |text: &str| CachePath::read(&Value::Text(text.to_owned()));
        for good in ["c", "c:20GiB", "c:20 gib", "/a:1/b", "/a:b", "one:64MiB,two:96MiB"] {
            assert_eq!(read(good).as_ref().map(Option::as_deref), Ok(Some(good)));
        }
        for (bad, size) in
            [("c:5XB", "5XB"), ("a:1GiB,/b:20GIG", "20GIG"), ("c:1.5", "1.5"), ("c:", "")]
        {
            let error = read(bad).expect_err(bad);
            assert!(error.contains(&format!("`{size}` is not a size")), "{error}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pci-0000:00:1f.2-ata-1");
        read(path.to_str().unwrap()).expect_err("no such device");
        std::fs::write(&path, "").unwrap();
        read(path.to_str().unwrap()).expect("a device's name ends like this");
    }

    #[test]
    fn what_is_too_long_too_large_or_too_fine_is_told_so() {
        let text = |text: &str| Value::Text(text.to_owned());
        for long in ["3651d", "4000d", "99999999999999999999s"] {
            let error = <Time as Kind<Duration>>::read(&text(long)).unwrap_err();
            assert!(error.contains(long) && error.contains("3650d"), "{error}");
        }
        assert!(<Time as Kind<Duration>>::read(&text("3650d")).is_ok());
        for fine in ["500ms", "1500ms", "1s 1ms", "30", "none"] {
            let error = <Time as Kind<u64>>::read(&text(fine)).unwrap_err();
            assert!(error.contains("whole seconds"), "{error}");
        }
        assert_eq!(<Time as Kind<u64>>::read(&text("2000ms")), Ok(2));
        let error = <Time as Kind<Option<Duration>>>::read(&text("no")).unwrap_err();
        assert!(error.contains("or none"), "{error}");
        assert_eq!(<Size as Kind<u64>>::read(&text("2PiB")), Ok(2 << 50));
        for bytes in [65_534, 1_501 << 10, 3 << 20] {
            let shown = <Size as Kind<u64>>::show(&bytes);
            assert_eq!(<Size as Kind<u64>>::read(&text(shown.trim_matches('"'))), Ok(bytes));
        }
        let error = <Size as Kind<u64>>::read(&text("9EiB")).unwrap_err();
        assert!(error.contains("9EiB"), "{error}");
    }
}
