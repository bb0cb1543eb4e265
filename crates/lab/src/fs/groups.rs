//! Cylinder groups: which blocks, fragments and inodes are free (McKusick et al. 1984, §3).
//!
//! Owns the allocation state of one file system. Invariants: a fragment belongs to one file at a
//! time; `free_fragments` counts the clear bits. Threads: one user.

use super::directory_groups::DirectoryGroups;

/// Most fragments a block can have.
const FRAGMENTS_MAX: u32 = 8;

/// A run of fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) fragment: u64,
    pub(crate) fragments: u32,
}

#[derive(Debug, Default)]
struct Group {
    /// One mask for each block, a bit for each fragment in use; empty until the group is used.
    used: Vec<u8>,
    /// Where the search for a free block goes on.
    rotor: u32,
    /// Blocks whose longest free run was so many fragments when they were put here; may be stale.
    partial: [Vec<u32>; FRAGMENTS_MAX as usize],
    free_inodes: Vec<u32>,
    next_inode: u32,
}

/// All groups of a file system.
#[derive(Debug)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    blocks_per_group: u32,
    fragments_per_block: u32,
    inodes_per_group: u32,
    /// Blocks at the start of each group that hold superblock copy, maps and inodes.
    reserved_blocks: u32,
    free_fragments: u64,
    for_directories: DirectoryGroups,
    /// Fragments in the longest free run of a block with such a mask.
    longest_free: Box<[u8; 256]>,
    /// For each group; apart from the groups, since each section of a large file looks at all of
    /// them.
    blocks_free: Vec<u32>,
    blocks_free_sum: u64,
    inodes_free: Vec<u32>,
    inodes_free_sum: u64,
}

fn full_mask(fragments: u32) -> u8 {
    ((1_u16 << fragments) - 1) as u8
}

/// Fragments in the longest free run.
fn longest_free(mask: u8, fragments: u32) -> u8 {
    let (mut best, mut run) = (0, 0);
    for i in 0..fragments {
        run = if mask & (1 << i) == 0 { run + 1 } else { 0 };
        best = best.max(run);
    }
    best
}

/// First place with `wanted` free fragments side by side.
fn first_free(mask: u8, fragments: u32, wanted: u32) -> Option<u32> {
    let pattern = full_mask(wanted);
    (0..=fragments - wanted).find(|&i| mask & (pattern << i) == 0)
}

impl Groups {
    pub(crate) fn new(
        count: u32,
        blocks_per_group: u32,
        fragments_per_block: u32,
        inodes_per_group: u32,
        reserved_blocks: u32,
    ) -> Groups {
        assert!(fragments_per_block <= FRAGMENTS_MAX, "a mask of one byte");
        assert!(reserved_blocks < blocks_per_group, "groups hold data too");
        let per_group = blocks_per_group - reserved_blocks;
        let blocks_free_sum = u64::from(count) * u64::from(per_group);
        Groups {
            groups: (0..count).map(|_| Group::default()).collect(),
            blocks_per_group,
            fragments_per_block,
            inodes_per_group,
            reserved_blocks,
            free_fragments: blocks_free_sum * u64::from(fragments_per_block),
            blocks_free: vec![per_group; count as usize],
            blocks_free_sum,
            for_directories: DirectoryGroups::new(count),
            longest_free: Box::new(std::array::from_fn(|mask| {
                longest_free(mask as u8, fragments_per_block)
            })),
            inodes_free: vec![inodes_per_group; count as usize],
            inodes_free_sum: u64::from(count) * u64::from(inodes_per_group),
        }
    }

    /// A group whose masks are there.
    fn group(&mut self, index: u32) -> &mut Group {
        let group = &mut self.groups[index as usize];
        if group.used.is_empty() {
            group.used = vec![0; self.blocks_per_group as usize];
            group.used[..self.reserved_blocks as usize].fill(full_mask(self.fragments_per_block));
            group.rotor = self.reserved_blocks;
        }
        group
    }

    pub(crate) fn free_fragments(&self) -> u64 {
        self.free_fragments
    }

    /// Inodes of the file system, taken and free.
    pub(crate) fn inodes(&self) -> u64 {
        self.groups.len() as u64 * u64::from(self.inodes_per_group)
    }

    pub(crate) fn group_of_inode(&self, inode: u32) -> u32 {
        inode / self.inodes_per_group
    }

    /// A group for a new directory: of those with more free inodes than the mean, the one with the
    /// fewest directories.
    pub(crate) fn group_for_directory(&mut self) -> u32 {
        let mean = (self.inodes_free_sum / self.groups.len() as u64) as u32;
        self.for_directories.least(&self.inodes_free, mean).unwrap_or(0)
    }

    pub(crate) fn count_directory(&mut self, group: u32) {
        self.for_directories.count(group);
    }

    /// The group itself, then at quadratic distances, then all (the overflow of the original §3.3).
    fn search(&self, from: u32) -> impl Iterator<Item = u32> + use<> {
        let count = self.groups.len() as u32;
        let mut step = 1;
        let quadratic = std::iter::from_fn(move || {
            (step < count).then(|| {
                let at = (from + step) % count;
                step *= 2;
                at
            })
        });
        std::iter::once(from % count)
            .chain(quadratic)
            .chain((0..count).map(move |i| (from + i) % count))
    }

    pub(crate) fn take_inode(&mut self, near: u32) -> Option<u32> {
        let index = self.search(near).find(|&i| self.inodes_free[i as usize] > 0)?;
        self.inodes_free[index as usize] -= 1;
        self.inodes_free_sum -= 1;
        let group = &mut self.groups[index as usize];
        Some(group.free_inodes.pop().unwrap_or_else(|| {
            group.next_inode += 1;
            index * self.inodes_per_group + group.next_inode - 1
        }))
    }

