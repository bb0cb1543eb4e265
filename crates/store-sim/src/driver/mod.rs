//! Applies operations to a store, tells the model, and checks every answer.
//!
//! Owns the store handle, held guards and readers, and the held writer. Invariant: every
//! acknowledgement is recorded with the tick *after* the call returned, so that the model never
//! counts an operation as acknowledged that a crash may still have prevented. Threads: one.
//! `writes` changes the store, `reads` queries it, and `ended` ends what they begin.

mod ended;
mod held_reader;
mod reads;
mod writes;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use damelo::device::Device;
use damelo::{Clock, Config, Durability, Object, Store, SyncError, Writer};

use self::held_reader::HeldReader;
use crate::model::{Change, Demand, Event, Key, Model, ObjectState, Outcome, Seen, show};
use crate::trace::{Tick, Ticks};
use crate::workload::{NewObject, Op, Workload};

/// Guards held at once, and the largest object that one is held of.
const GUARDS_MAX: usize = 6;
const GUARD_BYTES_MAX: usize = 64 << 10;

/// Time that each operation takes on a still clock, so that timed work becomes due.
const STEP: Duration = Duration::from_millis(7);

/// Where a driver gets its store from.
#[derive(Clone)]
pub enum Place {
    /// Devices of the caller.
    Devices(Vec<Arc<dyn Device>>, Arc<dyn Clock>),
    /// Files named in the configuration.
    Files,
}

/// An error or wrong answer, with the operation that met it.
pub type Failure = String;

struct HeldGuard {
    key: Key,
    object: Object,
    state: Option<ObjectState>,
}

struct HeldWriter {
    key: Key,
    writer: Writer,
    state: ObjectState,
    events_before: usize,
    begin: Tick,
}

/// A store under test together with its model.
pub struct Driver {
    config: Config,
    place: Place,
    ticks: Arc<Ticks>,
    jump: Option<Arc<crate::SimClock>>,
    store: Option<Store>,
    /// The oracle.
    pub model: Model,
    /// Whether errors are expected, because the disks are damaged or fail by plan.
    pub tolerant: bool,
    guards: Vec<HeldGuard>,
    readers: Vec<HeldReader>,
    held: Option<HeldWriter>,
    long_keys: bool,
    errors: u64,
    /// Reads begun.
    begun: Cell<u64>,
}

type Checked = Result<(), Failure>;

impl Driver {
    /// A driver without an open store.
    pub fn new(config: Config, place: Place, ticks: Arc<Ticks>, model: Model) -> Driver {
        Driver {
            config,
            place,
            ticks,
            jump: None,
            store: None,
            model,
            tolerant: false,
            guards: Vec::new(),
            readers: Vec::new(),
            held: None,
            long_keys: false,
            errors: 0,
            begun: Cell::new(0),
        }
    }

    /// Lets [`Op::Jump`] move this clock.
    pub fn with_clock(mut self, clock: Arc<crate::SimClock>) -> Driver {
        self.jump = Some(clock);
        self
    }

