//! The journal: deletes and purge marks that must survive a crash until a checkpoint covers them.
//!
//! The journal has two halves, used in turn; each life of a half has an epoch. Invariants: a half
//! is overwritten only after completion of a checkpoint that began after the half's last record was
//! written, unless the volume with the checkpoints is out of service ([`Journal::go_uncovered`]);
//! the first record of a half names the required checkpoint's generation, so that recovery knows
//! when it may not trust older segments. The last quarter of a half that cannot be overwritten yet
//! is reserved for callers that a checkpoint waits for; other callers wait for room before they
//! take their sequence number. Room for one record at the end of a half is reserved for the mark of
//! an open ([`Journal::mark_open`]).
//!
//! Threads: any. Appends are serialised by a mutex, held for a memory copy (at `synced`, not while
//! the device syncs).

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, Padded, lock};
use std::io;
use std::time::{Duration, Instant};

use crate::config::Durability;
use crate::device::JournalArea;
use crate::format::{JOURNAL_CELL_BYTES, JournalOp, JournalRecord, StoreNonce};
use crate::signal::Signal;
use crate::types::Sequence;

/// How many records may precede a record with a smaller sequence number; more than the number of
/// concurrent operations.
const OUT_OF_ORDER_MAX: usize = 1024;
/// Poll interval while waiting for a checkpoint, so that a missed wake-up costs no more.
const TURN_NAP: Duration = Duration::from_millis(20);
/// Longest wait for a checkpoint that allows the other half to be overwritten.
const TURN_WAIT: Duration = Duration::from_secs(10);
/// Most deferred records: those that wait for a checkpoint in place of their callers.
const LEFT_MAX: usize = 1 << 16;
/// The mark of an open: the delete of a hash that no key has, since hashes begin at 1.
pub(crate) const MARK: JournalOp = JournalOp::DeleteKey { hash: 0 };
const MARK_BYTES: u64 = JOURNAL_CELL_BYTES as u64;
/// What a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;

