//! The ledger of purges: its marks in memory, and two objects in the store that hold them.
//!
//! A purge takes effect at once. It is acknowledged when its marks are in the store and the store
//! is flushed, so that it survives a crash. The marks are written as one object, alternately under
//! one of two reserved keys; the older object is removed once the newer is durable. So a crash
//! leaves the older, the newer, or both, and the newer of them is used. If the store loses both (by
//! a disk error, or because the log wrapped around before the marks were rewritten), the next
//! process starts a ledger with another number. All responses stored before are invalid under it:
//! they are lost rather than served after a purge.
//!
//! Invariants: nothing is served before the marks are loaded; a response stored under another
//! ledger is never served. Threads: any thread may judge; writes are serialized, and one write
//! serves all callers waiting for it; a dedicated thread loads the marks, and rewrites them before
//! the log would overwrite them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use damelo::{GroupId, Store};

use super::PurgeKind;
use super::marks::{Marks, Scope, Standing, Subject};
use super::stamp::Moment;

use crate::io::locks::{self, lock};
use crate::say::say;

/// Prefix of the marks' keys, followed by 0 or 1; no URL begins with it.
const KEY: &[u8] = b"\0damelo-proxy/purges/";
/// Interval of checks whether the marks must be rewritten.
const TICK: Duration = Duration::from_secs(1);
/// Interval of attempts to load the marks while the store recovers.
const LOADING_TICK: Duration = Duration::from_millis(5);
/// The marks are rewritten after 1/`REWRITE_DIVISOR` of the log was reused.
const REWRITE_DIVISOR: u64 = 4;

/// Why a purge is not durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LedgerError {
    /// The store is still searching for the marks of an earlier process.
    #[error("the store is still recovering: try again in a moment")]
    Loading,
    /// The purge is in effect, but a crash may undo it.
    #[error("the purge is in effect but could not be made durable: {0}")]
    Store(String),
}

/// Progress of loading the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loading {
    /// The store may still find the marks of an earlier process.
    Waiting,
    /// No response can be stored, because the store does not accept the marks; the reason.
    Failed(String),
    /// Responses can be stored and purges made.
    Done,
}

/// The ledger as it was last written to the store.
#[derive(Debug, Default)]
struct Written {
    generation: u64,
    /// The key of the last write: 0 or 1.
    slot: u8,
    segments_reused: u64,
}

/// Numbers that every hit checks first, without a lock that all cores would contend for. They
/// change after the marks: a hit that read the old numbers did so before the purge was
/// acknowledged.
#[derive(Debug, Default)]
struct Now {
    ledger: AtomicU64,
    generation: AtomicU64,
    newest_mark: AtomicU64,
}

impl Now {
    fn follow(&self, marks: &Marks) {
        let now = marks.now();
        self.ledger.store(now.ledger, Ordering::Release);
        self.generation.store(now.generation, Ordering::Release);
        self.newest_mark.store(marks.newest_mark(), Ordering::Release);
    }
}

/// All purges of a store.
pub(crate) struct Ledger {
    store: Store,
    marks: RwLock<Marks>,
    now: Now,
    /// The marks are known: hits can be judged.
    readable: AtomicBool,
    /// The ledger is writable: responses can be stored and purges made.
    loaded: AtomicBool,
    /// Why the ledger is not writable, if the store does not accept the marks.
    failure: Mutex<Option<String>>,
    written: Mutex<Written>,
    /// Number of volumes out of service at the last check.
    volumes_out: AtomicU64,
    /// Dropping it ends the thread.
    _alive: Sender<()>,
}

fn key(slot: u8) -> Vec<u8> {
    [KEY, &[b'0' + slot]].concat()
}

