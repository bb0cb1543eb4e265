//! Kinds of values with a narrower range than others of their type: a value outside would be
//! clamped silently, or keep the proxy from working. Pure, no threads.

use std::time::Duration;

use http::Method;

use super::kinds::{Count, Kind, Size, Text, Time, Value, Words};
use crate::config::name::check_name;
use crate::config::tables::{HEADER_LINES_MAX, URI_BYTES_MAX};
use crate::io::BUFFER_BYTES_MIN;
use crate::server::WORKERS_MAX;
use crate::slices::SLICE_BYTES_MAX;
use crate::upstream::check_tls_name;

/// A duration long enough for something to happen in it.
pub(crate) struct Span;
/// A number of worker threads.
pub(crate) struct Threads;
/// A slice length.
pub(crate) struct SliceSize;
/// A number of header lines: memory for them is set aside for each connection.
pub(crate) struct Lines;
/// A size of headers, or of a part of them, that requests as they are fit into.
pub(crate) struct HeaderSize;
/// A size of whole headers: no less than the buffer that they are read into.
pub(crate) struct HeadSize;
/// A name that certificates can be for.
pub(crate) struct HostName;
/// The name of this cache.
pub(crate) struct CacheName;
/// A size of request targets.
pub(crate) struct UriSize;
/// Protocols with or without a version (RFC 9110 §7.8).
pub(crate) struct Protocols;
/// Names of cookies.
pub(crate) struct CookieNames;
/// A secret that a header field can hold.
pub(crate) struct Secret;
/// Methods that may be orders to purge.
pub(crate) struct PurgeMethods;

/// Slice lengths that are accepted. Each slice is a request to the origin and an object of the
/// store, so that shorter ones would cost more than what they hold.
const SLICE_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=SLICE_BYTES_MAX;

/// Header sizes that are accepted.
const HEADER_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=16 << 20;

/// Sizes of request targets that are accepted.
const URI_BYTES: std::ops::RangeInclusive<u64> = *HEADER_BYTES.start()..=URI_BYTES_MAX as u64;

/// Sizes of whole headers that are accepted. Over HTTP/1 no less would be refused.
const HEAD_BYTES: std::ops::RangeInclusive<u64> = BUFFER_BYTES_MIN as u64..=*HEADER_BYTES.end();

impl Kind<Duration> for Span {
    const WRITTEN: &'static str = "a time above zero such as 500ms, 30s, 5m, 2h or 1d";
    fn read(value: &Value) -> Result<Duration, String> {
        let time = <Time as Kind<Duration>>::read(value)?;
        if time.is_zero() { Err(value.wanted(<Self as Kind<Duration>>::WRITTEN)) } else { Ok(time) }
    }
    fn show(value: &Duration) -> String {
        <Time as Kind<Duration>>::show(value)
    }
}

impl Kind<Option<Duration>> for Span {
    const WRITTEN: &'static str = "a time above zero such as 30s, or none";
    fn read(value: &Value) -> Result<Option<Duration>, String> {
        let time = <Time as Kind<Option<Duration>>>::read(value)?;
        match time {
            Some(time) if time.is_zero() => {
                Err(value.wanted(<Self as Kind<Option<Duration>>>::WRITTEN))
            }
            time => Ok(time),
        }
    }
    fn show(value: &Option<Duration>) -> String {
        <Time as Kind<Option<Duration>>>::show(value)
    }
}

impl Kind<usize> for Threads {
    const WRITTEN: &'static str = "a number from 1 to 1024";
    fn read(value: &Value) -> Result<usize, String> {
        let number = <Count as Kind<usize>>::read(value).ok();
        number.filter(|n| *n <= WORKERS_MAX).ok_or_else(|| value.wanted(Self::WRITTEN))
    }
    fn show(value: &usize) -> String {
        <Count as Kind<usize>>::show(value)
    }
}

impl Kind<u64> for SliceSize {
    const WRITTEN: &'static str = "0, or a size from 4KiB to 16MiB";
    fn read(value: &Value) -> Result<u64, String> {
        let size = <Size as Kind<u64>>::read(value)?;
        let fits = size == 0 || SLICE_BYTES.contains(&size);
        if fits { Ok(size) } else { Err(value.wanted(Self::WRITTEN)) }
    }
    fn show(value: &u64) -> String {
        <Size as Kind<u64>>::show(value)
    }
}

impl Kind<usize> for Lines {
    const WRITTEN: &'static str = "a number from 1 to 10000";
    fn read(value: &Value) -> Result<usize, String> {
        let number = <Count as Kind<usize>>::read(value).ok();
        number.filter(|n| *n <= HEADER_LINES_MAX).ok_or_else(|| value.wanted(Self::WRITTEN))
    }
    fn show(value: &usize) -> String {
        <Count as Kind<usize>>::show(value)
    }
}

