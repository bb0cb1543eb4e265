//! The marks as they are saved: a snapshot of all of them, and a delta, the purges since it. A
//! purge then rewrites what came since the snapshot, instead of all marks.
//!
//! A delta names its snapshot by a number that was made at random for it, and is worth nothing
//! without it; a snapshot is worth nothing without a delta that names it, even an empty one. So
//! whatever is lost, no older state is taken for the newest. A snapshot without a number is from a
//! version that wrote no deltas: it is complete by itself. Little-endian:
//!
//! - snapshot: version u8, number u64, length u32, the marks (see `marks`), zeros;
//! - delta: version u8, number u64, generation of the snapshot u64, count u32, purges, zeros;
//! - purge: scope u8 with a bit for soft; a hash u64, or a prefix with its length u16; for a soft
//!   one its time u64.
//!
//! The zeros are padding. Invariants: decoders trust no field; marks and the purges noted since
//! change together, so that each generation after the snapshot has one purge. Pure, no threads.

use bytes::BufMut;

use super::PurgeKind;
use super::marks::{Marks, Scope, take, take_u32, take_u64};
use super::stamp::TagId;

/// The version of snapshots. Version 1 is the marks alone.
const SNAPSHOT_VERSION: u8 = 2;
const DELTA_VERSION: u8 = 1;
/// Bit of a purge's first byte.
const SOFT: u8 = 0x80;
/// Purges beyond this many bytes are not noted for a delta: the next write is a snapshot, which is
/// about as long at most.
const CHANGES_BYTES_MAX: usize = 512 << 10;

/// A saved copy of all marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// What deltas call it; `None` if it was made without.
    pub(crate) number: Option<u64>,
    pub(crate) marks: Marks,
}

impl Snapshot {
    /// Encodes marks under a number, padded with zeros to at least `least` bytes.
    pub(crate) fn encode(number: u64, marks: &Marks, least: usize) -> Vec<u8> {
        let marks = marks.encode();
        let mut bytes = vec![SNAPSHOT_VERSION];
        bytes.put_u64_le(number);
        bytes.put_u32_le(marks.len() as u32);
        bytes.put_slice(&marks);
        bytes.resize(bytes.len().max(least), 0);
        bytes
    }

    /// Decodes a snapshot, also one of marks alone; `None` for any other bytes.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Snapshot> {
        if bytes.first() != Some(&SNAPSHOT_VERSION) {
            return Marks::decode(bytes).map(|marks| Snapshot { number: None, marks });
        }
        let bytes = &mut bytes;
        take(bytes, 1)?;
        let number = take_u64(bytes)?;
        let length = take_u32(bytes)? as usize;
        let marks = Marks::decode(take(bytes, length)?)?;
        is_padding(bytes).then_some(Snapshot { number: Some(number), marks })
    }

    /// The marks that this snapshot and this delta stand for; `None` if they do not belong
    /// together.
    pub(crate) fn continued(&self, delta: &Delta) -> Option<Marks> {
        let belongs = self.number == Some(delta.snapshot)
            && self.marks.now().generation == delta.changes.since;
        let mut marks = belongs.then(|| self.marks.clone())?;
        delta.changes.apply_to(&mut marks)?;
        Some(marks)
    }
}

/// The purges since a snapshot, as they are saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Number of the snapshot.
    pub(crate) snapshot: u64,
    pub(crate) changes: Changes,
}

impl Delta {
    /// Encodes a delta, padded with zeros to at least `least` bytes.
    pub(crate) fn encode(snapshot: u64, changes: &Changes, least: usize) -> Vec<u8> {
        let mut bytes = vec![DELTA_VERSION];
        bytes.put_u64_le(snapshot);
        bytes.put_u64_le(changes.since);
        bytes.put_u32_le(changes.count);
        bytes.put_slice(&changes.bytes);
        bytes.resize(bytes.len().max(least), 0);
        bytes
    }

    /// Decodes the output of [`Delta::encode`]; `None` for any other bytes.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Delta> {
        let bytes = &mut bytes;
        if take(bytes, 1)? != [DELTA_VERSION] {
            return None;
        }
        let snapshot = take_u64(bytes)?;
        let since = take_u64(bytes)?;
        let count = take_u32(bytes)?;
        let purges = *bytes;
        for _ in 0..count {
            take_purge(bytes)?;
        }
        let purges = purges[..purges.len() - bytes.len()].to_vec();
        let changes = Changes { since, count, bytes: purges };
        is_padding(bytes).then_some(Delta { snapshot, changes })
    }
}

