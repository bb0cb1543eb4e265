//! Moving objects that wait together. A run of the nursery is held as long as one of its objects
//! waits, and of groups that grow slowly some do for long: without this, up to a third of memory
//! was held for a tenth of it.
//!
//! Invariants: an object moves under the shard lock, and only if the resident table still shows it
//! at its former place; readers keep the former run. Threads: the flusher.

use super::nursery::{Finished, Staged};
use super::superseded::{add_dead, finish_dead, wanted};
use crate::engine::Engine;
use crate::memory::pool::Run;
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
                add_dead(engine, object, &mut dead);
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
    show_at(engine, object, run, offset)
}

/// Shows readers the copy, unless the object was replaced or removed since it was looked at.
fn show_at(engine: &Engine, object: &mut Staged, run: Run, offset: usize) -> Moved {
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
    add(&engine.counters.nursery_moved_bytes, u64::from(object.stored_bytes));
    Moved::Done
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;
    use std::time::Duration;

    use super::*;
    use crate::write::nursery::Work;
    use crate::{ByteSize, Config, Store};

    /// Nothing is written of its own accord. Never closed: with objects that were lost, where a
    /// test fails, that would wait for ever.
    fn open(dir: &tempfile::TempDir) -> ManuallyDrop<Store> {
        let mut config = Config::new(dir.path().join("store"), ByteSize::new(16 << 20));
        config.memory = ByteSize::new(4 << 20);
        config.page = Some(ByteSize::new(16 << 10));
        config.flush_period = Duration::ZERO;
        config.background = false;
        ManuallyDrop::new(Store::open(config).unwrap())
    }

    fn put(store: &Store, number: u64, byte: u8) {
        let key = number.to_le_bytes();
        store.create(&key, GroupId::new(number % 10), &[byte; 900]).wait().unwrap();
    }

    fn get(store: &Store, number: u64) -> Option<Vec<u8>> {
        store.read(&number.to_le_bytes()).wait().unwrap().map(|object| object.to_vec())
    }

    /// All that waits, as the flusher takes it.
    fn take(engine: &Engine) -> Vec<(GroupId, Vec<Staged>)> {
        engine.nursery.request_flush();
        let work = engine.nursery.take(16 << 10, || Duration::ZERO, || Duration::ZERO);
        let Work::Pages { groups, .. } = work else { panic!("groups were asked for") };
        groups
    }

    #[test]
    fn what_is_replaced_or_removed_while_it_is_copied_is_not_shown_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        let engine = store.engine();
        (0..3).for_each(|number| put(&store, number, 1));
        let mut objects: Vec<Staged> = take(engine).into_iter().flat_map(|group| group.1).collect();
        put(&store, 0, 2);
        store.remove(&1_u64.to_le_bytes()).unwrap();
        let mut moved = 0;
        for object in &mut objects {
            let len = object.stored_bytes as usize;
            let (run, offset) = engine.room_for_small(len).unwrap();
            // SAFETY: as in `move_object`.
            unsafe { run.bytes_mut(offset, len) }
                .copy_from_slice(object.run.bytes(object.offset as usize, len));
            moved += usize::from(matches!(show_at(engine, object, run, offset), Moved::Done));
        }
        assert_eq!(moved, 1);
        let shown: Vec<_> = (0..3).map(|number| get(&store, number)).collect();
        assert_eq!(shown, [Some(vec![2; 900]), None, Some(vec![1; 900])]);
    }

    /// Readers hold all other memory: there is room for some of the first group.
    #[test]
    fn what_there_is_no_memory_for_is_left_to_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        let engine = store.engine();
        (0..100).for_each(|number| put(&store, number, number as u8));
        let groups = take(engine);
        let held: Vec<Run> = std::iter::from_fn(|| engine.cache.pool.try_take_frame()).collect();
        let before = engine.nursery.bytes();
        let left = compact(engine, groups, u64::MAX);
        assert!(left.len() > 1, "{}", left.len());
        left.into_iter().for_each(|(group, objects)| engine.nursery.put_back(group, objects));
        drop(held);
        let all = take(engine);
        let objects: usize = all.iter().map(|group| group.1.len()).sum();
        assert_eq!((objects, engine.nursery.bytes()), (100, before));
        all.into_iter().for_each(|(group, objects)| engine.nursery.put_back(group, objects));
        store.sync().unwrap();
        store.drop_memory();
        for number in 0..100 {
            assert_eq!(get(&store, number), Some(vec![number as u8; 900]), "{number}");
        }
    }
}
