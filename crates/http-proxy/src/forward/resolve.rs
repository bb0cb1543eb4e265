//! Addresses of host names, cached for a short time.
//!
//! Used only to decide whether a client may have a cached response. Connections resolve and check
//! the name again (`upstream::dial_tcp`), so that a name cannot change its address in between.
//! Invariants: at most [`NAMES_MAX`] names; no caller waits longer than its limit; failures are
//! cached only briefly, since a nonexistent name looks like a failing name server. Threads: shared
//! by all workers; the lock is never held across a lookup.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::error::FetchError;
use crate::io::locks::lock;
use crate::io::names;

/// How long an answer is cached.
const REMEMBERED: Duration = Duration::from_secs(30);
/// How long a failure is cached, so that a burst of requests costs one lookup.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(1);
/// Maximum number of cached names; beyond it all are dropped.
const NAMES_MAX: usize = 4096;

/// Empty if the name could not be resolved.
type Addresses = Arc<[IpAddr]>;

/// The table of names.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    names: Mutex<HashMap<String, (Instant, Addresses)>>,
}

impl Resolver {
    /// The addresses of `host`, at least one, found within `limit`.
    pub(crate) async fn addresses(
        &self,
        host: &str,
        limit: Duration,
    ) -> Result<Addresses, FetchError> {
        let lookup = async {
            let found = names::addresses(host).await?;
            Ok(found.iter().map(|address| address.ip().to_canonical()).collect())
        };
        self.addresses_by(host, limit, lookup).await
    }

    async fn addresses_by(
        &self,
        host: &str,
        limit: Duration,
        lookup: impl Future<Output = Result<Addresses, FetchError>>,
    ) -> Result<Addresses, FetchError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Arc::new([address]));
        }
        let addresses = match self.known(host) {
            Some(known) => known,
            None => {
                let late = |_| FetchError::ResolveTimeout(host.into());
                let addresses = timeout(limit, lookup).await.map_err(late)??;
                self.remember(host, addresses.clone());
                addresses
            }
        };
        if addresses.is_empty() { Err(FetchError::Unresolved(host.into())) } else { Ok(addresses) }
    }

    fn known(&self, host: &str) -> Option<Addresses> {
        let names = lock(&self.names);
        let (until, addresses) = names.get(host)?;
        (Instant::now() < *until).then(|| addresses.clone())
    }

    fn remember(&self, host: &str, addresses: Addresses) {
        let time = if addresses.is_empty() { FAILURE_REMEMBERED } else { REMEMBERED };
        let mut names = lock(&self.names);
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(host.to_owned(), (Instant::now() + time, addresses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::time::sleep;

    const LIMIT: Duration = Duration::from_secs(5);

    fn found() -> Addresses {
        Arc::new([IpAddr::from([192, 0, 2, 1])])
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_with_names_is_not_remembered() {
        let (resolver, unresolved) = (Resolver::default(), FetchError::Unresolved("a.test".into()));
        let start = Instant::now();
        let slow = resolver.addresses_by("a.test", LIMIT, pending()).await;
        let late = FetchError::ResolveTimeout("a.test".into());
        assert_eq!((slow, start.elapsed()), (Err(late), LIMIT));
        let failed = resolver.addresses_by("a.test", LIMIT, ready(Ok(Addresses::default()))).await;
        assert_eq!(failed, Err(unresolved.clone()));
        // Within the same moment the resolver is not asked again.
        let again = resolver.addresses_by("a.test", LIMIT, ready(Ok(found()))).await;
        assert_eq!(again, Err(unresolved));
        sleep(FAILURE_REMEMBERED).await;
        let later = resolver.addresses_by("a.test", LIMIT, ready(Ok(found()))).await;
        assert_eq!(later, Ok(found()));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_remembered_for_a_while() {
        let resolver = Resolver::default();
        resolver.addresses_by("a.test", LIMIT, ready(Ok(found()))).await.unwrap();
        sleep(REMEMBERED / 2).await;
        assert_eq!(resolver.addresses_by("a.test", LIMIT, pending()).await, Ok(found()));
        sleep(REMEMBERED / 2).await;
        assert!(resolver.addresses_by("a.test", LIMIT, pending()).await.is_err());
        let literal = resolver.addresses_by("192.0.2.1", LIMIT, pending()).await;
        assert_eq!(literal, Ok(found()));
    }
}
