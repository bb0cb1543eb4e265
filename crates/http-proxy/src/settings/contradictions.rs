//! Finds settings that are valid one by one but contradict each other. Pure, no threads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;

use super::Settings;
use crate::config::OriginTarget;
use crate::config::transport::ListenAddress;

/// A key whose value does not go with that of another, and why.
type Contradiction = (&'static str, String);

/// Finds all contradictions.
pub(super) fn find(settings: &Settings) -> Vec<Contradiction> {
    let mut found = same_addresses(settings);
    found.extend(own_origins(settings));
    let forwarded = &settings.proxy.forwarded;
    if !forwarded.trust_networks.is_empty() && !forwarded.trust_client {
        let text = "it says whom `forwarded.trust_client` is for, which is off".to_owned();
        found.push(("forwarded.trust_networks", text));
    }
    found.extend(longer_than_the_stop(settings));
    found
}

/// What the end of the process would cut off in any case.
fn longer_than_the_stop(settings: &Settings) -> Option<Contradiction> {
    let timeouts = &settings.proxy.timeouts;
    if timeouts.drain > settings.stop_timeout {
        let text = "it is longer than `timeouts.stop`, which cuts it off";
        return Some(("timeouts.drain", text.to_owned()));
    }
    let text = "with `timeouts.drain` it is longer than `timeouts.stop`, which cuts that off";
    let both = timeouts.leave.saturating_add(timeouts.drain);
    (both > settings.stop_timeout).then(|| ("timeouts.leave", text.to_owned()))
}

/// Listeners with the same address, the second of which could not be opened.
fn same_addresses(settings: &Settings) -> Vec<Contradiction> {
    let from = ListenAddress::Tcp(settings.proxy.from);
    let mut taken = vec![("from", &from)];
    let listeners = &settings.proxy.listen;
    let admin = settings.proxy.admin.from.map(ListenAddress::Tcp);
    let more = listeners.iter().map(|listener| ("listen", &listener.address));
    let mut found = Vec::new();
    for (key, address) in more.chain(admin.iter().map(|address| ("admin.from", address))) {
        if let Some((other, _)) = taken.iter().find(|(_, taken)| are_one(taken, address)) {
            found.push((key, format!("`{other}` listens on that address, too")));
        }
        taken.push((key, address));
    }
    found
}

/// Origins that are listeners of the proxy: each request would wait for the next one, which it is
/// itself. Other names of this machine are not known here.
fn own_origins(settings: &Settings) -> Vec<Contradiction> {
    let proxy = &settings.proxy;
    let from = ListenAddress::Tcp(proxy.from);
    let listeners = || [&from].into_iter().chain(proxy.listen.iter().map(|one| &one.address));
    let to = match &proxy.to {
        OriginTarget::Url(url) => Some(("to", url)),
        OriginTarget::Demo => None,
    };
    let more = proxy.upstream.more_origins.iter().map(|url| ("upstream.more_origins", url));
    let backup = proxy.upstream.backup_origins.iter().map(|url| ("upstream.backup_origins", url));
    let is_own = |url: &str| {
        let origin = address_of(url);
        origin.is_some_and(|origin| listeners().any(|one| reaches(&origin, one)))
    };
    let own = to.into_iter().chain(more).chain(backup).filter(|(_, url)| is_own(url));
    let problem = |url| format!("`{url}` is where this proxy listens: give one another address");
    own.map(|(key, url)| (key, problem(url))).collect()
}

/// Whether connections to an origin end at this listener.
fn reaches(origin: &ListenAddress, listener: &ListenAddress) -> bool {
    match (origin, listener) {
        (ListenAddress::Tcp(origin), ListenAddress::Tcp(listener)) => {
            let all = listener.ip().is_unspecified() && origin.is_ipv4() == listener.is_ipv4();
            // The addresses of other machines are not ours, wherever we listen.
            let same = origin.ip() == listener.ip() || (all && origin.ip().is_loopback());
            same && origin.port() == listener.port()
        }
        (origin, listener) => origin == listener,
    }
}

/// The address of an origin that is named by one, or by `localhost`.
fn address_of(url: &str) -> Option<ListenAddress> {
    if let Some(path) = url.strip_prefix("unix:") {
        return Some(ListenAddress::Unix(path.into()));
    }
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']);
    let address = match host.eq_ignore_ascii_case("localhost") {
        true => IpAddr::V4(Ipv4Addr::LOCALHOST),
        false => host.parse().ok()?,
    };
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let address = SocketAddr::new(address, uri.port_u16().unwrap_or(default));
    Some(ListenAddress::Tcp(address))
}

fn are_one(a: &ListenAddress, b: &ListenAddress) -> bool {
    match (a, b) {
        (ListenAddress::Tcp(a), ListenAddress::Tcp(b)) => {
            // Port 0 is a different free port each time.
            let everywhere = |address: &SocketAddr| address.ip().is_unspecified();
            let overlap = a.ip() == b.ip()
                || (a.is_ipv4() == b.is_ipv4() && (everywhere(a) || everywhere(b)));
            a.port() != 0 && a.port() == b.port() && overlap
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contradicting keys of a file.
    fn keys(file: &str) -> Vec<&'static str> {
        let settings = Settings::parse(file).unwrap_or_else(|e| panic!("{e:?}"));
        find(&settings).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn what_does_not_go_together_is_found() {
        for (file, found) in [
            ("to = \"demo\"\n", &[][..]),
            ("to = \"demo\"\n[timeouts]\ndrain = \"2m\"\n", &["timeouts.drain"]),
            ("to = \"demo\"\n[timeouts]\ndrain = \"2m\"\nstop = \"2m\"\n", &[]),
            ("to = \"demo\"\n[timeouts]\nleave = \"51s\"\n", &["timeouts.leave"]),
            ("to = \"demo\"\n[timeouts]\nleave = \"50s\"\n", &[]),
            (
                "to = \"demo\"\nfrom = \"127.0.0.1:81\"\nlisten = [\"tcp:127.0.0.1:81\"]\n",
                &["listen"],
            ),
            ("to = \"demo\"\nfrom = \"127.0.0.1:0\"\nlisten = [\"tcp:127.0.0.1:0\"]\n", &[]),
            ("to = \"demo\"\nfrom = \"127.0.0.1:81\"\nlisten = [\"tcp:127.0.0.2:81\"]\n", &[]),
            (
                "to = \"demo\"\nfrom = \"0.0.0.0:81\"\n[admin]\nfrom = \"127.0.0.1:81\"\n",
                &["admin.from"],
            ),
            ("to = \"demo\"\nlisten = [\"unix:/a\", \"tls+unix:/a\"]\n", &["listen"]),
            ("to = \"http://127.0.0.1:81\"\nfrom = \"127.0.0.1:81\"\n", &["to"]),
            ("to = \"http://LOCALHOST\"\nfrom = \"0.0.0.0:80\"\n", &["to"]),
            ("to = \"https://[::1]/\"\nfrom = \"[::]:443\"\n", &["to"]),
            ("to = \"unix:/a\"\nlisten = [\"unix:/a\"]\n", &["to"]),
            (
                "to = \"http://127.0.0.1:82\"\nfrom = \"127.0.0.1:81\"\n\
                 [upstream]\nmore_origins = [\"http://127.0.0.1:81\"]\n",
                &["upstream.more_origins"],
            ),
            (
                "to = \"demo\"\n[forwarded]\ntrust_networks = [\"10.0.0.0/8\"]\n",
                &["forwarded.trust_networks"],
            ),
            ("to = \"demo\"\n[forwarded]\ntrust_networks = [\"::1\"]\ntrust_client = true\n", &[]),
            ("to = \"http://127.0.0.2:81\"\nfrom = \"127.0.0.1:81\"\n", &[]),
            ("to = \"http://10.0.0.2:81\"\nfrom = \"0.0.0.0:81\"\n", &[]),
            ("to = \"http://a.example:81\"\nfrom = \"0.0.0.0:81\"\n", &[]),
        ] {
            assert_eq!(keys(file), found, "{file}");
        }
    }
}
