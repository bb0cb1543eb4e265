//! Access rules of the forward proxy: the first rule that matches decides.
//!
//! Two implicit rules follow: clients on a loopback address are allowed, all others denied. Some
//! destinations are denied before any rule: metadata services and link-local addresses, and this
//! host's loopback addresses for remote clients, unless the settings allow them; and our own admin
//! listener always. Pure, except for the check whether an address is this host's: callers resolve
//! names. No threads.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use http::Method;
use ipnet::IpNet;

/// One rule. An empty field matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// Whether matching requests are allowed.
    pub allow: bool,
    /// Networks of clients.
    pub clients: Vec<IpNet>,
    /// Methods, `CONNECT` among them.
    pub methods: Vec<Method>,
    /// Ports of destinations.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Destinations.
    pub destinations: Vec<Destination>,
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
     method=NAME,... port=N[-N],... to=HOST|.DOMAIN|NETWORK,..."
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
            methods: Vec::new(),
            ports: Vec::new(),
            destinations: Vec::new(),
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
        condition(f, "client", self.clients.iter().map(ToString::to_string))?;
        condition(f, "method", self.methods.iter().map(ToString::to_string))?;
        condition(f, "port", self.ports.iter().map(port))?;
        condition(f, "to", self.destinations.iter().map(ToString::to_string))
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

impl AccessRule {
    fn add(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        // As names of a host or a method they would match next to nothing. A host of such a name
        // can be written with a dot behind it.
        if ["all", "any", "*"].iter().any(|every| value.eq_ignore_ascii_case(every)) {
            return Err("a condition that is left out holds for all");
        }
        match name {
            "client" => self.clients.push(network(value).ok_or("not a network")?),
            "method" => {
                let method = Method::from_bytes(value.to_ascii_uppercase().as_bytes());
                self.methods.push(method.map_err(|_| "not a method")?);
            }
            "port" => {
                let (first, last) = value.split_once('-').unwrap_or((value, value));
                let port = |text: &str| text.parse::<u16>().map_err(|_| "not a port");
                let range = port(first)?..=port(last)?;
                if range.is_empty() {
                    return Err("the first port is larger than the last");
                }
                self.ports.push(range);
            }
            "to" => self.destinations.push(destination(value).ok_or("not a destination")?),
            _ => return Err("the conditions are client, method, port and to"),
        }
        Ok(())
    }

    /// `None` if the result depends on the address.
    fn matches(&self, asked: &Asked<'_>, address: Option<IpAddr>) -> Option<bool> {
        let client = asked.client;
        let fits = (self.clients.is_empty() || self.clients.iter().any(|n| n.contains(&client)))
            && (self.methods.is_empty() || self.methods.contains(asked.method))
            && (self.ports.is_empty() || self.ports.iter().any(|p| p.contains(&asked.port)));
        if !fits || self.destinations.is_empty() {
            return Some(fits);
        }
        let mut unknown = false;
        for destination in &self.destinations {
            match (destination, address) {
                (Destination::Host(host), _) if asked.host == host => return Some(true),
                (Destination::Domain(domain), _) if is_in(asked.host, domain) => return Some(true),
                (Destination::Network(network), Some(address)) => {
                    // A deny rule matches every address that this one translates to, an allow rule
                    // only its own form.
                    let forms = forms(address).take(if self.allow { 1 } else { usize::MAX });
                    if forms.into_iter().any(|form| network.contains(&form)) {
                        return Some(true);
                    }
                }
                (Destination::Network(_), None) => unknown = true,
                _ => {}
            }
        }
        if unknown { None } else { Some(false) }
    }
}

fn destination(text: &str) -> Option<Destination> {
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

fn is_in(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// A request as the rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) client: IpAddr,
    pub(crate) method: &'a Method,
    /// Lower case, without brackets or trailing dot.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
}

/// The decision of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    Deny,
    /// It depends on the host's address.
    AskWithAddress,
}

/// All rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub(crate) rules: Vec<AccessRule>,
    pub(crate) to_link_local: bool,
    pub(crate) to_loopback: bool,
    /// Address of our own admin listener, once it listens.
    pub(crate) admin: OnceLock<SocketAddr>,
}

