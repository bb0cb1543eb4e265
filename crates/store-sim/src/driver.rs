//! Applies operations to a store, tells the model, and checks every answer.
//!
//! Owns the store handle, held guards and the held writer. Invariant: every acknowledgement is
//! noted with the tick *after* the call returned, so that the model never counts as acknowledged
//! what a crash may still have prevented. Threads: one.

use std::sync::Arc;
use std::time::Duration;

use damelo::device::Device;
use damelo::{
    Clock, Config, CreateError, CreateOptions, Durability, Object, PurgeError, ReadError, Store,
    SyncError, Writer, WriterOptions,
};

use crate::content;
use crate::model::{Change, Demand, Event, Key, Model, ObjectState, Outcome, Seen, show};
use crate::trace::{Tick, Ticks};
use crate::workload::{NewObject, Op, Workload};

/// Guards held at once, and the largest object that one is held of.
const GUARDS_MAX: usize = 6;
const GUARD_BYTES_MAX: usize = 64 << 10;

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
    /// Whether errors are expected, because the disks are broken.
    pub tolerant: bool,
    guards: Vec<HeldGuard>,
    held: Option<HeldWriter>,
    long_keys: bool,
    errors: u64,
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
            held: None,
            long_keys: false,
            errors: 0,
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
    /// What the store says.
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
        self.held = None;
        let Some(store) = self.store.take() else { return Ok(()) };
        let begin = self.ticks.now();
        let result = store.close();
        self.note_sync(begin, result.as_ref().err())
    }

    /// Gives the store up without closing it properly, as after a crash.
    pub fn abandon(&mut self) {
        self.guards.clear();
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

    /// An error is a failure unless disks are broken.
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
        self.dispatch(version, op).map_err(|e| format!("operation {version} {op:?}: {e}"))
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
            Op::ReadStream { key, seek } => {
                let key = self.key(*key);
                self.read_stream(&key, *seek, true)
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

    fn create(&mut self, version: u64, object: &NewObject) -> Checked {
        let (key, state) = (self.key(object.key), self.state(version, object));
        let value = content::value(&key, version, state.length);
        let metadata = content::metadata(&key, version, state.metadata_length);
        let options = CreateOptions { metadata: &metadata, expires_unix_s: state.expires_unix_s };
        let begin = self.ticks.now();
        let result = self.store().create_with(&key, state.group, &value, options).wait();
        self.note_create(begin, key, state, false, result.err())
    }

    fn note_create(
        &mut self,
        begin: Tick,
        key: Key,
        state: ObjectState,
        contested: bool,
        error: Option<CreateError>,
    ) -> Checked {
        let outcome = if error.is_none() { Outcome::Done } else { Outcome::Failed };
        self.record(begin, Change::Create { key, state, contested }, outcome);
        match error {
            None | Some(CreateError::NotAdmitted { .. }) => Ok(()),
            // On a ring of few segments parts may be overwritten before the commit.
            Some(CreateError::Write { .. }) if self.model.demand() == Demand::Fresh => Ok(()),
            Some(error) => self.expected("create", &error),
        }
    }

    fn open_writer(
        &mut self,
        key: &Key,
        state: &ObjectState,
        hint: bool,
    ) -> Result<Writer, CreateError> {
        let options = WriterOptions {
            metadata: content::metadata(key, state.metadata_version, state.metadata_length),
            expires_unix_s: state.expires_unix_s,
            length: hint.then_some(state.length),
        };
        self.store().writer(key, state.group, options)
    }

    /// Opens a writer and fills it up to `length`.
    fn filled_writer(
        &mut self,
        key: &Key,
        state: &ObjectState,
        piece: u32,
        hint: bool,
        length: u64,
    ) -> Result<Writer, CreateError> {
        let mut writer = self.open_writer(key, state, hint)?;
        let value = content::value(key, state.version, state.length);
        for chunk in value[..length as usize].chunks(piece as usize) {
            writer.write(chunk).wait()?;
        }
        Ok(writer)
    }

    fn stream(&mut self, version: u64, object: &NewObject, piece: u32, hint: bool) -> Checked {
        let (key, state) = (self.key(object.key), self.state(version, object));
        let begin = self.ticks.now();
        let result = self
            .filled_writer(&key, &state, piece, hint, state.length)
            .and_then(|writer| writer.commit().wait());
        self.note_create(begin, key, state, false, result.err())
    }

    fn abandon_writer(&mut self, version: u64, object: &NewObject) -> Checked {
        let (key, state) = (self.key(object.key), self.state(version, object));
        match self.filled_writer(&key, &state, 10_000, false, state.length / 2) {
            Ok(writer) => {
                drop(writer);
                Ok(())
            }
            Err(CreateError::NotAdmitted { .. }) => Ok(()),
            Err(error) => self.expected("abandoned writer", &error),
        }
    }

    fn hold_writer(&mut self, version: u64, object: &NewObject) -> Checked {
        if self.held.is_some() {
            return Ok(());
        }
        let (key, state) = (self.key(object.key), self.state(version, object));
        let begin = self.ticks.now();
        let events_before = self.model.events().len();
        match self.filled_writer(&key, &state, 20_000, false, state.length) {
            Ok(writer) => {
                self.held = Some(HeldWriter { key, writer, state, events_before, begin });
                Ok(())
            }
            Err(CreateError::NotAdmitted { .. }) => Ok(()),
            Err(error) => self.expected("held writer", &error),
        }
    }

    fn commit_held(&mut self) -> Checked {
        let Some(held) = self.held.take() else { return Ok(()) };
        let HeldWriter { key, writer, state, events_before, begin } = held;
        let touches = |event: &Event| match &event.change {
            Change::Create { key: other, .. }
            | Change::SetMetadata { key: other, .. }
            | Change::Remove { key: other } => *other == key,
            Change::PurgeGroup(group) => *group == state.group,
            Change::PurgePrefix(prefix) => key.starts_with(prefix),
            Change::PurgeAll => true,
            Change::Sync => false,
        };
        let contested = self.model.events()[events_before..].iter().any(touches);
        let result = writer.commit().wait();
        self.note_create(begin, key, state, contested, result.err())
    }

    fn read(&mut self, key: &Key, hold: bool, settled: bool) -> Checked {
        let now_s = self.now_s();
        let object = match self.store().read(key).wait() {
            Ok(Some(object)) => object,
            Ok(None) => return self.miss(key, now_s, settled),
            Err(ReadError::TooLargeForMemory { .. }) => return self.read_stream(key, 0, settled),
            Err(error) => return self.expected("read", &error),
        };
        if object.key() != &key[..] {
            return Err(format!("asked for {}, got {}", show(key), show(object.key())));
        }
        self.model.check_hit(key, &seen(&object), now_s, settled)?;
        if hold && object.len() <= GUARD_BYTES_MAX {
            if self.guards.len() == GUARDS_MAX {
                let oldest = self.guards.remove(0);
                oldest.check()?;
            }
            let exact = self.model.demand() != Demand::Genuine;
            let state = self.model.current(key).filter(|_| exact).cloned();
            self.guards.push(HeldGuard { key: Arc::clone(key), object, state });
        }
        Ok(())
    }

    fn miss(&mut self, key: &Key, now_s: u64, settled: bool) -> Checked {
        if self.tolerant {
            return Ok(());
        }
        self.model.check_miss(key, now_s, settled)
    }

    fn read_range(&mut self, key: usize, start: u32, end: u32) -> Checked {
        let key = self.key(key);
        let length = self.model.current(&key).map_or(1000, |s| s.length);
        let of = |thousandths: u32| length * u64::from(thousandths) / 1000;
        let (now_s, start, end) = (self.now_s(), of(start), of(end));
        let range = match self.store().read_range(&key, start..end).wait() {
            Ok(Some(range)) => range,
            Ok(None) => return self.miss(&key, now_s, true),
            Err(ReadError::TooLargeForMemory { .. }) => return Ok(()),
            Err(error) => return self.expected("read_range", &error),
        };
        let length = range.object_length_bytes();
        let (from, to) = (start.min(length), end.min(length).max(start.min(length)));
        if range.len() as u64 != to - from || (to > from && range.offset() != from) {
            let got = format!("{}+{}", range.offset(), range.len());
            return Err(format!("range {start}..{end} of {length} bytes gave {got}"));
        }
        let seen = Seen {
            bytes: Some((from, &range)),
            length,
            metadata: Some(range.metadata()),
            group: None,
            expires_unix_s: None,
        };
        self.model.check_hit(&key, &seen, now_s, true)
    }

    fn read_stream(&mut self, key: &Key, seek: u32, settled: bool) -> Checked {
        let now_s = self.now_s();
        let mut reader = match self.store().reader(key).wait() {
            Ok(Some(reader)) => reader,
            Ok(None) => return self.miss(key, now_s, settled),
            Err(error) => return self.expected("reader", &error),
        };
        let info = reader.info().clone();
        let offset = info.length_bytes * u64::from(seek) / 1000;
        if offset > 0 {
            reader.seek(offset);
        }
        let mut bytes = Vec::new();
        loop {
            match reader.next().wait() {
                Ok(Some(chunk)) if chunk.is_empty() => return Err("reader gave no bytes".into()),
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break,
                // An object that the ring or a fault took away while it was being read.
                Err(ReadError::Gone) if self.model.demand() != Demand::Strict => return Ok(()),
                Err(error) => return self.expected("reader", &error),
            }
        }
        if offset + bytes.len() as u64 != info.length_bytes {
            let got = bytes.len();
            return Err(format!("reader gave {got} bytes from {offset} of {}", info.length_bytes));
        }
        let seen = Seen {
            bytes: Some((offset, &bytes)),
            length: info.length_bytes,
            metadata: Some(&info.metadata),
            group: Some(info.group),
            expires_unix_s: Some(info.expires_unix_s),
        };
        self.model.check_hit(key, &seen, now_s, settled)
    }

    fn lookup(&mut self, key: &Key) -> Checked {
        let now_s = self.now_s();
        let may = self.store().may_contain(key);
        let info = match self.store().lookup(key).wait() {
            Ok(Some(info)) => info,
            Ok(None) => return self.miss(key, now_s, true),
            Err(error) => return self.expected("lookup", &error),
        };
        if !may {
            return Err(format!("may_contain denies {} which lookup finds", show(key)));
        }
        let seen = Seen {
            bytes: None,
            length: info.length_bytes,
            metadata: Some(&info.metadata),
            group: Some(info.group),
            expires_unix_s: Some(info.expires_unix_s),
        };
        self.model.check_hit(key, &seen, now_s, true)?;
        match self.store().length(key).wait() {
            Ok(Some(length)) if length != info.length_bytes => {
                Err(format!("length says {length}, lookup {}", info.length_bytes))
            }
            Ok(_) => Ok(()),
            Err(error) => self.expected("length", &error),
        }
    }

    fn set_metadata(&mut self, version: u64, key: usize, length: u32) -> Checked {
        let key = self.key(key);
        let metadata = content::metadata(&key, version, length);
        let (begin, now_s) = (self.ticks.now(), self.now_s());
        let result = self.store().set_metadata(&key, &metadata).wait();
        let outcome = match &result {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::NothingThere,
            Err(_) => Outcome::Failed,
        };
        if outcome == Outcome::NothingThere {
            self.miss(&key, now_s, true)?;
        }
        self.record(begin, Change::SetMetadata { key, version, length }, outcome);
        match result {
            Ok(_) | Err(CreateError::NotAdmitted { .. }) => Ok(()),
            Err(error) => self.expected("set_metadata", &error),
        }
    }

    fn remove(&mut self, key: usize) -> Checked {
        let key = self.key(key);
        let (begin, now_s) = (self.ticks.now(), self.now_s());
        let result = self.store().remove(&key);
        if matches!(result, Ok(false)) {
            self.miss(&key, now_s, true)?;
        }
        let outcome = self.purge_outcome(&result.map(|_| ()));
        self.record(begin, Change::Remove { key: Arc::clone(&key) }, outcome?);
        if self.store().may_contain(&key) && !self.tolerant {
            // A tag collision may say yes; the object itself must be gone.
            return self.read(&key, false, true);
        }
        Ok(())
    }

    fn purge_outcome(&mut self, result: &Result<(), PurgeError>) -> Result<Outcome, Failure> {
        match result {
            Ok(()) => Ok(Outcome::Done),
            Err(error @ PurgeError::Journal(_)) => {
                self.expected("purge", error)?;
                Ok(Outcome::NotDurable)
            }
            Err(error) => {
                self.expected("purge", error)?;
                Ok(Outcome::Failed)
            }
        }
    }

    fn purge(&mut self, op: &Op) -> Checked {
        let begin = self.ticks.now();
        let (change, result) = match op {
            Op::PurgeGroup(number) => {
                let group = Workload::group(*number);
                (Change::PurgeGroup(group), self.store().purge_group(group))
            }
            Op::PurgePrefix(rest) => {
                let prefix = Workload::prefix(*rest);
                let result = self.store().purge_prefix(&prefix);
                (Change::PurgePrefix(prefix), result)
            }
            _ => (Change::PurgeAll, self.store().purge_all()),
        };
        let outcome = self.purge_outcome(&result)?;
        self.record(begin, change, outcome);
        Ok(())
    }

    fn steer(&mut self, op: &Op) -> Checked {
        let store = self.store();
        match op {
            Op::Hint(number, -1) => store.hate(Workload::group(*number)),
            Op::Hint(number, 0) => store.neutral(Workload::group(*number)),
            Op::Hint(number, _) => store.love(Workload::group(*number)),
            Op::SetCheckpoint(number, millis) => {
                store.set_checkpoint(Workload::group(*number), Duration::from_millis(*millis));
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

    /// Waits for recovery and reads everything, before, after, and from disk.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn verify_recovered(&mut self) -> Checked {
        let demand = self.model.demand();
        if self.config.durability == Durability::None {
            // Nothing on disk tells that a value was replaced until the newer one has been loaded.
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

/// What an operation changes, if it succeeds: for a parent that did not apply it itself.
pub fn change_of(version: u64, op: &Op, long_keys: bool) -> Option<Change> {
    let key = |index: usize| Workload::key(index, long_keys);
    Some(match op {
        Op::Create(object) | Op::Stream { object, .. } => Change::Create {
            key: key(object.key),
            state: state_of(version, object, 0),
            contested: false,
        },
        Op::SetMetadata { key: index, length } => {
            Change::SetMetadata { key: key(*index), version, length: *length }
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
