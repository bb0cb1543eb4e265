//! Purge marks: each states that matching responses fetched before the purge are gone, or stale.
//!
//! Setting a mark is O(1) however much it covers. A hit checks the marks that may cover it: a hash
//! lookup for the URL, the group and each tag, and for prefixes a walk down the ordered list with
//! as many steps as there are nested prefixes. Responses fetched after the last purge are not
//! checked at all. Invariants: a mark never covers less than was requested. Beyond [`MARKS_MAX`]
//! marks, and of prefixes beyond [`PREFIX_BYTES_MAX`], the oldest become coarser: hashed marks keep
//! their generation alone (`older`), and beyond what there is room for are folded into a table of
//! slots, where they may cover others with the same slots; a prefix becomes its host's prefix, and
//! a host's mark becomes one for everything. Soft marks become hard with that. Pure, no threads.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use bytes::BufMut;

use super::PurgeKind;
use super::older::Older;
use super::stamp::{Moment, Stamp, TagId};

/// Maximum number of marks kept as they were set.
const MARKS_MAX: usize = 16_384;
/// Total bytes of prefixes.
const PREFIX_BYTES_MAX: usize = 256 << 10;
/// Longest prefix.
pub(crate) const PREFIX_MAX: usize = 4096;
/// Slots of the table that the oldest marks are folded into: 1 MiB, once there are any. Of
/// responses older than all of them, which are tested under two keys if they have no tags, 5% count
/// as purged with 16,384 folded marks, and 29% with 32,768; with ten tags, and so twelve keys, 25%
/// and 87%.
const SLOTS: usize = 131_072;
/// Slots of tables written before 28 November 2026.
const SLOTS_BEFORE: usize = 16_384;
const _: () = assert!(SLOTS.is_multiple_of(SLOTS_BEFORE));
/// Slots per folded mark: it covers subjects whose slots all match.
const SLOTS_OF_ONE: usize = 4;
/// Generations skipped at each start. A process that died set fewer unwritten marks than this, so
/// that no stored response counts as newer than a later mark.
const GENERATIONS_SKIPPED: u64 = 1 << 32;

/// Far above any real generation, so that a ledger below it can count on without overflow.
const GENERATION_MAX: u64 = 1 << 63;

const VERSION: u8 = 2;
/// Without older marks: those were folded at once.
const VERSION_BEFORE: u8 = 1;

/// The responses that a purge covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    All,
    /// One URL with all its variants, by hash.
    Url(u64),
    Tag(TagId),
    /// Everything in a group of the store.
    Group(u64),
    /// Every URL with this prefix.
    Prefix(Vec<u8>),
}

/// The verdict on a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Untouched,
    /// It must be validated before use, as if it had become stale then.
    Stale {
        since_unix_s: u64,
    },
    Gone,
}

/// The properties of a hit that marks are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) stamp: &'a Stamp,
    pub(crate) url: &'a [u8],
    pub(crate) url_hash: u64,
    pub(crate) group: u64,
}

/// Generations of the latest purges of one scope; 0 stands for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) hard: u64,
    pub(crate) soft: u64,
    pub(crate) soft_unix_s: u64,
}

impl Mark {
    fn latest(&self) -> u64 {
        self.hard.max(self.soft)
    }

    fn judge(&self, generation: u64) -> Standing {
        if generation < self.hard {
            Standing::Gone
        } else if generation < self.soft {
            Standing::Stale { since_unix_s: self.soft_unix_s }
        } else {
            Standing::Untouched
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Url,
    Tag,
    Group,
}

/// All marks of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marks {
    ledger: u64,
    latest: u64,
    /// Generation of the newest mark.
    newest_mark: u64,
    all: Mark,
    hashed: HashMap<(Kind, u64), Mark>,
    prefixes: BTreeMap<Vec<u8>, Mark>,
    prefix_bytes: usize,
    older: Older,
    /// Generations of folded marks; empty before the first fold.
    slots: Vec<u64>,
}

impl Marks {
    /// An empty ledger. Responses stored under another ledger are invalid under it.
    pub(crate) fn new(ledger: u64) -> Marks {
        Marks {
            ledger,
            latest: 0,
            newest_mark: 0,
            all: Mark::default(),
            hashed: HashMap::new(),
            prefixes: BTreeMap::new(),
            prefix_bytes: 0,
            older: Older::default(),
            slots: Vec::new(),
        }
    }