/// The purges since a generation, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    since: u64,
    count: u32,
    /// The purges, encoded.
    bytes: Vec<u8>,
}

/// How far [`Changes`] went at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    since: u64,
    count: u32,
    length: usize,
}

impl Changes {
    /// None yet, after this generation.
    pub(crate) fn after(generation: u64) -> Changes {
        Changes { since: generation, ..Changes::default() }
    }

    /// The generation that they follow.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach { since: self.since, count: self.count, length: self.bytes.len() }
    }

    /// Forgets the purges up to a moment: a snapshot has them.
    pub(crate) fn forget_up_to(&mut self, reach: Reach) {
        // Otherwise they have been forgotten in the meantime.
        if self.since == reach.since {
            self.bytes.drain(..reach.length);
            self.count -= reach.count;
            self.since += u64::from(reach.count);
        }
    }

    /// Notes a purge.
    fn note(&mut self, scope: &Scope, kind: PurgeKind, now_unix_s: u64) {
        let soft = if kind == PurgeKind::Soft { SOFT } else { 0 };
        let bytes = &mut self.bytes;
        bytes.put_u8(soft | kind_of(scope));
        match scope {
            Scope::All => {}
            Scope::Url(hash) | Scope::Tag(TagId(hash)) | Scope::Group(hash) => {
                bytes.put_u64_le(*hash);
            }
            Scope::Prefix(prefix) => {
                // Orders are refused beyond `PREFIX_MAX`.
                bytes.put_u16_le(prefix.len() as u16);
                bytes.put_slice(prefix);
            }
        }
        if kind == PurgeKind::Soft {
            bytes.put_u64_le(now_unix_s);
        }
        self.count += 1;
        if self.bytes.len() > CHANGES_BYTES_MAX {
            *self = Changes::after(self.since + u64::from(self.count));
        }
    }

    /// Makes the purges again, on the marks that they follow.
    fn apply_to(&self, marks: &mut Marks) -> Option<()> {
        let mut bytes = self.bytes.as_slice();
        for _ in 0..self.count {
            let (scope, kind, now_unix_s) = take_purge(&mut bytes)?;
            marks.set(scope, kind, now_unix_s);
        }
        Some(())
    }
}

/// Marks, and the purges that made them what they are since the last snapshot.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) marks: Marks,
    pub(crate) changes: Changes,
}

impl Known {
    /// Marks without a snapshot.
    pub(crate) fn new(marks: Marks) -> Known {
        let changes = Changes::after(marks.now().generation);
        Known { marks, changes }
    }

    /// Goes on with marks that were found in the store. What has been purged before they were known
    /// is purged of what they are about, too.
    pub(crate) fn go_on_with(&mut self, found: Marks) {
        let first = self.changes.since();
        let early = std::mem::replace(self, Known::new(found)).changes;
        if first > 0 {
            // They were too many to be noted.
            self.set(Scope::All, PurgeKind::Hard, 0);
        }
        let mut bytes = early.bytes.as_slice();
        while let Some((scope, kind, now_unix_s)) = take_purge(&mut bytes) {
            self.set(scope, kind, now_unix_s);
        }
    }

    /// Sets a mark; returns its generation.
    pub(crate) fn set(&mut self, scope: Scope, kind: PurgeKind, now_unix_s: u64) -> u64 {
        self.changes.note(&scope, kind, now_unix_s);
        self.marks.set(scope, kind, now_unix_s)
    }
}

fn kind_of(scope: &Scope) -> u8 {
    match scope {
        Scope::All => 0,
        Scope::Url(_) => 1,
        Scope::Tag(_) => 2,
        Scope::Group(_) => 3,
        Scope::Prefix(_) => 4,
    }
}

fn take_purge(bytes: &mut &[u8]) -> Option<(Scope, PurgeKind, u64)> {
    let [first] = take(bytes, 1)? else { return None };
    let scope = match first & !SOFT {
        0 => Scope::All,
        1 => Scope::Url(take_u64(bytes)?),
        2 => Scope::Tag(TagId(take_u64(bytes)?)),
        3 => Scope::Group(take_u64(bytes)?),
        4 => {
            let length = take(bytes, 2)?.try_into().ok().map(u16::from_le_bytes)?;
            Scope::Prefix(take(bytes, usize::from(length))?.to_vec())
        }
        _ => return None,
    };
    match first & SOFT {
        0 => Some((scope, PurgeKind::Hard, 0)),
        _ => Some((scope, PurgeKind::Soft, take_u64(bytes)?)),
    }
}

fn is_padding(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
#[path = "saved_tests.rs"]
mod tests;
