//! The rules of the forward proxy in use: the first rule that matches decides.
//!
//! Two implicit rules follow: clients on a loopback address are allowed, all others denied. Some
//! destinations are denied before any rule: metadata services and link-local addresses, and this
//! host's loopback addresses for remote clients, unless the settings allow them; and our own admin
//! listener always. Files of lists are read when rules are put into use; decisions are pure, except
//! for the check whether an address is this host's: callers resolve names. No threads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::OnceLock;

use http::Method;

use crate::error::ProxyError;
use crate::forward::access_rule::{self, AccessRule};
use crate::forward::embedded::forms;
use crate::forward::lists::{self, Destinations, Networks};

/// One rule, with all that its lists and their files hold. `None` holds for everything.
#[derive(Debug, Clone)]
struct ActiveRule {
    allow: bool,
    clients: Option<Networks>,
    methods: Option<Vec<Method>>,
    ports: Option<Vec<RangeInclusive<u16>>>,
    destinations: Option<Destinations>,
}

/// A file that a rule names, and how many entries it has.
#[derive(Debug, Clone)]
pub(crate) struct ListFile {
    pub(crate) path: PathBuf,
    pub(crate) entries: usize,
}

impl ActiveRule {
    fn of(rule: &AccessRule, files: &mut Vec<ListFile>) -> Result<ActiveRule, ProxyError> {
        let (mut clients, mut destinations) = (Networks::default(), Destinations::default());
        rule.clients.iter().for_each(|network| clients.add(*network));
        rule.destinations.iter().for_each(|one| destinations.add(one.clone()));
        for path in &rule.client_files {
            let entries = lists::read(path, access_rule::client, |one| clients.add(one))?;
            files.push(ListFile { path: path.clone(), entries });
        }
        for path in &rule.destination_files {
            let entries = lists::read(path, access_rule::destination, |one| destinations.add(one))?;
            files.push(ListFile { path: path.clone(), entries });
        }
        let has_clients = !(rule.clients.is_empty() && rule.client_files.is_empty());
        let has_destinations = !(rule.destinations.is_empty() && rule.destination_files.is_empty());
        Ok(ActiveRule {
            allow: rule.allow,
            clients: has_clients.then_some(clients),
            methods: (!rule.methods.is_empty()).then(|| rule.methods.clone()),
            ports: (!rule.ports.is_empty()).then(|| rule.ports.clone()),
            destinations: has_destinations.then_some(destinations),
        })
    }

    /// `None` if the result depends on the address.
    fn matches(&self, asked: &AccessRequest<'_>, address: Option<IpAddr>) -> Option<bool> {
        let fits = self.clients.as_ref().is_none_or(|clients| clients.contain(asked.client))
            && self.methods.as_ref().is_none_or(|methods| methods.contains(asked.method))
            && self.ports.as_ref().is_none_or(|all| all.iter().any(|p| p.contains(&asked.port)));
        match &self.destinations {
            // A deny rule matches every address that this one translates to, an allow rule only its
            // own form.
            Some(destinations) if fits => destinations.contain(asked.host, address, !self.allow),
            _ => Some(fits),
        }
    }
}

/// A request as the rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
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
    rules: Vec<ActiveRule>,
    /// Files that the rules name.
    pub(crate) files: Vec<ListFile>,
    pub(crate) to_link_local: bool,
    pub(crate) to_loopback: bool,
    /// Address of our own admin listener, once it listens.
    pub(crate) admin: OnceLock<SocketAddr>,
}

impl Access {
    /// The same with other rules; reads the files that they name.
    ///
    /// # Errors
    /// One of the files cannot be used.
    pub(crate) fn with_rules(&self, rules: &[AccessRule]) -> Result<Access, ProxyError> {
        let mut files = Vec::new();
        let rules =
            rules.iter().map(|rule| ActiveRule::of(rule, &mut files)).collect::<Result<_, _>>()?;
        Ok(Access { rules, files, admin: self.admin.clone(), ..*self })
    }

