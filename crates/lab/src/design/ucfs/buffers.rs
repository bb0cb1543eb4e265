//! The memory side of UCFS: one LRU list in three parts, and the choice of what leaves together.
//!
//! The cold part is kept as two lists, its younger and its older half; grouping looks at the older
//! half only (figures 4 and 5). Invariants: a file is in one list; bytes of a list are those of its
//! files; indexes over the older half may name files that left it, never miss one that is in it.
//! Threads: one user.

use std::collections::VecDeque;

use super::File;
use crate::lru::{Lru, NumberMap};

/// Files smaller than this fill gaps (figure 5).
const SMALL_BYTES: u64 = 1 << 10;
/// Candidates looked at for one unit and one rule.
const LOOK_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Hot,
    Medium,
    Cold,
    Old,
}

#[derive(Debug)]
struct List {
    files: Lru<()>,
    bytes: u64,
    limit: u64,
}

impl List {
    fn new(limit: u64) -> List {
        List { files: Lru::new(), bytes: 0, limit }
    }
}

/// The buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    lists: [List; 4],
    part: NumberMap<u64, Part>,
    by_group: NumberMap<u64, VecDeque<u64>>,
    html: VecDeque<u64>,
    small: VecDeque<u64>,
    by_references: NumberMap<u32, VecDeque<u64>>,
}

impl Buffers {
    pub(super) fn new(hot: u64, medium: u64, cold: u64) -> Buffers {
        Buffers {
            lists: [hot, medium, cold / 2, cold - cold / 2].map(List::new),
            part: NumberMap::default(),
            by_group: NumberMap::default(),
            html: VecDeque::new(),
            small: VecDeque::new(),
            by_references: NumberMap::default(),
        }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.lists.iter().map(|list| list.bytes).sum()
    }

    fn insert(&mut self, part: Part, key: u64, bytes: u64) {
        let list = &mut self.lists[part as usize];
        list.files.insert(key, ());
        list.bytes += bytes;
        self.part.insert(key, part);
    }

    pub(super) fn remove(&mut self, key: u64, bytes: u64) {
        if let Some(part) = self.part.remove(&key) {
            let list = &mut self.lists[part as usize];
            list.files.remove(key);
            list.bytes -= bytes;
        }
    }

    pub(super) fn add_medium(&mut self, key: u64, bytes: u64) {
        self.insert(Part::Medium, key, bytes);
    }

    pub(super) fn make_hot(&mut self, key: u64, bytes: u64) {
        if self.part.get(&key) == Some(&Part::Hot) {
            self.lists[Part::Hot as usize].files.touch(key);
        } else {
            self.remove(key, bytes);
            self.insert(Part::Hot, key, bytes);
        }
    }

    pub(super) fn is_cold(&self, key: u64) -> bool {
        matches!(self.part.get(&key), Some(Part::Cold | Part::Old))
    }

    /// True if the older half of the cold buffer holds more than its share.
    pub(super) fn over(&self) -> bool {
        let old = &self.lists[Part::Old as usize];
        old.bytes > old.limit
    }

    pub(super) fn oldest_cold(&self) -> Option<u64> {
        self.lists[Part::Old as usize].files.oldest()
    }

    /// Moves what a full part holds too much of to the next.
    pub(super) fn settle(&mut self, files: &NumberMap<u64, File>) {
        for (from, to) in
            [(Part::Hot, Part::Medium), (Part::Medium, Part::Cold), (Part::Cold, Part::Old)]
        {
            while self.lists[from as usize].bytes > self.lists[from as usize].limit {
                let Some(key) = self.lists[from as usize].files.oldest() else { break };
                let Some(file) = files.get(&key) else { break };
                self.remove(key, file.bytes);
                self.insert(to, key, file.bytes);
                if to == Part::Old {
                    self.index(key, file);
                }
            }
        }
    }

    fn index(&mut self, key: u64, file: &File) {
        self.by_group.entry(file.group).or_default().push_back(key);
        self.by_references.entry(file.references).or_default().push_back(key);
        if file.html {
            self.html.push_back(key);
        }
        if file.bytes < SMALL_BYTES {
            self.small.push_back(key);
        }
    }

    fn is_old(&self, key: u64) -> bool {
        self.part.get(&key) == Some(&Part::Old)
    }

    /// Algorithm 1: the oldest HTML file of the older half, else the oldest file.
    fn first(&mut self) -> Option<u64> {
        while let Some(key) = self.html.pop_front() {
            if self.is_old(key) {
                return Some(key);
            }
        }
        self.oldest_cold()
    }

    /// Files for one unit (algorithms 1 and 2): a first one, then those of its host and path, then
    /// files used as often or smaller than 1 KB, until less than 1 KB is free.
    pub(super) fn choose(&mut self, files: &NumberMap<u64, File>, cluster_bytes: u64) -> Vec<u64> {
        let Some(first) = self.first() else { return Vec::new() };
        let Some(head) = files.get(&first) else { return Vec::new() };
        let room = head.bytes.div_ceil(cluster_bytes).max(1) * cluster_bytes - head.bytes;
        let mut chosen = Chosen { keys: vec![first], room };
        if let Some(mut group) = self.by_group.remove(&head.group) {
            chosen.fill(&mut group, files, |key| self.is_old(key));
            if !group.is_empty() {
                self.by_group.insert(head.group, group);
            }
        }
        let mut same = self.by_references.remove(&head.references).unwrap_or_default();
        chosen.fill(&mut same, files, |key| self.is_old(key));
        if !same.is_empty() {
            self.by_references.insert(head.references, same);
        }
        let mut small = std::mem::take(&mut self.small);
        chosen.fill(&mut small, files, |key| self.is_old(key));
        self.small = small;
        chosen.keys
    }
}

struct Chosen {
    keys: Vec<u64>,
    room: u64,
}

impl Chosen {
    /// First fit from a queue; what does not fit stays in it, what is gone leaves it.
    fn fill(
        &mut self,
        queue: &mut VecDeque<u64>,
        files: &NumberMap<u64, File>,
        is_old: impl Fn(u64) -> bool,
    ) {
        let mut unfit = Vec::new();
        while self.room > SMALL_BYTES && unfit.len() < LOOK_MAX {
            let Some(key) = queue.pop_front() else { break };
            let Some(file) = files.get(&key).filter(|_| is_old(key)) else { continue };
            if self.keys.contains(&key) {
                continue;
            }
            if file.bytes <= self.room {
                self.room -= file.bytes;
                self.keys.push(key);
            } else {
                unfit.push(key);
            }
        }
        for key in unfit.into_iter().rev() {
            queue.push_front(key);
        }
    }
}
