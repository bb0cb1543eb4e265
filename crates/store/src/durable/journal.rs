//! The journal: deletes and purge marks that must survive a crash until a checkpoint covers them.
//!
//! The journal has two halves, used in turn; each life of a half has an epoch. All of it is on disk
//! twice, a record in the first copy before it is in the second, so that damage to one of them
//! loses nothing; [`read_journal`](super::replay::read_journal) reads both.
//!
//! Invariants: a half is overwritten only after completion of a checkpoint that began after the
//! half's last record was written, unless checkpoints fail ([`Journal::go_uncovered`]); the first
//! record of a half names the required checkpoint's generation, so that recovery knows when it may
//! not trust older segments (others say so of what the index lost: see `requirement`). The last
//! quarter of a half that cannot be overwritten yet is reserved for callers that a checkpoint waits
//! for; other callers wait for room before they take their sequence number, and again if others
//! have taken it when they write ([`Journal::append_in_room`]). Room for one record at the end of a
//! half is reserved for the mark of an open ([`Journal::mark_open`]).
//!
//! Threads: any. Appends are serialised by a mutex, held for a memory copy (at `synced`, not while
//! the device syncs: see `syncs`).

mod requirement;
mod syncs;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, Padded, lock};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use self::syncs::Syncs;
use crate::config::Durability;
use crate::device::JournalArea;
use crate::durable::replay::{JournalContents, LostHalf, MARK, OUT_OF_ORDER_MAX, Repair};
use crate::format::{JOURNAL_CELL_BYTES, JOURNAL_PARTS, JournalOp, JournalRecord, StoreNonce};
use crate::signal::Signal;
use crate::types::Sequence;

/// Poll interval while waiting for a checkpoint, so that a missed wake-up costs no more.
const TURN_NAP: Duration = Duration::from_millis(20);
/// Longest wait for a checkpoint that allows the other half to be overwritten: for several, where
/// others take the room that one made.
pub(crate) const TURN_WAIT: Duration = Duration::from_secs(10);
/// How far ahead of the records the area is made ready for writes.
const AHEAD_BYTES: u64 = 512 << 10;
/// Most deferred records: those that wait for a checkpoint in place of their callers.
const LEFT_MAX: usize = 1 << 16;
/// Most deferred records that follow one another: there may be others of old numbers among them.
const LEFT_IN_A_ROW_MAX: usize = OUT_OF_ORDER_MAX / 2;
const MARK_BYTES: u64 = JOURNAL_CELL_BYTES as u64;
/// Checkpoints take their slots in turn, by their generations.
const CHECKPOINT_SLOTS: u64 = 2;

struct State {
    epoch: u32,
    offset: u64,
    /// The checkpoint of `covered_generation` covers all records up to this epoch.
    covered_epoch: u32,
    covered_generation: u64,
    /// No checkpoint of a greater generation can be on disk: none was begun, in this life or
    /// before.
    begun_generation: u64,
    /// The epoch in which that one was begun, if in this life: it covers those before.
    begun_epoch: u32,
    /// No record has a greater number, neither in the halves nor in those that were overwritten.
    newest_seq: u64,
    /// The last record is the mark of an open.
    ends_with_mark: bool,
    /// Records that could not be written without waiting: the longest waiting first.
    left: VecDeque<(JournalOp, Sequence)>,
}

impl State {
    /// True if a checkpoint covers the other half.
    fn is_covered(&self) -> bool {
        self.epoch <= 1 || self.covered_epoch + 1 >= self.epoch
    }
}

pub(crate) struct Journal {
    area: Option<Box<dyn JournalArea>>,
    half_bytes: u64,
    nonce: StoreNonce,
    durability: Durability,
    state: Padded<Mutex<State>>,
    syncs: Syncs,
    /// Bytes written, in both copies.
    written_bytes: AtomicU64,
    /// A sync failed, and what it was for could not be written again yet.
    is_unwritten: AtomicBool,
    covered: Signal,
    /// The journal switched halves recently: a checkpoint is wanted.
    wants_checkpoint: AtomicBool,
    /// Little room is left, and no checkpoint covers the other half yet.
    tight: AtomicBool,
    /// Checkpoints fail, and are not waited for until one is complete.
    uncovered: AtomicBool,
}

