//! The journal: deletes and purge marks that must survive a crash until a checkpoint covers them.
//!
//! Two halves, used in turn; each life of a half has an epoch. A half is overwritten only after a
//! checkpoint that was begun after its last record is complete, and its first record names that
//! checkpoint's generation, so that recovery knows when it may not trust older segments.
//! Threads: any; appends are serialised by a mutex, held for a memory copy (and, at `synced`, not
//! while the device syncs).

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::io;
use std::time::{Duration, Instant};

use crate::config::Durability;
use crate::device::JournalArea;
use crate::format::{JOURNAL_CELL_BYTES, JournalOp, JournalRecord, StoreNonce};
use crate::memory::pool::lock;
use crate::signal::Signal;

/// Records that may lie before one with a smaller number: more than operate at once.
const OUT_OF_ORDER_MAX: usize = 1024;
/// Longest wait for a checkpoint to free the other half.
const TURN_WAIT: Duration = Duration::from_secs(10);

struct State {
    epoch: u32,
    offset: u64,
    /// Everything up to this epoch is covered by the checkpoint of that generation.
    covered_epoch: u32,
    covered_generation: u64,
}

pub(crate) struct Journal {
    area: Option<Box<dyn JournalArea>>,
    half_bytes: u64,
    nonce: StoreNonce,
    durability: Durability,
    state: Mutex<State>,
    covered: Signal,
    /// The current half took over recently: a checkpoint is wanted.
    wants_checkpoint: AtomicBool,
    /// Little room is left and the other half is not covered by a checkpoint yet.
    tight: AtomicBool,
}

/// What a crashed store's journal says.
pub(crate) struct JournalContents {
    pub(crate) records: Vec<JournalRecord>,
    /// Newest epoch seen.
    pub(crate) epoch: u32,
    /// Where the newest half ends.
    pub(crate) end: u64,
    /// Objects older than `seq` may be trusted only with a checkpoint of at least `generation`.
    pub(crate) requires: Option<Requires>,
    /// Records of which a bit had turned over.
    pub(crate) mended: u64,
    /// Records before the one with this number cannot be read: anything older may have been deleted by them.
    pub(crate) lost_before: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Requires {
    pub(crate) generation: u64,
    pub(crate) seq: u64,
}

impl Journal {
    pub(crate) fn new(
        area: Option<Box<dyn JournalArea>>,
        bytes: u64,
        nonce: StoreNonce,
        durability: Durability,
        contents: &JournalContents,
    ) -> Journal {
        let state = State {
            epoch: contents.epoch,
            offset: contents.end,
            covered_epoch: contents.epoch.saturating_sub(2),
            covered_generation: contents.requires.map_or(0, |r| r.generation),
        };
        Journal {
            area,
            half_bytes: bytes / 2,
            nonce,
            durability,
            state: Mutex::new(state),
            covered: Signal::default(),
            wants_checkpoint: AtomicBool::new(contents.epoch > 1),
            tight: AtomicBool::new(false),
        }
    }

    /// Writes one record. When it returns the record is as durable as configured.
    pub(crate) fn append(&self, op: JournalOp, seq: u64) -> io::Result<()> {
        let Some(area) = &self.area else { return Ok(()) };
        if self.durability == Durability::None {
            return Ok(());
        }
        let mut state = lock(&self.state);
        let mut bytes = Vec::with_capacity(32);
        let record = JournalRecord { op, epoch: state.epoch, seq };
        encode(&record, self.nonce, &mut bytes)?;
        if state.offset + bytes.len() as u64 > self.half_bytes {
            state = self.turn(state, area.as_ref(), seq)?;
            bytes.clear();
            encode(&JournalRecord { epoch: state.epoch, ..record }, self.nonce, &mut bytes)?;
        }
        area.write(self.half_start(state.epoch) + state.offset, &bytes)?;
        state.offset += bytes.len() as u64;
        self.note_room(&state);
        drop(state);
        if self.durability == Durability::Synced {
            area.sync()?;
        }
        Ok(())
    }

    /// False while an append might have to wait for a checkpoint. For those who must not, since a
    /// checkpoint waits for them.
    pub(crate) fn has_room(&self) -> bool {
        let room = !self.tight.load(Ordering::Relaxed);
        if !room {
            self.wants_checkpoint.store(true, Ordering::Relaxed);
        }
        room
    }

    fn note_room(&self, state: &State) {
        let may_turn = state.epoch <= 1 || state.covered_epoch + 1 >= state.epoch;
        let tight = !may_turn && state.offset > self.half_bytes / 4 * 3;
        self.tight.store(tight, Ordering::Relaxed);
    }

    fn half_start(&self, epoch: u32) -> u64 {
        u64::from(epoch % 2) * self.half_bytes
    }

