//! What a journal keeps through deaths and damage: written by `Journal`, read by `replay`.

mod syncs;

use std::sync::Arc;

use super::*;
use crate::durable::replay::read_journal;

const NONCE: StoreNonce = StoreNonce(7);
const IN_HALF: u64 = 32;
const BYTES: u64 = 4 * IN_HALF * MARK_BYTES;
/// Bytes of one copy of the journal.
const COPY: usize = BYTES as usize / 2;

/// An area in memory, whose process may die within a write.
struct Area {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Bytes that are written before it dies.
    alive: Arc<Mutex<usize>>,
    /// Writes until each that fails, from the one before on.
    until_failures: Arc<Mutex<Vec<usize>>>,
    /// Syncs so far; all fail if there is one.
    failed_syncs: Option<Arc<Mutex<usize>>>,
}

impl JournalArea for Area {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        Ok(lock(&self.bytes).clone())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut failures = lock(&self.until_failures);
        match failures.first_mut() {
            Some(0) => {
                failures.remove(0);
                lock(&self.bytes)[offset as usize..][..bytes.len()].fill(0xa5);
                return Err(io::Error::other("one write fails"));
            }
            Some(left) => *left -= 1,
            None => (),
        }
        let mut alive = lock(&self.alive);
        let written = bytes.len().min(*alive);
        *alive -= written;
        lock(&self.bytes)[offset as usize..][..written].copy_from_slice(&bytes[..written]);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let Some(syncs) = &self.failed_syncs else { return Ok(()) };
        *lock(syncs) += 1;
        Err(io::Error::other("no sync works"))
    }
}

type Bytes = Arc<Mutex<Vec<u8>>>;

/// One in which nothing fails.
fn area(bytes: &Bytes) -> Area {
    Area {
        bytes: Arc::clone(bytes),
        alive: Arc::new(Mutex::new(usize::MAX)),
        until_failures: Arc::default(),
        failed_syncs: None,
    }
}

fn contents(bytes: &Bytes) -> JournalContents {
    let len = lock(bytes).len() as u64;
    read_journal(&area(bytes), len, NONCE).expect("memory can be read")
}

/// A journal that goes on where the bytes end.
fn on(area: Area, durability: Durability) -> Journal {
    let contents = contents(&area.bytes);
    let len = lock(&area.bytes).len() as u64;
    Journal::new(Some(Box::new(area)), len, NONCE, durability, &contents)
}

/// The same, and how many more bytes it may write.
fn mortal(bytes: &Bytes, durability: Durability) -> (Journal, Arc<Mutex<usize>>) {
    let area = area(bytes);
    let alive = Arc::clone(&area.alive);
    (on(area, durability), alive)
}

fn journal(bytes: &Bytes, durability: Durability) -> Journal {
    mortal(bytes, durability).0
}

/// A journal of which writes fail, each after so many that do not, and leave garbage.
fn failing(bytes: &Bytes, after: &[usize]) -> Journal {
    let until_failures = Arc::new(Mutex::new(after.to_vec()));
    on(Area { until_failures, ..area(bytes) }, Durability::Flushed)
}

fn delete(hash: u64) -> JournalOp {
    JournalOp::DeleteKey { hash }
}

/// Appends the delete of a key, whose hash and sequence number are both `number`.
fn append(journal: &Journal, number: u64) -> io::Result<()> {
    journal.append(delete(number), Sequence::from_raw(number))
}

fn empty() -> Bytes {
    empty_of(IN_HALF)
}

/// One with so many cells in a half.
fn empty_of(in_half: u64) -> Bytes {
    Arc::new(Mutex::new(vec![0; (4 * in_half * MARK_BYTES) as usize]))
}

/// Appends until callers that may wait must do so, in a second half that may not be left yet.
fn tight(bytes: &Bytes) -> (Journal, u64) {
    let journal = journal(bytes, Durability::Flushed);
    let in_half = journal.half_bytes / MARK_BYTES;
    let full = (1..3 * in_half).find(|seq| {
        append(&journal, *seq).expect("there is room");
        !journal.has_room()
    });
    (journal, full.expect("it is full at some time"))
}