    /// No mark covers a response fetched at this generation or later.
    pub(crate) fn newest_mark(&self) -> u64 {
        self.newest_mark
    }

    fn find_newest(&self) -> u64 {
        let marks = self.hashed.values().chain(self.prefixes.values()).chain([&self.all]);
        let slots = self.slots.iter().copied();
        marks.map(Mark::latest).chain(slots).chain([self.older.newest()]).max().unwrap_or(0)
    }

    pub(crate) fn now(&self) -> Moment {
        Moment { ledger: self.ledger, generation: self.latest }
    }

    /// Number of marks kept as they were set.
    pub(crate) fn len(&self) -> usize {
        self.hashed.len() + self.prefixes.len()
    }

    /// Sets a mark; returns its generation.
    pub(crate) fn set(&mut self, scope: Scope, kind: PurgeKind, now_unix_s: u64) -> u64 {
        self.latest += 1;
        let generation = self.latest;
        self.newest_mark = generation;
        let mark = match scope {
            Scope::All => &mut self.all,
            Scope::Url(hash) => self.hashed.entry((Kind::Url, hash)).or_default(),
            Scope::Tag(tag) => self.hashed.entry((Kind::Tag, tag.0)).or_default(),
            Scope::Group(group) => self.hashed.entry((Kind::Group, group)).or_default(),
            Scope::Prefix(prefix) => self.prefix_mut(prefix),
        };
        match kind {
            PurgeKind::Soft => (mark.soft, mark.soft_unix_s) = (generation, now_unix_s),
            PurgeKind::Hard => mark.hard = generation,
        }
        let everything = self.all;
        if generation == everything.hard {
            // A purge of everything supersedes all earlier marks.
            self.hashed.clear();
            self.prefixes.clear();
            self.prefix_bytes = 0;
            self.older.clear();
            self.slots.clear();
        }
        while self.prefix_bytes > PREFIX_BYTES_MAX {
            self.shorten_prefixes();
        }
        while self.len() > MARKS_MAX {
            let limit = oldest_quarter(self.hashed.values().chain(self.prefixes.values()));
            self.fold_hashed(limit);
            self.fold_prefixes(|_, mark| mark.latest() <= limit);
        }
        generation
    }

    fn prefix_mut(&mut self, prefix: Vec<u8>) -> &mut Mark {
        let length = prefix.len();
        let bytes = &mut self.prefix_bytes;
        self.prefixes.entry(prefix).or_insert_with(|| {
            *bytes += length;
            Mark::default()
        })
    }

    /// Judges a hit.
    pub(crate) fn judge(&self, subject: &Subject<'_>) -> Standing {
        let moment = subject.stamp.moment;
        if moment.ledger != self.ledger {
            return Standing::Gone;
        }
        if moment.generation >= self.newest_mark {
            return Standing::Untouched;
        }
        let mut standing = Standing::Untouched;
        self.covering(subject, |_, mark| {
            standing = worse(standing, mark.judge(moment.generation));
        });
        standing
    }

    /// Calls `visit` with every mark that covers a hit, whenever it was fetched.
    pub(crate) fn covering(&self, subject: &Subject<'_>, mut visit: impl FnMut(Cover<'_>, Mark)) {
        if self.all != Mark::default() {
            visit(Cover::All, self.all);
        }
        let tags = subject.stamp.tags.iter().map(|tag| (Kind::Tag, tag.0));
        let keys = [(Kind::Url, subject.url_hash), (Kind::Group, subject.group)];
        for key in keys.into_iter().chain(tags) {
            if let Some(mark) = self.hashed.get(&key) {
                visit(Cover::of(key), *mark);
            }
            let hard = self.older.get(mixed(key));
            if hard > 0 {
                visit(Cover::of(key), Mark { hard, ..Mark::default() });
            }
            let folded = self.folded(mixed(key));
            if folded > 0 {
                visit(Cover::Folded, Mark { hard: folded, ..Mark::default() });
            }
        }
        let mut url = subject.url;
        let up_to = |url| (Bound::Unbounded, Bound::Included(url));
        while let Some((prefix, mark)) = self.prefixes.range::<[u8], _>(up_to(url)).next_back() {
            if url.starts_with(prefix) {
                visit(Cover::Prefix(prefix), *mark);
                // Only a shorter prefix can still match.
                let Some(shorter) = prefix.len().checked_sub(1) else { break };
                url = &url[..shorter];
            } else {
                let common = url.iter().zip(prefix).take_while(|(a, b)| a == b).count();
                url = &url[..common];
            }
        }
    }

