//! Belady for objects of different sizes: lets go the object whose size times the requests until it
//! is asked for again is greatest, which would take most room for longest before it hits. No bound,
//! which would be hard to compute, but nearer to one than `belady` where sizes differ. What is
//! never asked for again does not come in, and leaves with its last hit; a new object competes with
//! those that are there, so that it may be the first to go. Of equals the one with the greatest
//! key, the newest name, goes first.
//!
//! libCacheSim's BeladySize looks for the victim among 128 objects that it draws, here it is that
//! of all; there room is made also for what then does not come in, and a new object does not
//! compete.
//!
//! Who goes first is not found here but in `falling.rs`. One thread at a time.

use super::falling::{Falling, Rank};
use super::room::Room;
use super::{NEVER, Policy, Step};

pub(crate) struct BeladySize {
    objects: Falling,
    room: Room,
    /// Of this step, deletes among them: what next uses count.
    now: u32,
}

impl BeladySize {
    pub(crate) fn new(capacity_bytes: u64) -> BeladySize {
        BeladySize { objects: Falling::new(), room: Room::new(capacity_bytes), now: 0 }
    }

    /// Goes on to the next step; of steps with next uses there are fewer than 2^32.
    fn pass_step(&mut self) {
        self.now = self.now.saturating_add(1);
        self.objects.pass_to(self.now);
    }

    fn leave(&mut self, key: u32) {
        if let Some(rank) = self.objects.remove(key) {
            self.room.leave(rank.size_bytes);
        }
    }
}

impl Policy for BeladySize {
    fn get(&mut self, step: &Step) -> bool {
        let (key, next_use) = (step.key, step.next_use);
        let is_there = self.objects.holds(key);
        if is_there && next_use == NEVER {
            self.leave(key);
        } else if is_there {
            self.objects.postpone(key, next_use);
        } else if next_use != NEVER && self.room.fits(step.size_bytes) {
            self.room.enter(step.size_bytes);
            self.objects.push(Rank { key, size_bytes: step.size_bytes, next_use });
            while self.room.is_exceeded() {
                let Some(first) = self.objects.first() else { break };
                self.leave(first);
            }
        }
        self.pass_step();
        is_there
    }

    fn delete(&mut self, key: u32) {
        self.leave(key);
        self.pass_step();
    }

    fn used_bytes(&self) -> u64 {
        self.room.used_bytes()
    }

    fn objects(&self) -> u64 {
        self.room.objects()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.objects.fetch(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out on paper, room for ten. 0 has 4 bytes and is asked for again in 5 requests, 1 has
    /// 6, in 3: 20 and 18. 2 has 2 bytes, in 8 of them from request 2 on: 16, when 0 stands at 12
    /// and 1 at 12. Of these 2 goes at once, its product being greatest. 3, with 4 bytes and 2
    /// requests to go, stands at 8 in request 3, 0 at 8 and 1 at 6: of 0 and 3 the newer name goes,
    /// 3 itself.
    #[test]
    fn the_greatest_product_goes_first() {
        let mut policy = BeladySize::new(10);
        let steps = [(0, 4, 5), (1, 6, 4), (2, 2, 10), (3, 4, 5)];
        let held: Vec<u64> = steps
            .map(|(key, size, next)| {
                assert!(!policy.get(&Step::get(key, size, next)));
                policy.used_bytes()
            })
            .to_vec();
        assert_eq!(held, [4, 10, 10, 10]);
        assert!(policy.get(&Step::get(1, 6, NEVER)) && policy.get(&Step::get(0, 4, 9)));
        assert_eq!(policy.used_bytes(), 4, "1 has left with its last hit");
    }
}