/// The beginning of a wait that is not over during a test, however slow.
fn just_begun() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Random records, of one cell or several, through some lives of the halves; the last number.
fn history(bytes: &Bytes, rng: &mut fastrand::Rng) -> u64 {
    let journal = journal(bytes, Durability::Flushed);
    let records = rng.u64(1..6 * IN_HALF);
    for seq in 1..=records {
        let op = random_op(seq, rng);
        journal.append(op, Sequence::from_raw(seq)).expect("covered");
        journal.checkpoint_done(journal.checkpoint_begins(), seq);
    }
    records
}

fn random_op(seq: u64, rng: &mut fastrand::Rng) -> JournalOp {
    match rng.u8(0..4) {
        0 => JournalOp::PurgePrefix { prefix: vec![rng.u8(1..); rng.usize(1..300)] },
        1 => JournalOp::PurgeGroup { group: rng.u64(..) },
        _ => delete(seq),
    }
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
    assert!(journal.wait_room(just_begun()).is_ok());
    journal.append_left().expect("there is room");
    assert!(has(1_000));
}

/// All of them were let in before the first was written.
#[test]
fn long_purges_at_once_leave_the_last_quarter_to_those_whom_a_checkpoint_waits_for() {
    // A half of the smallest journal.
    let bytes = empty_of(2_048);
    let journal = journal(&bytes, Durability::Flushed);
    let full = (1..6_000).find(|seq| {
        append(&journal, *seq).expect("there is room");
        let state = lock(&journal.state);
        !state.is_covered() && state.offset == journal.half_bytes / 4 * 3
    });
    let last = full.expect("it is filled up to the last quarter");
    let purge = |n: u8| JournalOp::PurgePrefix { prefix: vec![n; 8_000] };
    (0..3).for_each(|_| journal.wait_room(just_begun()).expect("there is room"));
    let written = [1, 2, 3].map(|n| {
        let seq = Sequence::from_raw(last + u64::from(n));
        journal.append_in_room(&purge(n), seq, just_begun()).expect("memory can be written")
    });
    assert_eq!(written, [true, false, false]);
    // No append waits: each would fail after ten seconds.
    for seq in last + 4..last + 204 {
        append(&journal, seq).expect("a checkpoint waits for whoever writes this");
    }
    journal.checkpoint_done(journal.checkpoint_begins(), 2);
    let seq = Sequence::from_raw(last + 2);
    assert!(journal.append_in_room(&purge(2), seq, just_begun()).expect("memory can be written"));
    assert_eq!(contents(&bytes).records.last().map(|record| &record.op), Some(&purge(2)));
}

/// Each checkpoint makes room, and others are there first each time.
#[test]
fn who_finds_the_room_taken_again_and_again_waits_no_longer_than_for_a_checkpoint() {
    let bytes = empty();
    let (journal, mut last) = tight(&bytes);
    let begun = just_begun();
    let append_in_room = |begun| {
        let seq = Sequence::from_raw(1_000);
        journal.append_in_room(&delete(1_000), seq, begun).map_err(|error| error.to_string())
    };
    let long_ago = Instant::now().checked_sub(TURN_WAIT).expect("the system has run for longer");
    for _ in 0..3 {
        assert_eq!(append_in_room(begun), Ok(false), "it may wait once more");
        journal.checkpoint_done(journal.checkpoint_begins(), 1);
        assert!(journal.wait_room(begun).is_ok());
        last = is_tight_again(&journal, last).expect("others fill the next half");
    }
    assert_eq!(append_in_room(long_ago), Err(full().to_string()));
    assert!(journal.wait_room(long_ago).is_err());
    assert!(contents(&bytes).records.iter().all(|record| record.op != delete(1_000)));
    journal.checkpoint_done(journal.checkpoint_begins(), 2);
    assert_eq!(append_in_room(long_ago), Ok(true), "there is room, however late");
}

