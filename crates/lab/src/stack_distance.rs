//! LRU stack distance: how many different things were asked for since this one was last. A Fenwick
//! tree over moments marks those at which something was last asked for; the distance is the number
//! of marks after it (Bennett and Kruskal 1975). Moments are renumbered when they run out, so
//! memory follows the number of things, not of requests: at most 16 bytes a thing. O(log n) a
//! request. Pure.

const MOMENTS_MIN: usize = 1 << 10;
const NEVER: u32 = u32::MAX;

/// Distances in one stream of requests.
#[derive(Debug)]
pub struct StackDistance {
    /// Moment of the last request, by thing.
    last: Vec<u32>,
    /// Marks, 1-based, as a Fenwick tree.
    tree: Vec<u32>,
    moment: usize,
    things: usize,
}

impl Default for StackDistance {
    fn default() -> StackDistance {
        StackDistance { last: Vec::new(), tree: vec![0; MOMENTS_MIN + 1], moment: 0, things: 0 }
    }
}

impl StackDistance {
    /// Asks for a thing by its dense id; `None` the first time.
    pub fn request(&mut self, thing: u32) -> Option<u64> {
        let at = thing as usize;
        if at >= self.last.len() {
            self.last.resize(at + 1, NEVER);
        }
        if self.moment + 1 == self.tree.len() {
            self.renumber();
        }
        let distance = match self.last[at] {
            NEVER => {
                self.things += 1;
                None
            }
            last => {
                // All things have one mark each; those up to `last` were asked for no later.
                let up_to = self.marks(last as usize + 1);
                self.mark(last as usize + 1, false);
                Some((self.things - up_to) as u64)
            }
        };
        self.last[at] = self.moment as u32;
        self.mark(self.moment + 1, true);
        self.moment += 1;
        distance
    }

    fn marks(&self, mut at: usize) -> usize {
        let mut sum = 0;
        while at > 0 {
            sum += self.tree[at] as usize;
            at &= at - 1;
        }
        sum
    }

    fn mark(&mut self, mut at: usize, set: bool) {
        while at < self.tree.len() {
            self.tree[at] = if set { self.tree[at] + 1 } else { self.tree[at] - 1 };
            at += at & at.wrapping_neg();
        }
    }

    /// Gives the things' last moments the numbers 0, 1, 2... in the same order.
    fn renumber(&mut self) {
        let mut order: Vec<u32> =
            (0..self.last.len() as u32).filter(|id| self.last[*id as usize] != NEVER).collect();
        order.sort_unstable_by_key(|id| self.last[*id as usize]);
        self.tree.clear();
        self.tree.resize((2 * order.len()).max(MOMENTS_MIN) + 1, 0);
        for (moment, id) in order.iter().enumerate() {
            self.last[*id as usize] = moment as u32;
        }
        self.moment = order.len();
        for moment in 0..self.moment {
            self.mark(moment + 1, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list with the most recent first is the oracle.
        #[test]
        fn distances_are_positions_in_the_lru_list(things in prop::collection::vec(0u32..60, 0..4000)) {
            let mut list: Vec<u32> = Vec::new();
            let mut distances = StackDistance::default();
            for thing in things {
                let expected = list.iter().position(|other| *other == thing);
                if let Some(at) = expected {
                    list.remove(at);
                }
                list.insert(0, thing);
                prop_assert_eq!(distances.request(thing), expected.map(|at| at as u64));
            }
        }
    }

    #[test]
    fn more_things_than_moments_are_renumbered() {
        let mut distances = StackDistance::default();
        for thing in 0..5000 {
            assert_eq!(distances.request(thing), None);
        }
        for thing in 0..5000 {
            assert_eq!(distances.request(thing), Some(4999));
        }
        assert_eq!(distances.request(4999), Some(0));
    }
}
