//! Rules of the forward proxy as an operator writes them: who may go where.
//!
//! Invariant: what is written by `Display` reads back as the same rule. Pure: files that a rule
//! names are read when it is put into use (`access`, by `lists`). No threads.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use http::Method;
use ipnet::IpNet;

/// One rule. A condition (clients, methods, ports, destinations) without any value holds for
/// everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// Whether matching requests are allowed.
    pub allow: bool,
    /// Networks of clients.
    pub clients: Vec<IpNet>,
    /// Files with more of them, one a line. An empty file holds for nobody.
    pub client_files: Vec<PathBuf>,
    /// Methods, `CONNECT` among them.
    pub methods: Vec<Method>,
    /// Ports of destinations.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Destinations.
    pub destinations: Vec<Destination>,
    /// Files with more of them, one a line. An empty file holds for none.
    pub destination_files: Vec<PathBuf>,
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A host by name: lower case, without a trailing dot.
    Host(String),
    /// A domain and all its subdomains, written likewise.
    Domain(String),
    /// A network that the host's address is in.
    Network(IpNet),
}

/// Text that is no access rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` in an access rule: {reason}; write `allow` or `deny`, then any of client=NETWORK,... \
     method=NAME,... port=N[-N],... to=HOST|.DOMAIN|NETWORK,..., with @FILE for a list of such \
     clients or destinations"
)]
pub struct ParseRuleError {
    text: String,
    reason: &'static str,
}

impl std::str::FromStr for AccessRule {
    type Err = ParseRuleError;

    /// `allow client=10.0.0.0/8 method=GET,CONNECT port=80,443,8000-8100 to=.example.org`.
    fn from_str(text: &str) -> Result<AccessRule, ParseRuleError> {
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let allow = match verb {
            "allow" => true,
            "deny" => false,
            _ => return Err(rule_error(verb, "a rule begins with allow or deny")),
        };
        let mut rule = AccessRule {
            allow,
            clients: Vec::new(),
            client_files: Vec::new(),
            methods: Vec::new(),
            ports: Vec::new(),
            destinations: Vec::new(),
            destination_files: Vec::new(),
        };
        for word in words {
            let (name, list) =
                word.split_once('=').ok_or_else(|| rule_error(word, "a condition has a `=`"))?;
            for value in list.split(',') {
                rule.add(name, value).map_err(|reason| rule_error(word, reason))?;
            }
        }
        Ok(rule)
    }
}

fn rule_error(text: &str, reason: &'static str) -> ParseRuleError {
    ParseRuleError { text: text.to_owned(), reason }
}

impl fmt::Display for AccessRule {
    /// Writes the form that [`FromStr`](std::str::FromStr) reads, each list in one condition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        f.write_str(if self.allow { "allow" } else { "deny" })?;
        let file = |path: &PathBuf| format!("@{}", path.display());
        let files = |paths: &[PathBuf]| paths.iter().map(file).collect::<Vec<_>>();
        let clients = self.clients.iter().map(ToString::to_string);
        condition(f, "client", clients.chain(files(&self.client_files)))?;
        condition(f, "method", self.methods.iter().map(ToString::to_string))?;
        condition(f, "port", self.ports.iter().map(port))?;
        let destinations = self.destinations.iter().map(ToString::to_string);
        condition(f, "to", destinations.chain(files(&self.destination_files)))
    }
}

/// Writes a condition that has values.
fn condition(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    values: impl Iterator<Item = String>,
) -> fmt::Result {
    for (index, value) in values.enumerate() {
        match index {
            0 => write!(f, " {name}={value}")?,
            _ => write!(f, ",{value}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The dot makes it a name, not a word for everything.
            Destination::Host(name) if is_one(name).is_err() => write!(f, "{name}."),
            Destination::Host(name) => f.write_str(name),
            Destination::Domain(name) => write!(f, ".{name}"),
            Destination::Network(network) => network.fmt(f),
        }
    }
}

/// Parses a network; an IPv4-mapped one as IPv4, since addresses are compared in canonical form. An
/// IPv6 address may have the brackets that it has in URLs.
fn network(text: &str) -> Option<IpNet> {
    let network = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => IpAddr::V6(address.parse().ok()?).into(),
        None => text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()?,
    };
    match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(length)) if network.addr().is_ipv6() => {
            IpNet::new(address.into(), length).ok()
        }
        _ => Some(network),
    }
}