#[test]
fn what_waits_for_room_is_written_although_a_write_fails_or_checkpoints_do() {
    for fails in [true, false] {
        let bytes = empty();
        tight(&bytes);
        // The first record keeps it from being left.
        let journal = failing(&bytes, if fails { &[2 + 4] } else { &[] });
        append(&journal, 900).expect("there is room");
        let waits: Vec<u64> = (1_000..1_005).collect();
        for seq in &waits {
            journal.append_soon(delete(*seq), Sequence::from_raw(*seq)).expect("it is deferred");
        }
        let written = || {
            let records = contents(&bytes).records;
            let has = |hash: &&u64| records.iter().any(|record| record.op == delete(**hash));
            waits.iter().filter(has).count()
        };
        assert_eq!(written(), 0);
        assert_eq!(journal.go_uncovered().is_err(), fails);
        assert_eq!(written(), if fails { 4 } else { 5 });
        journal.append_left().expect("one write failed");
        assert_eq!((written(), lock(&journal.state).left.len()), (5, 0));
    }
}

#[test]
fn without_checkpoints_it_goes_on_and_asks_for_one_that_there_is_not() {
    let bytes = empty();
    let (journal, last) = tight(&bytes);
    journal.go_uncovered().expect("nothing waits");
    for seq in last + 1..last + 5 * IN_HALF {
        assert!(journal.wait_room(just_begun()).is_ok());
        append(&journal, seq).expect("nobody waits");
        // The first may be complete, although it is not known to be.
        assert!(contents(&bytes).requires.is_none_or(|requires| requires.generation > 1));
    }
    let requires = contents(&bytes).requires.expect("what was overwritten is not covered");
    assert!(requires.generation > 1 && requires.seq.get() > last);
}

/// The journal turns while it is written, perhaps more than once.
#[test]
fn a_half_begun_while_a_checkpoint_is_written_asks_for_that_one_if_it_has_enough() {
    for (turns, is_complete) in [(1, true), (2, true), (1, false)] {
        let bytes = empty();
        let (journal, last) = tight(&bytes);
        journal.go_uncovered().expect("nothing waits");
        let mut seq = last;
        let mut turn = || {
            let epoch = contents(&bytes).epoch;
            while contents(&bytes).epoch == epoch {
                seq += 1;
                append(&journal, seq).expect("nobody waits");
            }
            contents(&bytes).requires.expect("it turned").generation
        };
        let epoch = journal.checkpoint_begins();
        let begun = journal.generation_after(0, epoch);
        let asked = (0..turns).map(|_| turn()).last().expect("at least one");
        assert_eq!(asked <= begun, turns == 1, "it began behind what the first overwrote");
        if is_complete {
            journal.checkpoint_done(epoch, begun);
            journal.go_uncovered().expect("nothing waits");
        }
        let newest = if is_complete { begun } else { 0 };
        let next = journal.generation_after(newest, epoch);
        assert!(next > begun && next % 2 != newest % 2, "{next} after {begun}");
        assert!(turn() > next, "it began before the last turn");
    }
}

/// Checkpoints fail because of it, and each that does has what waits written.
#[test]
fn what_waits_for_room_is_written_once_and_synced_once_where_no_sync_works() {
    let bytes = empty();
    tight(&bytes);
    let syncs = Arc::new(Mutex::new(0));
    let failed_syncs = Some(Arc::clone(&syncs));
    let journal = on(Area { failed_syncs, ..area(&bytes) }, Durability::Synced);
    for seq in 1_000..1_005 {
        journal.append_soon(delete(seq), Sequence::from_raw(seq)).expect("it is deferred");
    }
    journal.go_uncovered().expect_err("no sync works");
    assert_eq!(*lock(&syncs), 1);
    let once = contents(&bytes).records;
    (1_000..1_005).for_each(|seq| assert!(once.iter().any(|record| record.op == delete(seq))));
    (0..3 * IN_HALF).for_each(|_| drop(journal.go_uncovered()));
    assert_eq!(contents(&bytes).records, once);
}

/// A checkpoint has it written, and more comes meanwhile.
#[test]
fn no_more_waits_for_room_than_may_while_it_is_tried_again() {
    let bytes = empty();
    let (journal, _) = tight(&bytes);
    let defer = || journal.append_soon(delete(1), Sequence::from_raw(1));
    while defer().is_ok() {}
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = defer();
            }
        });
        let tried = (0..20).map(|_| {
            journal.append_left().expect("there is no room, and no failure");
            lock(&journal.state).left.len()
        });
        let most = tried.max();
        is_over.store(true, Ordering::Relaxed);
        most
    });
    assert_eq!(most, Some(LEFT_MAX));
}

