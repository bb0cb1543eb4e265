//! Dámelo: explicit groups on pages that move as atomic units between a pool and a raw disk, love
//! and hate, buffered deletes (Ledlie 2000, §3 and §4).
//!
//! Owns groups, pages and frames. Invariants: an object lies on one page of its group; the objects
//! of a page fit it, pending deletes included; never more resident pages than frames; a page's
//! place on the disk is fixed by group and number. Threads: one user.
//!
//! Deviations: a full group gives up its oldest page (the thesis has no replacement); a create
//! takes a page of its group in memory with room, else a new page, else, of the group's eight
//! oldest, the first on which deletes left half a page free, or the oldest without its objects (§4
//! says no more than that a page may have to be read); checkpoints write 24 bytes for each object
//! of a group (the size is ours: MD5, page and slot), in the group's last page, which cuts a table
//! that is longer (a page of 16 KB has room for 682 objects), and the end of a run writes none
//! (§4: the destructor does), so that checkpoints cost less here than they would; centre-out
//! placement and the two-way elevator exist as options here (§6: unimplemented there).

use damelo::ByteSize;

use super::grouping::{GroupRule, Grouper};
use super::spec::{Parameter, Values, choice, memory_check, number};
use super::wanted::Rules;
use super::{Cache, Changes, Design, DesignInputs, DesignOptions, Outcome, serve};
use crate::disk::Direction;
use crate::lru::{Lru, NumberMap};
use crate::machine::{Action, Kind};
use crate::request::{Catalogue, Request};
use crate::requests::Requests;

/// Where groups lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Group 1 in the middle, then alternating outwards (§3, figure 2).
    #[default]
    CentreOut,
    /// One after the other (as measured, §6).
    InOrder,
}

/// How Dámelo runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DameloOptions {
    /// Bytes of a page and of a frame.
    pub page_bytes: u32,
    /// Memory for pages.
    pub pool_bytes: u64,
    /// Space on the disk.
    pub disk_bytes: u64,
    /// Number of groups.
    pub groups: u32,
    /// Where groups lie.
    pub placement: Placement,
    /// How objects are grouped.
    pub grouping: GroupRule,
    /// Seconds of the trace between checkpoints of a group; 0 for none.
    pub checkpoint_s: u32,
}

impl Default for DameloOptions {
    /// The configuration of §5.2 with pages of 64 KB.
    fn default() -> DameloOptions {
        DameloOptions {
            page_bytes: 64 << 10,
            pool_bytes: 128 << 20,
            disk_bytes: 1_536 << 20,
            groups: 16,
            placement: Placement::InOrder,
            grouping: GroupRule::Host,
            checkpoint_s: 0,
        }
    }
}

const PLACEMENTS: [(&str, Placement); 2] =
    [("in-order", Placement::InOrder), ("centre-out", Placement::CentreOut)];

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "groups",
        default: "16",
        values: Values::Range("1", "4096"),
        about: "number of groups",
        set: |o, text| number(text, 1..=4_096).map(|n| o.damelo.groups = n),
    },
    Parameter {
        name: "placement",
        default: "in-order",
        values: Values::OneOf(&["in-order", "centre-out"]),
        about: "where groups lie: in-order or centre-out",
        set: |o, text| choice(text, &PLACEMENTS).map(|p| o.damelo.placement = p),
    },
    Parameter {
        name: "checkpoint",
        default: "0",
        values: Values::Range("0", "1000000000"),
        about: "seconds of the trace between checkpoints of a group; 0 for none",
        set: |o, text| number(text, 0..=1_000_000_000).map(|s| o.damelo.checkpoint_s = s),
    },
];

pub(super) fn check(options: &DesignOptions) -> Result<(), String> {
    let page = u64::from(options.page_bytes);
    let needed = 2 * page * u64::from(options.damelo.groups);
    if options.cache_bytes < needed {
        let [needed, given] = [needed, options.cache_bytes].map(ByteSize::new);
        return Err(format!("a group has at least two pages: {needed} of cache, not {given}"));
    }
    memory_check(options, FRAMES_MIN * page)
}

/// One is filled while another is read.
const FRAMES_MIN: u64 = 2;

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let options = DameloOptions {
        page_bytes: inputs.options.page_bytes,
        pool_bytes: inputs.options.memory_bytes,
        disk_bytes: inputs.options.cache_bytes.min(inputs.space_bytes()),
        grouping: inputs.options.grouping,
        ..inputs.options.damelo
    };
    Box::new(Damelo::new(options, inputs.requests, inputs.options.changes))
}

