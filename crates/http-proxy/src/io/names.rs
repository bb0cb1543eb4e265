//! Addresses of host names, from the system's resolver.
//!
//! A lookup occupies a thread until the system gives up, long after its callers did. So callers
//! that want the same name at the same time share one lookup; otherwise requests for a name whose
//! server does not answer would soon occupy all threads, and all other names would wait for them.
//! For the same reason the names of one domain get a part of the threads only: any number of them
//! can be made up. Beyond that a name is refused at once, as its turn would come too late; where
//! the system gives no more threads, names wait for those that are there. Invariants: at most one
//! lookup of a name is under way, and at most [`UNDER_WAY_MAX`] in all; callers that come after its
//! end start another, so nothing is remembered; a lookup that has begun continues without its
//! callers, one that has not is left out. Threads: any; the lock is never held across a lookup.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use tokio::sync::watch;

use crate::error::FetchError;
use crate::io::blocking::{self, THREADS_MAX};
use crate::io::locks::lock;

/// Lookups under way: as many as there may be threads, so that none waits for another.
const UNDER_WAY_MAX: usize = THREADS_MAX;

/// Lookups under way of one domain, which is what the last two labels name.
const OF_DOMAIN_MAX: usize = UNDER_WAY_MAX / 4;

/// Addresses with port 0; empty if the name could not be resolved.
pub(crate) type Addresses = Arc<[SocketAddr]>;

/// `None` while the lookup is under way.
type Outcome = watch::Receiver<Option<Addresses>>;

static UNDER_WAY: LazyLock<Mutex<UnderWay>> = LazyLock::new(Mutex::default);

/// Of all proxies in this process, as the threads are.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The addresses of `host`. The caller limits the time.
pub(crate) async fn addresses(host: &str) -> Result<Addresses, FetchError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Arc::new([SocketAddr::new(address, 0)]));
    }
    let Some(mut outcome) = outcome(host, of_system, blocking::look_up) else {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return Err(FetchError::NamesBusy(host.into()));
    };
    // There is no outcome if the lookup panicked.
    let found = outcome.wait_for(Option::is_some).await;
    Ok(found.ok().and_then(|found| found.clone()).unwrap_or_default())
}

/// How often a name was refused.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

