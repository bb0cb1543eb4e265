//! Kinds of values for listeners, origins, access and the rules of caching. Pure, no threads.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;

use super::kinds::{Count, Kind, Size, Text, Time, Value, quoted};
use super::ranges::Span;
use crate::config::transport::{CertificateFiles, HealthChecks, Listener, OriginChoice};
use crate::forward::access::AccessRule;
use crate::rules::SetCookie;
use crate::rules::key::QueryRule;
use crate::rules::negotiation::Normaliser;

/// Listeners.
pub(crate) struct Listeners;
/// Pairs of certificate chain and key.
pub(crate) struct Certificates;
/// URLs of origins.
pub(crate) struct Origins;
/// Words.
pub(crate) struct Words;
/// Names of header fields.
pub(crate) struct Headers;
/// How one of several origins is chosen.
pub(crate) struct Choosing;
/// Health checks.
pub(crate) struct Check;
/// A file.
pub(crate) struct File;
/// A number of things, 0 for no limit.
pub(crate) struct Limit;
/// What becomes of `Set-Cookie`.
pub(crate) struct Cookies;
/// Which query parameters count.
pub(crate) struct Query;
/// How a field that negotiates is compared.
pub(crate) struct Negotiated;
/// Access rules of a forward proxy.
pub(crate) struct AccessRules;

/// A list, or one text alone.
fn list(value: &Value, written: &str) -> Result<Vec<String>, String> {
    match value {
        Value::List(list) => Ok(list.clone()),
        Value::Text(text) => Ok(vec![text.clone()]),
        other => Err(other.wanted(written)),
    }
}