    /// Goes over to the other half, once a checkpoint covers what is there.
    fn turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        area: &dyn JournalArea,
        seq: u64,
    ) -> io::Result<MutexGuard<'a, State>> {
        let begun = Instant::now();
        let full = |state: &State| state.offset > self.half_bytes / 2;
        while full(&state) && state.epoch > 1 && state.covered_epoch + 1 < state.epoch {
            if begun.elapsed() >= TURN_WAIT {
                return Err(io::Error::other("journal full: no checkpoint could be written"));
            }
            self.wants_checkpoint.store(true, Ordering::Relaxed);
            state = self.covered.wait_for(state, Duration::from_millis(20)).0;
        }
        if full(&state) || state.epoch == 0 {
            state.epoch += 1;
            state.offset = 0;
            let first = JournalRecord {
                op: JournalOp::Epoch { generation: state.covered_generation },
                epoch: state.epoch,
                seq,
            };
            let mut bytes = Vec::with_capacity(32);
            encode(&first, self.nonce, &mut bytes)?;
            area.write(self.half_start(state.epoch), &bytes)?;
            state.offset = bytes.len() as u64;
            self.wants_checkpoint.store(true, Ordering::Relaxed);
        }
        Ok(state)
    }

    /// True once after each turn: the caller should write a checkpoint soon.
    pub(crate) fn take_wants_checkpoint(&self) -> bool {
        self.wants_checkpoint.swap(false, Ordering::Relaxed)
    }

    /// Epoch that a checkpoint begun now will cover all earlier ones of.
    pub(crate) fn checkpoint_begins(&self) -> u32 {
        lock(&self.state).epoch
    }

    /// A checkpoint begun at `epoch` is complete and durable.
    pub(crate) fn checkpoint_done(&self, epoch: u32, generation: u64) {
        let mut state = lock(&self.state);
        state.covered_epoch = state.covered_epoch.max(epoch.saturating_sub(1));
        state.covered_generation = state.covered_generation.max(generation);
        self.note_room(&state);
        drop(state);
        self.covered.notify_all();
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.area.as_ref().map_or(Ok(()), |area| area.sync())
    }
}

fn encode(record: &JournalRecord, nonce: StoreNonce, out: &mut Vec<u8>) -> io::Result<()> {
    record.encode_into(nonce, out).map_err(io::Error::other)
}

/// What a half holds of its life.
struct Half {
    epoch: u32,
    /// Behind its last record.
    end: u64,
    records: Vec<JournalRecord>,
    mended: u64,
    /// Something was here before a record with this number and cannot be read.
    lost_before: Option<u64>,
}

impl Half {
    fn of(epoch: u32) -> Half {
        Half { epoch, end: 0, records: Vec::new(), mended: 0, lost_before: None }
    }
}

/// Reads what an earlier life left. Damage never invents a record: a bit that has turned over is put right,
/// and of what cannot be read it is known before which record it was.
pub(crate) fn read_journal(
    area: &dyn JournalArea,
    bytes: u64,
    nonce: StoreNonce,
) -> io::Result<JournalContents> {
    let all = area.read_all()?;
    let half = (bytes / 2) as usize;
    let mut halves: Vec<Half> = Vec::new();
    for number in 0..2_u32 {
        let start = number as usize * half;
        let Some(slice) = all.get(start..start + half) else { continue };
        halves.extend(read_half(slice, number, nonce));
    }
    halves.sort_by_key(|half| half.epoch);
    // Only consecutive epochs belong together; a gap means that the older half is a leftover.
    if halves.len() == 2 && halves[0].epoch + 1 != halves[1].epoch {
        halves.remove(0);
    }
    let (epoch, end) = halves.last().map_or((0, half as u64), |half| (half.epoch, half.end));
    Ok(JournalContents {
        epoch,
        end,
        requires: requirement(&halves),
        mended: halves.iter().map(|half| half.mended).sum(),
        lost_before: halves.iter().filter_map(|half| half.lost_before).max(),
        records: halves.into_iter().flat_map(|half| half.records).collect(),
    })
}

/// Records of the half's newest life, in order, those behind damage too. Older ones leave records behind
/// its end.
fn read_half(bytes: &[u8], number: u32, nonce: StoreNonce) -> Option<Half> {
    let mut half: Option<Half> = None;
    // Something was written here, and is neither of this life nor of an older one.
    let (mut is_damaged, mut after_damage) = (false, 0);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let cell = &rest[..JOURNAL_CELL_BYTES.min(rest.len())];
        if cell.iter().all(|byte| *byte == 0) {
            at += JOURNAL_CELL_BYTES;
            continue;
        }
        let read = JournalRecord::decode(rest, nonce).ok();
        let was_mended = read.is_none();
        let life = half.as_ref().map(|half| half.epoch);
        let fits = |record: &JournalRecord| life.is_none_or(|life| life == record.epoch);
        let mended = || JournalRecord::mend(rest, nonce).filter(|(record, _)| fits(record));
        let Some((record, length)) = read.or_else(mended) else {
            is_damaged = true;
            at += JOURNAL_CELL_BYTES;
            continue;
        };
        at += length;
        if record.epoch % 2 != number || life.is_some_and(|life| record.epoch < life) {
            continue;
        }
        if life != Some(record.epoch) {
            half = None;
        }
        let half = half.get_or_insert_with(|| Half::of(record.epoch));
        if std::mem::take(&mut is_damaged) {
            after_damage = OUT_OF_ORDER_MAX;
        }
        if after_damage > 0 {
            after_damage -= 1;
            half.lost_before = half.lost_before.max(Some(record.seq));
        }
        half.mended += u64::from(was_mended);
        half.end = at as u64;
        half.records.push(record);
    }
    half
}

/// What was overwritten is covered by the newest half's checkpoint; with it missing, nothing older
/// than the oldest half that survives can be trusted.
fn requirement(halves: &[Half]) -> Option<Requires> {
    let generation_of = |records: &[JournalRecord]| match records.first()?.op {
        JournalOp::Epoch { generation } => Some(generation),
        _ => None,
    };
    let generation = generation_of(&halves.last()?.records)?;
    let seq = halves.first()?.records.first()?.seq;
    (generation > 0).then_some(Requires { generation, seq })
}