    /// Generation folded into all slots of a key; 0 for none.
    fn folded(&self, key: u64) -> u64 {
        if self.slots.is_empty() {
            return 0;
        }
        slots_of(key).map(|slot| self.slots[slot]).min().unwrap_or(0)
    }

    /// Keeps of the marks up to this generation no more than that, and folds the oldest of those
    /// that were kept so into the table of slots.
    fn fold_hashed(&mut self, limit: u64) {
        let hashed = self.hashed.extract_if(|_, mark| mark.latest() <= limit);
        let oldest = self.older.take_in(hashed.map(|(key, mark)| (mixed(key), mark.latest())));
        if !oldest.is_empty() {
            self.slots.resize(SLOTS, 0);
        }
        for (key, generation) in oldest {
            for slot in slots_of(key) {
                self.slots[slot] = self.slots[slot].max(generation);
            }
        }
    }

    /// Folds the oldest quarter of the prefixes; those of hosts, which cover everything then, only
    /// once there are no others.
    fn shorten_prefixes(&mut self) {
        let is_within = |prefix: &[u8]| host_of(prefix).is_some_and(|host| host != prefix);
        let has_hosts_only = !self.prefixes.keys().any(|prefix| is_within(prefix));
        let is_meant = |prefix: &[u8]| has_hosts_only || is_within(prefix);
        let meant = self.prefixes.iter().filter(|(prefix, _)| is_meant(prefix));
        let limit = oldest_quarter(meant.map(|(_, mark)| mark));
        self.fold_prefixes(|prefix, mark| is_meant(prefix) && mark.latest() <= limit);
    }

    /// Folds these prefixes: into their hosts', or into everything.
    fn fold_prefixes(&mut self, is_meant: impl Fn(&[u8], &Mark) -> bool) {
        let meant = self.prefixes.iter().filter(|(prefix, mark)| is_meant(prefix, mark));
        let prefixes: Vec<Vec<u8>> = meant.map(|(prefix, _)| prefix.clone()).collect();
        for prefix in prefixes {
            let Some(mark) = self.prefixes.remove(&prefix) else { continue };
            self.prefix_bytes -= prefix.len();
            match host_of(&prefix) {
                Some(host) if host.len() < prefix.len() => {
                    let coarse = self.prefix_mut(host.to_vec());
                    coarse.hard = coarse.hard.max(mark.latest());
                }
                _ => self.all.hard = self.all.hard.max(mark.latest()),
            }
        }
    }

    /// Encodes all marks.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.put_u64_le(self.ledger);
        bytes.put_u64_le(self.latest);
        put_mark(&mut bytes, &self.all);
        bytes.put_u32_le(self.hashed.len() as u32);
        for ((kind, hash), mark) in &self.hashed {
            bytes.put_u8(*kind as u8);
            bytes.put_u64_le(*hash);
            put_mark(&mut bytes, mark);
        }
        bytes.put_u32_le(self.prefixes.len() as u32);
        for (prefix, mark) in &self.prefixes {
            bytes.put_u16_le(prefix.len() as u16);
            bytes.put_slice(prefix);
            put_mark(&mut bytes, mark);
        }
        self.older.encode_into(&mut bytes);
        bytes.put_u32_le(self.slots.len() as u32);
        for slot in &self.slots {
            bytes.put_u64_le(*slot);
        }
        bytes
    }

    /// As a program before would have encoded marks of which none is old.
    #[cfg(test)]
    pub(super) fn encode_as_before(&self) -> Vec<u8> {
        let mut bytes = self.encode();
        bytes[0] = VERSION_BEFORE;
        // It has no number of older marks, before that of slots.
        bytes.truncate(bytes.len() - 4);
        bytes
    }

    /// Decodes the output of [`Marks::encode`]; `None` for any other bytes.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Marks> {
        let bytes = &mut bytes;
        let [version] = *take(bytes, 1)? else { return None };
        if ![VERSION, VERSION_BEFORE].contains(&version) {
            return None;
        }
        let mut marks = Marks::new(take_u64(bytes)?);
        marks.latest = take_u64(bytes)?;
        marks.all = take_mark(bytes)?;
        for _ in 0..take_u32(bytes)? {
            let kind = match take(bytes, 1)? {
                [0] => Kind::Url,
                [1] => Kind::Tag,
                [2] => Kind::Group,
                _ => return None,
            };
            let hash = take_u64(bytes)?;
            marks.hashed.insert((kind, hash), take_mark(bytes)?);
        }
        for _ in 0..take_u32(bytes)? {
            let length = take(bytes, 2)?.try_into().ok().map(u16::from_le_bytes)?;
            let prefix = take(bytes, usize::from(length))?.to_vec();
            let mark = take_mark(bytes)?;
            *marks.prefix_mut(prefix) = mark;
        }
        if version == VERSION {
            marks.older = Older::decode(bytes)?;
        }
        let slots = take_u32(bytes)? as usize;
        if ![0, SLOTS_BEFORE, SLOTS].contains(&slots) {
            return None;
        }
        marks.slots = (0..slots).map(|_| take_u64(bytes)).collect::<Option<_>>()?;
        if slots == SLOTS_BEFORE {
            // A key's slot was the remainder of a number, of which now the larger remainder counts.
            marks.slots = marks.slots.repeat(SLOTS / SLOTS_BEFORE);
        }
        marks.newest_mark = marks.find_newest();
        let sound = marks.newest_mark <= marks.latest && marks.latest <= GENERATION_MAX;
        (sound && bytes.is_empty()).then_some(marks)
    }

    /// The marks with which a new process continues.
    pub(crate) fn after_restart(mut self) -> Marks {
        self.latest = self.latest.saturating_add(GENERATIONS_SKIPPED);
        self
    }
}