const DESCRIPTOR_BYTES: u64 = 24;

#[derive(Debug, Clone, Copy)]
struct Stored {
    page: u32,
    bytes: u32,
}

#[derive(Debug, Clone, Default)]
struct Page {
    /// Live objects and deletes not yet applied.
    used_bytes: u32,
    pending_bytes: u32,
    objects: Vec<u64>,
    resident: bool,
    dirty: bool,
    on_disk: bool,
    /// Which of its objects were asked for since it came into memory.
    asked: u32,
}

#[derive(Debug, Default)]
struct Group {
    /// Pages in memory that may have room, the last one first.
    open: Vec<u32>,
    /// The next page never used.
    next: u32,
    /// In order of first use, for replacement.
    oldest: std::collections::VecDeque<u32>,
    loved: bool,
    objects: u64,
    next_checkpoint_us: u64,
}

/// The design.
pub struct Damelo {
    options: DameloOptions,
    rules: Rules,
    grouper: Grouper,
    groups: Vec<Group>,
    pages: Vec<Page>,
    pages_per_group: u32,
    objects: NumberMap<u64, Stored>,
    loved: Lru<()>,
    hated: Lru<()>,
    page_reads: u64,
    page_writes: u64,
    /// Sums of objects on pages that were read, and of those asked for while they were in memory.
    brought: u64,
    asked: u64,
    pages_lost: u64,
}

impl Damelo {
    /// An empty disk, all groups loved. `requests` are for the oracle grouping only.
    ///
    /// # Panics
    /// If pages are not whole sectors of 512 bytes, or the disk has fewer than two of them for a
    /// group.
    pub fn new(options: DameloOptions, requests: Requests<'_>, changes: Changes) -> Damelo {
        assert!(options.page_bytes.is_multiple_of(512), "pages are sectors");
        let total = (options.disk_bytes / u64::from(options.page_bytes)) as u32;
        let pages_per_group = total / options.groups;
        assert!(pages_per_group > 1, "a group has pages, and one for its checkpoint");
        let group = |_| Group { loved: true, ..Group::default() };
        Damelo {
            options,
            rules: Rules { changes, object_bytes_max: u64::from(options.page_bytes) },
            grouper: Grouper::new(options.grouping, requests),
            groups: (0..options.groups).map(group).collect(),
            pages: vec![Page::default(); (pages_per_group * options.groups) as usize],
            pages_per_group,
            objects: NumberMap::default(),
            loved: Lru::new(),
            hated: Lru::new(),
            page_reads: 0,
            page_writes: 0,
            brought: 0,
            asked: 0,
            pages_lost: 0,
        }
    }

    /// Keeps a group's pages in memory as long as it can (§3).
    pub fn love(&mut self, group: u32) {
        self.hint(group, true);
    }

    /// Lets a group's pages go first.
    pub fn hate(&mut self, group: u32) {
        self.hint(group, false);
    }

    fn hint(&mut self, group: u32, loved: bool) {
        if std::mem::replace(&mut self.groups[group as usize].loved, loved) == loved {
            return;
        }
        let (from, to) = if loved {
            (&mut self.hated, &mut self.loved)
        } else {
            (&mut self.loved, &mut self.hated)
        };
        let range = group * self.pages_per_group..(group + 1) * self.pages_per_group;
        let moving: Vec<u64> =
            from.iter().map(|(page, ())| page).filter(|&p| range.contains(&(p as u32))).collect();
        for page in moving {
            from.remove(page);
            to.insert(page, ());
        }
    }

    fn group_of_page(&self, page: u32) -> u32 {
        page / self.pages_per_group
    }

    /// Logical page to place on the disk: groups alternate around the middle, or follow each other.
    fn offset(&self, page: u32) -> u64 {
        let (group, within) = (self.group_of_page(page), page % self.pages_per_group);
        let region = match self.options.placement {
            Placement::InOrder => group,
            Placement::CentreOut => {
                // Of an even number the lower of the two: the last group has the last region.
                let middle = (self.options.groups - 1) / 2;
                let step = group.div_ceil(2);
                if group % 2 == 1 { middle + step } else { middle - step }
            }
        };
        let frame = u64::from(region) * u64::from(self.pages_per_group) + u64::from(within);
        frame * u64::from(self.options.page_bytes)
    }

