//! Addresses of names, remembered for a short time.
//!
//! Only for the question whether an answer in the cache may be given to somebody: what is
//! connected to is resolved anew and checked then (`upstream::dial_tcp`), so that no name can
//! change its address in between. Invariant: at most [`NAMES_MAX`] names. Threads: shared by all
//! workers; the lock is never held across a lookup.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is good.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Names remembered; beyond it all are forgotten.
const NAMES_MAX: usize = 4096;

type Addresses = Arc<[IpAddr]>;

/// The table of names.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    names: Mutex<HashMap<String, (Instant, Addresses)>>,
}

impl Resolver {
    /// The addresses of `host`; none if it has none.
    pub(crate) async fn addresses(&self, host: &str) -> Addresses {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Arc::new([address]);
        }
        if let Some(known) = self.known(host) {
            return known;
        }
        let resolved = tokio::net::lookup_host((host, 0)).await;
        let addresses: Addresses =
            resolved.into_iter().flatten().map(|address| address.ip().to_canonical()).collect();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(host.to_owned(), (Instant::now(), addresses.clone()));
        addresses
    }

    fn known(&self, host: &str) -> Option<Addresses> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, addresses) = names.get(host)?;
        (since.elapsed() < REMEMBERED).then(|| addresses.clone())
    }
}
