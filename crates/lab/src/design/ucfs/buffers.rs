//! The memory side of UCFS: one LRU list in three parts, and the choice of what leaves together.
//!
//! The cold part is kept as two lists, its younger and its older half; grouping looks at the older
//! half only (figures 4 and 5). Invariants: a file is in one list; bytes of a list are those of its
//! files; indexes over the older half may name files that left it, never miss one that is in it,
//! and are in the order in which files came into it. A file that left and came back has a new
//! place: what names it with the old one is passed over. Threads: one user.

use std::collections::VecDeque;

use super::File;
use crate::lru::{Lru, NumberMap};

/// Files smaller than this fill gaps (figure 5).
const SMALL_BYTES: u64 = 1 << 10;
/// Candidates passed over for one unit and one rule, since they do not fit or are on a unit of
/// their own.
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

/// A file of the older half, as an index names it: where it stood there, and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    place: u64,
    key: u64,
}

type Queue = VecDeque<Entry>;

/// The buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    lists: [List; 4],
    /// The list of a file, and its place in the older half if it is there.
    part: NumberMap<u64, (Part, u64)>,
    next_place: u64,
    by_group: NumberMap<u64, Queue>,
    html: Queue,
    small: Queue,
    by_references: NumberMap<u32, Queue>,
}

impl Buffers {
    pub(super) fn new(hot: u64, medium: u64, cold: u64) -> Buffers {
        Buffers {
            lists: [hot, medium, cold / 2, cold - cold / 2].map(List::new),
            part: NumberMap::default(),
            next_place: 0,
            by_group: NumberMap::default(),
            html: Queue::new(),
            small: Queue::new(),
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
        self.part.insert(key, (part, self.next_place));
    }

    fn part(&self, key: u64) -> Option<Part> {
        self.part.get(&key).map(|(part, _)| *part)
    }

    pub(super) fn remove(&mut self, key: u64, bytes: u64) {
        if let Some((part, _)) = self.part.remove(&key) {
            let list = &mut self.lists[part as usize];
            list.files.remove(key);
            list.bytes -= bytes;
        }
    }

    pub(super) fn add_medium(&mut self, key: u64, bytes: u64) {
        self.insert(Part::Medium, key, bytes);
    }

    pub(super) fn make_hot(&mut self, key: u64, bytes: u64) {
        if self.part(key) == Some(Part::Hot) {
            self.lists[Part::Hot as usize].files.touch(key);
        } else {
            self.remove(key, bytes);
            self.insert(Part::Hot, key, bytes);
        }
    }

    pub(super) fn is_cold(&self, key: u64) -> bool {
        matches!(self.part(key), Some(Part::Cold | Part::Old))
    }

    /// True if the older half of the cold buffer holds more than its share.
    pub(super) fn over(&self) -> bool {
        let old = &self.lists[Part::Old as usize];
        old.bytes > old.limit
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
        let entry = Entry { place: self.next_place, key };
        self.next_place += 1;
        self.by_group.entry(file.group).or_default().push_back(entry);
        self.by_references.entry(file.references).or_default().push_back(entry);
        if file.html {
            self.html.push_back(entry);
        }
        if file.bytes < SMALL_BYTES {
            self.small.push_back(entry);
        }
    }

    /// True if the file is in the older half and has not left it since it was indexed: so its
    /// count, which a hit raises, is that of the index as well.
    fn is_there(&self, entry: Entry) -> bool {
        self.part.get(&entry.key) == Some(&(Part::Old, entry.place))
    }

    /// Algorithm 1: the oldest HTML file of the older half, else the oldest file.
    pub(super) fn first(&mut self) -> Option<u64> {
        while let Some(entry) = self.html.pop_front() {
            if self.is_there(entry) {
                return Some(entry.key);
            }
        }
        self.lists[Part::Old as usize].files.oldest()
    }

    /// Files for one unit with the first (algorithm 2): those of its host and path, then, if gaps
    /// are filled, files used as often or smaller than 1 KB, oldest first, until less than 1 KB is
    /// free.
    pub(super) fn choose(
        &mut self,
        first: u64,
        files: &NumberMap<u64, File>,
        cluster_bytes: u64,
        fills: bool,
    ) -> Vec<u64> {
        let Some(head) = files.get(&first) else { return Vec::new() };
        let room = head.bytes.div_ceil(cluster_bytes).max(1) * cluster_bytes - head.bytes;
        let mut chosen = Chosen { keys: vec![first], room };
        let mut group = self.by_group.remove(&head.group).unwrap_or_default();
        chosen.fill([&mut group, &mut Queue::new()], files, 0, |entry| self.is_there(entry));
        if !group.is_empty() {
            self.by_group.insert(head.group, group);
        }
        if fills {
            let mut same = self.by_references.remove(&head.references).unwrap_or_default();
            let mut small = std::mem::take(&mut self.small);
            let queues = [&mut same, &mut small];
            chosen.fill(queues, files, SMALL_BYTES, |entry| self.is_there(entry));
            self.small = small;
            if !same.is_empty() {
                self.by_references.insert(head.references, same);
            }
        }
        chosen.keys
    }
}

struct Chosen {
    keys: Vec<u64>,
    room: u64,
}

impl Chosen {
    /// First fit from two queues as one, in the order of places, while more than `room_min` is
    /// free. What does not fit stays in its queue, as does what is on a unit of its own and so is
    /// not grouped again (§2.4.4); what is gone leaves it.
    fn fill(
        &mut self,
        mut queues: [&mut Queue; 2],
        files: &NumberMap<u64, File>,
        room_min: u64,
        is_there: impl Fn(Entry) -> bool,
    ) {
        let mut passed = [const { Vec::new() }; 2];
        while self.room > room_min && passed.iter().map(Vec::len).sum::<usize>() < LOOK_MAX {
            let fronts = queues.each_ref().map(|queue| queue.front().map(|entry| entry.place));
            let Some(from) = older(fronts) else { break };
            let Some(entry) = queues[from].pop_front() else { break };
            let Some(file) = files.get(&entry.key).filter(|_| is_there(entry)) else { continue };
            if self.keys.contains(&entry.key) {
                continue;
            }
            if file.bytes <= self.room && file.unit.is_none() {
                self.room -= file.bytes;
                self.keys.push(entry.key);
            } else {
                passed[from].push(entry);
            }
        }
        for (queue, passed) in queues.iter_mut().zip(passed) {
            passed.into_iter().rev().for_each(|entry| queue.push_front(entry));
        }
    }
}

/// Which of two queues has the older file in front.
fn older(fronts: [Option<u64>; 2]) -> Option<usize> {
    match fronts {
        [None, None] => None,
        [Some(_), None] => Some(0),
        [None, Some(_)] => Some(1),
        [Some(a), Some(b)] => Some(usize::from(b < a)),
    }
}
