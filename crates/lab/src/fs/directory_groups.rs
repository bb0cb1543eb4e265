//! Which cylinder group a new directory goes to: of those with enough free inodes, the one with the
//! fewest directories.
//!
//! The groups that may do lie in a heap by their number of directories, the others are set aside,
//! so that a full group is not looked at again for each directory. Both are put right only when
//! somebody asks. Invariants: a group is in the heap once or set aside; one that is set aside has
//! fewer free inodes than `floor`; an entry of the heap has at most as many directories as its
//! group. Threads: one user.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Directories of each group, and which group is next.
#[derive(Debug)]
pub(crate) struct DirectoryGroups {
    directories: Vec<u32>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
    set_aside: Vec<bool>,
    floor: u32,
}

impl DirectoryGroups {
    pub(crate) fn new(count: u32) -> DirectoryGroups {
        DirectoryGroups {
            directories: vec![0; count as usize],
            heap: (0..count).map(|group| Reverse((0, group))).collect(),
            set_aside: vec![false; count as usize],
            floor: 0,
        }
    }

    /// A directory was made in a group.
    pub(crate) fn count(&mut self, group: u32) {
        self.directories[group as usize] += 1;
    }

    /// A group has more free inodes than before.
    pub(crate) fn freed(&mut self, group: usize, free: u32) {
        if self.set_aside[group] && free >= self.floor {
            self.take_back(group);
        }
    }

    /// Of the groups with at least `wanted` free inodes the first of those with the fewest
    /// directories.
    pub(crate) fn least(&mut self, free: &[u32], wanted: u32) -> Option<u32> {
        if wanted < self.floor {
            self.floor = wanted;
            for (group, free) in free.iter().enumerate() {
                self.freed(group, *free);
            }
        }
        loop {
            let mut top = self.heap.peek_mut()?;
            let Reverse((directories, group)) = *top;
            let now = self.directories[group as usize];
            if directories != now {
                *top = Reverse((now, group));
            } else if free[group as usize] < wanted {
                PeekMut::pop(top);
                self.set_aside[group as usize] = true;
                self.floor = wanted;
            } else {
                return Some(group);
            }
        }
    }

    fn take_back(&mut self, group: usize) {
        self.set_aside[group] = false;
        self.heap.push(Reverse((self.directories[group], group as u32)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule itself, over all groups.
    fn naive(directories: &[u32], free: &[u32], wanted: u32) -> Option<u32> {
        let good = (0..free.len()).filter(|group| free[*group] >= wanted);
        good.min_by_key(|group| (directories[*group], *group)).map(|group| group as u32)
    }

    #[test]
    fn chooses_what_looking_at_all_groups_chooses() {
        for seed in 0..40 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let count = rng.usize(1..30);
            let mut free = vec![20_u32; count];
            let mut directories = vec![0_u32; count];
            let mut groups = DirectoryGroups::new(count as u32);
            for _ in 0..2_000 {
                let group = rng.usize(0..count);
                match rng.u8(0..4) {
                    0 => free[group] = free[group].saturating_sub(1),
                    1 if free[group] < 20 => {
                        free[group] += 1;
                        groups.freed(group, free[group]);
                    }
                    2 => {
                        directories[group] += 1;
                        groups.count(group as u32);
                    }
                    _ => {
                        let mean = free.iter().sum::<u32>() / count as u32;
                        let wanted = if rng.bool() { mean } else { rng.u32(0..22) };
                        let expected = naive(&directories, &free, wanted);
                        assert_eq!(groups.least(&free, wanted), expected, "seed {seed}");
                    }
                }
            }
        }
    }
}