impl Access {
    /// Decides by name alone, or for one resolved address.
    pub(crate) fn decide(&self, asked: &Asked<'_>, address: Option<IpAddr>) -> Verdict {
        let address = address.or_else(|| asked.host.parse().ok()).map(|a| a.to_canonical());
        if address.is_some_and(|address| self.is_out_of_bounds(asked, address)) {
            return Verdict::Deny;
        }
        for rule in &self.rules {
            match rule.matches(asked, address) {
                Some(true) if rule.allow => return Verdict::Allow,
                Some(true) => return Verdict::Deny,
                Some(false) => {}
                None => return Verdict::AskWithAddress,
            }
        }
        if asked.client.is_loopback() { Verdict::Allow } else { Verdict::Deny }
    }

    fn is_out_of_bounds(&self, asked: &Asked<'_>, address: IpAddr) -> bool {
        if address.is_unspecified() || forms(address).any(|form| form.is_multicast()) {
            return true;
        }
        let from_elsewhere = !asked.client.is_loopback();
        (!self.to_link_local && forms(address).any(is_metadata))
            || (!self.to_loopback
                && from_elsewhere
                && forms(address).any(|form| form.is_loopback()))
            || self.admin.get().is_some_and(|admin| leads_to(*admin, asked.port, address))
    }
}

/// Whether the address reaches our own admin listener, which trusts clients of this host.
fn leads_to(admin: SocketAddr, port: u16, address: IpAddr) -> bool {
    let at = admin.ip().to_canonical();
    let is_there = |form: IpAddr| {
        // All of 127.0.0.0/8 is one host, and some systems treat ::1 as it.
        form == at
            || ((at.is_loopback() || at.is_unspecified()) && form.is_loopback())
            || (at.is_unspecified() && is_own(form))
    };
    port == admin.port() && forms(address).any(is_there)
}

/// Link-local addresses, and others that clouds serve secrets on without authentication.
fn is_metadata(address: IpAddr) -> bool {
    const ELSEWHERE: [IpAddr; 5] = [
        // Alibaba, Azure, Oracle, Google, Scaleway.
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
        IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    ];
    let by_range = match address {
        IpAddr::V4(address) => address.is_link_local(),
        // Amazon has several services in fd00:ec2::/32.
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0xec2]
        }
    };
    by_range || ELSEWHERE.contains(&address)
}

/// An address, and the IPv4 addresses that it may translate to.
fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let inner = match address {
        IpAddr::V4(_) => [None; 4],
        IpAddr::V6(address) => embedded_v4(address),
    };
    // One place may hold no embedded address while others of the same range do.
    let inner = inner.into_iter().flatten().filter(|inner| !inner.is_unspecified());
    std::iter::once(address).chain(inner.map(IpAddr::V4))
}

/// IPv4 addresses embedded in an IPv6 one: mapped (RFC 4291 §2.5.5), translated (RFC 2765 §2.1),
/// NAT64 (RFC 6052 §2.1) or 6to4 (RFC 3056 §2). Within the range for local NAT64 (RFC 8215) the
/// prefix may have any of four lengths, which cannot be told apart, so all four are returned.
fn embedded_v4(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let join = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    let one = |v4| [v4, None, None, None];
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] => one(join(g, h)),
        [0x64, 0xff9b, 0, 0, 0, 0] => one(join(g, h)),
        [0x64, 0xff9b, 1, ..] => {
            // RFC 6052 §2.2: the octet behind the first 64 bits is skipped.
            let [_, e] = e.to_be_bytes();
            let ([_, d0], [f0, f1], [g0, _]) = (d.to_be_bytes(), f.to_be_bytes(), g.to_be_bytes());
            let v4 = |a, b, c, d| Some(Ipv4Addr::new(a, b, c, d));
            [join(d, u16::from_be_bytes([e, f0])), v4(d0, e, f0, f1), v4(e, f0, f1, g0), join(g, h)]
        }
        [0x2002, ..] => one(join(b, c)),
        [0, 0, 0, 0, 0, 0] if (g, h) > (0, 1) => one(join(g, h)),
        _ => [None; 4],
    }
}

