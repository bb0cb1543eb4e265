//! `ReadThrough`: a store together with the fetches for what it does not have.
//!
//! Invariants: a key is fetched by one caller at a time, whose outcome all get that asked
//! meanwhile; what was fetched before a change was made through this handle is not stored after it,
//! and what no read could return never. Uses the store as programs do. Threads: any number, sync or
//! async.

mod fetched;
mod flights;
mod park;

use std::future::{Future, poll_fn, ready};

use bytes::Bytes;

pub use self::fetched::{Fetched, Served};
pub use self::flights::ReadThroughStats;

use self::flights::{Flight, Flights, Joined, Lead};
use self::park::block_on;
use crate::error::PurgeError;
use crate::ops::Create;
use crate::store::{CreateOptions, Store};
use crate::sync::Arc;
use crate::sync::atomic::Ordering::Relaxed;
use crate::types::GroupId;

/// A store that is asked for objects and fetches those that it does not have.
///
/// Each read says how its object is fetched. Callers that miss the same key at once share one
/// fetch: the first one's is done, and all get its outcome, also an error. Only the next read after
/// a failure fetches again. A caller that goes (its future is dropped, its fetch panics) passes the
/// fetch on to one of those that wait.
///
/// A read never fails for the store: what the store refuses or cannot read is fetched, and what it
/// does not take is only passed on ([`ReadThroughStats::not_stored`], and the store's own counters,
/// which have the reasons). All who wait get what was fetched once the store has taken it or
/// refused it: at most [`Config::memory_wait`](crate::Config::memory_wait) later if guards hold all
/// of its memory, at most [`Config::create_wait`](crate::Config::create_wait) if the disk is slower
/// than what is created, so that a short one is right here; and a value of several records
/// (over half a segment) waits for its writes. In a child of `fork` each read fetches by itself.
///
/// # Changes at the origin
/// A program that learns of a change removes or purges what is out of date. A fetch that is under
/// way may already have got the old version, and would store it afterwards. So make changes through
/// this handle ([`ReadThrough::remove`], the purges, [`ReadThrough::create_with`]), *after* the
/// origin has changed: the outcome of a fetch that they overtake goes to those who asked before the
/// change, and is not stored; who asks later causes another fetch. Changes through the store itself
/// do not overtake fetches. The handles that share this are the clones of one `ReadThrough`.
///
/// # Memory
/// What is fetched lies beside [`Config::memory`](crate::Config::memory), and no copy of it, until
/// it is stored and all callers have dropped it. A program that fetches long values limits how many
/// at once. Values of more than an eighth of `memory`, or than 2 GiB, could not be read again in
/// one piece. They are passed on and not stored, and a version that is stored is removed: each read
/// fetches them. They are to be streamed ([`Store::writer`], [`Store::reader`]).
///
/// # Example
/// ```
/// use damelo::{Config, GroupId, ReadThrough, Store};
///
/// # let dir = tempfile::tempdir()?;
/// # let mut config = Config::new(dir.path().join("cache"), "64MiB".parse()?);
/// # config.memory = "8MiB".parse()?;
/// let pages: ReadThrough<std::io::Error> = ReadThrough::new(Store::open(config)?);
/// let site = GroupId::of("example.org");
/// let fetch = || Ok(b"from the origin".to_vec());            // or `read(...).await` with a future
/// let page = pages.read_blocking(b"/index.html", site, fetch)?;
/// assert!(&*page == b"from the origin" && page.is_fetched());
///
/// let page = pages.read_blocking(b"/index.html", site, || -> Result<Vec<u8>, _> { unreachable!() })?;
/// assert!(!page.is_fetched());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadThrough<E> {
    store: Store,
    flights: Arc<Flights<E>>,
}

impl<E> Clone for ReadThrough<E> {
    fn clone(&self) -> ReadThrough<E> {
        ReadThrough { store: self.store.clone(), flights: Arc::clone(&self.flights) }
    }
}

