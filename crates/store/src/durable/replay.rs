//! Reads the journal that an earlier life left.
//!
//! Invariants: damage never produces a record. What one copy of the journal has lost is taken from
//! the other. What both have lost is told where records follow it, and where it is the beginning of
//! a half; else it is taken for the end. A record that was being written when the process died is
//! whole in one copy or in none, and was not acknowledged. Threads: none; an open reads it once.

use std::io;

use crate::device::JournalArea;
use crate::format::{JOURNAL_CELL_BYTES, JOURNAL_PARTS, JournalOp, JournalRecord, StoreNonce};
use crate::types::Sequence;

/// Says a number and nothing else, at an open or behind records of old numbers: the delete of a
/// hash that no key has, since hashes begin at 1.
pub(crate) const MARK: JournalOp = JournalOp::DeleteKey { hash: 0 };
/// How many records may precede a record with a smaller sequence number; more than the number of
/// concurrent operations, and of old records that the journal writes in a row.
pub(crate) const OUT_OF_ORDER_MAX: usize = 1024;

/// The journal as found at open.
pub(crate) struct JournalContents {
    pub(crate) records: Vec<JournalRecord>,
    /// Newest epoch seen.
    pub(crate) epoch: u32,
    /// Offset behind the last record of the newest half.
    pub(crate) end: u64,
    /// The last record is the mark of an open.
    pub(crate) ends_with_mark: bool,
    /// Objects older than `seq` may be trusted only with a checkpoint of at least `generation`.
    pub(crate) requires: Option<Requires>,
    /// Records that were damaged and put right: from the other copy, or by turning a bit.
    pub(crate) mended: u64,
    /// Records before the one with this sequence number are unreadable: they may have deleted any
    /// older object.
    pub(crate) lost_before: Option<Sequence>,
    /// Halves whose beginning is unreadable: they may have deleted anything.
    pub(crate) lost_halves: Vec<LostHalf>,
    /// What has to be written for both copies to hold all records again.
    pub(crate) repairs: Vec<Repair>,
}

/// A record that not every copy of its half has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repair {
    pub(crate) record: JournalRecord,
    /// Its place within the half.
    pub(crate) offset: u64,
    /// The copies without it.
    pub(crate) lacking: [bool; 2],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Requires {
    pub(crate) generation: u64,
    pub(crate) seq: Sequence,
}

/// The half that epochs of this parity are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostHalf(pub(crate) u32);

/// Reads both halves, each in both copies.
pub(crate) fn read_journal(
    area: &dyn JournalArea,
    bytes: u64,
    nonce: StoreNonce,
) -> io::Result<JournalContents> {
    let all = area.read_all()?;
    let half_bytes = (bytes / JOURNAL_PARTS) as usize;
    let mut parts = all.chunks_exact(half_bytes.max(1));
    let mut next = || parts.next().unwrap_or_default();
    let (first, second) = ([next(), next()], [next(), next()]);
    let mut halves: Vec<Half> = Vec::new();
    let mut lost_halves = Vec::new();
    for number in 0..2_u32 {
        let at = number as usize;
        let copies = Copies { parts: [first[at], second[at]], number, nonce };
        halves.extend(read_half(&copies));
        if copies.lost_start() {
            lost_halves.push(LostHalf(number));
        }
    }
    halves.sort_by_key(|half| half.epoch);
    // Only consecutive epochs belong together; a gap means that the older half is a leftover.
    if halves.len() == 2 && halves[0].epoch + 1 != halves[1].epoch {
        halves.remove(0);
    }
    if let [older, newer] = &mut halves[..]
        && older.after_damage > 0
    {
        // A half begins with the greatest number so far.
        let next = newer.records.first().map(JournalRecord::sequence);
        older.lost_before = older.lost_before.max(next);
    }
    let (epoch, end) = halves.last().map_or((0, half_bytes as u64), |half| (half.epoch, half.end));
    let last = halves.last().and_then(|half| half.records.last());
    Ok(JournalContents {
        epoch,
        end,
        ends_with_mark: last.is_some_and(|record| record.op == MARK),
        requires: requirement(&halves),
        mended: halves.iter().map(|half| half.mended).sum(),
        lost_before: halves.iter().filter_map(|half| half.lost_before).max(),
        lost_halves,
        repairs: halves.iter_mut().flat_map(|half| std::mem::take(&mut half.repairs)).collect(),
        records: halves.into_iter().flat_map(|half| half.records).collect(),
    })
}

/// One half, in both copies.
struct Copies<'a> {
    parts: [&'a [u8]; 2],
    number: u32,
    nonce: StoreNonce,
}

/// What is found in one place of a half.
enum Place {
    /// Zeros in both copies.
    Empty,
    /// No record, or a part of one.
    Unreadable,
    Record {
        record: JournalRecord,
        bytes: usize,
        /// It was damaged in the first copy.
        was_mended: bool,
        /// The copies without it.
        lacking: [bool; 2],
    },
}

