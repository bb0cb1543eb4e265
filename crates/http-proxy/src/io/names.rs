//! Addresses of host names, from the system's resolver.
//!
//! A lookup occupies a thread until the system gives up, long after its callers did. So callers
//! that want the same name at the same time share one lookup; otherwise requests for a name whose
//! server does not answer would soon occupy all threads, and all other names would wait for them.
//! Invariants: at most one lookup of a name is under way; callers that come after its end start
//! another, so nothing is remembered; a lookup continues without its callers. Threads: any; the
//! lock is never held across a lookup.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock, Mutex};

use tokio::sync::watch;

use crate::io::blocking;
use crate::io::locks::lock;

/// Addresses with port 0; empty if the name could not be resolved.
pub(crate) type Addresses = Arc<[SocketAddr]>;

/// `None` while the lookup is under way.
type Outcome = watch::Receiver<Option<Addresses>>;

static UNDER_WAY: LazyLock<Mutex<HashMap<String, Outcome>>> = LazyLock::new(Mutex::default);

/// The addresses of `host`. The caller limits the time.
pub(crate) async fn addresses(host: &str) -> Addresses {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Arc::new([SocketAddr::new(address, 0)]);
    }
    let mut outcome = outcome(host, of_system);
    // There is no outcome if the lookup panicked.
    let found = outcome.wait_for(Option::is_some).await;
    found.ok().and_then(|found| found.clone()).unwrap_or_default()
}

fn of_system(host: &str) -> Addresses {
    (host, 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// The outcome of the lookup that is under way, or of a new one.
fn outcome(host: &str, find: impl FnOnce(&str) -> Addresses + Send + 'static) -> Outcome {
    let (found, outcome) = watch::channel(None);
    {
        let mut under_way = lock(&UNDER_WAY);
        if let Some(outcome) = under_way.get(host) {
            return outcome.clone();
        }
        under_way.insert(host.to_owned(), outcome.clone());
    }
    let lookup = Lookup { host: host.to_owned() };
    blocking::run(move || {
        let addresses = find(&lookup.host);
        // Before the outcome is told: whoever asks after that gets a newer one.
        drop(lookup);
        found.send_replace(Some(addresses));
    });
    outcome
}

/// A lookup that is under way, until it is dropped.
struct Lookup {
    host: String,
}

impl Drop for Lookup {
    fn drop(&mut self) {
        lock(&UNDER_WAY).remove(&self.host);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn found(last: u8) -> Addresses {
        Arc::new([SocketAddr::from(([192, 0, 2, last], 0))])
    }

    async fn told(mut outcome: Outcome) -> Addresses {
        outcome.wait_for(Option::is_some).await.unwrap().clone().unwrap()
    }

    #[tokio::test]
    async fn who_wants_the_same_name_meanwhile_shares_a_lookup_and_later_ones_do_not() {
        let (answer, answered) = mpsc::channel();
        let slow = move |_: &str| answered.recv().unwrap();
        let first = outcome("shared.test", slow);
        let others: Vec<_> =
            (0..600).map(|_| outcome("shared.test", |_| panic!("a second lookup"))).collect();
        // Those that wait take no threads from other names.
        assert_eq!(told(outcome("other.test", |_| found(2))).await, found(2));
        answer.send(found(1)).unwrap();
        assert_eq!(told(first).await, found(1));
        for other in others {
            assert_eq!(told(other).await, found(1));
        }
        assert_eq!(told(outcome("shared.test", |_| found(3))).await, found(3));
    }

    #[tokio::test]
    async fn literal_addresses_and_names_of_nobody() {
        assert_eq!(addresses("192.0.2.1").await, found(1));
        assert_eq!(addresses("::1").await[0], "[::1]:0".parse().unwrap());
        assert!(addresses("nobody.invalid").await.is_empty());
    }
}
