//! The oracle: what a store may answer, given what was asked of it and what it acknowledged.
//!
//! A cache may forget, so a miss is nearly always right; what is never right is a value that was
//! removed, purged or replaced, and bytes that nobody wrote. Per key there are two sets:
//!
//! - `live`: values that may be answered now. Without faults it has at most one member.
//! - `disk`: values that a crash may leave. A removal that is not durable yet empties `live` only.
//!
//! plus `required`: the value that must be there after a crash of a strict model, because a sync
//! that began after it was acknowledged was itself acknowledged. `disk` is computed for any past
//! tick by going through the log of events ([`Model::after_crash`]): an event acknowledged by then
//! has happened for certain if the durability covers this kind of crash or a later sync was
//! acknowledged; one that was only begun, or is not covered, may have happened; one that was not
//! begun has not. A replacement counts as the removal of the old value.
//!
//! Threads: none. One driver calls in the order of its operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use damelo::{Durability, GroupId};

use crate::content;
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

#[derive(Debug, Clone, Default)]
struct KeyState {
    live: Vec<ObjectState>,
    miss: bool,
    disk: Vec<ObjectState>,
    required: Option<ObjectState>,
    /// Whether the last event that touched the key is settled, so that a sync makes `live` required.
    settled: bool,
    ever: Vec<ObjectState>,
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

