//! Tells the store which groups are loved and hated by use, while the operator wants that.
//!
//! Invariants: the store is told outside of any request, because it looks through its memory for each
//! group; a group whose hint somebody else has set is left alone, and only what was told is taken back;
//! what the store knows in the end is what `affection` or a rule said last, since `told` is locked from
//! reading the one to telling the other. Threads: workers count, the runtime's blocking threads tell, a
//! reload switches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use damelo::{GroupId, Store};
use tokio::sync::mpsc;

use crate::affection::Affection;
use crate::metrics::Counters;
use crate::ruleset::Hint;
use crate::worker::Worker;

/// One part in so many of the memory may be loved by use: what is loved is out of the reach of the
/// policy that compares objects.
const LOVED_SHARE: u64 = 4;

#[derive(Default)]
pub(crate) struct ByUse {
    on: AtomicBool,
    affection: Mutex<Affection>,
    /// The hints that the store has from here.
    told: Mutex<HashMap<GroupId, Hint>>,
}

impl ByUse {
    pub(crate) fn new(on: bool) -> ByUse {
        ByUse { on: AtomicBool::new(on), ..ByUse::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Begins, or stops and takes back every hint that was given.
    pub(crate) fn switch(&self, on: bool, store: &Store) {
        let mut told = locked(&self.told);
        // Under the lock that counting needs, so that nothing is counted after.
        let mut affection = locked(&self.affection);
        self.on.store(on, Ordering::Relaxed);
        if !on {
            *affection = Affection::default();
            told.drain().for_each(|(group, hint)| take_back(store, group, hint));
        }
    }

    /// A rule says what becomes of the group.
    pub(crate) fn ruled(&self, group: GroupId, hint: Hint, store: &Store) {
        if !self.is_on() {
            return tell(store, group, hint);
        }
        let mut told = locked(&self.told);
        told.remove(&group);
        locked(&self.affection).leave(group);
        tell(store, group, hint);
    }

    /// A sample is enough: no request waits for another's.
    fn count<T>(&self, one: impl FnOnce(&mut Affection) -> T) -> Option<T> {
        let mut affection = self.affection.try_lock().ok()?;
        self.is_on().then(|| one(&mut affection))
    }

    /// Tells the store what it does not know of a group yet.
    fn settle(&self, group: GroupId, store: &Store, counters: &Counters) {
        let mut told = locked(&self.told);
        let (before, wanted) = (told.get(&group).copied(), locked(&self.affection).hint(group));
        if before == wanted {
            return;
        }
        if known(store, group) != before.unwrap_or(Hint::Neutral) {
            told.remove(&group);
            return locked(&self.affection).leave(group);
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

/// Something of a group was asked for and was there.
pub(crate) fn used(worker: &Worker, group: GroupId, key: &[u8], length_bytes: u64) {
    let by_use = &worker.shared.vault.by_use;
    if !by_use.is_on() {
        return;
    }
    let object = GroupId::of(key).get();
    let counted = by_use.count(|affection| {
        let changed = affection.used(group, object, length_bytes);
        (changed, affection.take_due())
    });
    let Some((changed, due)) = counted else { return };
    if changed || due {
        change(worker, changed.then_some(group), due);
    }
}

/// Something of a group was stored.
pub(crate) fn stored(worker: &Worker, group: GroupId) {
    let by_use = &worker.shared.vault.by_use;
    if !by_use.is_on() {
        return;
    }
    if by_use.count(|affection| affection.stored(group)) == Some(true) {
        change(worker, Some(group), false);
    }
}

/// Thinks love over if that is due, and tells the store, on another thread.
fn change(worker: &Worker, one: Option<GroupId>, due: bool) {
    let (vault, counters) = (Arc::clone(&worker.shared.vault), Arc::clone(&worker.counters));
    // The store is not closed before this has ended.
    let alive: mpsc::Sender<()> = worker.alive.clone();
    tokio::task::spawn_blocking(move || {
        let (by_use, store) = (&vault.by_use, vault.store());
        let turn = || {
            let room_bytes = store.stats().memory_bytes / LOVED_SHARE;
            locked(&by_use.affection).turn(room_bytes)
        };
        let turned = if due { turn() } else { Vec::new() };
        one.into_iter().chain(turned).for_each(|group| by_use.settle(group, store, &counters));
        drop(alive);
    });
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