fn of_system(host: &str) -> Addresses {
    (host, 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// The outcome of the lookup that is under way, or of a new one, which `run` makes; `None` if too
/// many are under way.
fn outcome(
    host: &str,
    find: impl FnOnce(&str) -> Addresses + Send + 'static,
    run: impl FnOnce(Box<dyn FnOnce() + Send>),
) -> Option<Outcome> {
    let (found, outcome) = watch::channel(None);
    {
        let mut under_way = lock(&UNDER_WAY);
        if let Some(outcome) = under_way.names.get(host) {
            return Some(outcome.clone());
        }
        if !under_way.begin(host, &outcome) {
            return None;
        }
    }
    let mut lookup = Lookup { host: host.to_owned(), is_given_up: false };
    run(Box::new(move || {
        if !lookup.is_awaited(&found) {
            return;
        }
        let addresses = find(&lookup.host);
        // Before the outcome is told: whoever asks after that gets a newer one.
        drop(lookup);
        found.send_replace(Some(addresses));
    }));
    Some(outcome)
}

/// The lookups that are under way.
#[derive(Default)]
struct UnderWay {
    names: HashMap<String, Outcome>,
    /// How many of them are of each domain.
    domains: HashMap<String, usize>,
}

impl UnderWay {
    /// False if there are too many.
    fn begin(&mut self, host: &str, outcome: &Outcome) -> bool {
        let of_domain = self.domains.get(domain(host)).copied().unwrap_or(0);
        if self.names.len() >= UNDER_WAY_MAX || of_domain >= OF_DOMAIN_MAX {
            return false;
        }
        self.names.insert(host.to_owned(), outcome.clone());
        self.domains.insert(domain(host).to_owned(), of_domain + 1);
        true
    }

    fn end(&mut self, host: &str) {
        self.names.remove(host);
        if let Some(of_domain) = self.domains.get_mut(domain(host)) {
            *of_domain -= 1;
            if *of_domain == 0 {
                self.domains.remove(domain(host));
            }
        }
    }
}

fn domain(host: &str) -> &str {
    host.rmatch_indices('.').nth(1).map_or(host, |(dot, _)| &host[dot + 1..])
}

/// A lookup that is under way, until it is dropped.
struct Lookup {
    host: String,
    is_given_up: bool,
}

impl Lookup {
    /// Whether anybody still waits for what will be found. Otherwise it is given up, under the same
    /// lock as others join it.
    fn is_awaited(&mut self, found: &watch::Sender<Option<Addresses>>) -> bool {
        let mut under_way = lock(&UNDER_WAY);
        // One receiver is the table's.
        if found.receiver_count() > 1 {
            return true;
        }
        self.is_given_up = true;
        under_way.end(&self.host);
        false
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        if !self.is_given_up {
            lock(&UNDER_WAY).end(&self.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn found(last: u8) -> Addresses {
        Arc::new([SocketAddr::from(([192, 0, 2, last], 0))])
    }

    /// The outcome of a lookup that a thread makes.
    fn begun(host: &str, find: impl FnOnce(&str) -> Addresses + Send + 'static) -> Outcome {
        outcome(host, find, blocking::look_up).unwrap()
    }

    async fn told(mut outcome: Outcome) -> Addresses {
        outcome.wait_for(Option::is_some).await.unwrap().clone().unwrap()
    }

    #[tokio::test]
    async fn who_wants_the_same_name_meanwhile_shares_a_lookup_and_later_ones_do_not() {
        let (answer, answered) = mpsc::channel();
        let slow = move |_: &str| answered.recv().unwrap();
        let first = begun("shared.test", slow);
        let others: Vec<_> =
            (0..600).map(|_| begun("shared.test", |_| panic!("a second lookup"))).collect();
        // Those that wait take no threads from other names.
        assert_eq!(told(begun("other.test", |_| found(2))).await, found(2));
        answer.send(found(1)).unwrap();
        assert_eq!(told(first).await, found(1));
        for other in others {
            assert_eq!(told(other).await, found(1));
        }
        assert_eq!(told(begun("shared.test", |_| found(3))).await, found(3));
    }

    #[tokio::test]
    async fn literal_addresses_and_names_of_nobody() {
        assert_eq!(addresses("192.0.2.1").await, Ok(found(1)));
        assert_eq!(addresses("::1").await.unwrap()[0], "[::1]:0".parse().unwrap());
        assert!(addresses("nobody.invalid").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_name_that_nobody_waits_for_any_more_is_not_looked_up() {
        let mut queue = Vec::new();
        let mut begin = |find: fn(&str) -> Addresses| {
            outcome("left.test", find, |call| queue.push(call)).unwrap()
        };
        let left = begin(|_| panic!("it is looked up"));
        drop(left);
        // One who comes before its turn has it looked up all the same, by whoever began it.
        let left = begin(|_| panic!("a second lookup"));
        drop(left);
        assert_eq!(queue.len(), 1);
        queue.remove(0)();
        let stays = outcome("left.test", |_| found(1), |call| queue.push(call)).unwrap();
        queue.remove(0)();
        assert_eq!(told(stays).await, found(1));
    }

    #[test]
    fn no_domain_takes_all_threads_and_no_name_waits_for_one() {
        let (_found, outcome) = watch::channel(None);
        let mut under_way = UnderWay::default();
        let names = |domain: &str| {
            let domain = domain.to_owned();
            (0..).map(move |number| format!("{number}.{domain}"))
        };
        for number in 0..UNDER_WAY_MAX / OF_DOMAIN_MAX {
            let slow = format!("slow-{number}.test");
            for name in names(&slow).take(OF_DOMAIN_MAX) {
                assert!(under_way.begin(&name, &outcome), "{name}");
            }
            assert!(!under_way.begin(&format!("more.{slow}"), &outcome));
            let is_last = number + 1 == UNDER_WAY_MAX / OF_DOMAIN_MAX;
            assert_eq!(under_way.begin("another.test", &outcome), !is_last);
            under_way.end("another.test");
        }
        under_way.end("0.slow-0.test");
        assert!(under_way.begin("a.b.slow-0.test", &outcome));
        for number in 0..UNDER_WAY_MAX / OF_DOMAIN_MAX {
            names(&format!("slow-{number}.test")).take(OF_DOMAIN_MAX).for_each(|name| {
                under_way.end(&name);
            });
        }
        under_way.end("a.b.slow-0.test");
        assert!(under_way.names.is_empty() && under_way.domains.is_empty());
    }
}