impl Ledger {
    /// Loads the marks, or begins an empty ledger if the store has none. While the store is
    /// recovering, loading continues in the background; until then every lookup is a miss.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn open(store: Store) -> std::io::Result<Arc<Ledger>> {
        let (alive, ended) = channel();
        let ledger = Arc::new(Ledger {
            store,
            marks: RwLock::new(Marks::new(fastrand::u64(1..))),
            now: Now::default(),
            readable: AtomicBool::new(false),
            loaded: AtomicBool::new(false),
            failure: Mutex::default(),
            written: Mutex::default(),
            volumes_out: AtomicU64::new(0),
            _alive: alive,
        });
        ledger.try_load();
        let weak = Arc::downgrade(&ledger);
        std::thread::Builder::new().name("damelo-purges".to_owned()).spawn(move || {
            let mut tick = LOADING_TICK;
            while ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                let Some(loading) = Ledger::tend(&weak) else { return };
                // While the store rejects the marks, it is retried only as often as a healthy one
                // is checked.
                tick = if loading == Loading::Waiting { LOADING_TICK } else { TICK };
            }
        })?;
        Ok(ledger)
    }

    /// One tick of the ledger's thread; `None` if the ledger is gone.
    fn tend(weak: &Weak<Ledger>) -> Option<Loading> {
        let ledger = weak.upgrade()?;
        if ledger.loading() != Loading::Waiting {
            ledger.tell_of_volumes();
        }
        if !ledger.is_loaded() {
            ledger.try_load();
        } else if ledger.is_aging() {
            // A failure leaves the marks as they were, and the next tick tries again.
            let _ = ledger.write();
        }
        Some(ledger.loading())
    }

    /// Reports on standard error when a volume goes out of service: no other code watches the
    /// store, and readers only see misses.
    fn tell_of_volumes(&self) {
        let out = self.store.stats().volumes_out;
        if out > self.volumes_out.swap(out, Ordering::Relaxed) {
            say(format_args!(
                "damelo: too many errors: {out} of the store's volumes are out of service"
            ));
        }
    }

    /// Progress of loading.
    pub(crate) fn loading(&self) -> Loading {
        if self.is_loaded() {
            return Loading::Done;
        }
        let failure = lock(&self.failure);
        failure.clone().map_or(Loading::Waiting, Loading::Failed)
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    fn marks(&self) -> RwLockReadGuard<'_, Marks> {
        // A panic cannot leave the marks half-changed: each change is complete or not begun.
        locks::read(&self.marks)
    }

    /// The current moment, for the stamp of responses fetched from now on; `None` before the marks
    /// are loaded.
    pub(crate) fn now(&self) -> Option<Moment> {
        self.is_loaded().then(|| Moment {
            ledger: self.now.ledger.load(Ordering::Acquire),
            generation: self.now.generation.load(Ordering::Acquire),
        })
    }

    /// True if no purge can cover a response stored at this moment: the usual case.
    pub(crate) fn is_clear(&self, moment: Moment) -> bool {
        self.readable.load(Ordering::Acquire)
            && moment.ledger == self.now.ledger.load(Ordering::Acquire)
            && moment.generation >= self.now.newest_mark.load(Ordering::Acquire)
    }

    /// Judges a hit by the marks.
    pub(crate) fn judge(&self, subject: &Subject<'_>) -> Standing {
        if !self.readable.load(Ordering::Acquire) {
            return Standing::Gone;
        }
        self.marks().judge(subject)
    }

    /// Reads the marks.
    pub(crate) fn with_marks<T>(&self, look: impl FnOnce(&Marks) -> T) -> T {
        look(&self.marks())
    }

    /// Loads the marks as soon as the store knows them, and makes the ledger writable.
    fn try_load(&self) {
        let recovered = self.store.recovery().done;
        if !self.readable.load(Ordering::Acquire) && !self.find(recovered) {
            return;
        }
        // The generation that the next process continues from must be durable before a response is
        // stored under a later one. A failure is retried at the next tick.
        if recovered {
            self.written_at_start(self.write());
        }
    }

    /// Marks the ledger writable if the marks were written. Reports on standard error when writing
    /// begins or ceases to fail.
    fn written_at_start(&self, written: Result<(), LedgerError>) {
        let mut failure = lock(&self.failure);
        match written {
            Ok(()) => {
                if failure.take().is_some() {
                    say(format_args!("damelo: the store can be written again: answers are stored"));
                }
                self.loaded.store(true, Ordering::Release);
            }
            Err(LedgerError::Store(error)) => {
                if failure.is_none() {
                    say(format_args!(
                        "damelo: the store cannot be written, so nothing is stored: {error}"
                    ));
                }
                *failure = Some(error);
            }
            Err(LedgerError::Loading) => {}
        }
    }

    /// Reads both objects. If neither exists and the store has finished recovery, begins a new
    /// ledger. One object suffices even while the other may still be found: the other is then
    /// either older, or of a purge that was not acknowledged, since acknowledgement waits for the
    /// removal of the older.
    fn find(&self, recovered: bool) -> bool {
        let read = |slot| {
            let object = self.store.read(&key(slot)).wait().ok()??;
            Marks::decode(&object)
        };
        let (found, slot) = match (read(0), read(1)) {
            (None, None) if !recovered => return false,
            (None, None) => (None, 0),
            (Some(marks), None) => (Some(marks), 0),
            (None, Some(marks)) => (Some(marks), 1),
            (Some(a), Some(b)) => {
                let newer = Marks::newer(a.clone(), b);
                let slot = u8::from(newer != a);
                (Some(newer), slot)
            }
        };
        lock(&self.written).slot = slot;
        self.store.love(GroupId::of(KEY));
        let mut marks = locks::write(&self.marks);
        // A new ledger takes the same path as a loaded one, so that its number is written as well.
        let known = found.unwrap_or_else(|| marks.clone());
        *marks = known.after_restart();
        self.now.follow(&marks);
        drop(marks);
        self.readable.store(true, Ordering::Release);
        true
    }

    /// Sets marks and returns the generation of the last one when all are durable. Blocks.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub(crate) fn purge(
        &self,
        scopes: Vec<Scope>,
        kind: PurgeKind,
        now_unix_s: u64,
    ) -> Result<u64, LedgerError> {
        if self.loading() == Loading::Waiting {
            return Err(LedgerError::Loading);
        }
        let generation = self.set(scopes, kind, now_unix_s);
        self.written_up_to(generation)?;
        Ok(generation)
    }

    /// Sets marks in memory; they become durable with the next purge or write.
    pub(crate) fn set(&self, scopes: Vec<Scope>, kind: PurgeKind, now_unix_s: u64) -> u64 {
        self.set_in(&mut locks::write(&self.marks), scopes, kind, now_unix_s)
    }

    /// As [`Ledger::set`]; returns the moment after it if nothing else was purged since `moment`.
    /// One step, so that nothing can be in between.
    pub(crate) fn set_since(
        &self,
        scopes: Vec<Scope>,
        kind: PurgeKind,
        now_unix_s: u64,
        moment: Option<Moment>,
    ) -> Option<Moment> {
        let mut marks = locks::write(&self.marks);
        let is_clear = moment.is_some_and(|moment| {
            moment.ledger == marks.now().ledger && moment.generation >= marks.newest_mark()
        });
        self.set_in(&mut marks, scopes, kind, now_unix_s);
        is_clear.then(|| marks.now())
    }

    fn set_in(
        &self,
        marks: &mut Marks,
        scopes: Vec<Scope>,
        kind: PurgeKind,
        now_unix_s: u64,
    ) -> u64 {
        let mut generation = marks.now().generation;
        for scope in scopes {
            generation = marks.set(scope, kind, now_unix_s);
        }
        self.now.follow(marks);
        generation
    }

    fn written_up_to(&self, generation: u64) -> Result<(), LedgerError> {
        let written = lock(&self.written).generation;
        // A write that ended while this thread waited for the lock included its marks.
        if written >= generation { Ok(()) } else { self.write() }
    }

    /// Writes the marks, waits until they are durable, and removes the older copy.
    fn write(&self) -> Result<(), LedgerError> {
        let before = self.marks().now().generation;
        let mut written = lock(&self.written);
        if written.generation >= before && before > 0 && !self.is_aging_since(&written) {
            return Ok(());
        }
        let failed = |error: &dyn std::error::Error| LedgerError::Store(error.to_string());
        let slot = 1 - written.slot;
        let generation = self.put_in(slot).map_err(|error| failed(&error))?;
        self.store.sync().map_err(|error| failed(&error))?;
        self.store.remove(&key(written.slot)).map_err(|error| failed(&error))?;
        // Without this, a loss of power could resurrect the older copy.
        self.store.sync().map_err(|error| failed(&error))?;
        let segments_reused = self.store.stats().segments_reused;
        *written = Written { generation, slot, segments_reused };
        Ok(())
    }

    fn put_in(&self, slot: u8) -> Result<u64, damelo::CreateError> {
        let (bytes, generation) = {
            let marks = self.marks();
            (marks.encode(), marks.now().generation)
        };
        self.store.create(&key(slot), GroupId::of(KEY), &bytes).wait()?;
        Ok(generation)
    }

    fn is_aging(&self) -> bool {
        let written = lock(&self.written);
        self.is_aging_since(&written) || self.marks().now().generation > written.generation
    }

    fn is_aging_since(&self, written: &Written) -> bool {
        let stats = self.store.stats();
        let reused = stats.segments_reused.saturating_sub(written.segments_reused);
        reused > stats.segments / REWRITE_DIVISOR
    }
}