/// A list, or one text with commas between its items.
fn split_list(value: &Value, written: &str) -> Result<Vec<String>, String> {
    let list = list(value, written)?;
    let items = list.iter().flat_map(|text| text.split(','));
    Ok(items.map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect())
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(list: &[String]) -> Result<Vec<T>, String> {
    list.iter().map(|text| text.parse().map_err(|error: T::Err| error.to_string())).collect()
}

fn shown<T: ToString>(list: &[T]) -> String {
    format!("{:?}", list.iter().map(ToString::to_string).collect::<Vec<_>>())
}

impl Kind<Vec<Listener>> for Listeners {
    const WRITTEN: &'static str =
        "a list of listeners such as [\"tls+tcp:0.0.0.0:443\", \"unix:/run/x\"]";
    fn read(value: &Value) -> Result<Vec<Listener>, String> {
        parsed(&split_list(value, Self::WRITTEN)?)
    }
    fn show(value: &Vec<Listener>) -> String {
        shown(value)
    }
}

impl Kind<Vec<CertificateFiles>> for Certificates {
    const WRITTEN: &'static str = "a list of files such as [\"chain.pem,key.pem\"]";
    fn read(value: &Value) -> Result<Vec<CertificateFiles>, String> {
        let pair = |text: &String| match text.split_once(',') {
            Some((chain, key)) if !chain.trim().is_empty() && !key.trim().is_empty() => {
                Ok(CertificateFiles { chain: chain.trim().into(), key: key.trim().into() })
            }
            _ => Err(format!("\"{text}\" is no pair: write CHAIN.pem,KEY.pem")),
        };
        list(value, Self::WRITTEN)?.iter().map(pair).collect()
    }
    fn show(value: &Vec<CertificateFiles>) -> String {
        let pair =
            |pair: &CertificateFiles| format!("{},{}", pair.chain.display(), pair.key.display());
        shown(&value.iter().map(pair).collect::<Vec<_>>())
    }
}

impl Kind<Vec<String>> for Origins {
    const WRITTEN: &'static str = "a list of URLs such as [\"http://10.0.0.6:8000\"]";
    fn read(value: &Value) -> Result<Vec<String>, String> {
        let urls = split_list(value, Self::WRITTEN)?;
        for url in &urls {
            crate::upstream::check_url(url).map_err(|error| error.to_string())?;
        }
        Ok(urls)
    }
    fn show(value: &Vec<String>) -> String {
        shown(value)
    }
}

impl Kind<Vec<String>> for Words {
    const WRITTEN: &'static str = "a list of words";
    fn read(value: &Value) -> Result<Vec<String>, String> {
        split_list(value, Self::WRITTEN)
    }
    fn show(value: &Vec<String>) -> String {
        shown(value)
    }
}

impl Kind<Vec<HeaderName>> for Headers {
    const WRITTEN: &'static str = "a list of header names";
    fn read(value: &Value) -> Result<Vec<HeaderName>, String> {
        let names = split_list(value, Self::WRITTEN)?;
        let name = |text: &String| {
            text.parse().map_err(|_| format!("\"{text}\" cannot be the name of a header"))
        };
        names.iter().map(name).collect()
    }
    fn show(value: &Vec<HeaderName>) -> String {
        shown(value)
    }
}

impl Kind<OriginChoice> for Choosing {
    const WRITTEN: &'static str = "hash or least-loaded";
    fn read(value: &Value) -> Result<OriginChoice, String> {
        <Text as Kind<String>>::read(value)?.parse().map_err(|_| value.wanted(Self::WRITTEN))
    }
    fn show(value: &OriginChoice) -> String {
        quoted(match value {
            OriginChoice::ConsistentHash => "hash",
            OriginChoice::LeastLoaded => "least-loaded",
        })
    }
}

impl Kind<Option<HealthChecks>> for Check {
    const WRITTEN: &'static str =
        "PATH [every TIME] [timeout TIME] [fall COUNT] [rise COUNT], or none";
    fn read(value: &Value) -> Result<Option<HealthChecks>, String> {
        let text = <Text as Kind<String>>::read(value)?;
        let mut words = text.split_whitespace();
        let path = words.next().unwrap_or_default();
        if path == "none" {
            return Ok(None);
        }
        if !path.starts_with('/') {
            return Err(value.wanted(Self::WRITTEN));
        }
        let mut checks = HealthChecks { path: path.to_owned(), ..HealthChecks::default() };
        while let Some(word) = words.next() {
            let said = Value::Text(words.next().unwrap_or_default().to_owned());
            match word {
                "every" => checks.interval = Span::read(&said)?,
                "timeout" => checks.timeout = Span::read(&said)?,
                "fall" => checks.fall = Count::read(&said)?,
                "rise" => checks.rise = Count::read(&said)?,
                _ => return Err(value.wanted(Self::WRITTEN)),
            }
        }
        Ok(Some(checks))
    }
    fn show(value: &Option<HealthChecks>) -> String {
        let Some(checks) = value else { return quoted("none") };
        let time = |time| <Time as Kind<Duration>>::show(time).replace('"', "");
        quoted(format!(
            "{} every {} timeout {} fall {} rise {}",
            checks.path,
            time(&checks.interval),
            time(&checks.timeout),
            checks.fall,
            checks.rise
        ))
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

impl Kind<u32> for Size {
    const WRITTEN: &'static str = <Size as Kind<u64>>::WRITTEN;
    fn read(value: &Value) -> Result<u32, String> {
        let bytes = <Size as Kind<u64>>::read(value)?;
        u32::try_from(bytes).map_err(|_| value.wanted("a size below 4GiB"))
    }
    fn show(value: &u32) -> String {
        <Size as Kind<u64>>::show(&u64::from(*value))
    }
}

impl Kind<Option<Duration>> for Time {
    const WRITTEN: &'static str = "a time such as 30s, or none";
    fn read(value: &Value) -> Result<Option<Duration>, String> {
        if *value == Value::Text("none".to_owned()) {
            return Ok(None);
        }
        <Time as Kind<Duration>>::read(value).map(Some)
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

/// Whole seconds.
impl Kind<u64> for Time {
    const WRITTEN: &'static str = "a time such as 30s, 5m, 2h or 1d";
    fn read(value: &Value) -> Result<u64, String> {
        <Time as Kind<Duration>>::read(value).map(|time| time.as_secs())
    }
    fn show(value: &u64) -> String {
        <Time as Kind<Duration>>::show(&Duration::from_secs(*value))
    }
}

impl Kind<SetCookie> for Cookies {
    const WRITTEN: &'static str = "store, strip or refuse";
    fn read(value: &Value) -> Result<SetCookie, String> {
        match <Text as Kind<String>>::read(value)?.as_str() {
            "store" => Ok(SetCookie::Store),
            "strip" => Ok(SetCookie::Strip),
            "refuse" => Ok(SetCookie::Refuse),
            _ => Err(value.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &SetCookie) -> String {
        quoted(match value {
            SetCookie::Store => "store",
            SetCookie::Strip => "strip",
            SetCookie::Refuse => "refuse",
        })
    }
}

impl Kind<QueryRule> for Query {
    const WRITTEN: &'static str = "all, none, except:NAME,... or only:NAME,...";
    fn read(value: &Value) -> Result<QueryRule, String> {
        let text = <Text as Kind<String>>::read(value)?;
        let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect();
        match text.split_once(':') {
            None if text == "all" => Ok(QueryRule::All),
            None if text == "none" => Ok(QueryRule::None),
            Some(("except", list)) if !list.is_empty() => Ok(QueryRule::Except(names(list))),
            Some(("only", list)) if !list.is_empty() => Ok(QueryRule::Only(names(list))),
            _ => Err(value.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &QueryRule) -> String {
        match value {
            QueryRule::All => quoted("all"),
            QueryRule::None => quoted("none"),
            QueryRule::Except(names) => quoted(format!("except:{}", names.join(","))),
            QueryRule::Only(names) => quoted(format!("only:{}", names.join(","))),
        }
    }
}

impl Kind<Normaliser> for Negotiated {
    const WRITTEN: &'static str = "equivalent, as-sent or best-of:NAME,...";
    fn read(value: &Value) -> Result<Normaliser, String> {
        let text = <Text as Kind<String>>::read(value)?;
        let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect();
        match text.split_once(':') {
            None if text == "equivalent" => Ok(Normaliser::Equivalent),
            None if text == "as-sent" => Ok(Normaliser::AsSent),
            Some(("best-of", list)) if list.split(',').all(is_name) => {
                Ok(Normaliser::BestOf(names(list)))
            }
            _ => Err(value.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &Normaliser) -> String {
        match value {
            Normaliser::Equivalent => quoted("equivalent"),
            Normaliser::AsSent => quoted("as-sent"),
            Normaliser::BestOf(names) => quoted(format!("best-of:{}", names.join(","))),
        }
    }
}

/// A coding or language: it is sent to origins as it is written here.
fn is_name(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl Kind<Vec<AccessRule>> for AccessRules {
    const WRITTEN: &'static str =
        "a list of rules such as [\"allow client=10.0.0.0/8 port=80,443\"]";
    fn read(value: &Value) -> Result<Vec<AccessRule>, String> {
        parsed(&list(value, Self::WRITTEN)?)
    }
    fn show(value: &Vec<AccessRule>) -> String {
        // Rules have no one spelling; their text says what they are in a log.
        format!("{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    /// What a kind shows of a text that it read, without quotes.
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
}
