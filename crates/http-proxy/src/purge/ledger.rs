//! The ledger of purges: its marks in memory, and their copies in the store.
//!
//! A purge takes effect at once. It is acknowledged when it is in the store's copies (`copies`), so
//! that it survives a crash. If the store loses these (by a disk error, or because the log wrapped
//! around before they were rewritten), the next process starts a ledger with another number. All
//! responses stored before are invalid under it: they are lost rather than served after a purge.
//!
//! Invariants: nothing is served before the marks are loaded; a response stored under another
//! ledger is never served. Threads: any thread may judge; writes are serialized, and one write
//! serves all callers waiting for it; a dedicated thread loads the marks, and rewrites them before
//! the log would overwrite them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use damelo::{Store, StoreInfo, VolumeInfo};

use super::PurgeKind;
use super::copies::{self, Copies, Written};
use super::marks::{Marks, Scope, Standing, Subject};
use super::saved::Known;
use super::stamp::Moment;

use crate::io::locks::{self, lock};
use crate::say::say;

/// Interval of checks whether the marks must be rewritten.
const TICK: Duration = Duration::from_secs(1);
/// Interval of attempts to load the marks while the store recovers.
const LOADING_TICK: Duration = Duration::from_millis(5);

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
    copies: Copies<Store>,
    known: RwLock<Known>,
    now: Now,
    /// The marks are known: hits can be judged.
    readable: AtomicBool,
    /// The ledger is writable: responses can be stored and purges made.
    loaded: AtomicBool,
    /// Why the ledger is not writable, if the store does not accept the marks.
    failure: Mutex<Option<String>>,
    written: Mutex<Written>,
    /// Number of volumes out of service at the last check, and of those that did not answer.
    volumes_out: AtomicU64,
    volumes_unanswering: AtomicU64,
    /// Dropping it ends the thread.
    _alive: Sender<()>,
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
            copies: Copies::new(store.clone()),
            store,
            known: RwLock::new(Known::new(Marks::new(fastrand::u64(1..)))),
            now: Now::default(),
            readable: AtomicBool::new(false),
            loaded: AtomicBool::new(false),
            failure: Mutex::default(),
            written: Mutex::default(),
            volumes_out: AtomicU64::new(0),
            volumes_unanswering: AtomicU64::new(0),
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
        } else if ledger.wants_write() {
            // A failure leaves the marks as they were, and the next tick tries again.
            let _ = ledger.write();
        }
        Some(ledger.loading())
    }

    /// Reports on standard error when a volume goes out of service or does not answer, which it is,
    /// and why: no other code watches the store, and readers only see misses.
    fn tell_of_volumes(&self) {
        let stats = self.store.stats();
        let (out, unanswering) = (stats.volumes_out, stats.volumes_unanswering);
        if out > self.volumes_out.swap(out, Ordering::Relaxed) {
            say(format_args!("damelo: {}", volumes_out(&self.store.info())));
        }
        // It may have answered since.
        if unanswering > self.volumes_unanswering.swap(unanswering, Ordering::Relaxed)
            && let Some(silent) = volumes_unanswering(&self.store.info())
        {
            say(format_args!("damelo: {silent}: what lies there is fetched until it does"));
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

    /// Why nothing can be stored any more, once every volume is out of service.
    pub(crate) fn all_volumes_out(&self) -> Option<String> {
        let info = self.store.info();
        let is_out = |volume: &VolumeInfo| volume.out_because.is_some();
        info.volumes.iter().all(is_out).then(|| volumes_out(&info))
    }

    /// Which volumes are out of service or do not answer, and why.
    pub(crate) fn volumes_ailing(&self) -> Option<String> {
        let info = self.store.info();
        let is_one_out = info.volumes.iter().any(|volume| volume.out_because.is_some());
        let out = is_one_out.then(|| volumes_out(&info));
        let all: Vec<String> = out.into_iter().chain(volumes_unanswering(&info)).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        // A panic cannot leave the marks half-changed: each change is complete or not begun.
        locks::read(&self.known)
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

    /// Whether no mark has been set after this moment, which [`Ledger::judge`] returned.
    pub(crate) fn is_newest(&self, newest: Moment) -> bool {
        self.readable.load(Ordering::Acquire)
            && newest.ledger == self.now.ledger.load(Ordering::Acquire)
            && newest.generation == self.now.newest_mark.load(Ordering::Acquire)
    }

    /// Judges a hit by the marks; also the moment of the newest of them.
    pub(crate) fn judge(&self, subject: &Subject<'_>) -> (Standing, Moment) {
        let known = self.known();
        let marks = &known.marks;
        let newest = Moment { ledger: marks.now().ledger, generation: marks.newest_mark() };
        if !self.readable.load(Ordering::Acquire) {
            return (Standing::Gone, newest);
        }
        (marks.judge(subject), newest)
    }

    /// Reads the marks.
    pub(crate) fn with_marks<T>(&self, look: impl FnOnce(&Marks) -> T) -> T {
        look(&self.known().marks)
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

    /// Finds the marks. If there are none and the store has finished recovery, begins a new ledger.
    fn find(&self, recovered: bool) -> bool {
        let found = self.copies.find();
        if found.is_none() && !recovered {
            return false;
        }
        self.store.love(copies::group());
        let mut known = locks::write(&self.known);
        let mut written = Written::default();
        if let Some((marks, found)) = found {
            written = found;
            known.go_on_with(marks.after_restart());
        } else {
            // A new ledger skips generations as well, so that it is written like one that was
            // found.
            *known = Known::new(known.marks.clone().after_restart());
            if let Some(told) = marks_lost(self.store.stats().index_objects) {
                say(format_args!("damelo: {told}"));
            }
        }
        self.now.follow(&known.marks);
        drop(known);
        *lock(&self.written) = written;
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
        self.set_in(&mut locks::write(&self.known), scopes, kind, now_unix_s)
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
        let mut known = locks::write(&self.known);
        let is_clear = moment.is_some_and(|moment| {
            let marks = &known.marks;
            moment.ledger == marks.now().ledger && moment.generation >= marks.newest_mark()
        });
        self.set_in(&mut known, scopes, kind, now_unix_s);
        is_clear.then(|| known.marks.now())
    }

    fn set_in(
        &self,
        known: &mut Known,
        scopes: Vec<Scope>,
        kind: PurgeKind,
        now_unix_s: u64,
    ) -> u64 {
        let mut generation = known.marks.now().generation;
        for scope in scopes {
            generation = known.set(scope, kind, now_unix_s);
        }
        self.now.follow(&known.marks);
        generation
    }

    fn written_up_to(&self, generation: u64) -> Result<(), LedgerError> {
        let written = lock(&self.written).generation;
        // A write that ended while this thread waited for the lock included its marks.
        if written >= generation { Ok(()) } else { self.write() }
    }

    /// Writes the marks, and waits until they are durable.
    fn write(&self) -> Result<(), LedgerError> {
        let before = self.generation();
        let mut written = lock(&self.written);
        if written.generation >= before && before > 0 && !self.copies.is_in_danger(&written) {
            return Ok(());
        }
        let done = self.copies.write(&self.known, &mut written);
        done.map_err(|error| LedgerError::Store(error.to_string()))
    }

    fn generation(&self) -> u64 {
        self.known().marks.now().generation
    }

    fn wants_write(&self) -> bool {
        let written = lock(&self.written);
        self.generation() > written.generation || self.copies.is_in_danger(&written)
    }
}

/// What it means that a store of so many objects has no marks: nothing, if it is new.
fn marks_lost(objects: u64) -> Option<String> {
    let gone = format!(
        "the marks of purges are not in the store (they never were, are damaged, or were on a volume \
         that is gone): what was stored before (objects: {objects}) counts as purged and is fetched again"
    );
    (objects > 0).then_some(gone)
}

/// Which volumes are out of service, and why.
fn volumes_out(info: &StoreInfo) -> String {
    let told = |volume: &VolumeInfo| {
        let why = volume.out_because.as_ref()?;
        Some(format!("{}: out of service: {why}", volume.path.display()))
    };
    let out: Vec<String> = info.volumes.iter().filter_map(told).collect();
    format!(
        "{} of the store's {} volumes failed: {}",
        out.len(),
        info.volumes.len(),
        out.join("; ")
    )
}

/// Which volumes do not answer.
fn volumes_unanswering(info: &StoreInfo) -> Option<String> {
    let told = |volume: &VolumeInfo| {
        let seconds = volume.unanswering_for?.as_secs();
        Some(format!("{} has answered no read for {seconds} s", volume.path.display()))
    };
    let silent: Vec<String> = info.volumes.iter().filter_map(told).collect();
    (!silent.is_empty()).then(|| silent.join("; "))
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
