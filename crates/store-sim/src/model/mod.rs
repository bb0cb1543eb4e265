//! The oracle: the answers allowed to a store, given the operations requested and those
//! acknowledged.
//!
//! A cache may forget, so a miss is nearly always right. A value that was removed, purged or
//! replaced is never right, nor are bytes that were never written. Each key has two sets:
//!
//! - `live`: values that may be answered now. Without faults it has at most one member.
//! - `disk`: values that a crash may leave. A removal that is not durable yet empties `live` only.
//!
//! and `required`: the value that must be there after a crash of a strict model, because a sync
//! that began after the value's acknowledgement was itself acknowledged. `disk` is computed for any
//! past tick by going through the log of events ([`Model::after_crash`]). An event acknowledged by
//! then has certainly happened if the durability covers this kind of crash or a later sync was
//! acknowledged. An event only begun, or not covered, may have happened; one not begun has not. A
//! replacement counts as the removal of the old value.
//!
//! A third set, `loading`, may be answered until recovery is done: older states of metadata that
//! was refreshed, of which no journal says that they have been replaced.
//!
//! Threads: none. One driver calls in the order of its operations.

mod key_state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use damelo::{Durability, GroupId};

use self::key_state::{KeyState, for_keys};
use crate::trace::{CrashKind, Tick};

/// A key, shared because every event names one.
pub type Key = Arc<[u8]>;

/// One value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    /// Which value; unique in a model.
    pub version: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Which metadata.
    pub metadata_version: u64,
    /// Length of the metadata in bytes.
    pub metadata_length: u32,
    /// Its group.
    pub group: GroupId,
    /// When it expires.
    pub expires_unix_s: Option<u64>,
}

/// What happened to the store.
#[derive(Debug, Clone)]
pub enum Change {
    /// An object was created or replaced. `contested`: something else happened to the key between
    /// the begin of a streaming writer and its commit, so either may count as the later.
    Create {
        /// Its key.
        key: Key,
        /// The new value.
        state: ObjectState,
        /// Whether the order is uncertain.
        contested: bool,
    },
    /// Metadata was replaced.
    SetMetadata {
        /// Key of the object.
        key: Key,
        /// Which metadata.
        version: u64,
        /// Its length in bytes.
        length: u32,
        /// By `refresh_metadata`: an older state is not wrong after a crash.
        is_refreshed: bool,
    },
    /// An object was removed.
    Remove {
        /// Its key.
        key: Key,
    },
    /// A group was purged.
    PurgeGroup(GroupId),
    /// A prefix was purged.
    PurgePrefix(Vec<u8>),
    /// Everything was purged.
    PurgeAll,
    /// Everything before was made durable.
    Sync,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged.
    Done,
    /// Acknowledged as having found nothing (`Ok(false)`).
    NothingThere,
    /// In effect, but not durable ([`damelo::PurgeError::Journal`]).
    NotDurable,
    /// Refused or failed: it may have happened in part.
    Failed,
}

/// An operation in time.
#[derive(Debug, Clone)]
pub struct Event {
    /// Tick at which it was called.
    pub begin: Tick,
    /// Tick at which it had returned.
    pub ack: Tick,
    /// What it was.
    pub change: Change,
    /// How it ended.
    pub outcome: Outcome,
}

/// An answer of the store that is not a miss.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    /// Some bytes of the value and where they start; `None` if only facts were asked for.
    pub bytes: Option<(u64, &'a [u8])>,
    /// Length of the object in bytes.
    pub length: u64,
    /// Its metadata, if told.
    pub metadata: Option<&'a [u8]>,
    /// Its group, if told.
    pub group: Option<GroupId>,
    /// Its expiry, if told.
    pub expires_unix_s: Option<Option<u64>>,
}

/// How much is demanded of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Nothing old, nothing foreign; what must be there is there.
    Strict,
    /// Nothing old, nothing foreign; anything may be missing.
    Fresh,
    /// Nothing foreign: any value that the key ever had. For media that changed by themselves,
    /// where the newest value may be damaged and an older one come to light.
    Genuine,
}

/// The oracle.
#[derive(Debug, Clone)]
pub struct Model {
    demand: Demand,
    durability: Durability,
    keys: BTreeMap<Key, KeyState>,
    base: BTreeMap<Key, KeyState>,
    events: Vec<Event>,
    clock_max: u64,
}

impl Model {
    /// A model of an empty store.
    pub fn new(demand: Demand, durability: Durability) -> Model {
        Model {
            demand,
            durability,
            keys: BTreeMap::new(),
            base: BTreeMap::new(),
            events: Vec::new(),
            clock_max: 0,
        }
    }

    /// Asks for more or less from now on.
    pub fn set_demand(&mut self, demand: Demand) {
        self.demand = demand;
    }

    /// How much is demanded.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// All keys that were ever named.
    pub fn keys(&self) -> Vec<Key> {
        self.keys.keys().cloned().collect()
    }

    /// Events so far, for reports.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The value that `key` has, if there is exactly one candidate.
    pub fn current(&self, key: &[u8]) -> Option<&ObjectState> {
        self.keys.get(key)?.live.first()
    }

    /// Notes an operation that has returned.
    pub fn record(&mut self, event: Event) {
        let certain = !matches!(event.outcome, Outcome::Failed);
        for_keys(&mut self.keys, &event.change, |_, key| {
            key.apply_live(&event.change, event.outcome, self.demand == Demand::Strict);
            key.settled = certain;
        });
        if matches!(event.change, Change::Sync) && event.outcome == Outcome::Done {
            self.keys.values_mut().for_each(KeyState::require_live);
        }
        self.events.push(event);
    }