/// The mark that covers a hit, in displayable form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover<'a> {
    All,
    Url,
    Tag,
    Group,
    Prefix(&'a [u8]),
    Folded,
}

impl Cover<'_> {
    fn of((kind, _): (Kind, u64)) -> Cover<'static> {
        match kind {
            Kind::Url => Cover::Url,
            Kind::Tag => Cover::Tag,
            Kind::Group => Cover::Group,
        }
    }
}

/// The generation up to which a quarter of these marks are, one at least.
fn oldest_quarter<'m>(marks: impl Iterator<Item = &'m Mark>) -> u64 {
    oldest_part(marks.map(Mark::latest), 4)
}

/// The generation up to which one in so many of these are, one at least.
pub(super) fn oldest_part(generations: impl Iterator<Item = u64>, part: usize) -> u64 {
    let mut ages: Vec<u64> = generations.collect();
    ages.sort_unstable();
    ages.get(ages.len() / part).copied().unwrap_or(u64::MAX)
}

fn worse(a: Standing, b: Standing) -> Standing {
    match (a, b) {
        (Standing::Gone, _) | (_, Standing::Gone) => Standing::Gone,
        (Standing::Stale { since_unix_s: a }, Standing::Stale { since_unix_s: b }) => {
            Standing::Stale { since_unix_s: a.min(b) }
        }
        (stale @ Standing::Stale { .. }, _) | (_, stale) => stale,
    }
}

/// A key in one number. Where two have the same, the mark of one covers the other, too.
fn mixed((kind, hash): (Kind, u64)) -> u64 {
    hash ^ ((kind as u64 + 1) << 61)
}

fn slots_of(mut mixed: u64) -> impl Iterator<Item = usize> {
    (0..SLOTS_OF_ONE).map(move |_| {
        // SplitMix64's finaliser: neighbouring inputs get distant slots.
        mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = mixed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % SLOTS
    })
}

/// The `scheme://host/` of a prefix that contains one.
fn host_of(prefix: &[u8]) -> Option<&[u8]> {
    let mut slashes = prefix.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.nth(2).map(|(at, _)| &prefix[..=at])
}

fn put_mark(bytes: &mut Vec<u8>, mark: &Mark) {
    bytes.put_u64_le(mark.hard);
    bytes.put_u64_le(mark.soft);
    bytes.put_u64_le(mark.soft_unix_s);
}

pub(super) fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

pub(super) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes, 4)?.try_into().ok().map(u32::from_le_bytes)
}

pub(super) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes, 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn take_mark(bytes: &mut &[u8]) -> Option<Mark> {
    let (hard, soft) = (take_u64(bytes)?, take_u64(bytes)?);
    Some(Mark { hard, soft, soft_unix_s: take_u64(bytes)? })
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