/// Whether an address is this host's: only then can a socket be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(rules: &[&str]) -> Access {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Access { rules, ..Access::default() }
    }

    fn asked<'a>(client: &str, method: &'a Method, host: &'a str, port: u16) -> Asked<'a> {
        Asked { client: client.parse().unwrap(), method, host, port }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let access = access(&[
            "deny to=.evil.test",
            "allow client=10.0.0.0/8 port=80,443,8000-8100 to=.example.org,other.test",
            "allow client=10.1.0.0/16 method=CONNECT",
            "deny client=127.0.0.2",
        ]);
        for (client, method, host, port, verdict) in [
            ("10.2.0.1", Method::GET, "example.org", 80, Verdict::Allow),
            ("10.2.0.1", Method::GET, "a.b.example.org", 8050, Verdict::Allow),
            ("10.2.0.1", Method::GET, "notexample.org", 80, Verdict::Deny),
            ("10.2.0.1", Method::GET, "a.other.test", 80, Verdict::Deny),
            ("10.2.0.1", Method::GET, "example.org", 25, Verdict::Deny),
            ("10.1.0.1", Method::CONNECT, "anything.test", 25, Verdict::Allow),
            ("10.1.0.1", Method::GET, "anything.test", 25, Verdict::Deny),
            ("10.1.0.1", Method::CONNECT, "x.evil.test", 443, Verdict::Deny),
            ("127.0.0.1", Method::GET, "anything.test", 25, Verdict::Allow),
            ("127.0.0.2", Method::GET, "anything.test", 25, Verdict::Deny),
            ("192.0.2.1", Method::GET, "example.org", 80, Verdict::Deny),
        ] {
            let got = access.decide(&asked(client, &method, host, port), None);
            assert_eq!(got, verdict, "{client} {method} {host}:{port}");
        }
    }

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
        ] {
            let rule: AccessRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), written);
            assert_eq!(written.parse(), Ok(rule));
        }
    }

    #[test]
    fn networks_are_asked_again_with_the_address() {
        let access = access(&["deny to=10.0.0.0/8", "allow client=192.0.2.0/24"]);
        let asked = asked("192.0.2.1", &Method::GET, "a.test", 80);
        let at = |address: &str| access.decide(&asked, Some(address.parse().unwrap()));
        assert_eq!(access.decide(&asked, None), Verdict::AskWithAddress);
        assert_eq!(at("10.1.1.1"), Verdict::Deny);
        assert_eq!(at("::ffff:10.1.1.1"), Verdict::Deny);
        assert_eq!(at("198.51.100.1"), Verdict::Allow);
    }

    #[test]
    fn metadata_and_our_own_loopback_are_out_of_bounds() {
        let strict = access(&["allow client=0.0.0.0/0"]);
        let open = Access { to_link_local: true, to_loopback: true, ..strict.clone() };
        for (client, address, strictly, openly) in [
            ("192.0.2.1", "169.254.169.254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "169.254.169.254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "::ffff:169.254.169.254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "64:ff9b::a9fe:a9fe", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "2002:a9fe:a9fe::1", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "::169.254.169.254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "fe80::1", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "fd00:ec2::254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "fd00:ec2::23", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "fd20:ce::254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "fd00:42::42", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "::ffff:0:169.254.169.254", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "64:ff9b:1::a9fe:a9fe", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "64:ff9b:1:a9fe:a9:fe00::", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "64:ff9b:1:a9:fe:a9fe::", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "64:ff9b:1:0:a9:fea9:fe00:0", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "64:ff9b:1::c633:6401", Verdict::Allow, Verdict::Allow),
            ("127.0.0.1", "fd00:ec3::254", Verdict::Allow, Verdict::Allow),
            ("192.0.2.1", "::ffff:0:127.0.0.1", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "100.100.100.200", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "0.0.0.0", Verdict::Deny, Verdict::Deny),
            ("127.0.0.1", "::", Verdict::Deny, Verdict::Deny),
            ("127.0.0.1", "127.0.0.1", Verdict::Allow, Verdict::Allow),
            ("127.0.0.1", "::1", Verdict::Allow, Verdict::Allow),
            ("192.0.2.1", "127.0.0.1", Verdict::Deny, Verdict::Allow),
            ("192.0.2.1", "::1", Verdict::Deny, Verdict::Allow),
            ("192.0.2.1", "198.51.100.1", Verdict::Allow, Verdict::Allow),
        ] {
            let asked = asked(client, &Method::GET, "a.test", 80);
            let parsed = Some(address.parse().unwrap());
            assert_eq!(strict.decide(&asked, parsed), strictly, "{client} {address}");
            assert_eq!(open.decide(&asked, parsed), openly, "{client} {address}");
        }
        let literal = asked("127.0.0.1", &Method::GET, "169.254.169.254", 80);
        assert_eq!(strict.decide(&literal, None), Verdict::Deny);
    }

    #[test]
    fn a_network_is_denied_in_every_form_and_allowed_in_one() {
        let denied = access(&["deny to=10.0.0.0/8", "allow client=192.0.2.0/24"]);
        let allowed = access(&["allow to=10.0.0.0/8 client=192.0.2.0/24"]);
        let asked = asked("192.0.2.1", &Method::GET, "a.test", 80);
        for address in ["64:ff9b::a00:1", "64:ff9b:1::a00:1", "::ffff:0:10.0.0.1", "2002:a00:1::1"]
        {
            let address = Some(address.parse().unwrap());
            assert_eq!(denied.decide(&asked, address), Verdict::Deny, "{address:?}");
            assert_eq!(allowed.decide(&asked, address), Verdict::Deny, "{address:?}");
        }
        let plain = Some("10.0.0.1".parse().unwrap());
        assert_eq!(allowed.decide(&asked, plain), Verdict::Allow);
    }

    #[test]
    fn another_spelling_is_the_same_destination_and_client() {
        for rule in [
            "deny to=Evil.test.",
            "deny to=.evil.test.",
            "deny to=10.1.2.3.",
            "deny to=::ffff:10.0.0.0/104",
            "deny to=::ffff:10.1.2.3",
            "deny client=::ffff:192.0.2.0/120",
        ] {
            let access = access(&[rule, "allow"]);
            let asked = asked("192.0.2.1", &Method::GET, "evil.test", 80);
            let address = Some("10.1.2.3".parse().unwrap());
            assert_eq!(access.decide(&asked, address), Verdict::Deny, "{rule}");
        }
    }

    #[test]
    fn our_admin_listener_is_for_nobody() {
        let at = |admin: &str| {
            let open = Access { to_link_local: true, to_loopback: true, ..access(&["allow"]) };
            open.admin.set(admin.parse().unwrap()).unwrap();
            open
        };
        for (admin, address, port, verdict) in [
            ("127.0.0.1:9000", "127.0.0.1", 9000, Verdict::Deny),
            ("127.0.0.1:9000", "127.8.9.1", 9000, Verdict::Deny),
            ("127.0.0.1:9000", "::1", 9000, Verdict::Deny),
            ("127.0.0.1:9000", "::ffff:127.0.0.1", 9000, Verdict::Deny),
            ("127.0.0.1:9000", "64:ff9b::7f00:1", 9000, Verdict::Deny),
            ("127.0.0.1:9000", "127.0.0.1", 9001, Verdict::Allow),
            ("127.0.0.1:9000", "198.51.100.1", 9000, Verdict::Allow),
            ("198.51.100.1:9000", "198.51.100.1", 9000, Verdict::Deny),
            ("198.51.100.1:9000", "127.0.0.1", 9000, Verdict::Allow),
            ("0.0.0.0:9000", "127.0.0.1", 9000, Verdict::Deny),
            ("[::]:9000", "127.0.0.1", 9000, Verdict::Deny),
            // No host has an address of the documentation range.
            ("0.0.0.0:9000", "198.51.100.1", 9000, Verdict::Allow),
        ] {
            let address = Some(address.parse().unwrap());
            for client in ["127.0.0.1", "192.0.2.1"] {
                let asked = asked(client, &Method::GET, "a.test", port);
                assert_eq!(at(admin).decide(&asked, address), verdict, "{admin} {address:?}");
            }
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for text in [
            "",
            "permit",
            "allow client",
            "allow client=x",
            "allow port=70000",
            "allow port=9-1",
            "allow to=a/b",
            "allow to=[::1",
            "allow to=[10.0.0.1]",
            "allow to=[::1]:80",
            "allow to=[::1]/128",
            "allow from=a",
            "allow to=",
            "deny to=10.0.0",
            "deny to=10.0.0.256",
            "deny to=0x7f000001",
            "deny to=all",
            "deny method=CONNECT,*",
            "allow client=Any",
            "deny to=.1",
        ] {
            assert!(text.parse::<AccessRule>().is_err(), "{text}");
        }
    }
}