    /// An object went missing for a legitimate reason that the model cannot see.
    pub fn allow_misses(&mut self) {
        self.keys.values_mut().for_each(|key| key.miss = true);
    }

    /// Checks a miss. `settled`: the store has loaded everything, so it stays one.
    ///
    /// # Errors
    /// The value that had to be there.
    pub fn check_miss(&mut self, key: &[u8], now_s: u64, settled: bool) -> Result<(), String> {
        self.clock_max = self.clock_max.max(now_s);
        let clock_max = self.clock_max;
        let Some(state) = self.keys.get_mut(key) else { return Ok(()) };
        let expired = |s: &ObjectState| s.expires_unix_s.is_some_and(|at| at <= clock_max);
        let excused = state.miss || state.live.is_empty() || state.live.iter().any(expired);
        if self.demand == Demand::Strict && settled && !excused {
            return Err(format!("key {} is missing: {:?} must be there", show(key), state.live));
        }
        // A miss may be a tag collision of the moment or memory pressure, but never under `Strict`.
        if self.demand == Demand::Strict && settled && !state.live.iter().any(expired) {
            state.live.clear();
        }
        Ok(())
    }

    /// Checks a hit and, since a store does not change its mind, narrows what may come later. Not
    /// while it is still loading (`settled` false): the newer of two values may be found later.
    ///
    /// # Errors
    /// What is wrong with it: foreign bytes, an old value, or one that has expired.
    pub fn check_hit(
        &mut self,
        key: &[u8],
        seen: &Seen<'_>,
        now_s: u64,
        settled: bool,
    ) -> Result<(), String> {
        self.clock_max = self.clock_max.max(now_s);
        let Some(state) = self.keys.get_mut(key) else {
            return Err(format!("key {} was never created but is there", show(key)));
        };
        let (pool, older): (_, &[ObjectState]) = match (self.demand, settled) {
            (Demand::Genuine, _) => (&state.ever, &[]),
            (_, true) => (&state.live, &[]),
            (_, false) => (&state.live, &state.loading),
        };
        let Some(found) = pool.iter().chain(older).find(|s| s.matches(key, seen)).cloned() else {
            return Err(format!("{}; {}", state.explain(key, seen), self.history(key)));
        };
        if found.expires_unix_s.is_some_and(|at| at <= now_s) {
            return Err(format!("key {}: {found:?} has expired at {now_s}", show(key)));
        }
        let whole = seen.bytes.is_some() && seen.metadata.is_some();
        if settled && whole && self.demand != Demand::Genuine {
            state.live = vec![found];
        }
        Ok(())
    }

    /// The last events that touched a key, for reports.
    fn history(&self, key: &[u8]) -> String {
        let touches = |event: &&Event| match &event.change {
            Change::Create { key: k, .. }
            | Change::SetMetadata { key: k, .. }
            | Change::Remove { key: k } => **k == *key,
            Change::PurgePrefix(prefix) => key.starts_with(prefix),
            Change::PurgeGroup(_) | Change::PurgeAll | Change::Sync => true,
        };
        let lines = self.events.iter().filter(touches).rev().take(12).map(|e| {
            let what = match &e.change {
                Change::Create { state, .. } => {
                    format!("create {} ({} bytes)", state.version, state.length)
                }
                Change::SetMetadata { version, .. } => format!("metadata {version}"),
                Change::Remove { .. } => "remove".to_owned(),
                other => format!("{other:?}"),
            };
            format!("{what} {:?} {}..{}", e.outcome, e.begin, e.ack)
        });
        format!("before, newest first: {}", lines.collect::<Vec<_>>().join(", "))
    }

    /// Whether a value held by a guard is unchanged.
    pub fn matches(key: &[u8], state: &ObjectState, seen: &Seen<'_>) -> bool {
        state.matches(key, seen)
    }

    /// The model of the store that is opened after a crash just before tick `at`.
    pub fn after_crash(&self, at: Tick, kind: CrashKind) -> Model {
        let strong = match kind {
            CrashKind::Kill => self.durability != Durability::None,
            CrashKind::Power => self.durability == Durability::Synced,
        };
        let synced = |e: &&Event| {
            matches!(e.change, Change::Sync) && e.outcome == Outcome::Done && e.ack <= at
        };
        let covered = self.events.iter().filter(synced).map(|e| e.begin).max();
        let mut keys = self.base.clone();
        for event in self.events.iter().filter(|e| e.begin < at || e.ack <= at) {
            let acked = event.ack <= at && event.outcome != Outcome::Failed;
            let durable = covered.is_some_and(|begin| event.ack <= begin);
            let journaled = strong && event.outcome == Outcome::Done;
            // Without a journal a sync makes durable only what is there, not what is gone.
            let durable = durable && self.durability != Durability::None;
            if matches!(event.change, Change::Sync) && acked && event.outcome == Outcome::Done {
                keys.values_mut().for_each(KeyState::require_settled);
            }
            for_keys(&mut keys, &event.change, |_, key| {
                key.apply_disk(&event.change, event.outcome, acked, journaled, durable);
            });
        }
        for (name, state) in &mut keys {
            state.ever = self.keys.get(name).map_or_else(Vec::new, |k| k.ever.clone());
            state.live = state.disk.clone();
            state.miss = state.required.is_none();
            state.settled = false;
        }
        Model {
            demand: self.demand,
            durability: self.durability,
            base: keys.clone(),
            keys,
            events: Vec::new(),
            clock_max: self.clock_max,
        }
    }
}

/// A key for people.
pub fn show(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(&key[..key.len().min(40)]).into_owned();
    if key.len() > 40 { format!("`{text}…`({} bytes)", key.len()) } else { format!("`{text}`") }
}
