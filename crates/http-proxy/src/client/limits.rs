//! Connections counted by client address.
//!
//! Many people may share an address, behind an address translation: as its limit is near, those of
//! its connections that nobody uses make room, and who comes then waits for that. Invariants: an
//! address is in the table exactly while it has connections or some wait; few wait for each.
//! Threads: shared by all workers; the lock is held for a table operation, twice a connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant, timeout_at};

use crate::client::activity::Activity;
use crate::client::seats::{FEW_SHARE, LOOK_INTERVAL, Seat, Seats, UNUSED_MIN_FULL};
use crate::config::client_network::network_of;
use crate::io::locks::lock;
use crate::say::say;

/// Longest wait for a connection of the same client that ends: what nobody uses when it begins has
/// made room by then, also where a client of HTTP/2 has a second to take note.
const WAIT_MAX: Duration =
    UNUSED_MIN_FULL.saturating_mul(2).saturating_add(LOOK_INTERVAL.saturating_mul(3));

/// Connections of each client at this moment.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    clients: Mutex<HashMap<IpAddr, OfClient>>,
    per_client_max: AtomicUsize,
    /// Whether it was said that a client has reached the limit.
    said_full: AtomicBool,
}

/// What one client has open.
#[derive(Debug, Default)]
struct OfClient {
    connections: usize,
    waiting: usize,
    shared: Arc<Open>,
}

#[derive(Debug, Default)]
struct Open {
    seats: Arc<Seats>,
    /// Told of each that ends while some wait.
    ended: Notify,
}

/// One counted connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Counted {
    /// `None` if its client has no limit.
    _place: Option<(CountedClient, Seat)>,
}

/// One connection that is counted for its client's address, or waits for another to end, until it
/// is dropped.
#[derive(Debug)]
struct CountedClient {
    table: Arc<ClientTable>,
    client: IpAddr,
    waits: bool,
}

impl ClientTable {
    /// A table that admits `per_client_max` connections per client; 0 is no limit.
    pub(crate) fn new(per_client_max: usize) -> Arc<ClientTable> {
        Arc::new(ClientTable { per_client_max: per_client_max.into(), ..ClientTable::default() })
    }

    /// Admits so many from now on. Connections that are open stay, and those that came while there
    /// was no limit are not counted.
    pub(crate) fn set_per_client_max(&self, per_client_max: usize) {
        self.per_client_max.store(per_client_max, Ordering::Relaxed);
    }

    fn per_client_max(&self) -> usize {
        self.per_client_max.load(Ordering::Relaxed)
    }

    /// Counts a connection; `None` if the client has too many already and none of them makes room.
    pub(crate) async fn admit(
        self: &Arc<ClientTable>,
        client: IpAddr,
        activity: &Arc<Activity>,
    ) -> Option<Counted> {
        let client = network_of(client);
        if self.per_client_max() == 0 || client.is_loopback() {
            return Some(Counted { _place: None });
        }
        let (place, open) = match self.place(client) {
            Ok(placed) => placed,
            Err(_) => Box::pin(self.freed_place(client)).await?,
        };
        Some(Counted { _place: Some((place, open.seats.take(activity))) })
    }

    /// A place of this client, or else what it has open. If it has few places left, those that
    /// nobody uses make room.
    fn place(
        self: &Arc<ClientTable>,
        client: IpAddr,
    ) -> Result<(CountedClient, Arc<Open>), Arc<Open>> {
        let per_client_max = self.per_client_max();
        let mut clients = lock(&self.clients);
        let own = clients.entry(client).or_default();
        let has_place = own.connections < per_client_max;
        own.connections += usize::from(has_place);
        let (open, waiting) = (own.shared.clone(), own.waiting);
        let free = per_client_max.saturating_sub(own.connections);
        // What ends while room is made takes the lock.
        drop(clients);
        open.seats.keep_free(per_client_max, free, waiting, Instant::now());
        match has_place {
            true => Ok((CountedClient { table: self.clone(), client, waits: false }, open)),
            false => Err(open),
        }
    }

    /// The place of one that ends, if one does in time.
    async fn freed_place(
        self: &Arc<ClientTable>,
        client: IpAddr,
    ) -> Option<(CountedClient, Arc<Open>)> {
        self.say_full(client);
        let _waiting = self.wait(client)?;
        let due = Instant::now() + WAIT_MAX;
        loop {
            let open = match self.place(client) {
                Ok(placed) => return Some(placed),
                Err(open) => open,
            };
            let now = Instant::now();
            if now >= due {
                return None;
            }
            // Those in use now may not be a moment later.
            let _ = timeout_at(now + LOOK_INTERVAL, open.ended.notified()).await;
        }
    }

