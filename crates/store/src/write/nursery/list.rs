//! The objects of one group that wait, in order of arrival.
//!
//! A vector that grows by doubling leaves its former sizes to the allocator, and groups that grow
//! alike leave them all at once: nobody wants them, and they came to as much as the lists
//! themselves. Lists here are made of pieces of one length, which any other list can take.
//! Invariant: no piece is empty but perhaps the last. Threads: the holder of the nursery's lock.

use super::Staged;

/// Objects of a piece. A first piece is shorter: many groups have one object.
const PIECE: usize = 32;

#[derive(Default)]
pub(super) struct List {
    full: Vec<Vec<Staged>>,
    last: Vec<Staged>,
}

impl List {
    pub(super) fn push(&mut self, staged: Staged) {
        if self.last.len() >= PIECE {
            self.full.push(std::mem::take(&mut self.last));
        }
        let (len, is_first) = (self.last.len(), self.full.is_empty());
        if len == self.last.capacity() {
            // Exactly, since a vector that grows by itself starts with room for four.
            let more = if is_first { len.clamp(1, PIECE - len) } else { PIECE - len };
            self.last.reserve_exact(more);
        }
        self.last.push(staged);
    }

    pub(super) fn len(&self) -> usize {
        self.full.iter().map(Vec::len).sum::<usize>() + self.last.len()
    }

    /// Puts objects that came earlier before these.
    pub(super) fn put_before(&mut self, earlier: Vec<Staged>) {
        if !earlier.is_empty() {
            self.full.insert(0, earlier);
        }
    }

    /// All objects in one piece.
    pub(super) fn into_vec(self) -> Vec<Staged> {
        if self.full.is_empty() {
            return self.last;
        }
        let mut all = Vec::with_capacity(self.len());
        self.full.into_iter().for_each(|piece| all.extend(piece));
        all.extend(self.last);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::Due;
    use super::*;
    use crate::memory::pool::{Pool, Run};

    fn staged(run: &Run, offset: u32) -> Staged {
        Staged {
            run: run.clone(),
            offset,
            stored_bytes: 64,
            reinserted: false,
            freq: 0,
            beside_older: false,
            may_wait: false,
            due: Due::NEVER,
            round: 0,
            came_at: 0,
        }
    }

    #[test]
    fn objects_stay_in_order_and_those_put_back_come_first() {
        let pool = Pool::new(1, 4 << 10).unwrap();
        let run = pool.try_take_frame().unwrap();
        for (earlier, later) in [(0, 0), (0, 1), (3, 0), (1, 1), (70, 32), (32, 33), (0, 200)] {
            let mut list = List::default();
            (0..later).for_each(|n| list.push(staged(&run, earlier + n)));
            list.put_before((0..earlier).map(|n| staged(&run, n)).collect());
            list.push(staged(&run, earlier + later));
            assert_eq!(list.len() as u32, earlier + later + 1);
            let offsets: Vec<u32> = list.into_vec().iter().map(|staged| staged.offset).collect();
            assert_eq!(offsets, (0..=earlier + later).collect::<Vec<u32>>());
        }
        assert!(List::default().into_vec().is_empty());
    }

    #[test]
    fn room_is_made_for_one_object_and_later_for_a_piece() {
        let pool = Pool::new(1, 4 << 10).unwrap();
        let run = pool.try_take_frame().unwrap();
        let mut list = List::default();
        for n in 0..1000 {
            list.push(staged(&run, n));
            let room: usize = list.full.iter().chain([&list.last]).map(Vec::capacity).sum();
            let most = if n == 0 { 1 } else { (2 * n as usize).min(n as usize + PIECE) };
            assert!(room <= most.max(2), "{room} for {}", n + 1);
        }
    }
}
