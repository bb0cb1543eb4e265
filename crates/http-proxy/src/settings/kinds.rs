//! Kinds of values: how each is written in the configuration, read, checked and shown.
//!
//! A kind is a type without values; its functions say what a person may write (`30s`, `512MiB`,
//! `127.0.0.1:8080`) and give an error that names the input and the limit. Pure, no threads.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use damelo::ByteSize;
use ipnet::IpNet;

use crate::config::{Grouping, LogFormat, LogTarget, Target};

/// A value as the file has it, before it is known what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A string.
    Text(String),
    /// A whole number, as written.
    Integer(String),
    /// `true` or `false`.
    Flag(bool),
    /// Strings.
    List(Vec<String>),
}

impl Value {
    /// The value of a `KEY=VALUE` of the command line: what a kind makes of it is its business.
    pub(crate) fn of_argument(text: &str) -> Value {
        match text {
            "true" => Value::Flag(true),
            "false" => Value::Flag(false),
            "[]" => Value::List(Vec::new()),
            _ if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                Value::Integer(text.to_owned())
            }
            _ => Value::Text(text.to_owned()),
        }
    }

    fn shown(&self) -> String {
        match self {
            Value::Text(text) => format!("\"{text}\""),
            Value::Integer(number) => number.clone(),
            Value::Flag(flag) => flag.to_string(),
            Value::List(list) => format!("{list:?}"),
        }
    }

    pub(super) fn wanted(&self, what: &str) -> String {
        format!("{} is not {what}", self.shown())
    }

    /// Text, or a number as it was written.
    pub(super) fn plain(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Integer(text) => Some(text),
            Value::Flag(_) | Value::List(_) => None,
        }
    }
}

/// Reads and shows values of type `T`.
pub(crate) trait Kind<T> {
    /// What a person may write, for the documents and for errors.
    const WRITTEN: &'static str;
    /// Reads a value; the error says what is wrong with it.
    fn read(value: &Value) -> Result<T, String>;
    /// As it would be written in the file.
    fn show(value: &T) -> String;
}

pub(super) fn quoted(text: impl std::fmt::Display) -> String {
    format!("\"{text}\"")
}

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
/// Address and port.
pub(crate) struct Address;
/// An origin.
pub(crate) struct OriginUrl;
/// Networks.
pub(crate) struct Networks;
/// A path with an optional size.
pub(crate) struct CachePath;
/// A grouping rule.
pub(crate) struct GroupRule;
/// A format of the access log.
pub(crate) struct Format;
/// Where the access log goes.
pub(crate) struct LogFile;

