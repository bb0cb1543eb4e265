//! Kinds of values: how each is written in the configuration, parsed, checked and shown.
//!
//! A kind is a type without values. Its functions parse what a person may write (`30s`, `512MiB`,
//! `127.0.0.1:8080`) and return an error that names the input and the limit. This file has the
//! shared parts: raw values and lists. Pure, no threads.

mod caching;
mod scalar;
mod transport;

use std::str::FromStr;

pub(crate) use caching::{Cookies, GroupRule, Headers, Negotiated, Query, Words};
pub(crate) use scalar::{
    CachePath, Count, File, Flag, Format, Limit, LogFile, Percent, Size, Text, Time, Writes,
};
pub(crate) use transport::{
    AccessRules, Address, Certificates, Check, Choosing, Listeners, Networks, OriginUrl, Origins,
    Statuses, network,
};

/// A raw value of the file, before its kind is known.
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
    /// The raw value of an argument of the command line; the key's kind interprets it. Digits are
    /// text, as what takes numbers takes, too: a token or a path may be digits alone.
    pub(crate) fn of_argument(text: &str) -> Value {
        match text {
            "true" => Value::Flag(true),
            "false" => Value::Flag(false),
            "[]" => Value::List(Vec::new()),
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

    pub(in crate::settings) fn wanted(&self, what: &str) -> String {
        match self {
            // "Is not text" is no word to who has written text.
            Value::Text(text) if text.is_empty() => format!("\"\" is empty: write {what}"),
            _ => format!("{} is not {what}", self.shown()),
        }
    }

    /// A text that is not empty; `what` is what it should say.
    fn text(&self, what: &str) -> Result<&str, String> {
        match self {
            Value::Text(text) if !text.is_empty() => Ok(text),
            other => Err(other.wanted(what)),
        }
    }

    /// The error of a value that is beyond the largest one accepted.
    fn beyond(&self, most: &str) -> String {
        format!("{} is more than {most}, the most that is accepted", self.shown())
    }

    /// The text, or a number as it was written.
    pub(super) fn plain(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Integer(text) => Some(text),
            Value::Flag(_) | Value::List(_) => None,
        }
    }
}

/// Parses and shows values of type `T`.
pub(crate) trait Kind<T> {
    /// Syntax, for the documents and for errors.
    const WRITTEN: &'static str;
    /// Parses a value; the error says what is wrong with it.
    fn read(value: &Value) -> Result<T, String>;
    /// Shows a value as it would be written in the file.
    fn show(value: &T) -> String;
}