/// What waited for room is older than what was lost, and there may be more of it than else has
/// smaller numbers than a record before it. The half may be full in the midst of it.
#[test]
fn what_waited_for_room_hides_nothing_of_what_was_lost_before_it() {
    for (before, waits) in [0, 600].into_iter().flat_map(|n| [(n, 1), (n, 700), (n, 2_500)]) {
        let bytes = empty_of(4_096);
        let (journal, last) = tight(&bytes);
        (1..=before).for_each(|n| append(&journal, last + n).expect("it may use the last quarter"));
        let epoch = lock(&journal.state).epoch;
        let at = lock(&journal.state).offset;
        append(&journal, 1_000_000).expect("it may use the last quarter");
        for seq in 100_000..100_000 + waits {
            journal.append_soon(delete(seq), Sequence::from_raw(seq)).expect("it is deferred");
        }
        journal.checkpoint_done(epoch, 1);
        journal.append_left().expect("there is room");
        let found = contents(&bytes).records;
        let written = found.iter().filter(|record| (100_000..200_000).contains(&record.seq));
        assert_eq!(
            (written.count() as u64, found.iter().any(|r| r.seq == 1_000_000)),
            (waits, true)
        );
        for half in journal.half_starts(epoch) {
            lock(&bytes)[(half + at) as usize + 20] ^= 0x11;
        }
        let found = contents(&bytes).lost_before.map(Sequence::get);
        assert!(found >= Some(1_000_000), "{before}, {waits}: {found:?}");
    }
}

/// Records that wait for room are older than those that are written meanwhile, and may be what
/// turns the journal.
#[test]
fn a_half_without_its_checkpoint_forgets_all_that_the_overwritten_deleted() {
    for seed in 0..100 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let bytes = empty();
        let mut written = Vec::new();
        for _ in 0..4 {
            let journal = journal(&bytes, Durability::Flushed);
            journal.go_uncovered().expect("nothing waits");
            for _ in 0..rng.u64(1..2 * IN_HALF) {
                let seq = rng.u64(1..1_000);
                append(&journal, seq).expect("nobody waits");
                written.push(seq);
                let found = contents(&bytes);
                let distrusted = found.requires.map_or(0, |requires| requires.seq.get());
                let is_there = |seq| found.records.iter().any(|record| record.op == delete(seq));
                let lost = written.iter().find(|seq| **seq > distrusted && !is_there(**seq));
                assert_eq!(lost, None, "seed {seed}: only what is older than {distrusted} is");
            }
        }
    }
}

/// As `tight`, for a journal that goes on behind record `last`.
fn is_tight_again(journal: &Journal, last: u64) -> Option<u64> {
    (last + 1..last + 3 * IN_HALF).find(|seq| {
        append(journal, *seq).expect("there is room");
        !journal.has_room()
    })
}

/// Of the half in which it begins it has only what was there before.
#[test]
fn a_checkpoint_covers_the_halves_before_the_one_it_began_in() {
    let bytes = empty();
    let (journal, last) = tight(&bytes);
    let begun = journal.checkpoint_begins();
    journal.checkpoint_done(begun, 1);
    assert!(journal.has_room());
    is_tight_again(&journal, last).expect("the next half is full at some time");
    let found = contents(&bytes);
    assert_eq!((found.epoch, found.requires.map(|requires| requires.generation)), (3, Some(1)));
    // Begun before the turn, complete after it.
    journal.checkpoint_done(begun, 2);
    assert!(!journal.has_room(), "the half before this one went on after it began");
    journal.checkpoint_done(journal.checkpoint_begins(), 3);
    assert!(journal.has_room());
}

#[test]
fn a_checkpoint_is_asked_for_without_a_turn_of_the_journal_and_after_one() {
    let bytes = empty();
    let journal = journal(&bytes, Durability::Flushed);
    let required = || contents(&bytes).requires.map(|it| (it.generation, it.seq.get()));
    append(&journal, 5).expect("there is room");
    assert_eq!(required(), None);
    journal.require(1, Sequence::from_raw(9)).expect("there is room");
    assert_eq!(required(), Some((1, 9)));
    append(&journal, 20).expect("there is room");
    journal.require(2, Sequence::from_raw(15)).expect("there is room");
    assert_eq!(required(), Some((2, 20)), "what the journal has is older than that");
    // The halves that said it are overwritten; the next ones ask for as much.
    for seq in 21..20 + 4 * IN_HALF {
        journal.checkpoint_done(journal.checkpoint_begins(), 3);
        append(&journal, seq).expect("a checkpoint covers the other half");
    }
    let (generation, seq) = required().expect("it turned");
    assert!(generation == 3 && seq > 20, "{generation} {seq}");
}