    #[cfg(test)]
    pub(crate) fn region_for_tests(&self, group: u32) -> u64 {
        let region_bytes = u64::from(self.pages_per_group) * u64::from(self.options.page_bytes);
        self.offset(group * self.pages_per_group) / region_bytes
    }

    fn frames(&self) -> usize {
        (self.options.pool_bytes / u64::from(self.options.page_bytes)).max(1) as usize
    }

    fn transfer(&mut self, page: u32, direction: Direction, wait: bool, out: &mut Vec<Action>) {
        match direction {
            Direction::Read => self.page_reads += 1,
            Direction::Write => self.page_writes += 1,
        }
        let (offset, bytes) = (self.offset(page), self.options.page_bytes);
        out.push(Action::Block { direction, kind: Kind::Data, offset, bytes, wait });
    }

    /// Deletes take effect when the page is held exclusively (§4).
    fn apply_deletes(&mut self, page: u32) {
        let page = &mut self.pages[page as usize];
        page.used_bytes -= std::mem::take(&mut page.pending_bytes);
    }

    /// Makes room for a page in the pool: hated ones go first, most recently used ones before
    /// others (MRU, §3), then loved ones, least recently used first.
    fn take_frame(&mut self, out: &mut Vec<Action>) {
        while self.loved.len() + self.hated.len() >= self.frames() {
            let victim = match self.hated.newest() {
                Some(page) => {
                    self.hated.remove(page);
                    page
                }
                None => match self.loved.pop_oldest() {
                    Some((page, ())) => page,
                    None => return,
                },
            };
            self.write_out(victim as u32, out);
        }
    }

    fn write_out(&mut self, page: u32, out: &mut Vec<Action>) {
        if self.pages[page as usize].dirty {
            self.apply_deletes(page);
            self.transfer(page, Direction::Write, true, out);
        }
        let group = self.group_of_page(page) as usize;
        self.groups[group].open.retain(|&p| p != page);
        let entry = &mut self.pages[page as usize];
        entry.on_disk |= entry.dirty;
        (entry.resident, entry.dirty) = (false, false);
        self.asked += u64::from(std::mem::take(&mut entry.asked));
    }

    /// Brings a page into memory, or counts its use there.
    fn hold(&mut self, page: u32, out: &mut Vec<Action>) {
        let loved = self.groups[self.group_of_page(page) as usize].loved;
        if self.pages[page as usize].resident {
            if loved {
                self.loved.touch(u64::from(page));
            } else {
                self.hated.touch(u64::from(page));
            }
            return;
        }
        self.take_frame(out);
        if self.pages[page as usize].on_disk {
            self.transfer(page, Direction::Read, true, out);
            self.brought += self.pages[page as usize].objects.len() as u64;
        }
        self.pages[page as usize].resident = true;
        self.apply_deletes(page);
        if loved {
            self.loved.insert(u64::from(page), ());
        } else {
            self.hated.insert(u64::from(page), ());
        }
    }

    /// A resident page of the group with room for so many bytes.
    fn page_with_room(&mut self, group: u32, bytes: u32, out: &mut Vec<Action>) -> u32 {
        let room = |page: &Page| self.options.page_bytes - page.used_bytes;
        let open = &self.groups[group as usize].open;
        let fitting = open.iter().rev().find(|&&p| room(&self.pages[p as usize]) >= bytes);
        if let Some(&page) = fitting {
            return page;
        }
        let base = group * self.pages_per_group;
        let entry = &mut self.groups[group as usize];
        // The last page of each group is for its checkpoint.
        let page = if entry.next + 1 < self.pages_per_group {
            entry.next += 1;
            base + entry.next - 1
        } else {
            self.recycle(group, bytes, out)
        };
        self.groups[group as usize].oldest.push_back(page);
        self.hold(page, out);
        self.apply_deletes(page);
        let open = &mut self.groups[group as usize].open;
        if open.len() == OPEN_PAGES_MAX {
            open.remove(0);
        }
        open.push(page);
        page
    }

