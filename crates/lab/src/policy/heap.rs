//! A heap of ranks whose objects know where they stand, so that one can leave or change its rank
//! wherever it is. The policy keeps their places. Invariants: no rank goes before its parent; the
//! place of an object that is there is that of its rank. One thread at a time.

/// What has the places of a heap's objects, by key.
pub(crate) trait Places {
    /// Of an object that is there.
    fn place(&self, key: u32) -> u32;
    fn set_place(&mut self, key: u32, place: u32);
}

/// How an object stands among others.
pub(crate) trait Rank: Copy {
    /// Whose it is.
    fn key(self) -> u32;
    /// True if it leaves earlier than the other.
    fn is_before(self, other: Self) -> bool;
}

pub(crate) struct Heap<R> {
    ranks: Vec<R>,
}

impl<R: Rank> Heap<R> {
    pub(crate) fn new() -> Heap<R> {
        Heap { ranks: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// An object that is not there comes.
    pub(crate) fn push(&mut self, places: &mut impl Places, rank: R) {
        let at = self.ranks.len();
        self.ranks.push(rank);
        self.rise(places, at, rank);
    }

    /// An object that is there has another rank now.
    pub(crate) fn change(&mut self, places: &mut impl Places, rank: R) {
        self.settle(places, places.place(rank.key()) as usize, rank);
    }

    /// An object that is there leaves.
    pub(crate) fn remove(&mut self, places: &mut impl Places, key: u32) {
        let at = places.place(key) as usize;
        if let Some(last) = self.ranks.pop()
            && at < self.ranks.len()
        {
            self.settle(places, at, last);
        }
    }

    /// The first leaves.
    pub(crate) fn pop(&mut self, places: &mut impl Places) -> Option<R> {
        let first = *self.ranks.first()?;
        self.remove(places, first.key());
        Some(first)
    }

    /// Puts a rank where there is a hole, or above or below.
    fn settle(&mut self, places: &mut impl Places, at: usize, rank: R) {
        if at > 0 && rank.is_before(self.ranks[(at - 1) / 2]) {
            self.rise(places, at, rank);
        } else {
            self.sink(places, at, rank);
        }
    }

    fn rise(&mut self, places: &mut impl Places, mut at: usize, rank: R) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !rank.is_before(self.ranks[parent]) {
                break;
            }
            self.put(places, at, self.ranks[parent]);
            at = parent;
        }
        self.put(places, at, rank);
    }

    fn sink(&mut self, places: &mut impl Places, mut at: usize, rank: R) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(&left_rank) = self.ranks.get(left) else { break };
            let child = match self.ranks.get(right) {
                Some(other) if other.is_before(left_rank) => right,
                _ => left,
            };
            if !self.ranks[child].is_before(rank) {
                break;
            }
            self.put(places, at, self.ranks[child]);
            at = child;
        }
        self.put(places, at, rank);
    }

    fn put(&mut self, places: &mut impl Places, at: usize, rank: R) {
        self.ranks[at] = rank;
        places.set_place(rank.key(), at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Places for Vec<u32> {
        fn place(&self, key: u32) -> u32 {
            self[key as usize]
        }

        fn set_place(&mut self, key: u32, place: u32) {
            self[key as usize] = place;
        }
    }

    impl Rank for (u64, u32) {
        fn key(self) -> u32 {
            self.1
        }

        fn is_before(self, other: Self) -> bool {
            self < other
        }
    }

    /// A sorted set is the model.
    #[test]
    fn leaves_in_order_whatever_changes() {
        let mut rng = fastrand::Rng::with_seed(8);
        let (mut places, mut heap) = (vec![0; 64], Heap::new());
        let mut model = std::collections::BTreeSet::<(u64, u32)>::new();
        for _ in 0..20_000 {
            let rank = (rng.u64(0..40), rng.u32(0..64));
            let there = model.iter().find(|held| held.1 == rank.1).copied();
            match (there, rng.u8(0..4)) {
                (_, 0) => assert_eq!(heap.pop(&mut places), model.pop_first()),
                (Some(held), 1) => {
                    heap.remove(&mut places, held.1);
                    model.remove(&held);
                }
                (Some(held), _) => {
                    heap.change(&mut places, rank);
                    model.remove(&held);
                    model.insert(rank);
                }
                (None, _) => {
                    heap.push(&mut places, rank);
                    model.insert(rank);
                }
            }
            assert_eq!(heap.len(), model.len());
        }
    }
}