#[test]
fn a_checkpoint_is_not_asked_for_where_that_would_wait_for_one() {
    let bytes = empty();
    let (journal, last) = tight(&bytes);
    let room = (last + 1..).take_while(|_| !journal.lacks(&lock(&journal.state), MARK_BYTES));
    room.for_each(|seq| append(&journal, seq).expect("it is kept for these"));
    let before = lock(&bytes).clone();
    assert!(journal.require(1, Sequence::from_raw(1_000)).is_err());
    assert!(*lock(&bytes) == before && journal.take_wants_checkpoint());
    journal.checkpoint_done(journal.checkpoint_begins(), 2);
    journal.require(2, Sequence::from_raw(1_000)).expect("the half may be left");
    let required = contents(&bytes).requires.expect("it is asked for");
    assert_eq!((required.generation, required.seq.get()), (2, 1_000));
}

#[test]
fn once_a_checkpoint_is_complete_the_next_is_waited_for_again() {
    let bytes = empty();
    let (journal, last) = tight(&bytes);
    journal.go_uncovered().expect("nothing waits");
    assert!(journal.has_room());
    journal.checkpoint_done(journal.checkpoint_begins(), 1);
    assert!(is_tight_again(&journal, last).is_some());
}

/// Whichever write fails, to the first copy or the second, of a half's first record or another.
#[test]
fn a_write_that_fails_loses_one_record_and_no_half_begins_without_its_first() {
    for write in 0..6 * IN_HALF as usize {
        let bytes = empty();
        let journal = failing(&bytes, &[write]);
        let mut failed = 0;
        for seq in 1..=3 * IN_HALF {
            let written = append(&journal, seq);
            journal.checkpoint_done(journal.checkpoint_begins(), seq);
            failed += u64::from(written.is_err());
            let found = contents(&bytes);
            let op = found.records.last().map(|record| record.op.clone());
            assert!(written.is_err() || op == Some(delete(seq)), "write {write}, record {seq}");
            assert!(found.lost_before.is_none() && found.lost_halves.is_empty());
            assert!(found.epoch < 2 || found.requires.is_some(), "write {write}, record {seq}");
        }
        assert_eq!(failed, 1, "write {write}");
    }
}

/// Garbage, zeros or turned bits, anywhere in one copy and of any length.
#[test]
fn damage_to_one_copy_loses_nothing() {
    for seed in 0..500 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let bytes = empty();
        history(&bytes, rng);
        let before = contents(&bytes);
        let copy = rng.usize(0..2) * COPY;
        let start = rng.usize(0..COPY);
        let end = rng.usize(start..COPY) + 1;
        let kind = rng.u8(0..3);
        for byte in &mut lock(&bytes)[copy + start..copy + end] {
            match kind {
                0 => *byte = rng.u8(..),
                1 => *byte = 0,
                _ => *byte ^= rng.u8(..) & rng.u8(..),
            }
        }
        let after = contents(&bytes);
        assert_eq!(after.records, before.records, "seed {seed}");
        assert_eq!((after.epoch, after.end), (before.epoch, before.end), "seed {seed}");
        assert_eq!(after.requires.map(|r| r.generation), before.requires.map(|r| r.generation));
        assert!(after.lost_before.is_none() && after.lost_halves.is_empty(), "seed {seed}");
    }
}