    /// A page of a full group: one that deletes left room on, else the oldest, whose objects go.
    fn recycle(&mut self, group: u32, bytes: u32, _out: &mut [Action]) -> u32 {
        let page_bytes = self.options.page_bytes;
        let pages = &self.pages;
        let free = |page: u32| {
            let entry = &pages[page as usize];
            page_bytes - (entry.used_bytes - entry.pending_bytes)
        };
        let oldest = &self.groups[group as usize].oldest;
        let found =
            oldest.iter().take(RECYCLE_LOOK).position(|&p| free(p) >= bytes.max(page_bytes / 2));
        let index = found.unwrap_or(0);
        let page = self.groups[group as usize]
            .oldest
            .remove(index)
            .unwrap_or(group * self.pages_per_group);
        if found.is_none() {
            self.pages_lost += 1;
            let entry = &mut self.pages[page as usize];
            let objects = std::mem::take(&mut entry.objects);
            (entry.used_bytes, entry.pending_bytes, entry.on_disk) = (0, 0, false);
            self.groups[group as usize].objects -= objects.len() as u64;
            for key in objects {
                self.objects.remove(&key);
            }
        }
        page
    }

    fn checkpoint(&mut self, group: u32, time_us: u64, out: &mut Vec<Action>) {
        let period_us = u64::from(self.options.checkpoint_s) * 1_000_000;
        let entry = &mut self.groups[group as usize];
        if period_us == 0 || time_us < entry.next_checkpoint_us {
            return;
        }
        entry.next_checkpoint_us = time_us.saturating_add(period_us);
        let table = (entry.objects * DESCRIPTOR_BYTES).max(1).div_ceil(512) * 512;
        let bytes = table.min(u64::from(self.options.page_bytes)) as u32;
        let offset = self.offset((group + 1) * self.pages_per_group - 1);
        let direction = Direction::Write;
        out.push(Action::Block { direction, kind: Kind::Table, offset, bytes, wait: false });
    }

    fn group(&mut self, request: &Request, names: &Catalogue) -> u32 {
        (self.grouper.group(request, names) % u64::from(self.options.groups)) as u32
    }
}

/// Pages of a group that are looked at for room.
const OPEN_PAGES_MAX: usize = 4;
/// Pages of a full group that are looked at before the oldest is given up.
const RECYCLE_LOOK: usize = 8;

impl Cache for Damelo {
    fn size_of(&self, key: u64) -> Option<u64> {
        self.objects.get(&key).map(|stored| u64::from(stored.bytes))
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(&Stored { page, .. }) = self.objects.get(&request.key) else { return };
        self.hold(page, out);
        self.pages[page as usize].asked += 1;
        self.checkpoint(self.group_of_page(page), request.time_us, out);
    }

    fn store(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let (group, bytes) = (self.group(request, names), request.size_bytes as u32);
        let page = self.page_with_room(group, bytes, out);
        self.hold(page, out);
        let entry = &mut self.pages[page as usize];
        entry.used_bytes += bytes;
        entry.objects.push(request.key);
        entry.dirty = true;
        assert!(entry.used_bytes <= self.options.page_bytes, "objects fit their page");
        self.objects.insert(request.key, Stored { page, bytes });
        self.groups[group as usize].objects += 1;
        self.checkpoint(group, request.time_us, out);
        true
    }

    fn discard(&mut self, key: u64, _out: &mut Vec<Action>) {
        let Some(Stored { page, bytes }) = self.objects.remove(&key) else { return };
        let group = self.group_of_page(page) as usize;
        self.groups[group].objects -= 1;
        let entry = &mut self.pages[page as usize];
        entry.objects.retain(|&k| k != key);
        entry.pending_bytes += bytes;
        // Only pages in memory change; what is on disk keeps its dead bytes (§4).
        if entry.resident && entry.dirty {
            self.apply_deletes(page);
        }
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        let resident: Vec<u64> =
            self.loved.iter().chain(self.hated.iter()).map(|(page, ())| page).collect();
        (self.loved, self.hated) = (Lru::new(), Lru::new());
        for page in resident {
            self.write_out(page as u32, out);
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("objects", self.objects.len() as u64),
            ("page_reads", self.page_reads),
            ("page_writes", self.page_writes),
            ("objects_brought", self.brought),
            ("objects_asked", self.asked),
            ("pages_lost", self.pages_lost),
        ]
    }
}

impl Design for Damelo {
    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        let rules = self.rules;
        serve(self, rules, request, names, out)
    }

    fn own_group(&self, group: u64) -> u64 {
        group % u64::from(self.options.groups)
    }

    fn love(&mut self, group: u64) {
        let group = self.own_group(group);
        Damelo::love(self, group as u32);
    }

    fn hate(&mut self, group: u64) {
        let group = self.own_group(group);
        Damelo::hate(self, group as u32);
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        Cache::finish(self, out);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        Cache::facts(self)
    }
}