impl Journal {
    pub(crate) fn new(
        area: Option<Box<dyn JournalArea>>,
        bytes: u64,
        nonce: StoreNonce,
        durability: Durability,
        contents: &JournalContents,
    ) -> Journal {
        let covered_generation = contents.requires.map_or(0, |r| r.generation);
        let state = State {
            epoch: contents.epoch,
            offset: contents.end,
            covered_epoch: contents.epoch.saturating_sub(2),
            covered_generation,
            begun_generation: covered_generation.saturating_add(1),
            begun_epoch: 0,
            newest_seq: contents.records.iter().map(|record| record.seq).max().unwrap_or(0),
            ends_with_mark: contents.ends_with_mark,
            left: VecDeque::new(),
        };
        let journal = Journal {
            area,
            half_bytes: bytes / JOURNAL_PARTS,
            nonce,
            durability,
            state: Padded(Mutex::new(state)),
            syncs: Syncs::default(),
            written_bytes: AtomicU64::new(0),
            is_unwritten: AtomicBool::new(false),
            covered: Signal::default(),
            wants_checkpoint: AtomicBool::new(contents.epoch > 1),
            tight: AtomicBool::new(false),
            uncovered: AtomicBool::new(false),
        };
        // The life before may have filled the half to its end.
        journal.note_room(&lock(&journal.state));
        journal
    }

    /// Writes one record, which is as durable as configured when this returns.
    pub(crate) fn append(&self, op: JournalOp, seq: Sequence) -> io::Result<()> {
        self.append_unsynced(op, seq)?;
        self.sync_records()
    }

    /// As `append`, for callers that may wait, and began to at `begun`: writes nothing, and returns
    /// false, if others have taken the room since it was waited for. An error if they still have
    /// when it was waited for long enough: else who comes too late each time would wait for ever. A
    /// record that begins in front of the last quarter may end in it, but no second one.
    pub(crate) fn append_in_room(
        &self,
        op: &JournalOp,
        seq: Sequence,
        begun: Instant,
    ) -> io::Result<bool> {
        let state = lock(&self.state);
        if !self.has_room() {
            return if is_too_long(begun) { Err(full()) } else { Ok(false) };
        }
        self.append_locked(state, op.clone(), seq)?;
        self.sync_records()?;
        Ok(true)
    }

    fn append_unsynced(&self, op: JournalOp, seq: Sequence) -> io::Result<()> {
        self.append_locked(lock(&self.state), op, seq)
    }