/// A death within any write, at any byte of it, costs at most that record, and nothing is taken for
/// damage: not then, and not at the opens and deaths after it.
#[test]
fn a_death_while_a_record_is_written_is_no_damage() {
    for seed in 0..300 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let bytes = empty();
        let mut seq = history(&bytes, rng);
        for _ in 0..4 {
            let (journal, alive) = mortal(&bytes, Durability::Flushed);
            let before = contents(&bytes);
            seq += 1;
            journal.mark_open(Sequence::from_raw(seq), &[]).expect("there is room");
            journal.checkpoint_done(journal.checkpoint_begins(), seq);
            for _ in 0..rng.usize(0..3) {
                seq += 1;
                journal.append(random_op(seq, rng), Sequence::from_raw(seq)).expect("covered");
                journal.checkpoint_done(journal.checkpoint_begins(), seq);
            }
            let whole = contents(&bytes).records;
            *lock(&alive) = rng.usize(0..200);
            seq += 1;
            journal.append(random_op(seq, rng), Sequence::from_raw(seq)).expect("it is not told");
            let after = contents(&bytes);
            assert!(after.lost_before.is_none(), "seed {seed}");
            assert!(after.lost_halves.is_empty(), "seed {seed}");
            // A turn drops the half that a checkpoint covers.
            let turned = after.epoch != before.epoch || after.records.first() != whole.first();
            let kept = after.records.len() >= whole.len() && after.records[..whole.len()] == whole;
            assert!(turned || kept, "seed {seed}");
        }
    }
}

/// Two bits, in both copies.
fn damage_both(bytes: &Bytes, cell: u64) {
    for copy in [0, COPY] {
        lock(bytes)[copy + (cell * MARK_BYTES) as usize + 20] ^= 0x11;
    }
}

/// Where the first half of all lies, that of epoch 1.
const FIRST: u64 = IN_HALF;

#[test]
fn what_both_copies_lost_is_told_where_something_follows_and_at_the_start() {
    let filled = || {
        let bytes = empty();
        let journal = journal(&bytes, Durability::Flushed);
        // The first record is the half's own.
        (1..4).for_each(|seq| append(&journal, seq).expect("there is room"));
        bytes
    };
    let bytes = filled();
    damage_both(&bytes, FIRST + 2);
    let found = contents(&bytes);
    assert_eq!((found.lost_before.map(Sequence::get), found.lost_halves.len()), (Some(3), 0));

    let bytes = filled();
    (0..4).for_each(|cell| damage_both(&bytes, FIRST + cell));
    assert_eq!(contents(&bytes).lost_halves, [LostHalf(1)]);

    // Garbage all over a half, in both copies.
    let bytes = empty();
    let (_, last) = tight(&bytes);
    assert!(last > IN_HALF && contents(&bytes).lost_halves.is_empty());
    for copy in [0, COPY] {
        lock(&bytes)[copy..][..(IN_HALF * MARK_BYTES) as usize].fill(0xa5);
    }
    assert_eq!(contents(&bytes).lost_halves, [LostHalf(0)]);
}

/// Damage to one copy, an open, and damage to the other copy in the same place.
#[test]
fn what_one_copy_lost_is_written_to_it_again() {
    for durability in [Durability::Flushed, Durability::None] {
        for copy in [0, COPY] {
            let bytes = empty();
            let before = journal(&bytes, Durability::Flushed);
            (1..=20).for_each(|seq| append(&before, seq).expect("there is room"));
            let sound = contents(&bytes);
            let sound_bytes = lock(&bytes).clone();
            let cell = |copy: usize| copy + (half_of(&sound) + 5 * MARK_BYTES) as usize;
            lock(&bytes)[cell(copy)..][..40].fill(0x5a);
            let found = contents(&bytes);
            assert_eq!((&found.records, found.repairs.len()), (&sound.records, 2));
            journal(&bytes, durability).repair(&found.repairs).expect("memory can be written");
            assert!(*lock(&bytes) == sound_bytes, "both copies are as they were");
            lock(&bytes)[cell(COPY - copy)..][..40].fill(0x5a);
            let found = contents(&bytes);
            assert_eq!((found.records, found.lost_before), (sound.records, None));
        }
    }
}

/// Where the half that was written last begins in a copy.
fn half_of(contents: &JournalContents) -> u64 {
    u64::from(contents.epoch % 2) * IN_HALF * MARK_BYTES
}

