//! Finds settings that are valid one by one but contradict each other. Pure, no threads.

use std::net::SocketAddr;

use super::Settings;
use crate::config::transport::ListenAddress;

/// A key whose value does not go with that of another, and why.
type Contradiction = (&'static str, String);

/// Finds all contradictions.
pub(super) fn find(settings: &Settings) -> Vec<Contradiction> {
    let mut found = same_addresses(settings);
    if settings.proxy.timeouts.drain > settings.stop_timeout {
        let text = "it is longer than `timeouts.stop`, which cuts it off".to_owned();
        found.push(("timeouts.drain", text));
    }
    found
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
        ] {
            assert_eq!(keys(file), found, "{file}");
        }
    }
}