    /// Counts one that waits; `None` if as many do as may.
    fn wait(self: &Arc<ClientTable>, client: IpAddr) -> Option<CountedClient> {
        let mut clients = lock(&self.clients);
        let own = clients.entry(client).or_default();
        if own.waiting > self.per_client_max() / FEW_SHARE {
            return None;
        }
        own.waiting += 1;
        Some(CountedClient { table: self.clone(), client, waits: true })
    }

    fn say_full(&self, client: IpAddr) {
        if !self.said_full.swap(true, Ordering::Relaxed) {
            let max = self.per_client_max();
            say(format_args!(
                "damelo: {client} has limits.connections_per_client_max ({max}) connections: those that \
                 nobody uses make room, and others get 429"
            ));
        }
    }
}

impl Drop for CountedClient {
    fn drop(&mut self) {
        let mut clients = lock(&self.table.clients);
        let Some(own) = clients.get_mut(&self.client) else { return };
        if self.waits {
            own.waiting -= 1;
        } else {
            own.connections -= 1;
            if own.waiting > 0 {
                own.shared.ended.notify_one();
            }
        }
        if own.connections == 0 && own.waiting == 0 {
            clients.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A connection that leaves when it is told to.
    async fn open(table: &Arc<ClientTable>, client: &str) -> Option<Arc<Activity>> {
        let activity = Activity::new(Arc::default(), None);
        activity.count(table.admit(address(client), &activity).await?);
        activity.awaits_head();
        Some(activity)
    }

    fn leaves_when_told(activity: Arc<Activity>) {
        tokio::spawn(async move { activity.told_to_leave().await });
    }

    #[tokio::test(start_paused = true)]
    async fn each_client_has_its_share_and_gets_it_back() {
        let table = ClientTable::new(2);
        let first = open(&table, "2001:db8::1").await.unwrap();
        let second = open(&table, "2001:db8::2").await.unwrap();
        let _in_use = [first.begin(), second.begin()];
        let begun = Instant::now();
        assert!(open(&table, "2001:db8::3").await.is_none());
        assert!(begun.elapsed() <= WAIT_MAX + LOOK_INTERVAL);
        let other = open(&table, "2001:db8:0:1::1").await.unwrap();
        let mut local = Vec::new();
        for _ in 0..9 {
            local.push(open(&table, "127.0.0.1").await.unwrap());
        }
        drop((_in_use, first));
        let third = open(&table, "2001:db8::3").await.unwrap();
        drop((second, third, other, local));
        assert!(table.clients.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn another_limit_counts_for_connections_from_then_on() {
        let table = ClientTable::new(2);
        let mut all = Vec::new();
        for _ in 0..2 {
            let one = open(&table, "192.0.2.1").await.unwrap();
            all.push((one.begin(), one));
        }
        table.set_per_client_max(1);
        assert!(open(&table, "192.0.2.1").await.is_none());
        drop(all.pop());
        assert!(open(&table, "192.0.2.1").await.is_none(), "one is there already");
        table.set_per_client_max(2);
        assert!(open(&table, "192.0.2.1").await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_does_not_use_makes_room_for_what_it_opens() {
        let table = ClientTable::new(2);
        let in_use = open(&table, "192.0.2.1").await.unwrap();
        let _request = in_use.begin();
        leaves_when_told(open(&table, "192.0.2.1").await.unwrap());
        leaves_when_told(open(&table, "192.0.2.2").await.unwrap());
        let begun = Instant::now();
        let _third = open(&table, "192.0.2.1").await.unwrap();
        assert!(begun.elapsed() >= UNUSED_MIN_FULL, "nobody leaves who is needed");
        let left = |client: &str| table.clients.lock().unwrap()[&address(client)].connections;
        assert_eq!((left("192.0.2.1"), left("192.0.2.2")), (2, 1), "nobody else's");
    }

    /// Visitors behind one address: each keeps a connection that it does not use again.
    #[tokio::test(start_paused = true)]
    async fn many_behind_one_address_are_all_admitted_and_hardly_wait() {
        let table = ClientTable::new(64);
        let begun = Instant::now();
        for _ in 0..640 {
            leaves_when_told(open(&table, "192.0.2.1").await.expect("a place"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let waited = begun.elapsed() - Duration::from_millis(100) * 640;
        assert!(waited < WAIT_MAX, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn few_wait_for_a_place_of_one_client() {
        let table = ClientTable::new(FEW_SHARE);
        let mut all = Vec::new();
        for _ in 0..FEW_SHARE {
            let one = open(&table, "192.0.2.1").await.unwrap();
            all.push((one.begin(), one));
        }
        let more = [(); 9].map(|()| {
            let table = table.clone();
            tokio::spawn(async move { open(&table, "192.0.2.1").await.is_some() })
        });
        tokio::task::yield_now().await;
        assert_eq!(table.clients.lock().unwrap()[&address("192.0.2.1")].waiting, 2);
        drop(all.pop());
        let mut admitted = 0;
        for one in more {
            admitted += usize::from(one.await.unwrap());
        }
        assert!(admitted >= 1);
    }
}
