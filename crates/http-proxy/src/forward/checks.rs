//! Password checks: few at a time, few waiting, and identical ones only once.
//!
//! A hash is slow on purpose, and takes 19 MiB. So [`HASHES_AT_ONCE`] dedicated threads compute
//! hashes, each with one memory block that it keeps, and at most as many checks wait as
//! [`CheckLimits`] allows, in all and per client. Invariants: a check counts until its hash is
//! computed, whether or not a request still waits for it, so that disconnecting frees no place;
//! equal credentials are checked once at a time. Threads: shared by all workers; the lock is never
//! held while a hash is computed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::config::client_network::network_of;
use crate::error::ProxyError;
use crate::forward::users::Hash;
use crate::io::locks::lock;

/// Threads that compute hashes.
pub(crate) const HASHES_AT_ONCE: usize = 2;
/// Maximum queue length, whatever the limits say.
const QUEUE_MAX: usize = 1 << 16;

/// Credentials under a keyed hash.
pub(crate) type Tag = [u8; 32];

/// How many passwords may be waiting for or undergoing a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckLimits {
    /// Per client address, or per /64 of IPv6; more get 429. Default 8.
    pub per_client_max: usize,
    /// In all; more get 503. Default 256.
    pub max: usize,
}

impl Default for CheckLimits {
    fn default() -> CheckLimits {
        CheckLimits { per_client_max: 8, max: 256 }
    }
}

/// Why a password cannot be checked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// This client has too many checks in flight.
    Client,
    /// All clients together have too many.
    All,
}

/// The result of a check: `None` until it is done.
pub(crate) type Outcome = watch::Receiver<Option<bool>>;

/// Queue of password checks.
pub(crate) struct Checks {
    limits: CheckLimits,
    queue: SyncSender<Check>,
    under_way: Arc<Mutex<UnderWay>>,
}

#[derive(Default)]
struct UnderWay {
    outcomes: HashMap<Tag, Outcome>,
    clients: HashMap<IpAddr, usize>,
}

/// One check. Dropping it ends it.
struct Check {
    tag: Tag,
    client: IpAddr,
    password: String,
    hash: Arc<Hash>,
    done: watch::Sender<Option<bool>>,
    /// Called with the result before any waiting request learns it.
    then: Box<dyn FnOnce(bool) + Send>,
    under_way: Arc<Mutex<UnderWay>>,
}

impl Checks {
    /// Starts the threads; they end when the returned value is dropped.
    pub(crate) fn start(limits: CheckLimits, threads: usize) -> Result<Checks, ProxyError> {
        let (queue, checks) = sync_channel::<Check>(limits.max.min(QUEUE_MAX));
        let checks = Arc::new(Mutex::new(checks));
        for _ in 0..threads {
            let checks = checks.clone();
            std::thread::Builder::new()
                .name("damelo-hash".to_owned())
                .spawn(move || work(&checks))
                .map_err(ProxyError::Worker)?;
        }
        Ok(Checks { limits, queue, under_way: Arc::default() })
    }

    /// Checks `password` against `hash`, or joins an identical check in flight. `then` gets the
    /// result whether or not a request still waits.
    pub(crate) fn check(
        &self,
        (tag, client): (Tag, IpAddr),
        (password, hash): (String, Arc<Hash>),
        then: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Outcome, Full> {
        let client = network_of(client);
        let mut under_way = lock(&self.under_way);
        if let Some(outcome) = under_way.outcomes.get(&tag) {
            return Ok(outcome.clone());
        }
        if under_way.outcomes.len() >= self.limits.max {
            return Err(Full::All);
        }
        let count = under_way.clients.entry(client).or_default();
        if *count >= self.limits.per_client_max {
            return Err(Full::Client);
        }
        *count += 1;
        let (done, outcome) = watch::channel(None);
        under_way.outcomes.insert(tag, outcome.clone());
        drop(under_way);
        let (then, under_way) = (Box::new(then), self.under_way.clone());
        let check = Check { tag, client, password, hash, done, then, under_way };
        // A check that the queue refuses is dropped, and so no longer counts.
        self.queue.try_send(check).map_err(|_| Full::All)?;
        Ok(outcome)
    }
}

impl Check {
    /// Publishes the result and ends the check.
    fn end(mut self, right: bool) {
        let then = std::mem::replace(&mut self.then, Box::new(|_| ()));
        then(right);
        self.done.send_replace(Some(right));
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let mut under_way = lock(&self.under_way);
        under_way.outcomes.remove(&self.tag);
        if let Some(count) = under_way.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                under_way.clients.remove(&self.client);
            }
        }
    }
}

/// Body of a hashing thread.
fn work(checks: &Mutex<Receiver<Check>>) {
    let mut memory = Vec::new();
    loop {
        let next = lock(checks).recv();
        let Ok(check) = next else { return };
        let right = check.hash.is_of(&check.password, &mut memory);
        check.end(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(checks: &Checks, tag: u8, client: &str) -> Result<Outcome, Full> {
        let hash = Arc::new(Hash::of_nobody().unwrap());
        let who = ([tag; 32], client.parse().unwrap());
        checks.check(who, ("x".to_owned(), hash), |_| ())
    }

    #[test]
    fn who_goes_away_makes_no_room() {
        let limits = CheckLimits { per_client_max: 2, max: 3 };
        // Without threads no check is ever done.
        let (queue, waiting) = sync_channel(9);
        let idle = Checks { limits, queue, under_way: Arc::default() };
        let first = begin(&idle, 1, "2001:db8::1").unwrap();
        let again = begin(&idle, 1, "2001:db8::1").unwrap();
        assert!(again.same_channel(&first), "the same credentials are checked once");
        drop(begin(&idle, 2, "2001:db8::2").unwrap());
        assert_eq!(begin(&idle, 3, "2001:db8::3").err(), Some(Full::Client));
        assert!(begin(&idle, 3, "192.0.2.1").is_ok());
        assert_eq!(begin(&idle, 4, "192.0.2.1").err(), Some(Full::All));
        assert!(begin(&idle, 1, "192.0.2.1").is_ok(), "to wait along takes no place");
        drop(waiting);
        assert_eq!(begin(&idle, 5, "192.0.2.9").err(), Some(Full::All));
        assert!(lock(&idle.under_way).outcomes.is_empty(), "what nobody takes holds no place");
    }

    #[tokio::test]
    async fn what_is_done_makes_room_and_is_told() {
        let checks = Checks::start(CheckLimits::default(), HASHES_AT_ONCE).unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        let hash = Arc::new(Hash::of_nobody().unwrap());
        for (tag, password) in [(1, ""), (2, "x")] {
            let (told, hash) = (told.clone(), hash.clone());
            let who = ([tag; 32], IpAddr::from([192, 0, 2, 1]));
            let then = move |right| told.send(right).unwrap();
            let mut outcome = checks.check(who, (password.to_owned(), hash), then).unwrap();
            let right = *outcome.wait_for(Option::is_some).await.unwrap();
            assert_eq!(right, Some(password.is_empty()));
            assert_eq!(heard.recv().unwrap(), password.is_empty());
        }
        // The count goes down just after the outcome is published.
        while !lock(&checks.under_way).clients.is_empty() {
            std::thread::yield_now();
        }
        assert!(lock(&checks.under_way).outcomes.is_empty());
    }
}