/// A string as both TOML and JSON write it.
pub(super) fn quoted(text: impl std::fmt::Display) -> String {
    let mut quoted = String::from('"');
    for c in text.to_string().chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A list, or a single text as a list of one.
fn list(value: &Value, written: &str) -> Result<Vec<String>, String> {
    match value {
        Value::List(list) => Ok(list.clone()),
        Value::Text(text) => Ok(vec![text.clone()]),
        other => Err(other.wanted(written)),
    }
}

/// A list, or a single text with its items separated by commas. An empty item is refused: what was
/// to be there is missing.
fn split_list(value: &Value, written: &str) -> Result<Vec<String>, String> {
    let list = list(value, written)?;
    let items = list.iter().flat_map(|text| text.split(','));
    let items: Vec<String> = items.map(|item| item.trim().to_owned()).collect();
    match (items.iter().any(String::is_empty), value) {
        (false, _) => Ok(items),
        (true, Value::Text(text)) if text.is_empty() => Err(value.wanted(written)),
        (true, _) => Err(format!("{} has an empty item: write {written}", value.shown())),
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(list: &[String]) -> Result<Vec<T>, String> {
    list.iter().map(|text| text.parse().map_err(|error: T::Err| error.to_string())).collect()
}

fn shown<T: ToString>(list: &[T]) -> String {
    format!("[{}]", list.iter().map(|item| quoted(item.to_string())).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Grouping;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    /// Parses a text and shows the value, without quotes.
    fn round<T, K: Kind<T>>(written: &str) -> Result<String, String> {
        K::read(&text(written)).map(|value| K::show(&value).trim_matches('"').to_owned())
    }

    #[test]
    fn what_is_shown_is_what_was_read() {
        let checks = "/up every 500ms timeout 1s fall 2 rise 4";
        assert_eq!(round::<_, Check>(checks), Ok(checks.to_owned()));
        assert_eq!(round::<_, Check>("none"), Ok("none".to_owned()));
        assert_eq!(round::<_, Choosing>("least-loaded"), Ok("least-loaded".to_owned()));
        assert_eq!(round::<_, Query>("except:utm_*,id"), Ok("except:utm_*,id".to_owned()));
        assert_eq!(round::<_, Cookies>("strip"), Ok("strip".to_owned()));
        for way in ["equivalent", "as-sent", "best-of:br,gzip", "best-of:en-GB"] {
            assert_eq!(round::<_, Negotiated>(way), Ok(way.to_owned()));
        }
        assert_eq!(round::<u64, Time>("2h"), Ok("2h".to_owned()));
        let listeners = round::<_, Listeners>("tls+tcp:127.0.0.1:443,unix:/run/x");
        assert_eq!(listeners.unwrap(), "[\"tls+tcp:127.0.0.1:443\", \"unix:/run/x\"]");
        assert_eq!(round::<_, Certificates>("a.pem, b.pem").unwrap(), "[\"a.pem,b.pem\"]");
    }

    #[test]
    fn what_is_empty_is_told_as_that() {
        let said = |value| Choosing::read(&value).map(drop).unwrap_err();
        assert_eq!(said(text("")), "\"\" is empty: write hash or least-loaded");
        assert_eq!(said(Value::Integer("5".to_owned())), "5 is not hash or least-loaded");
        let name = <Text as Kind<String>>::read(&text(""));
        assert_eq!(name, Err("\"\" is empty: write text".to_owned()));
    }

    #[test]
    fn an_empty_item_of_a_list_is_refused() {
        let list =
            |items: &[&str]| Value::List(items.iter().map(|item| item.to_string()).collect());
        for value in [list(&[""]), list(&["x", ""]), text("x,"), text(" , "), text("")] {
            let said = [
                Listeners::read(&value).map(drop),
                Origins::read(&value).map(drop),
                Headers::read(&value).map(drop),
                Words::read(&value).map(drop),
                Networks::read(&value).map(drop),
                Certificates::read(&value).map(drop),
            ];
            assert!(said.iter().all(Result::is_err), "{value:?}: {said:?}");
        }
        let said = |value| Words::read(&value).unwrap_err();
        assert_eq!(said(text("")), "\"\" is empty: write a list of words");
        let missing = "[\"x\", \"\"] has an empty item: write a list of words";
        assert_eq!(said(list(&["x", ""])), missing);
        assert_eq!(Words::read(&list(&[])), Ok(Vec::new()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for checks in
            ["up", "/up every", "/up every x", "/up fall 0", "/up often 3", "/up every 0s"]
        {
            assert!(Check::read(&text(checks)).is_err(), "{checks}");
        }
        for query in ["", "some", "only:", "but:x"] {
            assert!(Query::read(&text(query)).is_err(), "{query}");
        }
        for way in ["", "best", "best-of", "best-of:", "best-of:a b", "best-of:br,,gzip"] {
            assert!(Negotiated::read(&text(way)).is_err(), "{way}");
        }
        assert!(Certificates::read(&text("a.pem")).is_err());
        assert!(Origins::read(&text("ftp://x")).is_err());
        assert!(Headers::read(&text("a b")).is_err());
        assert!(AccessRules::read(&text("perhaps")).is_err());
        assert!(Listeners::read(&text("127.0.0.1:80")).is_err());
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