    /// Decides by name alone, or for one resolved address.
    pub(crate) fn decide(&self, asked: &AccessRequest<'_>, address: Option<IpAddr>) -> Verdict {
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

    fn is_out_of_bounds(&self, asked: &AccessRequest<'_>, address: IpAddr) -> bool {
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

/// Whether an address is this host's: only then can a socket be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(rules: &[&str]) -> Access {
        let rules: Vec<_> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Access::default().with_rules(&rules).unwrap()
    }

    fn asked<'a>(client: &str, method: &'a Method, host: &'a str, port: u16) -> AccessRequest<'a> {
        AccessRequest { client: client.parse().unwrap(), method, host, port }
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
    fn rules_have_what_their_files_list() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let names = path("names", "a.test\n.evil.test\n192.0.2.0/24\n");
        let clients = path("clients", "10.0.0.0/8\n");
        let empty = path("empty", "# nobody yet\n");
        let rules = [
            format!("deny to=@{empty}"),
            format!("deny to=@{names},b.test"),
            format!("allow client=@{empty}"),
            format!("allow client=@{clients},127.0.0.2"),
            "deny".to_owned(),
        ];
        let access = access(&rules.each_ref().map(String::as_str));
        let entries: Vec<_> = access.files.iter().map(|file| file.entries).collect();
        assert_eq!(entries, [0, 3, 0, 1]);
        let decide = |client, host, address: &str| {
            let asked = asked(client, &Method::GET, host, 80);
            access.decide(&asked, Some(address.parse().unwrap()))
        };
        for (client, host, address, verdict) in [
            ("10.0.0.1", "c.test", "198.51.100.1", Verdict::Allow),
            ("127.0.0.2", "c.test", "198.51.100.1", Verdict::Allow),
            ("127.0.0.1", "c.test", "198.51.100.1", Verdict::Deny),
            ("10.0.0.1", "a.test", "198.51.100.1", Verdict::Deny),
            ("10.0.0.1", "b.test", "198.51.100.1", Verdict::Deny),
            ("10.0.0.1", "x.evil.test", "198.51.100.1", Verdict::Deny),
            ("10.0.0.1", "c.test", "192.0.2.9", Verdict::Deny),
        ] {
            assert_eq!(decide(client, host, address), verdict, "{client} {host} {address}");
        }
        std::fs::remove_file(home.path().join("names")).unwrap();
        let again = rules.each_ref().map(|rule| rule.parse().unwrap());
        assert!(access.with_rules(&again).unwrap_err().to_string().contains("names"));
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
            ("127.0.0.1", "2001:0:a9fe:a9fe::1", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "2001::5601:5601", Verdict::Deny, Verdict::Allow),
            ("192.0.2.1", "2001::80ff:fffe", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "2001:1::5601:5601", Verdict::Allow, Verdict::Allow),
            ("127.0.0.1", "2001:db8::5efe:a9fe:a9fe", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "2001:db8::200:5efe:a9fe:a9fe", Verdict::Deny, Verdict::Allow),
            ("192.0.2.1", "2001:db8::300:5efe:7f00:1", Verdict::Deny, Verdict::Allow),
            ("127.0.0.1", "2001:db8::1:5efe:a9fe:a9fe", Verdict::Allow, Verdict::Allow),
            ("127.0.0.1", "2002:c633:6401::5efe:a9fe:a9fe", Verdict::Deny, Verdict::Allow),
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
        let told = ["64:ff9b::a00:1", "64:ff9b:1::a00:1", "::ffff:0:10.0.0.1", "2002:a00:1::1"];
        for address in told.into_iter().chain(["2001::f5ff:fffe", "2001:db8::5efe:a00:1"]) {
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
            // Also with other rules, as after a reload.
            open.with_rules(&["allow".parse().unwrap()]).unwrap()
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