#[cfg(test)]
mod tests {
    use damelo::{ByteSize, Config};

    use super::super::stamp::{Stamp, TagId};
    use super::*;

    fn open_store(path: &std::path::Path) -> Store {
        let mut config = Config::new(path, ByteSize::new(64 << 20));
        config.memory = ByteSize::new(8 << 20);
        let store = Store::open(config).unwrap();
        store.wait_recovered();
        store
    }

    fn standing(ledger: &Ledger, moment: Moment, tag: u64) -> Standing {
        let stamp = Stamp { moment, tags: vec![TagId(tag)] };
        ledger.judge(&Subject { stamp: &stamp, url: b"http://a/", url_hash: 0, group: 0 })
    }

    #[test]
    fn marks_and_their_ledger_outlive_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let mut store = open_store(&path);
        let first = Ledger::open(store.clone()).unwrap().now().unwrap();
        for round in 1..6 {
            let ledger = Ledger::open(store.clone()).unwrap();
            let now = ledger.now().unwrap();
            assert_eq!(now.ledger, first.ledger, "round {round}");
            assert_eq!(standing(&ledger, now, round), Standing::Untouched);
            assert!(ledger.is_clear(now));
            ledger.purge(vec![Scope::Tag(TagId(round))], PurgeKind::Hard, 0).unwrap();
            for earlier in 1..=round {
                assert_eq!(standing(&ledger, first, earlier), Standing::Gone);
                assert!(!ledger.is_clear(first));
            }
            assert_eq!(standing(&ledger, first, round + 1), Standing::Untouched);
            assert_eq!(standing(&ledger, now, round), Standing::Gone);
            drop(ledger);
            store.close().unwrap();
            store = open_store(&path);
        }
    }

    #[test]
    fn lost_marks_make_everything_older_gone() {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(&directory.path().join("store"));
        let ledger = Ledger::open(store.clone()).unwrap();
        let before = ledger.now().unwrap();
        ledger.purge(vec![Scope::Tag(TagId(1))], PurgeKind::Hard, 0).unwrap();
        drop(ledger);
        for slot in [0, 1] {
            store.remove(&key(slot)).unwrap();
        }
        let ledger = Ledger::open(store).unwrap();
        assert_ne!(ledger.now().unwrap().ledger, before.ledger);
        assert_eq!(standing(&ledger, before, 2), Standing::Gone);
    }

    #[test]
    fn many_purges_at_once_share_writes_and_all_hold() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = open_store(&path);
        let ledger = Ledger::open(store.clone()).unwrap();
        let before = ledger.now().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let ledger = &ledger;
                scope.spawn(move || {
                    for n in 0..20 {
                        let tag = TagId(thread * 100 + n);
                        ledger.purge(vec![Scope::Tag(tag)], PurgeKind::Hard, 0).unwrap();
                    }
                });
            }
        });
        drop(ledger);
        store.close().unwrap();
        let ledger = Ledger::open(open_store(&path)).unwrap();
        for thread in 0..8 {
            for n in 0..20 {
                assert_eq!(standing(&ledger, before, thread * 100 + n), Standing::Gone);
            }
        }
        assert_eq!(standing(&ledger, before, 99), Standing::Untouched);
    }
}