impl Kind<bool> for Flag {
    const WRITTEN: &'static str = "true or false";
    fn read(value: &Value) -> Result<bool, String> {
        match value {
            Value::Flag(flag) => Ok(*flag),
            other => Err(other.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &bool) -> String {
        value.to_string()
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
        let size = value.plain().and_then(|text| text.parse::<ByteSize>().ok());
        size.map(ByteSize::bytes).ok_or_else(|| value.wanted(<Self as Kind<u64>>::WRITTEN))
    }
    fn show(value: &u64) -> String {
        quoted(ByteSize::new(*value))
    }
}

impl Kind<ByteSize> for Size {
    const WRITTEN: &'static str = <Size as Kind<u64>>::WRITTEN;
    fn read(value: &Value) -> Result<ByteSize, String> {
        <Size as Kind<u64>>::read(value).map(ByteSize::new)
    }
    fn show(value: &ByteSize) -> String {
        quoted(value)
    }
}

impl Kind<usize> for Size {
    const WRITTEN: &'static str = <Size as Kind<u64>>::WRITTEN;
    fn read(value: &Value) -> Result<usize, String> {
        let bytes = <Size as Kind<u64>>::read(value)?;
        usize::try_from(bytes).map_err(|_| value.wanted("a size that fits in memory"))
    }
    fn show(value: &usize) -> String {
        quoted(ByteSize::new(*value as u64))
    }
}

impl Kind<Duration> for Time {
    const WRITTEN: &'static str = "a time such as 500ms, 30s, 5m, 2h or 1d";
    fn read(value: &Value) -> Result<Duration, String> {
        let time = match value {
            Value::Text(text) => parse_duration(text),
            _ => None,
        };
        time.ok_or_else(|| value.wanted(<Self as Kind<Duration>>::WRITTEN))
    }
    fn show(value: &Duration) -> String {
        quoted(show_duration(*value))
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

/// Longest time that may be written: ten years, beyond which sums with clocks might overflow.
const TIME_MS_MAX: u64 = 10 * 365 * 24 * 3600 * 1000;

/// `1h30m`, `250ms`, `0s`: whole numbers, each with its unit.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total_ms = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (_, unit_ms) = TIME_UNITS_MS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        total_ms = total_ms.checked_add(number.checked_mul(*unit_ms)?)?;
        rest = rest[end..].trim_start();
    }
    (total_ms <= TIME_MS_MAX).then(|| Duration::from_millis(total_ms))
}

/// In the largest unit that leaves no rest.
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
        match value {
            Value::Text(text) if !text.is_empty() => Ok(text.clone()),
            other => Err(other.wanted(<Self as Kind<String>>::WRITTEN)),
        }
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

/// `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`.
pub(crate) fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Some(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    if cfg!(feature = "fuzzing") {
        // No fuzzer asks a name server.
        return text.parse().ok();
    }
    text.to_socket_addrs().ok()?.next()
}

impl Kind<SocketAddr> for Address {
    const WRITTEN: &'static str = "an address such as 127.0.0.1:8080";
    fn read(value: &Value) -> Result<SocketAddr, String> {
        value
            .plain()
            .and_then(parse_address)
            .ok_or_else(|| value.wanted(<Self as Kind<SocketAddr>>::WRITTEN))
    }
    fn show(value: &SocketAddr) -> String {
        quoted(value)
    }
}

impl Kind<Option<SocketAddr>> for Address {
    const WRITTEN: &'static str = "an address such as 127.0.0.1:9100, or \"none\"";
    fn read(value: &Value) -> Result<Option<SocketAddr>, String> {
        if *value == Value::Text("none".to_owned()) {
            return Ok(None);
        }
        let address = value.plain().and_then(parse_address);
        address.map(Some).ok_or_else(|| value.wanted(<Self as Kind<Option<SocketAddr>>>::WRITTEN))
    }
    fn show(value: &Option<SocketAddr>) -> String {
        value.map_or_else(|| quoted("none"), quoted)
    }
}

impl Kind<Target> for OriginUrl {
    const WRITTEN: &'static str = "http://HOST[:PORT], https://HOST[:PORT], unix:/PATH or demo";
    fn read(value: &Value) -> Result<Target, String> {
        let Value::Text(text) = value else { return Err(value.wanted(Self::WRITTEN)) };
        let Ok(target) = text.parse();
        if let Target::Url(url) = &target {
            crate::upstream::check_url(url).map_err(|error| error.to_string())?;
        }
        Ok(target)
    }
    fn show(value: &Target) -> String {
        match value {
            Target::Demo => quoted("demo"),
            Target::Url(url) => quoted(url),
        }
    }
}

impl Kind<Vec<IpNet>> for Networks {
    const WRITTEN: &'static str = "a list of networks such as [\"127.0.0.0/8\", \"::1\"]";
    fn read(value: &Value) -> Result<Vec<IpNet>, String> {
        let one;
        let list = match value {
            Value::List(list) => list,
            Value::Text(text) => {
                one = text.split(',').map(str::to_owned).collect();
                &one
            }
            other => return Err(other.wanted(Self::WRITTEN)),
        };
        list.iter().map(|text| parse_network(text.trim())).collect()
    }
    fn show(value: &Vec<IpNet>) -> String {
        format!("{:?}", value.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Ok(network.trunc());
    }
    let address = text.parse::<IpAddr>();
    address.map(IpNet::from).map_err(|_| format!("\"{text}\" is not a network: write 10.0.0.0/8"))
}

impl Kind<Option<String>> for CachePath {
    const WRITTEN: &'static str = "PATH or PATH:SIZE";
    fn read(value: &Value) -> Result<Option<String>, String> {
        <Text as Kind<String>>::read(value).map(Some)
    }
    fn show(value: &Option<String>) -> String {
        value.as_deref().map_or_else(|| "by the name of the origin".to_owned(), quoted)
    }
}

impl Kind<Grouping> for GroupRule {
    const WRITTEN: &'static str = "page, host, path:N, header:NAME or none";
    fn read(value: &Value) -> Result<Grouping, String> {
        let Value::Text(text) = value else { return Err(value.wanted(Self::WRITTEN)) };
        text.parse().map_err(|()| value.wanted(Self::WRITTEN))
    }
    fn show(value: &Grouping) -> String {
        quoted(value)
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
        let text = <Text as Kind<String>>::read(value)?;
        Ok(LogTarget::of(&text))
    }
    fn show(value: &LogTarget) -> String {
        quoted(value)
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
            ("99999999999999999999s", None),
            ("4000d", None),
        ] {
            let got = parse_duration(text).map(|time| time.as_millis() as u64);
            assert_eq!(got, ms, "{text}");
        }
        for text in ["250ms", "30s", "90m", "2h", "1d", "0s"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn networks_are_masked_and_single_addresses_allowed() {
        let list = Value::List(vec!["10.1.2.3/8".to_owned(), "::1".to_owned()]);
        let networks = Networks::read(&list).unwrap();
        assert_eq!(Networks::show(&networks), "[\"10.0.0.0/8\", \"::1/128\"]");
        let bad = Networks::read(&Value::List(vec!["ten".to_owned()])).unwrap_err();
        assert!(bad.contains("ten"), "{bad}");
    }

    #[test]
    fn what_is_shown_is_read_again() {
        let shown = <Size as Kind<u64>>::show(&(3 << 20));
        assert_eq!(<Size as Kind<u64>>::read(&Value::Text(shown.replace('"', ""))), Ok(3 << 20));
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(GroupRule::read(&text("path:2")), Ok(Grouping::Path(2)));
        assert!(GroupRule::read(&text("path:0")).is_err());
        assert!(Percent::read(&Value::Integer("101".to_owned())).is_err());
        assert!(<Count as Kind<usize>>::read(&Value::Integer("0".to_owned())).is_err());
    }
}