    pub(crate) fn free_inode(&mut self, inode: u32) {
        let group = self.group_of_inode(inode) as usize;
        self.inodes_free[group] += 1;
        self.inodes_free_sum += 1;
        self.groups[group].free_inodes.push(inode);
        self.for_directories.freed(group, self.inodes_free[group]);
    }

    /// A whole block: `wanted` itself if it is free, else the next free one of the group, else of
    /// another group. Fragments are numbered over the whole file system.
    pub(crate) fn take_block(&mut self, near: u32, wanted: Option<u64>) -> Option<u64> {
        let per_block = u64::from(self.fragments_per_block);
        if let Some(fragment) = wanted {
            let block = fragment / per_block;
            let group = (block / u64::from(self.blocks_per_group)) as u32;
            let within = (block % u64::from(self.blocks_per_group)) as u32;
            if (group as usize) < self.groups.len() && self.group(group).used[within as usize] == 0
            {
                return Some(self.mark_block(group, within));
            }
        }
        let index = self.search(near).find(|&i| self.blocks_free[i as usize] > 0)?;
        let group = self.group(index);
        let rotor = group.rotor as usize;
        let after = group.used[rotor..].iter().position(|&m| m == 0).map(|i| rotor + i);
        let within = after.or_else(|| group.used[..rotor].iter().position(|&m| m == 0))?;
        Some(self.mark_block(index, within as u32))
    }

    fn mark_block(&mut self, index: u32, within: u32) -> u64 {
        let full = full_mask(self.fragments_per_block);
        let blocks_per_group = self.blocks_per_group;
        self.blocks_free[index as usize] -= 1;
        self.blocks_free_sum -= 1;
        let group = self.group(index);
        assert_eq!(group.used[within as usize], 0, "the block is free");
        group.used[within as usize] = full;
        group.rotor = (within + 1) % blocks_per_group;
        self.free_fragments -= u64::from(self.fragments_per_block);
        let block = u64::from(index) * u64::from(blocks_per_group) + u64::from(within);
        block * u64::from(self.fragments_per_block)
    }

    /// `wanted` fragments within one block: best fit among broken blocks of a group, else a block
    /// is broken.
    pub(crate) fn take_fragments(&mut self, near: u32, wanted: u32) -> Option<u64> {
        assert!(wanted > 0 && wanted < self.fragments_per_block, "part of a block");
        let near = near % self.groups.len() as u32;
        if let Some(fragment) = self.take_from_broken(near, wanted) {
            return Some(fragment);
        }
        if let Some(fragment) = self.take_block(near, None) {
            let spare = Run {
                fragment: fragment + u64::from(wanted),
                fragments: self.fragments_per_block - wanted,
            };
            self.free(spare);
            return Some(fragment);
        }
        (0..self.groups.len() as u32).find_map(|index| self.take_from_broken(index, wanted))
    }

    fn take_from_broken(&mut self, index: u32, wanted: u32) -> Option<u64> {
        let per_block = self.fragments_per_block;
        let group = &mut self.groups[index as usize];
        for size in wanted..per_block {
            while let Some(within) = group.partial[size as usize].pop() {
                let mask = group.used[within as usize];
                let longest = self.longest_free[usize::from(mask)];
                if mask == 0 || u32::from(longest) != size {
                    continue;
                }
                let Some(at) = first_free(mask, per_block, wanted) else { continue };
                let mask = mask | (full_mask(wanted) << at);
                group.used[within as usize] = mask;
                let left = self.longest_free[usize::from(mask)];
                if left > 0 {
                    group.partial[usize::from(left)].push(within);
                }
                self.free_fragments -= u64::from(wanted);
                let block = u64::from(index) * u64::from(self.blocks_per_group) + u64::from(within);
                return Some(block * u64::from(per_block) + u64::from(at));
            }
        }
        None
    }

    /// Gives back a run, block by block.
    pub(crate) fn free(&mut self, run: Run) {
        let per_block = u64::from(self.fragments_per_block);
        let (mut at, end) = (run.fragment, run.fragment + u64::from(run.fragments));
        while at < end {
            let here = (per_block - at % per_block).min(end - at) as u32;
            let block = at / per_block;
            let index = (block / u64::from(self.blocks_per_group)) as usize;
            let group = &mut self.groups[index];
            let within = (block % u64::from(self.blocks_per_group)) as u32;
            assert!(within >= self.reserved_blocks, "only data blocks are freed");
            let bits = full_mask(here) << (at % per_block);
            let mask = &mut group.used[within as usize];
            assert_eq!(*mask & bits, bits, "what is freed was in use");
            *mask &= !bits;
            if *mask == 0 {
                self.blocks_free[index] += 1;
                self.blocks_free_sum += 1;
            } else {
                let longest = self.longest_free[usize::from(*mask)];
                group.partial[usize::from(longest)].push(within);
            }
            self.free_fragments += u64::from(here);
            at += u64::from(here);
        }
    }

    /// A group with at least the mean number of free blocks, after `from`: where the next section
    /// of a large file goes.
    pub(crate) fn group_for_section(&self, from: u32) -> u32 {
        let mean = self.blocks_free_sum / self.groups.len() as u64;
        let count = self.groups.len() as u32;
        let good = |i: &u32| u64::from(self.blocks_free[*i as usize]) >= mean.max(1);
        (1..=count).map(|i| (from + i) % count).find(good).unwrap_or(from)
    }
}