struct State {
    epoch: u32,
    offset: u64,
    /// The checkpoint of `covered_generation` covers all records up to this epoch.
    covered_epoch: u32,
    covered_generation: u64,
    /// The last record is the mark of an open.
    ends_with_mark: bool,
    /// Records that could not be written without waiting, in order.
    left: Vec<(JournalOp, Sequence)>,
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
    covered: Signal,
    /// The journal switched halves recently: a checkpoint is wanted.
    wants_checkpoint: AtomicBool,
    /// Little room is left, and no checkpoint covers the other half yet.
    tight: AtomicBool,
    /// No more checkpoints will be written while this store is open.
    uncovered: AtomicBool,
}

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
    /// Records in which one flipped bit was corrected.
    pub(crate) mended: u64,
    /// Records before the one with this sequence number are unreadable: they may have deleted any
    /// older object.
    pub(crate) lost_before: Option<Sequence>,
    /// The last records may be unreadable: they may have deleted anything.
    pub(crate) lost_end: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Requires {
    pub(crate) generation: u64,
    pub(crate) seq: Sequence,
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
            ends_with_mark: contents.ends_with_mark,
            left: Vec::new(),
        };
        Journal {
            area,
            half_bytes: bytes / 2,
            nonce,
            durability,
            state: Padded(Mutex::new(state)),
            covered: Signal::default(),
            wants_checkpoint: AtomicBool::new(contents.epoch > 1),
            tight: AtomicBool::new(false),
            uncovered: AtomicBool::new(false),
        }
    }

    /// Writes one record, which is as durable as configured when this returns.
    pub(crate) fn append(&self, op: JournalOp, seq: Sequence) -> io::Result<()> {
        let Some(area) = &self.area else { return Ok(()) };
        if self.durability == Durability::None {
            return Ok(());
        }
        let mut state = lock(&self.state);
        let mut record = JournalRecord { op, epoch: state.epoch, seq: seq.get() };
        if state.offset + record.encoded_len() as u64 + MARK_BYTES > self.half_bytes {
            state = self.turn(state, area.as_ref(), seq)?;
            record.epoch = state.epoch;
        }
        self.write(&mut state, area.as_ref(), &record)?;
        state.ends_with_mark = false;
        drop(state);
        if self.durability == Durability::Synced {
            area.sync()?;
        }
        Ok(())
    }

    /// Writes a record after the last one.
    fn write(
        &self,
        state: &mut State,
        area: &dyn JournalArea,
        record: &JournalRecord,
    ) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(record.encoded_len());
        record.encode_into(self.nonce, &mut bytes).map_err(io::Error::other)?;
        area.write(self.half_start(state.epoch) + state.offset, &bytes)?;
        state.offset += bytes.len() as u64;
        self.note_room(state);
        Ok(())
    }

    /// As `append`, for callers that must not wait because a checkpoint waits for them or for their
    /// work. If there is no room, the record is deferred until there is; a crash before that loses
    /// it.
    pub(crate) fn append_soon(&self, op: JournalOp, seq: Sequence) -> io::Result<()> {
        if self.has_room() {
            return self.append(op, seq);
        }
        let mut state = lock(&self.state);
        if state.left.len() >= LEFT_MAX {
            return Err(io::Error::other("journal full, and too much waits for it"));
        }
        state.left.push((op, seq));
        Ok(())
    }

    /// Writes the records that `append_soon` deferred. Called when a checkpoint is complete.
    pub(crate) fn append_left(&self) -> io::Result<()> {
        let left = std::mem::take(&mut lock(&self.state).left);
        left.into_iter().try_for_each(|(op, seq)| self.append_soon(op, seq))
    }

    /// Ensures that sequence numbers after the next open are greater than those of this one, even
    /// if nothing else of this life reaches journal or checkpoint. `seq` is a number given in this
    /// life. If the end of the journal was lost, the record deletes what is older: it lies where the
    /// lost records lay, and the next open must not trust what they may have deleted either. The
    /// record is on disk when this returns, whatever the configured durability. Never waits: no
    /// thread writes checkpoints during an open.
    pub(crate) fn mark_open(&self, seq: Sequence, lost_end: bool) -> io::Result<()> {
        let Some(area) = &self.area else { return Ok(()) };
        let mut state = lock(&self.state);
        if state.ends_with_mark {
            // After several opens in a row, only the last mark is kept.
            state.offset -= MARK_BYTES;
        } else if state.offset + MARK_BYTES > self.half_bytes {
            if !self.may_turn(&state) {
                return Err(full());
            }
            state = self.turn(state, area.as_ref(), seq)?;
        }
        let op = if lost_end { JournalOp::PurgeAll } else { MARK };
        let record = JournalRecord { op, epoch: state.epoch, seq: seq.get() };
        self.write(&mut state, area.as_ref(), &record)?;
        state.ends_with_mark = !lost_end;
        drop(state);
        area.sync()
    }

    /// Stops waiting for checkpoints, because the volume that holds them is out of service. Halves
    /// are overwritten all the same, and then require a checkpoint that does not exist: the next
    /// open forgets every object older than the journal, which it might otherwise serve although it
    /// was deleted.
    pub(crate) fn go_uncovered(&self) {
        let state = lock(&self.state);
        self.uncovered.store(true, Ordering::Relaxed);
        self.note_room(&state);
        drop(state);
        self.covered.notify_all();
    }

    /// Waits for room. For callers that may wait: those outside the gate that have not taken a
    /// sequence number yet.
    pub(crate) fn wait_room(&self) -> io::Result<()> {
        if self.has_room() {
            return Ok(());
        }
        let begun = Instant::now();
        let mut state = lock(&self.state);
        while !self.has_room() {
            if begun.elapsed() >= TURN_WAIT {
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

    fn half_start(&self, epoch: u32) -> u64 {
        u64::from(epoch % 2) * self.half_bytes
    }

    /// Switches to the other half, once a checkpoint covers its records.
    fn turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        area: &dyn JournalArea,
        seq: Sequence,
    ) -> io::Result<MutexGuard<'a, State>> {
        let begun = Instant::now();
        let is_full = |state: &State| state.offset > self.half_bytes / 2;
        while is_full(&state) && !self.may_turn(&state) {
            if begun.elapsed() >= TURN_WAIT {
                return Err(full());
            }
            self.wants_checkpoint.store(true, Ordering::Relaxed);
            state = self.covered.wait_for(state, TURN_NAP).0;
        }
        if is_full(&state) || state.epoch == 0 {
            if !state.is_covered() {
                // The next generation may be complete on disk although its writer saw an error.
                state.covered_generation += 2;
            }
            state.epoch += 1;
            state.offset = 0;
            let first = JournalOp::Epoch { generation: state.covered_generation };
            let first = JournalRecord { op: first, epoch: state.epoch, seq: seq.get() };
            self.write(&mut state, area, &first)?;
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

fn full() -> io::Error {
    io::Error::other("journal full: no checkpoint could be written")
}

/// The records of a half's newest life.
struct Half {
    epoch: u32,
    /// Offset behind its last record.
    end: u64,
    records: Vec<JournalRecord>,
    mended: u64,
    /// Unreadable data precedes the record with this sequence number.
    lost_before: Option<Sequence>,
    /// What follows the last record was one.
    lost_end: bool,
    /// The number in its first cell, where that is damaged: perhaps a later life's.
    damaged_start: Option<u64>,
}

impl Half {
    fn of(epoch: u32) -> Half {
        Half {
            epoch,
            end: 0,
            records: Vec::new(),
            mended: 0,
            lost_before: None,
            lost_end: false,
            damaged_start: None,
        }
    }

    fn last_seq(&self) -> Option<u64> {
        self.records.last().map(|record| record.seq)
    }

    /// Whether the cell behind the last record was one of this life that was acknowledged.
    ///
    /// One that was being written is not lost: a loss of power tears a record across sectors; a kill
    /// tears it anywhere, and the number at its end then lacks its high bytes, or it was the mark of
    /// an open, after which numbers leap. Behind the end there may also lie what an older life of
    /// the half left. Its first life has zeros there, which are written when the store is made.
    fn loses_end(&self, bytes: &[u8], nonce: StoreNonce) -> bool {
        let start = self.end as usize;
        let Some(rest) = bytes.get(start..).filter(|rest| rest.len() >= JOURNAL_CELL_BYTES) else {
            return false;
        };
        let is_zero = rest[..JOURNAL_CELL_BYTES].iter().all(|byte| *byte == 0);
        if is_zero || JournalRecord::decode(rest, nonce).is_ok() {
            return false;
        }
        if let Some(length) = JournalRecord::claimed_len(rest, nonce) {
            return start / SECTOR_BYTES == (start + length - 1) / SECTOR_BYTES;
        }
        let is_torn = JournalRecord::claimed_seq(rest) < self.last_seq()
            || JournalRecord::names_nothing(rest);
        !is_torn && (JournalRecord::is_like(rest, nonce) || self.epoch <= 2)
    }
}

/// Reads the journal that an earlier life left. Damage never produces a record: a single flipped
/// bit is corrected, and for unreadable data the position among the records is reported.
pub(crate) fn read_journal(
    area: &dyn JournalArea,
    bytes: u64,
    nonce: StoreNonce,
) -> io::Result<JournalContents> {
    let all = area.read_all()?;
    let half = (bytes / 2) as usize;
    let mut halves: Vec<Half> = Vec::new();
    // The newest half may be the one of which no record is left, or none of its newest life.
    let mut recordless = None;
    for number in 0..2_u32 {
        let start = number as usize * half;
        let Some(slice) = all.get(start..start + half) else { continue };
        match read_half(slice, number, nonce) {
            Some(mut half) => {
                half.lost_end = half.loses_end(slice, nonce);
                half.damaged_start = damaged_start(slice, nonce);
                halves.push(half);
            }
            None => recordless = recordless.max(damaged_start(slice, nonce)),
        }
    }
    halves.sort_by_key(|half| half.epoch);
    // Only consecutive epochs belong together; a gap means that the older half is a leftover.
    if halves.len() == 2 && halves[0].epoch + 1 != halves[1].epoch {
        halves.remove(0);
    }
    let newest = halves.last().and_then(Half::last_seq);
    if let [older, newer] = &mut halves[..] {
        recordless = recordless.max(older.damaged_start);
        if older.lost_end {
            let next = newer.records.first().map(JournalRecord::sequence);
            older.lost_before = older.lost_before.max(next);
        }
    }
    let lost_half = recordless.is_some_and(|seq| newest.is_none_or(|newest| seq >= newest));
    let (epoch, end) = halves.last().map_or((0, half as u64), |half| (half.epoch, half.end));
    let last = halves.last().and_then(|half| half.records.last());
    Ok(JournalContents {
        epoch,
        end,
        ends_with_mark: last.is_some_and(|record| record.op == MARK),
        requires: requirement(&halves),
        mended: halves.iter().map(|half| half.mended).sum(),
        lost_before: halves.iter().filter_map(|half| half.lost_before).max(),
        lost_end: lost_half || halves.last().is_some_and(|half| half.lost_end),
        records: halves.into_iter().flat_map(|half| half.records).collect(),
    })
}

/// Reads the records of the half's newest life, in order, including those behind damage. Older
/// lives may have left records behind its end.
fn read_half(bytes: &[u8], number: u32, nonce: StoreNonce) -> Option<Half> {
    let mut half: Option<Half> = None;
    // The cells hold data that is a record neither of this life nor of an older one.
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
            half.lost_before = half.lost_before.max(Some(record.sequence()));
        }
        half.mended += u64::from(was_mended);
        half.end = at as u64;
        half.records.push(record);
    }
    half
}

/// The number at the end of the first cell of a half, if that is damaged. `None` also where it never
/// reached the disk, or nothing behind it did: then nothing in there was acknowledged, since a half
/// begins with a record of its own.
fn damaged_start(half: &[u8], nonce: StoreNonce) -> Option<u64> {
    let (first, rest) = half.split_at_checked(JOURNAL_CELL_BYTES)?;
    let has = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    let is_damaged = has(first) && has(rest) && JournalRecord::decode(half, nonce).is_err();
    if is_damaged { JournalRecord::claimed_seq(first) } else { None }
}

/// Overwritten records are covered by the checkpoint that the newest half names; without that
/// checkpoint, nothing older than the oldest surviving half can be trusted.
fn requirement(halves: &[Half]) -> Option<Requires> {
    let generation_of = |records: &[JournalRecord]| match records.first()?.op {
        JournalOp::Epoch { generation } => Some(generation),
        _ => None,
    };
    let generation = generation_of(&halves.last()?.records)?;
    let seq = halves.first()?.records.first()?.sequence();
    (generation > 0).then_some(Requires { generation, seq })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const NONCE: StoreNonce = StoreNonce(7);
    const BYTES: u64 = 64 * MARK_BYTES;
    const IN_HALF: u64 = BYTES / 2 / MARK_BYTES;

    struct Area(Arc<Mutex<Vec<u8>>>);

    impl JournalArea for Area {
        fn read_all(&self) -> io::Result<Vec<u8>> {
            Ok(lock(&self.0).clone())
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            lock(&self.0)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn contents(bytes: &Arc<Mutex<Vec<u8>>>) -> JournalContents {
        read_journal(&Area(Arc::clone(bytes)), BYTES, NONCE).expect("memory can be read")
    }

    fn journal(bytes: &Arc<Mutex<Vec<u8>>>, durability: Durability) -> Journal {
        let area = Box::new(Area(Arc::clone(bytes)));
        Journal::new(Some(area), BYTES, NONCE, durability, &contents(bytes))
    }

    fn delete(hash: u64) -> JournalOp {
        JournalOp::DeleteKey { hash }
    }

    /// Appends the delete of a key, whose hash and sequence number are both `number`.
    fn append(journal: &Journal, number: u64) -> io::Result<()> {
        journal.append(delete(number), Sequence::from_raw(number))
    }

    fn empty() -> Arc<Mutex<Vec<u8>>> {
        Arc::new(Mutex::new(vec![0; BYTES as usize]))
    }

    /// Appends until callers that may wait must do so, in a second half that may not be left yet.
    fn tight(bytes: &Arc<Mutex<Vec<u8>>>) -> (Journal, u64) {
        let journal = journal(bytes, Durability::Flushed);
        let full = (1..3 * IN_HALF).find(|seq| {
            append(&journal, *seq).expect("there is room");
            !journal.has_room()
        });
        (journal, full.expect("it is full at some time"))
    }

    #[test]
    fn the_last_quarter_is_for_those_whom_a_checkpoint_waits_for() {
        let bytes = empty();
        let (journal, last) = tight(&bytes);
        // No append waits: each would fail after ten seconds.
        for seq in last + 1..last + IN_HALF / 4 - 2 {
            append(&journal, seq).expect("a checkpoint waits for whoever writes this");
        }
        journal.append_soon(delete(1_000), Sequence::from_raw(1_000)).expect("it is written later");
        let has = |hash| contents(&bytes).records.iter().any(|record| record.op == delete(hash));
        assert!(!has(1_000) && has(last + 1));
        journal.checkpoint_done(journal.checkpoint_begins(), 1);
        assert!(journal.wait_room().is_ok());
        journal.append_left().expect("there is room");
        assert!(has(1_000));
    }

    #[test]
    fn without_checkpoints_it_goes_on_and_asks_for_one_that_there_is_not() {
        let bytes = empty();
        let (journal, last) = tight(&bytes);
        journal.go_uncovered();
        for seq in last + 1..last + 5 * IN_HALF {
            assert!(journal.wait_room().is_ok());
            append(&journal, seq).expect("nobody waits");
        }
        let requires = contents(&bytes).requires.expect("what was overwritten is not covered");
        assert!(requires.generation > 1 && requires.seq.get() > last);
    }

    /// Two bits, which cannot be put right.
    fn damage(bytes: &Arc<Mutex<Vec<u8>>>, cell: u64) {
        lock(bytes)[(cell * MARK_BYTES) as usize + 20] ^= 0x11;
    }

    /// Where the first half of all lies, that of epoch 1.
    const FIRST: u64 = IN_HALF;

    #[test]
    fn an_end_that_was_lost_is_told_from_one_that_never_was() {
        for (damaged, lost) in [(None, false), (Some(3..4), true), (Some(0..4), true)] {
            let bytes = empty();
            let journal = journal(&bytes, Durability::Flushed);
            // The first record is the half's own.
            (1..4).for_each(|seq| append(&journal, seq).expect("there is room"));
            damaged.into_iter().flatten().for_each(|cell| damage(&bytes, FIRST + cell));
            assert_eq!(contents(&bytes).lost_end, lost);
        }
        // Garbage all over the newest half.
        let bytes = empty();
        let (_, last) = tight(&bytes);
        assert!(last > IN_HALF && !contents(&bytes).lost_end);
        lock(&bytes)[..(IN_HALF * MARK_BYTES) as usize].fill(0xa5);
        assert!(contents(&bytes).lost_end);
        // Or over what its newest life has written, before the records of an older one.
        let bytes = empty();
        let journal = journal(&bytes, Durability::Flushed);
        for seq in 1.. {
            append(&journal, seq).expect("covered");
            journal.checkpoint_done(journal.checkpoint_begins(), 1);
            if contents(&bytes).epoch == 3 {
                break;
            }
        }
        append(&journal, 9_000).expect("there is room");
        assert!(!contents(&bytes).lost_end);
        lock(&bytes)[(FIRST * MARK_BYTES) as usize..][..3 * MARK_BYTES as usize].fill(0xa5);
        assert!(contents(&bytes).lost_end);
    }

    /// The record of the open lies where the lost one did, and says what that might have said.
    #[test]
    fn a_lost_end_is_not_forgotten_by_the_open_that_finds_it() {
        let bytes = empty();
        let before = journal(&bytes, Durability::Flushed);
        (1..4).for_each(|seq| append(&before, seq).expect("there is room"));
        damage(&bytes, FIRST + 3);
        let open = journal(&bytes, Durability::Flushed);
        open.mark_open(Sequence::from_raw(900), true).expect("there is room");
        let found = contents(&bytes);
        let last = found.records.last().expect("a record");
        assert_eq!((&last.op, last.seq, found.lost_end), (&JournalOp::PurgeAll, 900, false));
        assert!(!found.ends_with_mark, "the next open must not overwrite it");
    }

    /// What a former life of the half left behind the end is no damage, nor is a record that a loss
    /// of power tore between two sectors.
    #[test]
    fn the_remainder_of_an_older_record_is_not_a_lost_end() {
        let prefix = |seq: u64, bytes: usize| {
            let prefix = vec![b'p'; bytes];
            (JournalOp::PurgePrefix { prefix }, Sequence::from_raw(seq))
        };
        let bytes = empty();
        let long = journal(&bytes, Durability::Flushed);
        let mut seq = 0;
        // Four lives of halves, with records of four cells.
        while contents(&bytes).epoch < 4 {
            seq += 1;
            let (op, number) = prefix(seq, 70);
            long.append(op, number).expect("covered");
            long.checkpoint_done(long.checkpoint_begins(), 1);
            assert!(!contents(&bytes).lost_end, "after {seq}");
        }
        let bytes = empty();
        let torn = journal(&bytes, Durability::Flushed);
        (1..15).for_each(|seq| append(&torn, seq).expect("there is room"));
        let (op, number) = prefix(15, 60);
        torn.append(op, number).expect("there is room");
        let sector = (FIRST * MARK_BYTES) as usize + SECTOR_BYTES;
        lock(&bytes)[sector..][..SECTOR_BYTES].fill(0);
        assert_eq!((contents(&bytes).records.len(), contents(&bytes).lost_end), (15, false));
    }

    #[test]
    fn each_open_leaves_a_greater_number_and_many_in_a_row_one_record() {
        for durability in [Durability::Flushed, Durability::None] {
            let bytes = empty();
            let (filled, last) = tight(&bytes);
            // Fills the half up to the room reserved for the mark.
            let more = last + 1..last + IN_HALF;
            let taken = more.take_while(|seq| {
                lock(&filled.state).offset + 2 * MARK_BYTES <= filled.half_bytes
                    && append(&filled, *seq).is_ok()
            });
            let before = taken.count() + contents(&bytes).records.len();
            for seq in (1..100).map(|n| n * 1_000) {
                let open = journal(&bytes, durability);
                open.mark_open(Sequence::from_raw(seq), false).expect("room is left for it");
                let records = contents(&bytes).records;
                assert_eq!(records.last().map(|record| record.seq), Some(seq));
                assert!(records.len() <= before + 1);
            }
        }
    }
}