    /// Uses keys up to the longest allowed.
    pub fn with_long_keys(mut self, long_keys: bool) -> Driver {
        self.long_keys = long_keys;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// The store's error.
    pub fn open(&mut self) -> Checked {
        let opened = match &self.place {
            Place::Devices(devices, clock) => {
                Store::open_on(self.config.clone(), devices.clone(), Arc::clone(clock))
            }
            Place::Files => Store::open(self.config.clone()),
        };
        self.store = Some(opened.map_err(|e| format!("open: {}", chain(&e)))?);
        Ok(())
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("the driver has opened the store")
    }

    /// Errors that the store has returned so far.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Closes the store cleanly.
    ///
    /// # Errors
    /// A close that failed on sound disks.
    pub fn close(&mut self) -> Checked {
        self.release_guards()?;
        self.readers.clear();
        self.held = None;
        let Some(store) = self.store.take() else { return Ok(()) };
        let begin = self.ticks.now();
        let result = store.close();
        self.note_sync(begin, result.as_ref().err())
    }

    /// Drops the store without closing it properly, as after a crash.
    pub fn abandon(&mut self) {
        self.guards.clear();
        self.readers.clear();
        self.held = None;
        self.store = None;
    }

    fn now_s(&self) -> u64 {
        match &self.place {
            Place::Devices(_, clock) => clock.unix_seconds(),
            Place::Files => damelo::SystemClock::new().unix_seconds(),
        }
    }

    fn key(&self, index: usize) -> Key {
        Workload::key(index, self.long_keys)
    }

    fn state(&self, version: u64, object: &NewObject) -> ObjectState {
        state_of(version, object, self.now_s())
    }

    fn record(&mut self, begin: Tick, change: Change, outcome: Outcome) {
        let ack = self.ticks.now();
        self.model.record(Event { begin, ack, change, outcome });
    }

    /// An error is a failure unless errors are expected.
    fn expected(&mut self, what: &str, error: &dyn std::error::Error) -> Checked {
        self.errors += 1;
        if self.tolerant {
            Ok(())
        } else {
            Err(format!("{what}: unexpected error: {}", chain(error)))
        }
    }

    /// Applies one operation.
    ///
    /// # Errors
    /// A wrong answer, or an error on sound disks.
    pub fn apply(&mut self, version: u64, op: &Op) -> Checked {
        if let Some(clock) = self.jump.as_ref().filter(|clock| clock.is_still()) {
            clock.advance(STEP);
        }
        let done = self.dispatch(version, op).and_then(|()| self.go_on_reading());
        done.map_err(|e| format!("operation {version} {op:?}: {e}"))
    }

    fn dispatch(&mut self, version: u64, op: &Op) -> Checked {
        match op {
            Op::Create(object) => self.create(version, object),
            Op::Stream { object, piece, hint } => self.stream(version, object, *piece, *hint),
            Op::Abandon(object) => self.abandon_writer(version, object),
            Op::Hold(object) => self.hold_writer(version, object),
            Op::CommitHeld => self.commit_held(),
            Op::Read { key, hold } => {
                let key = self.key(*key);
                self.read(&key, *hold, true)
            }
            Op::ReadRange { key, start, end } => self.read_range(*key, *start, *end),
            Op::ReadStream { key, seek, hold } => {
                let key = self.key(*key);
                self.read_stream(&key, *seek, *hold, true)
            }
            Op::Lookup(key) => {
                let key = self.key(*key);
                self.lookup(&key)
            }
            Op::SetMetadata { key, length } => self.set_metadata(version, *key, *length),
            Op::Remove(key) => self.remove(*key),
            Op::PurgeGroup(_) | Op::PurgePrefix(_) | Op::PurgeAll => self.purge(op),
            Op::Hint(..) | Op::Prefetch(_) | Op::SetCheckpoint(..) => self.steer(op),
            Op::Sync => self.sync(),
            Op::Checkpoint => match self.store().checkpoint() {
                Ok(()) => Ok(()),
                Err(error) => self.expected("checkpoint", &error),
            },
            Op::DropMemory => {
                self.store().drop_memory();
                self.check_guards()
            }
            Op::Reopen => {
                self.close()?;
                self.open()?;
                self.store().wait_recovered();
                Ok(())
            }
            Op::Jump(seconds) => {
                if let Some(clock) = &self.jump {
                    clock.jump(*seconds);
                }
                Ok(())
            }
        }
    }

    fn steer(&mut self, op: &Op) -> Checked {
        let store = self.store();
        match op {
            Op::Hint(number, -1) => store.hate(Workload::group(*number)),
            Op::Hint(number, 0) => store.neutral(Workload::group(*number)),
            Op::Hint(number, _) => store.love(Workload::group(*number)),
            Op::SetCheckpoint(number, millis) => {
                store.set_flush_period(Workload::group(*number), Duration::from_millis(*millis));
            }
            Op::Prefetch(number) => {
                if let Err(error) = store.prefetch(Workload::group(*number)).wait() {
                    return self.expected("prefetch", &error);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sync(&mut self) -> Checked {
        let begin = self.ticks.now();
        let result = self.store().sync();
        self.note_sync(begin, result.as_ref().err())
    }

    fn note_sync(&mut self, begin: Tick, error: Option<&SyncError>) -> Checked {
        let outcome = if error.is_none() { Outcome::Done } else { Outcome::Failed };
        self.record(begin, Change::Sync, outcome);
        match error {
            None => Ok(()),
            Some(error) => {
                self.model.allow_misses();
                self.expected("sync", error)
            }
        }
    }

    /// Reads every key of the model, in memory or not. `settled`: misses count.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn verify(&mut self, settled: bool) -> Checked {
        for key in self.model.keys() {
            self.read(&key, false, settled).map_err(|e| format!("verify: {e}"))?;
        }
        Ok(())
    }

    /// Waits for recovery, and reads every key before, after, and from disk.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn verify_recovered(&mut self) -> Checked {
        let demand = self.model.demand();
        if self.config.durability == Durability::None {
            // Until the newer version has been loaded, nothing on disk shows that a value was
            // replaced.
            self.model.set_demand(Demand::Genuine);
        }
        self.verify(false).map_err(|e| format!("while loading: {e}"))?;
        self.model.set_demand(demand);
        self.store().wait_recovered();
        if !self.store().recovery().done {
            return Err("recovery is not done after wait_recovered".into());
        }
        self.verify(true)?;
        self.store().drop_memory();
        self.verify(true).map_err(|e| format!("from disk: {e}"))
    }

    fn check_guards(&mut self) -> Checked {
        self.guards.iter().try_for_each(HeldGuard::check)
    }

    fn release_guards(&mut self) -> Checked {
        let result = self.check_guards();
        self.guards.clear();
        result
    }
}

impl HeldGuard {
    fn check(&self) -> Checked {
        match &self.state {
            Some(state) if !Model::matches(&self.key, state, &seen(&self.object)) => {
                Err(format!("a held guard of {} changed its bytes ({state:?})", show(&self.key)))
            }
            _ => Ok(()),
        }
    }
}

fn seen(object: &Object) -> Seen<'_> {
    Seen {
        bytes: Some((0, object)),
        length: object.len() as u64,
        metadata: Some(object.metadata()),
        group: Some(object.group()),
        expires_unix_s: Some(object.expires_unix_s()),
    }
}

/// The value that an operation makes.
pub fn state_of(version: u64, object: &NewObject, now_s: u64) -> ObjectState {
    ObjectState {
        version,
        length: object.length,
        metadata_version: version,
        metadata_length: object.metadata,
        group: Workload::group(object.group),
        expires_unix_s: object.expires_in.map(|s| now_s.saturating_add_signed(s)),
    }
}

/// The change that an operation makes if it succeeds: for a parent that did not apply it itself.
pub fn change_of(version: u64, op: &Op, long_keys: bool) -> Option<Change> {
    let key = |index: usize| Workload::key(index, long_keys);
    Some(match op {
        Op::Create(object) | Op::Stream { object, .. } => Change::Create {
            key: key(object.key),
            state: state_of(version, object, 0),
            contested: false,
        },
        Op::SetMetadata { key: index, length } => {
            let is_refreshed = version % 2 == 1;
            Change::SetMetadata { key: key(*index), version, length: *length, is_refreshed }
        }
        Op::Remove(index) => Change::Remove { key: key(*index) },
        Op::PurgeGroup(number) => Change::PurgeGroup(Workload::group(*number)),
        Op::PurgePrefix(rest) => Change::PurgePrefix(Workload::prefix(*rest)),
        Op::PurgeAll => Change::PurgeAll,
        Op::Sync => Change::Sync,
        _ => return None,
    })
}

/// An error with all its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