impl Kind<u32> for HeaderSize {
    const WRITTEN: &'static str = "a size from 1KiB to 16MiB";
    fn read(value: &Value) -> Result<u32, String> {
        let size = <Size as Kind<u64>>::read(value)?;
        let size = u32::try_from(size).ok().filter(|size| HEADER_BYTES.contains(&u64::from(*size)));
        size.ok_or_else(|| value.wanted(Self::WRITTEN))
    }
    fn show(value: &u32) -> String {
        <Size as Kind<u64>>::show(&u64::from(*value))
    }
}

impl Kind<usize> for UriSize {
    const WRITTEN: &'static str = "a size from 1KiB to 65534B";
    fn read(value: &Value) -> Result<usize, String> {
        let size = <Size as Kind<usize>>::read(value)?;
        let fits = URI_BYTES.contains(&(size as u64));
        if fits { Ok(size) } else { Err(value.wanted(Self::WRITTEN)) }
    }
    fn show(value: &usize) -> String {
        <Size as Kind<usize>>::show(value)
    }
}

impl Kind<usize> for HeadSize {
    const WRITTEN: &'static str = "a size from 8KiB to 16MiB";
    fn read(value: &Value) -> Result<usize, String> {
        let size = <Size as Kind<usize>>::read(value)?;
        let fits = HEAD_BYTES.contains(&(size as u64));
        if fits { Ok(size) } else { Err(value.wanted(Self::WRITTEN)) }
    }
    fn show(value: &usize) -> String {
        <Size as Kind<usize>>::show(value)
    }
}

impl Kind<String> for CacheName {
    const WRITTEN: &'static str = "text";
    fn read(value: &Value) -> Result<String, String> {
        let name = <Text as Kind<String>>::read(value)?;
        check_name(&name).map_err(|error| error.to_string())?;
        Ok(name)
    }
    fn show(value: &String) -> String {
        <Text as Kind<String>>::show(value)
    }
}

impl Kind<Option<String>> for HostName {
    const WRITTEN: &'static str = "a name such as app.example.org, or \"none\"";
    fn read(value: &Value) -> Result<Option<String>, String> {
        let name = <Text as Kind<Option<String>>>::read(value)?;
        name.as_deref().map_or(Ok(()), check_tls_name)?;
        Ok(name)
    }
    fn show(value: &Option<String>) -> String {
        <Text as Kind<Option<String>>>::show(value)
    }
}

impl Kind<Vec<String>> for Protocols {
    const WRITTEN: &'static str = "a list of protocols such as websocket or SPDY/3.1";
    fn read(value: &Value) -> Result<Vec<String>, String> {
        let words = Words::read(value)?;
        words.iter().try_for_each(|word| protocol(word))?;
        Ok(words)
    }
    fn show(value: &Vec<String>) -> String {
        Words::show(value)
    }
}

fn protocol(word: &str) -> Result<(), String> {
    let (name, version) = word.split_once('/').unwrap_or((word, "1"));
    if is_token(name) && is_token(version) {
        return Ok(());
    }
    let said = "a name, or name/version, of letters, digits and !#$%&'*+-.^_`|~";
    Err(format!("{word:?} is no protocol: {said}"))
}

impl Kind<Vec<Method>> for PurgeMethods {
    const WRITTEN: &'static str = "a list of methods such as [\"PURGE\", \"BAN\"]";
    fn read(value: &Value) -> Result<Vec<Method>, String> {
        Words::read(value)?.iter().map(|word| purge_method(word)).collect()
    }
    fn show(value: &Vec<Method>) -> String {
        Words::show(&value.iter().map(Method::to_string).collect())
    }
}

/// The method of this name, if HTTP gives it no meaning of its own.
fn purge_method(word: &str) -> Result<Method, String> {
    let method: Method =
        word.parse().map_err(|_| format!("{word:?} cannot be the name of a method"))?;
    let means_more = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::CONNECT,
        Method::OPTIONS,
        Method::TRACE,
        Method::PATCH,
    ];
    if means_more.contains(&method) || word.to_ascii_uppercase() != word {
        return Err(format!("{word:?} is no method to purge by, such as PURGE or BAN"));
    }
    Ok(method)
}

impl Kind<Vec<String>> for CookieNames {
    const WRITTEN: &'static str = Words::WRITTEN;
    fn read(value: &Value) -> Result<Vec<String>, String> {
        let words = Words::read(value)?;
        words.iter().try_for_each(|word| cookie_name(word).map(drop))?;
        Ok(words)
    }
    fn show(value: &Vec<String>) -> String {
        Words::show(value)
    }
}

/// The word, if a cookie can have that name. Those in use are more than RFC 6265 lets servers set,
/// such as PHP's `user[lang]`: only what ends a name or a cookie cannot be in one.
pub(super) fn cookie_name(word: &str) -> Result<&str, String> {
    let ends = |c: char| c.is_control() || c.is_whitespace() || ";,=".contains(c);
    if !word.is_empty() && !word.contains(ends) {
        return Ok(word);
    }
    Err(format!("{word:?} is no name of a cookie: it has no spaces, controls or `;` `,` `=`"))
}