/// A network of clients.
pub(crate) fn client(text: &str) -> Result<IpNet, &'static str> {
    network(is_one(text)?).ok_or("not a network")
}

/// Where requests go: a host, a domain with a dot before it, or a network.
pub(crate) fn destination(text: &str) -> Result<Destination, &'static str> {
    named(is_one(text)?).ok_or("not a destination")
}

/// Rejects words for everything. As names of a host or a method they would match next to nothing; a
/// host of such a name can be written with a dot behind it.
fn is_one(text: &str) -> Result<&str, &'static str> {
    match ["all", "any", "*"].iter().any(|every| text.eq_ignore_ascii_case(every)) {
        true => Err("a condition that is left out holds for all"),
        false => Ok(text),
    }
}

/// The file that stands in place of a client or destination, if one does.
fn file(text: &str) -> Option<Result<PathBuf, &'static str>> {
    let path = text.strip_prefix('@')?;
    Some(if path.is_empty() { Err("no file behind the `@`") } else { Ok(PathBuf::from(path)) })
}

impl AccessRule {
    fn add(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "client" => match file(value) {
                Some(path) => self.client_files.push(path?),
                None => self.clients.push(client(value)?),
            },
            "method" => {
                let method = Method::from_bytes(is_one(value)?.to_ascii_uppercase().as_bytes());
                self.methods.push(method.map_err(|_| "not a method")?);
            }
            "port" => {
                let (first, last) = is_one(value)?.split_once('-').unwrap_or((value, value));
                let port = |text: &str| text.parse::<u16>().map_err(|_| "not a port");
                let range = port(first)?..=port(last)?;
                if range.is_empty() {
                    return Err("the first port is larger than the last");
                }
                self.ports.push(range);
            }
            "to" => match file(value) {
                Some(path) => self.destination_files.push(path?),
                None => self.destinations.push(destination(value)?),
            },
            _ => return Err("the conditions are client, method, port and to"),
        }
        Ok(())
    }
}

fn named(text: &str) -> Option<Destination> {
    // A trailing dot makes no difference; requests arrive here without it.
    let text = text.trim_end_matches('.');
    if let Some(network) = network(text) {
        return Some(Destination::Network(network));
    }
    let name = text.trim_start_matches('.').to_ascii_lowercase();
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(good) || is_number(&name) {
        return None;
    }
    Some(if text.starts_with('.') { Destination::Domain(name) } else { Destination::Host(name) })
}

/// Whether resolvers take a name for an IPv4 address, in one of its old spellings (`10.1` is
/// 10.0.0.1, `0x7f000001` is 127.0.0.1). A rule would hold for that spelling alone.
fn is_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => last.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (text, written) in [
            ("deny", "deny"),
            ("allow to=.Example.org.,B.test,10.0.0.1", "allow to=.example.org,b.test,10.0.0.1/32"),
            (
                "allow port=80,8000-8100 client=10.1.2.3/8 method=get,CONNECT",
                "allow client=10.1.2.3/8 method=GET,CONNECT port=80,8000-8100",
            ),
            ("deny client=::ffff:10.0.0.0/104 client=::1", "deny client=10.0.0.0/8,::1/128"),
            (
                "deny to=[::1],[::ffff:10.0.0.1]. client=[2001:DB8::1]",
                "deny client=2001:db8::1/128 to=::1/128,10.0.0.1/32",
            ),
            ("deny  port=1-1 port=2", "deny port=1,2"),
            ("deny to=ANY.,all.", "deny to=any.,all."),
            (
                "deny to=@/etc/more.txt,a.test client=@clients,10.0.0.1",
                "deny client=10.0.0.1/32,@clients to=a.test,@/etc/more.txt",
            ),
        ] {
            let rule: AccessRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), written);
            assert_eq!(written.parse(), Ok(rule));
        }
    }
}
