//! Tells the store which groups are loved and hated by use, while the operator wants that.
//!
//! Invariants: the store is told outside of any request, because it looks through its memory for each
//! group; a group whose hint somebody else has set is left alone, and only what was told is taken back;
//! what the store knows in the end is what `usage` or a rule said last, since `told` is locked from
//! reading the one to telling the other. Threads: workers count, the runtime's blocking threads tell, a
//! reload switches.

mod usage;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use damelo::{GroupId, Store};
use tokio::sync::mpsc;

use crate::io::locks::lock;
use crate::metrics::Counters;
use crate::ruleset::Hint;
use crate::vault::Vault;
use crate::vault::hints::usage::GroupUsage;

/// One part in so many of the memory may be loved by use: what is loved is out of the reach of the
/// policy that compares objects.
const LOVED_SHARE: u64 = 4;

#[derive(Default)]
pub(crate) struct GroupHints {
    on: AtomicBool,
    usage: Mutex<GroupUsage>,
    /// The hints that the store has from here.
    told: Mutex<HashMap<GroupId, Hint>>,
}

impl GroupHints {
    pub(crate) fn new(on: bool) -> GroupHints {
        GroupHints { on: AtomicBool::new(on), ..GroupHints::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Begins, or stops and takes back every hint that was given.
    pub(crate) fn switch(&self, on: bool, store: &Store) {
        let mut told = lock(&self.told);
        // Under the lock that counting needs, so that nothing is counted after.
        let mut usage = lock(&self.usage);
        self.on.store(on, Ordering::Relaxed);
        if !on {
            *usage = GroupUsage::default();
            told.drain().for_each(|(group, hint)| take_back(store, group, hint));
        }
    }

    /// A rule says what becomes of the group.
    pub(crate) fn ruled(&self, group: GroupId, hint: Hint, store: &Store) {
        if !self.is_on() {
            return tell(store, group, hint);
        }
        let mut told = lock(&self.told);
        told.remove(&group);
        lock(&self.usage).leave(group);
        tell(store, group, hint);
    }

    /// A sample is enough: no request waits for another's.
    fn count<T>(&self, one: impl FnOnce(&mut GroupUsage) -> T) -> Option<T> {
        let mut usage = self.usage.try_lock().ok()?;
        self.is_on().then(|| one(&mut usage))
    }

    /// Tells the store what it does not know of a group yet.
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
    /// Something of a group was asked for and was there. `alive` holds up the end of the store.
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

    /// Something of a group was stored.
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

    /// Thinks love over if that is due, and tells the store, on another thread.
    fn settle_hints(
        self: &Arc<Vault>,
        counters: &Arc<Counters>,
        alive: &mpsc::Sender<()>,
        one: Option<GroupId>,
        due: bool,
    ) {
        let (vault, counters) = (Arc::clone(self), Arc::clone(counters));
        // The store is not closed before this has ended.
        let alive = alive.clone();
        tokio::task::spawn_blocking(move || {
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

/// What the store has of a group.
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
