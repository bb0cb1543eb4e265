//! Kinds of values about connections: listeners, networks, origins and their checks, access rules
//! of a forward proxy. Pure, except that host names in addresses are resolved. No threads.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use http::{StatusCode, Uri};
use ipnet::IpNet;

use super::{Count, Kind, Time, Value, list, parsed, quoted, shown, split_list};
use crate::config::OriginTarget;
use crate::config::transport::{CertificateFiles, HealthChecks, Listener, OriginChoice};
use crate::forward::access_rule::AccessRule;
use crate::rules::key::is_plain_authority;
use crate::settings::ranges::Span;
use crate::settings::rule_keys::status_range;

/// Address and port.
pub(crate) struct Address;
/// An origin.
pub(crate) struct OriginUrl;
/// Networks.
pub(crate) struct Networks;
/// Listeners.
pub(crate) struct Listeners;
/// Pairs of certificate chain and key.
pub(crate) struct Certificates;
/// URLs of origins.
pub(crate) struct Origins;
/// How one of several origins is chosen.
pub(crate) struct Choosing;
/// Health checks.
pub(crate) struct Check;
/// Statuses by which an origin fails a request.
pub(crate) struct Statuses;
/// Access rules of a forward proxy.
pub(crate) struct AccessRules;

/// `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`.
pub(crate) fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Some(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    if cfg!(feature = "fuzzing") {
        // The fuzzer must not query a name server.
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

impl Kind<OriginTarget> for OriginUrl {
    const WRITTEN: &'static str = "http://HOST[:PORT], https://HOST[:PORT], unix:/PATH or demo";
    fn read(value: &Value) -> Result<OriginTarget, String> {
        let Value::Text(text) = value else { return Err(value.wanted(Self::WRITTEN)) };
        let Ok(target) = text.parse();
        if let OriginTarget::Url(url) = &target {
            crate::upstream::check_url(url).map_err(|error| error.to_string())?;
        }
        Ok(target)
    }
    fn show(value: &OriginTarget) -> String {
        match value {
            OriginTarget::Demo => quoted("demo"),
            OriginTarget::Url(url) => quoted(url),
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
        list.iter().map(|text| network(text.trim())).collect()
    }
    fn show(value: &Vec<IpNet>) -> String {
        shown(value)
    }
}

/// A network, or one address.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Ok(network.trunc());
    }
    let address = text.parse::<IpAddr>();
    address.map(IpNet::from).map_err(|_| format!("\"{text}\" is not a network: write 10.0.0.0/8"))
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

impl Kind<OriginChoice> for Choosing {
    const WRITTEN: &'static str = "hash or least-loaded";
    fn read(value: &Value) -> Result<OriginChoice, String> {
        value.text(Self::WRITTEN)?.parse().map_err(|_| value.wanted(Self::WRITTEN))
    }
    fn show(value: &OriginChoice) -> String {
        quoted(match value {
            OriginChoice::ConsistentHash => "hash",
            OriginChoice::LeastLoaded => "least-loaded",
        })
    }
}

impl Kind<Option<HealthChecks>> for Check {
    const WRITTEN: &'static str = "PATH [host NAME] [expect STATUS] [every TIME] [timeout TIME] [fall COUNT] [rise COUNT], or none";
    fn read(value: &Value) -> Result<Option<HealthChecks>, String> {
        let text = value.text(Self::WRITTEN)?;
        let mut words = text.split_whitespace();
        let path = words.next().unwrap_or_default();
        if path == "none" {
            return Ok(None);
        }
        if !path.starts_with('/') || path.parse::<Uri>().is_err() {
            return Err(value.wanted(Self::WRITTEN));
        }
        let mut checks = HealthChecks { path: path.to_owned(), ..HealthChecks::default() };
        while let Some(word) = words.next() {
            let said = Value::Text(words.next().unwrap_or_default().to_owned());
            match word {
                "host" => checks.host = Some(host(said.text(Self::WRITTEN)?)?),
                "expect" => checks.expect = status_range(said.text(Self::WRITTEN)?)?,
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
        let host = checks.host.iter().map(|host| format!(" host {host}"));
        let [first, last] = [checks.expect.start(), checks.expect.end()];
        let expect = (checks.expect != HealthChecks::default().expect)
            .then(|| format!(" expect {first}-{last}"));
        let asked: String = host.chain(expect).collect();
        quoted(format!(
            "{}{asked} every {} timeout {} fall {} rise {}",
            checks.path,
            time(&checks.interval),
            time(&checks.timeout),
            checks.fall,
            checks.rise
        ))
    }
}

impl Kind<Vec<StatusCode>> for Statuses {
    const WRITTEN: &'static str = "a list of statuses such as [502, 503]";
    fn read(value: &Value) -> Result<Vec<StatusCode>, String> {
        let statuses = match value {
            Value::Integer(number) => vec![number.clone()],
            other => split_list(other, Self::WRITTEN)?,
        };
        statuses.iter().map(|text| failing_status(text)).collect()
    }
    fn show(value: &Vec<StatusCode>) -> String {
        format!("[{}]", value.iter().map(StatusCode::as_str).collect::<Vec<_>>().join(", "))
    }
}

/// A status by which an origin can say that another one may do better.
fn failing_status(text: &str) -> Result<StatusCode, String> {
    let status = text.parse().ok().and_then(|code: u16| StatusCode::from_u16(code).ok());
    let fails =
        |status: &StatusCode| status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS;
    status.filter(fails).ok_or_else(|| format!("\"{text}\" is not 429, nor from 500 to 599"))
}

impl Kind<Vec<AccessRule>> for AccessRules {
    const WRITTEN: &'static str =
        "a list of rules such as [\"allow client=10.0.0.0/8 port=80,443\"]";
    fn read(value: &Value) -> Result<Vec<AccessRule>, String> {
        parsed(&list(value, Self::WRITTEN)?)
    }
    fn show(value: &Vec<AccessRule>) -> String {
        shown(value)
    }
}

/// A host as `Host` says it, with or without a port.
fn host(name: &str) -> Result<String, String> {
    if is_plain_authority(name.as_bytes()) && !name.is_empty() {
        return Ok(name.to_owned());
    }
    Err(format!("\"{name}\" is no host such as app.example.org"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_masked_and_single_addresses_allowed() {
        let list = Value::List(vec!["10.1.2.3/8".to_owned(), "::1".to_owned()]);
        let networks = Networks::read(&list).unwrap();
        assert_eq!(Networks::show(&networks), "[\"10.0.0.0/8\", \"::1/128\"]");
        let bad = Networks::read(&Value::List(vec!["ten".to_owned()])).unwrap_err();
        assert!(bad.contains("ten"), "{bad}");
    }

    #[test]
    fn statuses_that_fail_a_request_are_errors_of_origins() {
        let list = |items: &[&str]| Value::List(items.iter().map(|i| i.to_string()).collect());
        for value in [list(&["429", "503"]), Value::Text("429, 503".to_owned())] {
            assert_eq!(Statuses::show(&Statuses::read(&value).unwrap()), "[429, 503]");
        }
        assert_eq!(Statuses::read(&Value::Integer("502".to_owned())).unwrap(), [502]);
        assert_eq!(Statuses::read(&list(&[])).unwrap(), Vec::<StatusCode>::new());
        for wrong in ["404", "600", "500-599", "http_502", ""] {
            assert!(Statuses::read(&list(&[wrong])).is_err(), "{wrong}");
        }
    }

    #[test]
    fn checks_are_read_and_shown_alike() {
        let read = |text: &str| Check::read(&Value::Text(text.to_owned()));
        for text in [
            "/up every 5s timeout 2s fall 3 rise 2",
            "/up host app.test:81 expect 200-404 every 5s timeout 2s fall 3 rise 2",
        ] {
            assert_eq!(Check::show(&read(text).unwrap()), format!("\"{text}\""));
        }
        assert_eq!(read("/up expect 204").unwrap().unwrap().expect, 204..=204);
        for (text, word) in [
            ("/up expect 404-200", "404-200"),
            ("/up expect good", "good"),
            ("/up host a/b", "a/b"),
            ("/up host", "host"),
            ("/a b", "PATH"),
            ("/a\u{7f}", "PATH"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
