//! Derives group hints (loved, hated) from observed use, if the operator enabled that.
//!
//! Invariants: the store is told outside of any request, because it scans its memory for each
//! group; a hint set by a rule is left alone, and only hints given here are taken back; the store
//! ends up with the latest hint of `usage` or of a rule, because `told` stays locked from reading
//! the hint to telling the store. Threads: workers count, threads for blocking calls tell the
//! store, a reload switches.

mod usage;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use damelo::{GroupId, Store};
use tokio::sync::mpsc;

use crate::io::blocking;
use crate::io::locks::lock;
use crate::metrics::Counters;
use crate::ruleset::Hint;
use crate::vault::Vault;
use crate::vault::hints::usage::GroupUsage;

/// At most 1/`LOVED_SHARE` of the memory may be loved by use: the eviction policy, which compares
/// objects, does not reach loved ones.
const LOVED_SHARE: u64 = 4;

#[derive(Default)]
pub(crate) struct GroupHints {
    on: AtomicBool,
    usage: Mutex<GroupUsage>,
    /// The hints given to the store from here.
    told: Mutex<HashMap<GroupId, Hint>>,
}

impl GroupHints {
    pub(crate) fn new(on: bool) -> GroupHints {
        GroupHints { on: AtomicBool::new(on), ..GroupHints::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Switches hints by use on, or off; off takes back every hint given.
    pub(crate) fn switch(&self, on: bool, store: &Store) {
        let mut told = lock(&self.told);
        // Under the lock that counting takes, so that nothing is counted afterwards.
        let mut usage = lock(&self.usage);
        self.on.store(on, Ordering::Relaxed);
        if !on {
            *usage = GroupUsage::default();
            told.drain().for_each(|(group, hint)| take_back(store, group, hint));
        }
    }

    /// A rule sets the group's hint.
    pub(crate) fn ruled(&self, group: GroupId, hint: Hint, store: &Store) {
        if !self.is_on() {
            return tell(store, group, hint);
        }
        let mut told = lock(&self.told);
        told.remove(&group);
        lock(&self.usage).leave(group);
        tell(store, group, hint);
    }

    /// Counts one event, unless another thread holds the lock: a sample is enough, and no request
    /// waits for another's.
    fn count<T>(&self, one: impl FnOnce(&mut GroupUsage) -> T) -> Option<T> {
        let mut usage = self.usage.try_lock().ok()?;
        self.is_on().then(|| one(&mut usage))
    }

    /// Tells the store the group's current hint by use, if it changed; gives the group up if the
    /// store has a hint from elsewhere.
    fn settle(&self, group: GroupId, store: &Store, counters: &Counters) {
        let mut told = lock(&self.told);
        let (before, wanted) = (told.get(&group).copied(), lock(&self.usage).hint(group));
        if before == wanted {
            return;
        }
        if known(store, group) != before.unwrap_or(Hint::Neutral) {
            told.remove(&group);
            return lock(&self.usage).leave(group);
        }
        match wanted {
            Some(hint) => told.insert(group, hint),
            None => told.remove(&group),
        };
        match wanted {
            Some(Hint::Love) => counters.groups_loved.one(),
            Some(Hint::Hate) => counters.groups_hated.one(),
            Some(Hint::Neutral) | None => counters.groups_let_go.one(),
        }
        tell(store, group, wanted.unwrap_or(Hint::Neutral));
    }
}

impl Vault {
    /// Counts a hit of an object of a group. `alive` delays the closing of the store.
    pub(crate) fn count_use(
        self: &Arc<Vault>,
        counters: &Arc<Counters>,
        alive: &mpsc::Sender<()>,
        (group, key): (GroupId, &[u8]),
        length_bytes: u64,
    ) {
        if !self.group_hints.is_on() {
            return;
        }
        let object = GroupId::of(key).get();
        let counted = self.group_hints.count(|usage| {
            let changed = usage.used(group, object, length_bytes);
            (changed, usage.take_due())
        });
        let Some((changed, due)) = counted else { return };
        if changed || due {
            self.settle_hints(counters, alive, changed.then_some(group), due);
        }
    }

    /// Counts an insertion into a group.
    pub(crate) fn count_store(
        self: &Arc<Vault>,
        counters: &Arc<Counters>,
        alive: &mpsc::Sender<()>,
        group: GroupId,
    ) {
        let hints = &self.group_hints;
        if hints.is_on() && hints.count(|usage| usage.stored(group)) == Some(true) {
            self.settle_hints(counters, alive, Some(group), false);
        }
    }

    /// Re-evaluates the loved groups if that is due, and tells the store, on a blocking thread.
    fn settle_hints(
        self: &Arc<Vault>,
        counters: &Arc<Counters>,
        alive: &mpsc::Sender<()>,
        one: Option<GroupId>,
        due: bool,
    ) {
        let (vault, counters) = (Arc::clone(self), Arc::clone(counters));
        // Holding this keeps the store from being closed before the closure has ended.
        let alive = alive.clone();
        blocking::run(move || {
            let (hints, store) = (&vault.group_hints, vault.store());
            let turn = || {
                let room_bytes = store.stats().memory_bytes / LOVED_SHARE;
                lock(&hints.usage).turn(room_bytes)
            };
            let turned = if due { turn() } else { Vec::new() };
            one.into_iter().chain(turned).for_each(|group| hints.settle(group, store, &counters));
            drop(alive);
        });
    }
}

/// The hint that the store has for a group.
fn known(store: &Store, group: GroupId) -> Hint {
    match store.group_stats(group).map(|stats| stats.hint) {
        Some(damelo::Hint::Loved) => Hint::Love,
        Some(damelo::Hint::Hated) => Hint::Hate,
        Some(damelo::Hint::Neutral) | None => Hint::Neutral,
    }
}

fn take_back(store: &Store, group: GroupId, hint: Hint) {
    if known(store, group) == hint {
        store.neutral(group);
    }
}

fn tell(store: &Store, group: GroupId, hint: Hint) {
    match hint {
        Hint::Love => store.love(group),
        Hint::Hate => store.hate(group),
        Hint::Neutral => store.neutral(group),
    }
}