    fn append_locked<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        op: JournalOp,
        seq: Sequence,
    ) -> io::Result<()> {
        let Some(area) = &self.area else { return Ok(()) };
        if self.durability == Durability::None {
            return Ok(());
        }
        let mut record = JournalRecord { op, epoch: state.epoch, seq: seq.get() };
        let bytes = record.encoded_len() as u64;
        if self.lacks(&state, bytes) {
            state = self.turn(state, area.as_ref(), seq, bytes)?;
            record.epoch = state.epoch;
        }
        self.write(&mut state, area.as_ref(), &record)?;
        state.ends_with_mark = false;
        Ok(())
    }

    /// Makes records as durable as configured.
    fn sync_records(&self) -> io::Result<()> {
        if self.durability == Durability::Synced { self.sync() } else { Ok(()) }
    }

    /// Whether the half has no room for this much, and for the mark of an open behind it.
    fn lacks(&self, state: &State, bytes: u64) -> bool {
        state.offset + bytes + MARK_BYTES > self.half_bytes
    }

    /// Writes a record after the last one, to one copy after the other.
    fn write(
        &self,
        state: &mut State,
        area: &dyn JournalArea,
        record: &JournalRecord,
    ) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(record.encoded_len());
        record.encode_into(self.nonce, &mut bytes).map_err(io::Error::other)?;
        for half in self.half_starts(state.epoch) {
            self.put(area, half + state.offset, &bytes)?;
        }
        state.offset += bytes.len() as u64;
        state.newest_seq = state.newest_seq.max(record.seq);
        self.note_room(state);
        Ok(())
    }

    /// Writes to the area, and counts it.
    fn put(&self, area: &dyn JournalArea, at: u64, bytes: &[u8]) -> io::Result<()> {
        area.write(at, bytes)?;
        // Only statistics read it.
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes written since the open, in both copies.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Makes ready for writes, in each copy, where the next record will be and where others will be
    /// soon: who appends does so under a lock, and must not wait for the disk. May do so itself.
    pub(crate) fn prepare(&self) {
        let Some(area) = self.area.as_ref().filter(|_| self.durability != Durability::None) else {
            return;
        };
        let (epoch, offset) = {
            let state = lock(&self.state);
            (state.epoch, state.offset)
        };
        let ahead = offset + AHEAD_BYTES;
        // Behind the end of a half comes the start of the other.
        let ahead = if ahead < self.half_bytes { (epoch, ahead) } else { (epoch + 1, 0) };
        for (epoch, offset) in [(epoch, offset), ahead] {
            self.half_starts(epoch).into_iter().for_each(|half| area.prepare(half + offset));
        }
    }

    /// Writes what one copy has lost to it again, durably: else the next damage, to the other copy,
    /// would be the end of it.
    pub(crate) fn repair(&self, repairs: &[Repair]) -> io::Result<()> {
        let Some(area) = self.area.as_ref().filter(|_| !repairs.is_empty()) else { return Ok(()) };
        for Repair { record, offset, lacking } in repairs {
            let mut bytes = Vec::with_capacity(record.encoded_len());
            record.encode_into(self.nonce, &mut bytes).map_err(io::Error::other)?;
            let halves = self.half_starts(record.epoch).into_iter().zip(lacking);
            for (half, _) in halves.filter(|(_, lacks)| **lacks) {
                self.put(area.as_ref(), half + offset, &bytes)?;
            }
        }
        self.sync()
    }

    /// As `append`, for callers that must not wait because a checkpoint waits for them or for their
    /// work, nor for a sync: they may be I/O threads, and have hundreds of records. If there is no
    /// room, the record is deferred until there is; a crash before that, or a loss of power before
    /// the next sync, loses it.
    pub(crate) fn append_soon(&self, op: JournalOp, seq: Sequence) -> io::Result<()> {
        if self.has_room() {
            return self.append_unsynced(op, seq);
        }
        let mut state = lock(&self.state);
        if state.left.len() >= LEFT_MAX {
            return Err(io::Error::other("journal full, and too much waits for it"));
        }
        state.left.push_back((op, seq));
        Ok(())
    }

    /// As `append_soon`, for records of old numbers, of which there may be many in a row.
    pub(crate) fn append_late(&self, records: &[(JournalOp, Sequence)]) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.left.len() + records.len() > LEFT_MAX {
            return Err(io::Error::other("journal full, and too much waits for it"));
        }
        state.left.extend(records.iter().cloned());
        drop(state);
        self.append_left()
    }

    /// Writes the records that `append_soon` deferred, as far as there is room, and makes all of
    /// them durable at once. Called when a checkpoint is complete, or is not waited for any more.
    /// What cannot be written is deferred again, and the others are written; the last error is
    /// returned.
    pub(crate) fn append_left(&self) -> io::Result<()> {
        let (mut some, mut in_a_row, mut outcome) = (false, 0, Ok(()));
        // Each once. Those not tried yet stay where they count against the limit.
        let waiting = lock(&self.state).left.len();
        for _ in 0..waiting {
            if !self.has_room() {
                break;
            }
            let first = lock(&self.state).left.pop_front();
            let Some((op, seq)) = first else { break };
            match self.append_unsynced(op.clone(), seq) {
                Ok(()) => (some, in_a_row) = (true, in_a_row + 1),
                Err(error) => {
                    outcome = Err(error);
                    lock(&self.state).left.push_back((op, seq));
                }
            }
            if in_a_row == LEFT_IN_A_ROW_MAX {
                in_a_row = 0;
                outcome = self.append_newest().and(outcome);
            }
        }
        if in_a_row > 0 {
            outcome = self.append_newest().and(outcome);
        }
        // What was written is not written again where this fails: it would be with each checkpoint
        // that fails, and so turn the journal round and round.
        if some { self.sync_records().and(outcome) } else { outcome }
    }

    /// Says the greatest number again behind records of old ones. If damage takes the record that
    /// had it, the reader learns from those behind it what that one may have deleted.
    fn append_newest(&self) -> io::Result<()> {
        let Some(area) = self.area.as_ref().filter(|_| self.durability != Durability::None) else {
            return Ok(());
        };
        let mut state = lock(&self.state);
        if self.lacks(&state, MARK_BYTES) {
            // The other half will begin with that number.
            return Ok(());
        }
        let record = JournalRecord { op: MARK, epoch: state.epoch, seq: state.newest_seq };
        self.write(&mut state, area.as_ref(), &record)
    }

    /// Ensures that sequence numbers after the next open are greater than those of this one, even
    /// if nothing else of this life reaches journal or checkpoint. `seq` is a number given in this
    /// life. If halves were lost, the record deletes what is older, which the next open must not
    /// trust either, and what was found to be lost is cleared. The record is on disk when this
    /// returns, whatever the configured durability. Never waits: no thread writes checkpoints
    /// during an open.
    pub(crate) fn mark_open(&self, seq: Sequence, lost: &[LostHalf]) -> io::Result<()> {
        let Some(area) = &self.area else { return Ok(()) };
        let mut state = lock(&self.state);
        let end = state.offset;
        if state.ends_with_mark {
            // After several opens in a row, only the last mark is kept.
            state.offset -= MARK_BYTES;
        } else if state.offset + MARK_BYTES > self.half_bytes {
            if !self.may_turn(&state) {
                return Err(full());
            }
            state = self.turn(state, area.as_ref(), seq, MARK_BYTES)?;
        }
        let op = if !lost.is_empty() { JournalOp::PurgeAll } else { MARK };
        let record = JournalRecord { op, epoch: state.epoch, seq: seq.get() };
        if let Err(error) = self.write(&mut state, area.as_ref(), &record) {
            // The mark of the open before may be whole in one copy only, which nothing may
            // overwrite.
            if state.ends_with_mark {
                state.offset = end;
            }
            return Err(error);
        }
        state.ends_with_mark = lost.is_empty();
        drop(state);
        self.sync()?;
        if lost.is_empty() {
            return Ok(());
        }
        for half in lost.iter().flat_map(|half| self.half_starts(half.0)) {
            self.put(area.as_ref(), half, &[0; JOURNAL_CELL_BYTES])?;
        }
        self.sync()
    }

    /// Stops waiting for checkpoints until one is complete, because the volume that holds them is
    /// out of service, or they keep failing. Halves are overwritten all the same, and then require
    /// a checkpoint that does not exist: an open before there is one forgets every object older
    /// than the journal, which it might otherwise serve although it was deleted. What waited for
    /// room is written.
    pub(crate) fn go_uncovered(&self) -> io::Result<()> {
        let state = lock(&self.state);
        self.uncovered.store(true, Ordering::Relaxed);
        self.note_room(&state);
        drop(state);
        self.covered.notify_all();
        self.append_left()
    }

    /// Waits for room, as long as is left of a wait that began at `begun`. For callers that may
    /// wait: those outside the gate that have not taken a sequence number yet, or have left the
    /// room to others.
    pub(crate) fn wait_room(&self, begun: Instant) -> io::Result<()> {
        if self.has_room() {
            return Ok(());
        }
        let mut state = lock(&self.state);
        while !self.has_room() {
            if is_too_long(begun) {
                return Err(full());
            }
            state = self.covered.wait_for(state, TURN_NAP).0;
        }
        Ok(())
    }

    /// False while an append might have to wait for a checkpoint. Checked by callers that must not
    /// wait because a checkpoint waits for them.
    pub(crate) fn has_room(&self) -> bool {
        let room = !self.tight.load(Ordering::Relaxed);
        if !room {
            self.wants_checkpoint.store(true, Ordering::Relaxed);
        }
        room
    }

    /// True if the other half may be overwritten.
    fn may_turn(&self, state: &State) -> bool {
        state.is_covered() || self.uncovered.load(Ordering::Relaxed)
    }

    fn note_room(&self, state: &State) {
        let tight = !self.may_turn(state) && state.offset > self.half_bytes / 4 * 3;
        self.tight.store(tight, Ordering::Relaxed);
    }

    /// Where the half of this epoch begins, in each copy.
    fn half_starts(&self, epoch: u32) -> [u64; 2] {
        [0, 2].map(|before| (before + u64::from(epoch % 2)) * self.half_bytes)
    }

    /// Switches to the other half, once a checkpoint covers its records, unless another thread has
    /// done so and there is room for `bytes`.
    fn turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        area: &dyn JournalArea,
        seq: Sequence,
        bytes: u64,
    ) -> io::Result<MutexGuard<'a, State>> {
        let begun = Instant::now();
        while self.lacks(&state, bytes) && !self.may_turn(&state) {
            if is_too_long(begun) {
                return Err(full());
            }
            self.wants_checkpoint.store(true, Ordering::Relaxed);
            state = self.covered.wait_for(state, TURN_NAP).0;
        }
        if self.lacks(&state, bytes) {
            if !state.is_covered() {
                // The newest may be complete on disk although its writer saw an error. It covers
                // what is overwritten if it was begun since the last turn, and may still be under
                // way.
                let beyond = u64::from(state.begun_epoch < state.epoch);
                state.covered_generation = state.begun_generation.saturating_add(beyond);
            }
            let before = (state.epoch, state.offset);
            (state.epoch, state.offset) = (state.epoch + 1, 0);
            let first = JournalOp::Epoch { generation: state.covered_generation };
            // Where that checkpoint is missing, all older than this number is forgotten: all that
            // the overwritten may have deleted, though what turns the journal may have waited for
            // long.
            let newest = state.newest_seq.max(seq.get());
            let first = JournalRecord { op: first, epoch: state.epoch, seq: newest };
            if let Err(error) = self.write(&mut state, area, &first) {
                // A half without its first record would ask for no checkpoint.
                (state.epoch, state.offset) = before;
                return Err(error);
            }
            state.ends_with_mark = false;
            self.wants_checkpoint.store(true, Ordering::Relaxed);
        }
        Ok(state)
    }

    /// Requests a checkpoint soon.
    pub(crate) fn want_checkpoint(&self) {
        self.wants_checkpoint.store(true, Ordering::Relaxed);
    }

    /// True once after each request, such as a switch of halves: the caller should write a
    /// checkpoint soon.
    pub(crate) fn take_wants_checkpoint(&self) -> bool {
        self.wants_checkpoint.swap(false, Ordering::Relaxed)
    }

    /// The current epoch: a checkpoint begun now will cover all earlier ones.
    pub(crate) fn checkpoint_begins(&self) -> u32 {
        lock(&self.state).epoch
    }

    /// The generation of a checkpoint that was begun at `epoch`: not in the slot of the newest
    /// complete one, and greater than that of each that was begun before. So it is no smaller than
    /// what a half asks for that was begun without a checkpoint, and no two are taken for each
    /// other.
    pub(crate) fn generation_after(&self, newest: u64, epoch: u32) -> u64 {
        let mut state = lock(&self.state);
        let next = newest.saturating_add(1);
        let ahead = state.begun_generation.saturating_add(1).saturating_sub(next);
        let generation =
            next.saturating_add(ahead.div_ceil(CHECKPOINT_SLOTS).saturating_mul(CHECKPOINT_SLOTS));
        (state.begun_generation, state.begun_epoch) = (generation, epoch);
        generation
    }

    /// An open found the checkpoint of this generation. A next one may have been begun, too.
    pub(crate) fn found_checkpoint(&self, generation: u64) {
        let mut state = lock(&self.state);
        state.begun_generation = state.begun_generation.max(generation.saturating_add(1));
    }

    /// An open found that the checkpoint of this generation covers all records: none is wanted for
    /// them.
    pub(crate) fn found_covered(&self, epoch: u32, generation: u64) {
        self.checkpoint_done(epoch, generation);
        self.wants_checkpoint.store(false, Ordering::Relaxed);
    }

    /// A checkpoint begun at `epoch` is complete and durable.
    pub(crate) fn checkpoint_done(&self, epoch: u32, generation: u64) {
        let mut state = lock(&self.state);
        state.covered_epoch = state.covered_epoch.max(epoch.saturating_sub(1));
        state.covered_generation = state.covered_generation.max(generation);
        self.uncovered.store(false, Ordering::Relaxed);
        self.note_room(&state);
        drop(state);
        self.covered.notify_all();
    }

    /// Makes all records so far survive a loss of power. After a failure the system takes what it
    /// could not write for written, so it is written again, at once, while the pages are there.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Some(area) = &self.area else { return Ok(()) };
        self.syncs.sync(|| {
            if self.is_unwritten.load(Ordering::Relaxed) {
                self.write_again(area.as_ref())?;
            }
            let outcome = area.sync();
            if outcome.is_err() {
                self.is_unwritten.store(true, Ordering::Relaxed);
                // If this fails, it is tried before the next sync.
                let _ = self.write_again(area.as_ref());
            }
            outcome
        })
    }

    /// Writes to the whole area what it holds.
    fn write_again(&self, area: &dyn JournalArea) -> io::Result<()> {
        // Keeps out what would be overwritten by what was there before.
        let _state = lock(&self.state);
        self.put(area, 0, &area.read_all()?)?;
        self.is_unwritten.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether who began to wait then has waited for as long as a checkpoint may take.
fn is_too_long(begun: Instant) -> bool {
    begun.elapsed() >= TURN_WAIT
}

fn full() -> io::Error {
    io::Error::other("journal full: no checkpoint could be written")
}

#[cfg(test)]
mod tests;