/// The open that finds a lost half says so to those after it, once.
#[test]
fn a_lost_half_is_told_once_and_for_good() {
    for lost in [FIRST, 0] {
        let bytes = empty();
        let (_, last) = tight(&bytes);
        (0..IN_HALF).for_each(|cell| damage_both(&bytes, lost + cell));
        let found = contents(&bytes);
        assert_eq!(found.lost_halves.len(), 1);
        let open = journal(&bytes, Durability::Flushed);
        open.mark_open(Sequence::from_raw(900), &found.lost_halves).expect("there is room");
        append(&open, 901).expect("there is room");
        assert!(last < 900);
        for seq in 902..930 {
            let found = contents(&bytes);
            assert!(found.lost_halves.is_empty(), "told again at {seq}");
            let purged = |record: &JournalRecord| record.op == JournalOp::PurgeAll;
            assert!(found.records.iter().any(|record| purged(record) && record.seq == 900));
            let next = journal(&bytes, Durability::Flushed);
            next.mark_open(Sequence::from_raw(seq), &[]).expect("there is room");
        }
    }
}

/// A record longer than half a half begins a new life where it does not fit.
#[test]
fn a_long_record_stays_within_its_half() {
    for before in 1..IN_HALF {
        let bytes = empty();
        let journal = journal(&bytes, Durability::Flushed);
        (1..before).for_each(|seq| append(&journal, seq).expect("there is room"));
        let prefix = vec![b'p'; (IN_HALF / 2 * MARK_BYTES) as usize];
        let op = JournalOp::PurgePrefix { prefix };
        journal.append(op.clone(), Sequence::from_raw(900)).expect("there is room");
        let found = contents(&bytes);
        assert!(found.end <= IN_HALF * MARK_BYTES, "after {before}");
        assert_eq!(found.records.last().map(|record| &record.op), Some(&op));
        let deletes = found.records.iter().filter(|r| matches!(r.op, JournalOp::DeleteKey { .. }));
        assert_eq!(deletes.count() as u64, before - 1, "after {before}");
    }
}

/// It says from where on numbers are free.
#[test]
fn a_mark_that_cannot_be_written_leaves_the_one_before() {
    for (first, second) in (0..2).flat_map(|first| (0..3).map(move |second| (first, second))) {
        let bytes = empty();
        let before = journal(&bytes, Durability::Flushed);
        (1..=5).for_each(|seq| append(&before, seq).expect("there is room"));
        before.mark_open(Sequence::from_raw(1_000), &[]).expect("there is room");
        let open = failing(&bytes, &[first, second]);
        open.mark_open(Sequence::from_raw(2_000), &[]).expect_err("a write fails");
        let written = append(&open, 2_001);
        assert_eq!(written.is_err(), second < 2);
        let found = contents(&bytes).records;
        assert!(found.iter().any(|record| record.seq >= 1_000), "{first}, {second}: {found:?}");
    }
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
            open.mark_open(Sequence::from_raw(seq), &[]).expect("room is left for it");
            let records = contents(&bytes).records;
            assert_eq!(records.last().map(|record| record.seq), Some(seq));
            assert!(records.len() <= before + 1);
        }
    }
}

/// An area that notes what is to be made ready, and must not be written.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<u64>>>);

impl JournalArea for Noting {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        Ok(vec![0; 8 << 20])
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::other("not to be written"))
    }

    fn prepare(&self, offset: u64) {
        lock(&self.0).push(offset);
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_will_be_written_next_is_made_ready_in_both_copies() {
    const HALF: u64 = 2 << 20;
    let area = Noting::default();
    let contents = read_journal(&area, 4 * HALF, NONCE).expect("it can be read");
    let noting = Box::new(area.clone());
    let journal = Journal::new(Some(noting), 4 * HALF, NONCE, Durability::Flushed, &contents);
    for epoch in [6, 7] {
        let (half, other) = ((epoch % 2) * HALF, ((epoch + 1) % 2) * HALF);
        let ends = HALF - AHEAD_BYTES;
        for (offset, next) in [(0, half + AHEAD_BYTES), (ends - 1, half + HALF - 1), (ends, other)]
        {
            let mut state = lock(&journal.state);
            (state.epoch, state.offset) = (epoch as u32, offset);
            drop(state);
            journal.prepare();
            let both = [half + offset, next].map(|at| [at, 2 * HALF + at]);
            assert_eq!(std::mem::take(&mut *lock(&area.0)), both.concat(), "{epoch} {offset}");
        }
    }
}
