//! Connections counted by client address.
//!
//! Invariant: an address is in the table exactly while it has connections. Threads: shared by all
//! workers; the lock is held for a table operation, twice a connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::config::client_network::network_of;
use crate::io::locks::lock;

/// Connections of each client at this moment.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    counts: Mutex<HashMap<IpAddr, usize>>,
    per_client_max: usize,
}

/// One counted connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Counted {
    table: Arc<ClientTable>,
    client: Option<IpAddr>,
}

impl ClientTable {
    /// A table that admits `per_client_max` connections per client; 0 is no limit.
    pub(crate) fn new(per_client_max: usize) -> Arc<ClientTable> {
        Arc::new(ClientTable { counts: Mutex::default(), per_client_max })
    }

    /// Counts a connection; `None` if the client has too many already.
    pub(crate) fn admit(self: &Arc<ClientTable>, client: IpAddr) -> Option<Counted> {
        let client = network_of(client);
        if self.per_client_max == 0 || client.is_loopback() {
            return Some(Counted { table: self.clone(), client: None });
        }
        let mut counts = lock(&self.counts);
        let count = counts.entry(client).or_insert(0);
        if *count >= self.per_client_max {
            return None;
        }
        *count += 1;
        Some(Counted { table: self.clone(), client: Some(client) })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(client) = self.client else { return };
        let mut counts = lock(&self.table.counts);
        if let Some(count) = counts.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_share_and_gets_it_back() {
        let table = ClientTable::new(2);
        let client = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = table.admit(client("2001:db8::1")).unwrap();
        let _second = table.admit(client("2001:db8::2")).unwrap();
        assert!(table.admit(client("2001:db8::3")).is_none());
        assert!(table.admit(client("2001:db8:0:1::1")).is_some());
        drop(first);
        assert!(table.admit(client("2001:db8::3")).is_some());
        let local: Vec<_> = (0..9).map(|_| table.admit(client("127.0.0.1"))).collect();
        assert!(local.iter().all(Option::is_some));
        drop((local, _second));
        assert!(table.counts.lock().unwrap().is_empty());
    }
}
