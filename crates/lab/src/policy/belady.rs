//! Belady's MIN (1966): lets go what will be asked for last. Every request comes in, as with the
//! other policies here but `gdsf`, so with objects of one size none of those can do better (`gdsf`,
//! which may let one pass by, no better than this with room for one more); with different sizes it
//! is a strong rival, not a bound. Next uses are in the steps, computed by the lab. Of objects
//! that are never asked for again the one with the greatest key, the newest name, goes first.

use super::heap::{Heap, Places, Rank};
use super::room::Room;
use super::sizes::LargeSizes;
use super::{Policy, Step};
use crate::cpu_prefetch;

/// The place of an object that is not there.
const ABSENT: u32 = u32::MAX;

/// What is kept of an object: there is no queue and no count here, as `lists.rs` has them.
#[derive(Debug, Clone, Copy)]
struct Object {
    place: u32,
    size: u32,
}

const _: () = assert!(size_of::<Object>() == 8);

/// All objects ever seen, by key.
#[derive(Debug, Default)]
struct Objects {
    objects: Vec<Object>,
    large: LargeSizes,
}

impl Places for Objects {
    #[inline]
    fn place(&self, key: u32) -> u32 {
        self.objects[key as usize].place
    }

    #[inline]
    fn set_place(&mut self, key: u32, place: u32) {
        self.objects[key as usize].place = place;
    }
}

impl Objects {
    fn is_there(&self, key: u32) -> bool {
        self.objects.get(key as usize).is_some_and(|object| object.place != ABSENT)
    }

    fn size(&self, key: u32) -> u64 {
        self.large.unpacked(key, self.objects[key as usize].size)
    }

    /// Notes the size of an object that comes.
    fn set_size(&mut self, key: u32, size_bytes: u64) {
        let len = key as usize + 1;
        if len > self.objects.len() {
            self.objects.resize(len, Object { place: ABSENT, size: 0 });
        }
        self.objects[key as usize].size = self.large.packed(key, size_bytes);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NextUse {
    at: u32,
    key: u32,
}

impl Rank for NextUse {
    fn key(self) -> u32 {
        self.key
    }

    #[inline]
    fn is_before(self, other: NextUse) -> bool {
        self > other
    }
}

pub(crate) struct Belady {
    objects: Objects,
    by_next_use: Heap<NextUse>,
    room: Room,
}

impl Belady {
    pub(crate) fn new(capacity_bytes: u64) -> Belady {
        let (objects, by_next_use) = (Objects::default(), Heap::new());
        Belady { objects, by_next_use, room: Room::new(capacity_bytes) }
    }

    fn forget(&mut self, key: u32) {
        self.room.leave(self.objects.size(key));
        self.objects.set_place(key, ABSENT);
    }
}

impl Policy for Belady {
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        let next = NextUse { at: step.next_use, key };
        if self.objects.is_there(key) {
            self.by_next_use.change(&mut self.objects, next);
            return true;
        }
        if !self.room.fits(step.size_bytes) {
            return false;
        }
        while self.room.is_short_of(step.size_bytes) {
            let Some(last) = self.by_next_use.pop(&mut self.objects) else { break };
            self.forget(last.key);
        }
        self.objects.set_size(key, step.size_bytes);
        self.room.enter(step.size_bytes);
        self.by_next_use.push(&mut self.objects, next);
        false
    }

    fn delete(&mut self, key: u32) {
        if self.objects.is_there(key) {
            self.by_next_use.remove(&mut self.objects, key);
            self.forget(key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.room.used_bytes()
    }

    fn objects(&self) -> u64 {
        self.room.objects()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        cpu_prefetch::fetch(&self.objects.objects, key as usize);
    }
}
