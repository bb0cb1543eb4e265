//! Moving objects that wait together. A run of the nursery is held as long as one of its objects
//! waits, and of groups that grow slowly some do for long: without this, up to a third of memory
//! was held for a tenth of it.
//!
//! Invariants: an object moves under the shard lock, and only if the resident table still shows it
//! at its former place; readers keep the former run. Threads: the flusher.

use super::nursery::{Finished, Staged};
use super::superseded::{finish_dead, wanted};
use crate::engine::Engine;
use crate::stats::add;
use crate::types::GroupId;

/// What became of an object that was to be moved.
enum Moved {
    Done,
    Dead,
    /// Readers hold all memory.
    NoRoom,
}

/// Moves the objects of these groups with a `came_at` below this, and puts all back. Returns the
/// groups that were left when there was no memory any more.
pub(super) fn compact(
    engine: &Engine,
    groups: Vec<(GroupId, Vec<Staged>)>,
    came_before: u64,
) -> Vec<(GroupId, Vec<Staged>)> {
    let mut dead = Finished::default();
    let mut groups = groups.into_iter();
    let mut left = Vec::new();
    for (group, mut objects) in groups.by_ref() {
        let mut is_full = false;
        objects.retain_mut(|object| {
            if is_full || object.came_at >= came_before {
                return true;
            }
            let moved = move_object(engine, object);
            is_full = matches!(moved, Moved::NoRoom);
            if matches!(moved, Moved::Dead) {
                dead.add(object);
            }
            !matches!(moved, Moved::Dead)
        });
        if is_full {
            left.push((group, objects));
            break;
        }
        engine.nursery.put_back(group, objects);
    }
    finish_dead(engine, &dead);
    left.extend(groups);
    left
}

/// Copies an object to the run that creates are filling.
fn move_object(engine: &Engine, object: &mut Staged) -> Moved {
    if wanted(engine, object).is_none() {
        return Moved::Dead;
    }
    let len = object.stored_bytes as usize;
    let Some((run, offset)) = engine.room_for_small(len) else { return Moved::NoRoom };
    // SAFETY: the range was reserved for this object and is published only after this.
    unsafe { run.bytes_mut(offset, len) }
        .copy_from_slice(object.run.bytes(object.offset as usize, len));
    let hash = object.record().head.key_hash();
    let mut shard = engine.cache.resident.shard(hash);
    let found = shard.get_mut(hash);
    let Some(mut entry) = found.filter(|e| e.is_at(object.run.first(), object.offset)) else {
        return Moved::Dead;
    };
    entry.move_to(run.clone(), offset as u32);
    drop(shard);
    (object.run, object.offset) = (run, offset as u32);
    object.came_at = engine.nursery.handed_in();
    add(&engine.counters.nursery_moved_bytes, len as u64);
    Moved::Done
}