pub(super) fn is_token(word: &str) -> bool {
    let may = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !word.is_empty() && word.bytes().all(may)
}

impl Kind<Option<String>> for Secret {
    const WRITTEN: &'static str = "text without spaces, or \"none\"";
    fn read(value: &Value) -> Result<Option<String>, String> {
        // Not shown: it goes to logs and terminals.
        let secret = match value {
            Value::Text(_) => <Text as Kind<Option<String>>>::read(value)?,
            _ => return Err("a token is text: write it in quotes".to_owned()),
        };
        match secret.as_deref().is_none_or(|text| text.bytes().all(|b| b.is_ascii_graphic())) {
            true => Ok(secret),
            false => Err("a token is printable ASCII without spaces".to_owned()),
        }
    }
    fn show(value: &Option<String>) -> String {
        <Text as Kind<Option<String>>>::show(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused() {
        let text = |text: &str| Value::of_argument(text);
        assert!(<Span as Kind<Duration>>::read(&text("0s")).is_err());
        assert!(<Span as Kind<Duration>>::read(&text("1ms")).is_ok());
        assert!(<Span as Kind<Option<Duration>>>::read(&text("0ms")).is_err());
        assert_eq!(<Span as Kind<Option<Duration>>>::read(&text("none")), Ok(None));
        assert_eq!(Threads::read(&text("1024")), Ok(1024));
        for wrong in ["0", "1025", "100000", "many"] {
            assert!(Threads::read(&text(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(SliceSize::read(&text("16MiB")), Ok(16 << 20));
        assert_eq!(SliceSize::read(&text("4KiB")), Ok(4096));
        assert_eq!(SliceSize::read(&text("0")), Ok(0));
        for wrong in ["1", "4095", "16777217"] {
            assert!(SliceSize::read(&text(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(Lines::read(&text("10000")), Ok(10_000));
        for wrong in ["0", "10001", "9223372036854775807"] {
            assert!(Lines::read(&text(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(HeaderSize::read(&text("1KiB")), Ok(1024));
        assert_eq!(HeadSize::read(&text("8KiB")), Ok(8192));
        for wrong in ["0", "1KiB", "8191", "17MiB", "8GiB"] {
            assert!(HeadSize::read(&text(wrong)).is_err(), "{wrong}");
        }
        for wrong in ["0", "1", "1023", "17MiB", "8GiB", "16PiB"] {
            let error = HeaderSize::read(&text(wrong)).unwrap_err();
            assert!(error.contains("16MiB"), "{error}");
        }
        assert_eq!(UriSize::read(&text("65534")), Ok(URI_BYTES_MAX));
        for wrong in ["1023", "64KiB"] {
            assert!(UriSize::read(&text(wrong)).is_err(), "{wrong}");
        }
        assert!(Threads::WRITTEN.ends_with(&WORKERS_MAX.to_string()));
        assert!(Lines::WRITTEN.ends_with(&HEADER_LINES_MAX.to_string()));
        for (written, sizes) in [
            (SliceSize::WRITTEN, SLICE_BYTES),
            (HeadSize::WRITTEN, HEAD_BYTES),
            (HeaderSize::WRITTEN, HEADER_BYTES),
            (UriSize::WRITTEN, URI_BYTES),
        ] {
            let [least, most] = [sizes.start(), sizes.end()]
                .map(|size| <Size as Kind<u64>>::show(size).replace('"', ""));
            assert!(written.ends_with(&format!("from {least} to {most}")), "{written}");
        }
    }

    #[test]
    fn what_no_header_can_hold_is_refused() {
        let text = |text: &str| Value::Text(text.to_owned());
        for wrong in ["a b", "\u{1}", "é", "a=b", "/1", "SPDY/", "SPDY/3/1"] {
            let error = Protocols::read(&text(wrong)).unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        let protocols = Protocols::read(&text("websocket, SPDY/3.1"));
        assert_eq!(protocols.unwrap(), ["websocket", "SPDY/3.1"]);
        for wrong in ["a b", "a\u{1}", "a;b", "a=b"] {
            let error = CookieNames::read(&text(wrong)).unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        let names = CookieNames::read(&text("sid, __Host-x, user[lang]"));
        assert_eq!(names.unwrap(), ["sid", "__Host-x", "user[lang]"]);
        for wrong in ["two words", "line\n", "ü"] {
            let error = Secret::read(&text(wrong)).unwrap_err();
            assert!(!error.contains(wrong), "the secret is shown: {error}");
        }
        let number = Secret::read(&Value::Integer("12345678".to_owned())).unwrap_err();
        assert!(!number.contains("12345678"), "the secret is shown: {number}");
        assert_eq!(Secret::read(&text("none")), Ok(None));
        assert_eq!(Secret::read(&text("s3cret/+=")), Ok(Some("s3cret/+=".to_owned())));
        assert!(CacheName::read(&text("a b")).unwrap_err().contains("`a b`"));
        assert_eq!(CacheName::read(&text("edge-1")), Ok("edge-1".to_owned()));
    }
}
