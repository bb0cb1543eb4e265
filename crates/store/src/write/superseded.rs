//! Leaving out objects that no longer need to be written: they were replaced or removed while they
//! waited, or have expired.
//!
//! Invariant: an object is left out only if the resident table no longer shows it at its place;
//! parts of streamed objects, which the table never shows, are always written. What was kept in
//! memory of the object that a dead patch or manifest stands for goes with it. Threads: the
//! flusher.

use std::sync::atomic::Ordering;

use super::nursery::{Finished, Staged, StagedExtent};
use crate::engine::Engine;
use crate::stats::{Counters, add};
use crate::types::GroupId;

/// The group of a waiting object, if it is still wanted.
pub(super) fn wanted(engine: &Engine, object: &Staged) -> Option<GroupId> {
    look(engine, object, false)
}

/// As `wanted`, for an object that is written if it is: from now on its record may be on disk, and
/// what replaces it must be journalled.
pub(super) fn wanted_on_disk(engine: &Engine, object: &Staged) -> Option<GroupId> {
    look(engine, object, true)
}

fn look(engine: &Engine, object: &Staged, is_written: bool) -> Option<GroupId> {
    let hash = object.record().head.key_hash();
    let mut shard = engine.cache.resident.shard(hash);
    let entry = shard.get_mut(hash)?;
    if !object.is_entry(&entry) {
        return None;
    }
    let head = entry.record().head;
    let (group, expires_s) = (head.group(), head.expires_s());
    if expires_s != 0 && u64::from(expires_s) <= engine.clock.unix_seconds() {
        // An expired object would occupy the disk until its segment is reused and never be read.
        // An older state of it must not be read in its place.
        shard.remove(hash);
        engine.forget(hash);
        return None;
    }
    if is_written {
        entry.state.clear_older_dead();
    }
    Some(group)
}

/// Grows whenever a create or remove may have killed a waiting object. Expiry does not count here
/// (see [`some_expired`]), nor do purges: objects killed by a purge are written unless a read found
/// them dead before their page was built.
pub(super) fn replaced_ever(engine: &Engine) -> u64 {
    let Counters { replaced, removes, .. } = &*engine.counters;
    replaced.load(Ordering::Relaxed) + removes.load(Ordering::Relaxed)
}

/// True if one of the objects has expired: where much lives shorter than it waits, pages would be
/// cut for objects that are left out of them.
pub(super) fn some_expired<'a>(
    engine: &Engine,
    objects: impl IntoIterator<Item = &'a Staged>,
) -> bool {
    let now_s = engine.clock.unix_seconds();
    let expires_s = |object: &Staged| u64::from(object.record().head.expires_s());
    objects.into_iter().map(expires_s).any(|at| at != 0 && at <= now_s)
}

/// Removes and counts dead objects. Costs a look-up in the resident table for each object. Those
/// that are left may be put back, and are not written yet.
pub(super) fn leave_out_dead(engine: &Engine, objects: &mut Vec<Staged>) {
    let mut dead = Finished::default();
    objects.retain(|object| keep_if(wanted(engine, object).is_some(), engine, object, &mut dead));
    finish_dead(engine, &dead);
}

/// As `leave_out_dead`, for extents that are about to be written.
pub(super) fn leave_out_dead_extents(engine: &Engine, extents: &mut Vec<StagedExtent>) {
    let mut dead = Finished::default();
    extents.retain(|StagedExtent { staged, part, .. }| {
        let is_wanted = part.is_some() || wanted_on_disk(engine, staged).is_some();
        keep_if(is_wanted, engine, staged, &mut dead)
    });
    finish_dead(engine, &dead);
}

fn keep_if(is_wanted: bool, engine: &Engine, object: &Staged, dead: &mut Finished) -> bool {
    if !is_wanted {
        add_dead(engine, object, dead);
    }
    is_wanted
}

/// Adds a dead object to others.
pub(super) fn add_dead(engine: &Engine, object: &Staged, dead: &mut Finished) {
    let_go_of_copy(engine, object);
    dead.add(object);
}

/// Lets go of what was kept of the object that a dead patch or manifest stands for.
pub(super) fn let_go_of_copy(engine: &Engine, object: &Staged) {
    let head = object.record().head;
    if !head.is_object() {
        drop(engine.reads.assembled.take(head.key_hash(), head.sequence()));
    }
}

/// Counts dead objects, and reports them to the nursery as finished.
pub(super) fn finish_dead(engine: &Engine, dead: &Finished) {
    if dead.objects() > 0 {
        add(&engine.counters.drops_superseded, dead.objects());
        engine.nursery.finished_dead(dead);
    }
}