impl Copies<'_> {
    /// What is at an offset, of the newest life that a copy shows there; a bit is turned only for a
    /// record of `life`, if that is known. `None` behind the last cell.
    fn place(&self, at: usize, life: Option<u32>) -> Option<Place> {
        let rests = self.parts.map(|part| part.get(at..).unwrap_or_default());
        if rests.iter().all(|rest| rest.is_empty()) {
            return None;
        }
        if !rests.into_iter().any(has_bytes) {
            // Most of a journal, where to look for a bit that turned over took longer than all else
            // of an open. The checksum alone keeps records more than a bit away from zeros.
            return Some(Place::Empty);
        }
        let read = rests.map(|rest| {
            let record = JournalRecord::decode(rest, self.nonce).ok();
            record.filter(|(record, _)| record.epoch % 2 == self.number)
        });
        // The first copy is written first, so that the second has nothing that it had not.
        let was_mended = read[0].is_none() && has_bytes(rests[0]);
        let newest = read.iter().flatten().max_by_key(|(record, _)| (record.epoch, record.seq));
        if let Some((record, bytes)) = newest.cloned() {
            let lacking = read.map(|read| read.is_none_or(|(read, _)| read != record));
            return Some(Place::Record { record, bytes, was_mended, lacking });
        }
        let fits = |record: &JournalRecord| {
            record.epoch % 2 == self.number && life.is_none_or(|life| life == record.epoch)
        };
        let mended = rests.iter().find_map(|rest| {
            JournalRecord::mend(rest, self.nonce).filter(|(record, _)| fits(record))
        });
        Some(match mended {
            Some((record, bytes)) => {
                Place::Record { record, bytes, was_mended: true, lacking: [true; 2] }
            }
            None => Place::Unreadable,
        })
    }

    /// Whether the record that a half begins with was there and is lost. A death of the process
    /// while it was being written leaves one copy as it was.
    fn lost_start(&self) -> bool {
        self.parts.into_iter().all(has_bytes)
            && matches!(self.place(0, None), Some(Place::Unreadable))
    }
}

/// Whether there is something other than zeros in the first cell.
fn has_bytes(rest: &[u8]) -> bool {
    match rest.first_chunk::<JOURNAL_CELL_BYTES>() {
        Some(cell) => *cell != [0; JOURNAL_CELL_BYTES],
        None => rest.iter().any(|byte| *byte != 0),
    }
}

/// The records of a half's newest life.
#[derive(Debug)]
struct Half {
    epoch: u32,
    /// Offset behind its last record.
    end: u64,
    records: Vec<JournalRecord>,
    mended: u64,
    repairs: Vec<Repair>,
    /// Unreadable data precedes the record with this sequence number.
    lost_before: Option<Sequence>,
    /// How many more records that would be behind it may have smaller numbers than what was lost.
    after_damage: usize,
}

/// Reads the records of the half's newest life, in order, including those behind damage. Older
/// lives may have left records behind its end.
fn read_half(copies: &Copies<'_>) -> Option<Half> {
    let mut half: Option<Half> = None;
    // The cells hold data that is a record neither of this life nor of an older one.
    let mut is_damaged = false;
    let mut at = 0;
    let mut life = None;
    while let Some(place) = copies.place(at, life) {
        let Place::Record { record, bytes, was_mended, lacking } = place else {
            is_damaged |= matches!(place, Place::Unreadable);
            at += JOURNAL_CELL_BYTES;
            continue;
        };
        let offset = at as u64;
        at += bytes;
        if life.is_some_and(|life| record.epoch < life) {
            continue;
        }
        if life != Some(record.epoch) {
            half = None;
            life = Some(record.epoch);
        }
        let half = half.get_or_insert_with(|| Half {
            epoch: record.epoch,
            end: 0,
            records: Vec::new(),
            mended: 0,
            repairs: Vec::new(),
            lost_before: None,
            after_damage: 0,
        });
        if std::mem::take(&mut is_damaged) {
            half.after_damage = OUT_OF_ORDER_MAX;
        }
        if half.after_damage > 0 {
            half.after_damage -= 1;
            half.lost_before = half.lost_before.max(Some(record.sequence()));
        }
        half.mended += u64::from(was_mended);
        half.end = at as u64;
        if lacking.contains(&true) {
            half.repairs.push(Repair { record: record.clone(), offset, lacking });
        }
        half.records.push(record);
    }
    half
}

/// Overwritten records are covered by the checkpoint that the newest half names; without that
/// checkpoint, nothing older than the oldest surviving half can be trusted. Records of that kind
/// behind the first of a half say it of what is older than their number. All are taken for one,
/// which may distrust more.
fn requirement(halves: &[Half]) -> Option<Requires> {
    let generation_of = |record: &JournalRecord| match record.op {
        JournalOp::Epoch { generation } => Some(generation),
        _ => None,
    };
    let oldest = halves.first()?.records.first()?.sequence();
    let first = halves.last()?.records.first();
    let of_half = first.and_then(generation_of).map(|generation| (generation, oldest));
    let further = halves.iter().flat_map(|half| half.records.iter().skip(1));
    let further = further.filter_map(|record| Some((generation_of(record)?, record.sequence())));
    let all = of_half.into_iter().chain(further).filter(|(generation, _)| *generation > 0);
    all.map(|(generation, seq)| Requires { generation, seq }).reduce(|one, other| Requires {
        generation: one.generation.max(other.generation),
        seq: one.seq.max(other.seq),
    })
}