    /// How many keys must be there.
    pub fn required_count(&self) -> usize {
        self.keys.values().filter(|k| k.required.is_some()).count()
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
        let pool = if self.demand == Demand::Genuine { &state.ever } else { &state.live };
        let Some(found) = pool.iter().find(|s| s.matches(key, seen)).cloned() else {
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

    /// Whether a value held by a guard is still what it was.
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

/// Calls `f` for every key that a change names.
fn for_keys(
    keys: &mut BTreeMap<Key, KeyState>,
    change: &Change,
    mut f: impl FnMut(&Key, &mut KeyState),
) {
    match change {
        Change::Create { key, .. } | Change::SetMetadata { key, .. } | Change::Remove { key } => {
            f(key, keys.entry(Arc::clone(key)).or_default());
        }
        Change::PurgePrefix(prefix) => {
            keys.iter_mut().filter(|(k, _)| k.starts_with(prefix)).for_each(|(k, s)| f(k, s));
        }
        Change::PurgeGroup(_) | Change::PurgeAll => keys.iter_mut().for_each(|(k, s)| f(k, s)),
        Change::Sync => {}
    }
}

/// The part of a change that kills a value; `None` for one that does not.
fn kills(change: &Change, state: &ObjectState) -> bool {
    match change {
        Change::PurgeGroup(group) => state.group == *group,
        Change::Remove { .. } | Change::PurgePrefix(_) | Change::PurgeAll => true,
        Change::Create { .. } | Change::SetMetadata { .. } | Change::Sync => false,
    }
}

fn add(set: &mut Vec<ObjectState>, state: ObjectState) {
    if !set.contains(&state) {
        set.push(state);
    }
}

fn with_metadata(set: &[ObjectState], version: u64, length: u32) -> Vec<ObjectState> {
    let renew = |s: &ObjectState| ObjectState {
        metadata_version: version,
        metadata_length: length,
        ..s.clone()
    };
    set.iter().map(renew).collect()
}

impl KeyState {
    fn apply_live(&mut self, change: &Change, outcome: Outcome, strict: bool) {
        let failed = outcome == Outcome::Failed;
        match change {
            Change::Create { state, contested, .. } => {
                add(&mut self.ever, state.clone());
                if *contested && !failed {
                    add(&mut self.live, state.clone());
                    self.miss = true;
                } else if !failed {
                    self.live = vec![state.clone()];
                    self.miss = !strict;
                } else {
                    self.miss = true;
                }
            }
            Change::SetMetadata { version, length, .. } => {
                let renewed = with_metadata(&self.live, *version, *length);
                for state in with_metadata(&self.ever.clone(), *version, *length) {
                    add(&mut self.ever, state);
                }
                match outcome {
                    Outcome::Done => self.live = renewed,
                    Outcome::NothingThere => self.miss = true,
                    Outcome::NotDurable | Outcome::Failed => {
                        renewed.into_iter().for_each(|s| add(&mut self.live, s));
                        self.miss = true;
                    }
                }
            }
            Change::Sync => {}
            purge if failed => self.miss |= self.live.iter().any(|s| kills(purge, s)),
            purge => self.live.retain(|s| !kills(purge, s)),
        }
    }

    fn apply_disk(
        &mut self,
        change: &Change,
        outcome: Outcome,
        acked: bool,
        journaled: bool,
        durable: bool,
    ) {
        let certain = acked && (journaled || durable);
        // Only a create settles what is there; after a crash that is open until the next one.
        self.settled = acked && (self.settled || matches!(change, Change::Create { .. }));
        match change {
            Change::Create { state, contested, .. } => {
                if certain && !*contested {
                    self.disk.clear();
                }
                // A create that was refused must not turn up later.
                if outcome != Outcome::Failed {
                    add(&mut self.disk, state.clone());
                }
                self.settled &= !*contested;
                self.required = None;
                self.live = vec![state.clone()];
            }
            Change::SetMetadata { version, length, .. } => {
                let renewed = with_metadata(&self.disk, *version, *length);
                self.live = with_metadata(&self.live, *version, *length);
                self.required = None;
                if outcome == Outcome::NothingThere {
                    return;
                }
                // Metadata is written like data: only a sync makes the old unacceptable.
                if acked && durable {
                    self.disk = renewed;
                } else {
                    renewed.into_iter().for_each(|s| add(&mut self.disk, s));
                }
            }
            Change::Sync => {}
            purge => self.purge_disk(purge, certain),
        }
    }

    fn purge_disk(&mut self, purge: &Change, certain: bool) {
        if self.live.iter().chain(&self.required).any(|s| kills(purge, s)) {
            self.required = None;
        }
        if certain {
            self.disk.retain(|s| !kills(purge, s));
        }
        self.live.retain(|s| !kills(purge, s));
    }

    /// While running: after an acknowledged sync.
    fn require_live(&mut self) {
        if self.settled && !self.miss && self.live.len() == 1 {
            self.required = self.live.first().cloned();
        }
    }

    /// In the fold over the log: `live` is the value as of this sync.
    fn require_settled(&mut self) {
        if self.settled && self.live.len() == 1 {
            self.required = self.live.first().cloned();
            self.disk = self.live.clone();
        }
    }

    fn explain(&self, key: &[u8], seen: &Seen<'_>) -> String {
        let old: Vec<_> = self.ever.iter().filter(|s| s.matches(key, seen)).collect();
        let bytes_of: Vec<u64> =
            self.ever.iter().filter(|s| s.bytes_match(key, seen)).map(|s| s.version).collect();
        let what = if !old.is_empty() {
            format!("STALE: it is {old:?}")
        } else if !bytes_of.is_empty() {
            format!("its bytes are version {bytes_of:?}, but its facts are not")
        } else {
            let head = seen.bytes.map(|(at, b)| (at, b.len(), b[..b.len().min(24)].to_vec()));
            format!("WRONG BYTES: {head:?}")
        };
        format!(
            "key {}: {what}; seen length {}, group {:?}, expires {:?}, metadata {:?} bytes; may be {:?}{}",
            show(key),
            seen.length,
            seen.group,
            seen.expires_unix_s,
            seen.metadata.map(<[u8]>::len),
            self.live,
            if self.live.is_empty() { " (only a miss)" } else { "" },
        )
    }
}

impl ObjectState {
    fn bytes_match(&self, key: &[u8], seen: &Seen<'_>) -> bool {
        self.length == seen.length
            && seen.bytes.is_none_or(|(offset, bytes)| {
                content::value_matches(key, self.version, self.length, offset, bytes)
            })
    }

    fn matches(&self, key: &[u8], seen: &Seen<'_>) -> bool {
        let metadata = |bytes: &[u8]| {
            bytes == content::metadata(key, self.metadata_version, self.metadata_length)
        };
        seen.group.is_none_or(|group| group == self.group)
            && seen.expires_unix_s.is_none_or(|expires| expires == self.expires_unix_s)
            && self.length == seen.length
            && seen.metadata.is_none_or(metadata)
            && self.bytes_match(key, seen)
    }
}

/// A key for people.
pub fn show(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(&key[..key.len().min(40)]).into_owned();
    if key.len() > 40 { format!("`{text}…`({} bytes)", key.len()) } else { format!("`{text}`") }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