impl<E> std::fmt::Debug for ReadThrough<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadThrough").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<E> ReadThrough<E> {
    /// A handle on this store. Fetches are shared among its clones, not with other handles.
    pub fn new(store: Store) -> ReadThrough<E> {
        ReadThrough { store, flights: Arc::default() }
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Reads an object, or fetches and stores it in `group`. For a hit in memory nothing is
    /// allocated; `fetch` is called at most once, and only by the caller whose fetch is done.
    ///
    /// A `fetch` that reads the same key through the same handle waits for itself, for ever. A
    /// fetch goes on while its caller polls: one that keeps this future unpolled, neither done nor
    /// dropped (as in a loop over `select!`), lets all others wait who miss the same key.
    ///
    /// # Errors
    /// That of the fetch, shared by all who waited for it.
    pub async fn read<N, F>(
        &self,
        key: &[u8],
        group: GroupId,
        fetch: impl FnOnce() -> F,
    ) -> Result<Served, Arc<E>>
    where
        N: Into<Fetched>,
        F: Future<Output = Result<N, E>>,
    {
        let read = self.store.read(key).await;
        if let Ok(Some(object)) = read {
            return Ok(Served::stored(object));
        }
        self.missed(key, group, read.is_ok(), fetch).await
    }

    /// As [`ReadThrough::read`], on this thread: for programs without futures. Both may be used at
    /// once, but not on one thread: it would wait for a fetch that only this thread can poll.
    ///
    /// # Errors
    /// As for [`ReadThrough::read`].
    pub fn read_blocking<N: Into<Fetched>>(
        &self,
        key: &[u8],
        group: GroupId,
        fetch: impl FnOnce() -> Result<N, E>,
    ) -> Result<Served, Arc<E>> {
        let read = self.store.read(key).wait();
        if let Ok(Some(object)) = read {
            return Ok(Served::stored(object));
        }
        block_on(self.missed(key, group, read.is_ok(), || ready(fetch())))
    }

    /// `can_read`: the store could be read, and has nothing.
    async fn missed<N, F>(
        &self,
        key: &[u8],
        group: GroupId,
        can_read: bool,
        fetch: impl FnOnce() -> F,
    ) -> Result<Served, Arc<E>>
    where
        N: Into<Fetched>,
        F: Future<Output = Result<N, E>>,
    {
        if self.store.is_forked() {
            // The leader of a flight may be a thread that this process does not have.
            return fetch().await.map(|new| Served::fetched(new.into())).map_err(Arc::new);
        }
        let mut has_joined = false;
        loop {
            match self.flights.join(key, group) {
                Joined::Leader(lead) => return self.lead(lead, can_read, fetch).await,
                Joined::Follower(landed) => {
                    // A read counts once, however many leaders go before it is served.
                    if !std::mem::replace(&mut has_joined, true) {
                        self.flights.counts.joined.fetch_add(1, Relaxed);
                    }
                    if let Some(outcome) = landed.await {
                        return outcome;
                    }
                }
            }
        }
    }

    async fn lead<N, F>(
        &self,
        lead: Lead<'_, E>,
        can_read: bool,
        fetch: impl FnOnce() -> F,
    ) -> Result<Served, Arc<E>>
    where
        N: Into<Fetched>,
        F: Future<Output = Result<N, E>>,
    {
        // Asked again: another flight may have landed between the miss and the start of this one.
        // Else the miss would count twice, and who has waited for memory in vain would wait again.
        let key = &lead.flight().key;
        if can_read
            && self.store.may_contain(key)
            && let Ok(Some(object)) = self.store.read(key).await
        {
            return lead.land(Ok(Served::stored(object)));
        }
        let counts = &self.flights.counts;
        counts.fetches.fetch_add(1, Relaxed);
        match fetch().await {
            Ok(new) => {
                let new = new.into();
                if !self.create_unless_overtaken(lead.flight(), &new).await {
                    counts.not_stored.fetch_add(1, Relaxed);
                }
                lead.land(Ok(Served::fetched(new)))
            }
            Err(error) => {
                counts.failures.fetch_add(1, Relaxed);
                lead.land(Err(Arc::new(error)))
            }
        }
    }

    /// Stores what a flight has brought; whether it was stored.
    async fn create_unless_overtaken(&self, flight: &Flight<E>, new: &Fetched) -> bool {
        let begin = || {
            let options =
                CreateOptions { metadata: &new.metadata, expires_unix_s: new.expires_unix_s };
            self.store.create_readable(&flight.key, flight.group, &new.value, options)
        };
        poll_fn(|cx| flight.poll_create(cx, begin)).await
    }

    /// Makes a change, and overtakes what it affects. Twice: a flight that begins before the change
    /// is in effect may find what the change removes, and who asks after the change must not join
    /// it.
    fn change<T>(&self, overtake: impl Fn(&Flights<E>), change: impl FnOnce(&Store) -> T) -> T {
        if self.store.is_forked() {
            return change(&self.store);
        }
        overtake(&self.flights);
        let changed = change(&self.store);
        overtake(&self.flights);
        changed
    }

    /// As [`Store::create_with`]; a fetch of this key that is under way is overtaken.
    ///
    /// # Errors
    /// As for [`Store::create_with`].
    pub fn create_with(
        &self,
        key: &[u8],
        group: GroupId,
        value: &[u8],
        options: CreateOptions<'_>,
    ) -> Create {
        self.change(
            |flights| flights.overtake_key(key),
            |store| store.create_with(key, group, value, options),
        )
    }

    /// As [`Store::remove`]; a fetch of this key that is under way is overtaken.
    ///
    /// # Errors
    /// As for [`Store::remove`].
    pub fn remove(&self, key: &[u8]) -> Result<bool, PurgeError> {
        self.change(|flights| flights.overtake_key(key), |store| store.remove(key))
    }

    /// As [`Store::purge_group`]; fetches for this group that are under way are overtaken.
    ///
    /// # Errors
    /// As for [`Store::purge_group`].
    pub fn purge_group(&self, group: GroupId) -> Result<(), PurgeError> {
        self.change(
            |flights| flights.overtake_all(|flight| flight.group == group),
            |store| store.purge_group(group),
        )
    }

    /// As [`Store::purge_prefix`]; fetches of such keys that are under way are overtaken.
    ///
    /// # Errors
    /// As for [`Store::purge_prefix`].
    pub fn purge_prefix(&self, prefix: &[u8]) -> Result<(), PurgeError> {
        self.change(
            |flights| flights.overtake_all(|flight| flight.key.starts_with(prefix)),
            |store| store.purge_prefix(prefix),
        )
    }

    /// As [`Store::purge_all`]; all fetches that are under way are overtaken.
    ///
    /// # Errors
    /// As for [`Store::purge_all`].
    pub fn purge_all(&self) -> Result<(), PurgeError> {
        self.change(|flights| flights.overtake_all(|_| true), Store::purge_all)
    }

    /// What became of the reads that missed.
    pub fn stats(&self) -> ReadThroughStats {
        self.flights.stats()
    }
}

impl From<Served> for Bytes {
    /// Without copying. Of an object that was in the store, its memory stays pinned until the last
    /// `Bytes` is dropped.
    fn from(served: Served) -> Bytes {
        served.into_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// It has found the version that the change removes, and would pass it on to who comes later.
    #[test]
    fn what_begins_while_a_change_is_made_is_overtaken_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("store"), "32MiB".parse().unwrap());
        config.memory = "4MiB".parse().unwrap();
        let reads: ReadThrough<String> = ReadThrough::new(Store::open(config).unwrap());
        let (key, group) = (b"key", GroupId::new(1));
        let lead = reads.change(
            |flights| flights.overtake_key(key),
            |_| match reads.flights.join(key, group) {
                Joined::Leader(lead) => lead,
                Joined::Follower(_) => panic!("nobody leads"),
            },
        );
        assert!(matches!(reads.flights.join(key, group), Joined::Leader(_)), "who comes later");
        drop(lead);
    }
}
