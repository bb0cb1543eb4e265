//! What waits to be written and need not be any more: it was replaced or removed meanwhile, or has expired.
//!
//! Invariant: left out is only what the resident table does not show at that place; parts of streamed
//! objects, which it never shows, are always written. Threads: the flusher.

use std::sync::atomic::Ordering;

use super::nursery::{Finished, Staged, StagedExtent};
use crate::engine::Engine;
use crate::stats::{Counters, add};

/// The group of an object that waits, if it is still wanted.
pub(super) fn wanted(engine: &Engine, object: &Staged) -> Option<u64> {
    let mut shard = engine.cache.resident.shard(object.hash);
    let entry = shard.map.get(&object.hash)?;
    if !entry.is_at(object.run.first(), object.offset) {
        return None;
    }
    if entry.expires_s != 0 && u64::from(entry.expires_s) <= engine.clock.unix_seconds() {
        // It would lie on disk for a turn of the ring and be read by nobody. Nothing older is in the index.
        shard.map.remove(&object.hash);
        return None;
    }
    Some(entry.group)
}

/// Grows whenever something that waits may have died, as a create or a remove has it. What a purge
/// kills is written, unless a read came upon it before its page was built; what has expired takes its place on a page
/// that is cut if nothing else has died.
pub(super) fn replaced_ever(engine: &Engine) -> u64 {
    let Counters { replaced, removes, .. } = &engine.counters;
    replaced.load(Ordering::Relaxed) + removes.load(Ordering::Relaxed)
}

/// Leaves out, and counts, what has died. Costs a look at the table of what is in memory for each.
pub(super) fn leave_out_dead(engine: &Engine, objects: &mut Vec<Staged>) {
    let mut dead = Finished::default();
    objects.retain(|object| keep(engine, object, &mut dead));
    finish_dead(engine, &dead);
}

/// The same for extents.
pub(super) fn leave_out_dead_extents(engine: &Engine, extents: &mut Vec<StagedExtent>) {
    let mut dead = Finished::default();
    extents.retain(|extent| extent.part.is_some() || keep(engine, &extent.staged, &mut dead));
    finish_dead(engine, &dead);
}

fn keep(engine: &Engine, object: &Staged, dead: &mut Finished) -> bool {
    let is_wanted = wanted(engine, object).is_some();
    if !is_wanted {
        dead.add(object);
    }
    is_wanted
}

/// Counts the dead, and tells the nursery that it is done with them.
pub(super) fn finish_dead(engine: &Engine, dead: &Finished) {
    if dead.objects() > 0 {
        add(&engine.counters.drops_superseded, dead.objects());
        engine.nursery.finished(dead, 0);
    }
}
