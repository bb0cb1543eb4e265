//! The table of objects in memory: key hash to a record in a run.
//!
//! Invariants: an entry's bytes are published and stay unchanged while it holds its run; there is
//! at most one entry for each hash (a second key with the same 64-bit hash replaces the first,
//! which is then a miss); each entry in a table owns one reference to its run, which whatever
//! removes the entry takes over. Threads: any; each shard has its own mutex, held for one look-up
//! and never during I/O.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;

use super::pool::{Pool, Run};
use crate::format::{RECORD_HEADER_BYTES, RecordView};
use crate::sync::{Arc, Mutex, MutexGuard, Padded, lock};
use crate::types::KeyHash;

mod packed;
mod table;
pub(crate) use packed::Packed;
use table::Table;

const SHARDS: usize = 256;
/// The bits of a hash that choose the shard: the index takes its shard from the top.
const SHARD_SHIFT: u32 = 40;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();

/// What the shard does not imply of a hash.
#[inline]
fn rest_of(hash: KeyHash) -> u64 {
    let hash = hash.get();
    let below = (1 << SHARD_SHIFT) - 1;
    hash >> (SHARD_SHIFT + SHARD_BITS) << SHARD_SHIFT | hash & below
}

/// A record in memory.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) run: &'a Run,
    /// Where the record starts in the run.
    pub(crate) offset: u32,
    pub(crate) head: RecordView<'a>,
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) fn at(run: &'a Run, offset: u32) -> Record<'a> {
        let head = RecordView::of(run.bytes(offset as usize, RECORD_HEADER_BYTES));
        Record { run, offset, head: head.expect("these are as many bytes as a header has") }
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        let start = self.offset as usize + self.head.key_start();
        self.run.bytes(start, self.head.key_len() as usize)
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.run.bytes(self.offset as usize, self.head.stored_bytes())
    }
}

/// The records that lie one after the other in a part of a run.
pub(crate) fn records(run: &Run, within: Range<u32>) -> impl Iterator<Item = Record<'_>> {
    let mut next = within.start;
    std::iter::from_fn(move || {
        let record = (next < within.end).then(|| Record::at(run, next))?;
        next = next.saturating_add(record.head.stored_bytes() as u32);
        Some(record)
    })
}

/// A published record in a run, outside the table.
pub(crate) struct Entry {
    pub(crate) run: Run,
    pub(crate) state: Packed,
}

impl Entry {
    /// The entry of a record at `offset` of `run`.
    pub(crate) fn of(run: Run, offset: u32) -> Entry {
        let mut state = Packed::new(0, run.first());
        state.set_offset(offset);
        Entry { run, state }
    }

    pub(crate) fn record(&self) -> Record<'_> {
        Record::at(&self.run, self.state.offset())
    }
}

/// An entry in the table, under the lock of its shard; `State` is a copy of it, or the thing
/// itself.
pub(crate) struct InTable<'a, State> {
    /// The table's reference, which stays there.
    run: ManuallyDrop<Run>,
    pub(crate) state: State,
    of: PhantomData<&'a ShardState>,
}

/// An entry found in the table.
pub(crate) type Found<'a> = InTable<'a, Packed>;

/// An entry found in the table, to be changed.
pub(crate) type FoundMut<'a> = InTable<'a, &'a mut Packed>;

impl<State: Borrow<Packed>> InTable<'_, State> {
    #[inline]
    pub(crate) fn record(&self) -> Record<'_> {
        Record::at(&self.run, self.state.borrow().offset())
    }

    /// True if this entry is the record at `offset` of the run that starts at frame `first`.
    pub(crate) fn is_at(&self, first: u32, offset: u32) -> bool {
        self.is_in(first) && self.state.borrow().offset() == offset
    }

    /// True if it lies in the run that starts at frame `first`.
    pub(crate) fn is_in(&self, first: u32) -> bool {
        self.run.first() == first
    }
}

impl FoundMut<'_> {
    /// The same record lies at `offset` of another run now.
    pub(crate) fn move_to(&mut self, run: Run, offset: u32) {
        self.state.move_to(run.first(), offset);
        let before = std::mem::replace(&mut self.run, ManuallyDrop::new(run));
        drop(ManuallyDrop::into_inner(before));
    }
}

/// One shard's entries and the counters that are kept under its lock.
pub(crate) struct ShardState {
    table: Table,
    pool: Arc<Pool>,
    pub(crate) hits: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) prefetch_hits: u64,
}

impl ShardState {
    fn new(pool: Arc<Pool>) -> ShardState {
        ShardState { table: Table::default(), pool, hits: 0, hit_bytes: 0, prefetch_hits: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The reference that an entry of the table owns, or owned before it was taken out.
    #[inline]
    fn run_of(&self, entry: &Packed) -> ManuallyDrop<Run> {
        // SAFETY: an entry that was put into the table gave its reference to it (`insert`), and
        // nothing has taken it over yet: an entry that is taken out is passed here once.
        ManuallyDrop::new(unsafe { Run::from_first(&self.pool, entry.first()) })
    }

    #[inline]
    pub(crate) fn contains(&self, hash: KeyHash) -> bool {
        self.table.get(rest_of(hash)).is_some()
    }

    #[inline]
    pub(crate) fn get(&self, hash: KeyHash) -> Option<Found<'_>> {
        let state = *self.table.get(rest_of(hash))?;
        Some(Found { run: self.run_of(&state), state, of: PhantomData })
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, hash: KeyHash) -> Option<FoundMut<'_>> {
        let state = self.table.get_mut(rest_of(hash))?;
        // SAFETY: as in `run_of`.
        let run = unsafe { Run::from_first(&self.pool, state.first()) };
        Some(FoundMut { run: ManuallyDrop::new(run), state, of: PhantomData })
    }

    /// Puts an entry in; returns the one that it replaces.
    pub(crate) fn insert(&mut self, hash: KeyHash, entry: Entry) -> Option<Entry> {
        let Entry { run, state } = entry;
        let replaced = self.table.insert(state.with(rest_of(hash), run.into_first()));
        replaced.map(|state| self.taken_out(state))
    }

    pub(crate) fn remove(&mut self, hash: KeyHash) -> Option<Entry> {
        let removed = self.table.remove(rest_of(hash))?;
        Some(self.taken_out(removed))
    }

    fn taken_out(&self, state: Packed) -> Entry {
        Entry { run: ManuallyDrop::into_inner(self.run_of(&state)), state }
    }
}

impl Drop for ShardState {
    fn drop(&mut self) {
        let table = std::mem::take(&mut self.table);
        table.entries().for_each(|entry| drop(self.taken_out(*entry)));
    }
}

type Shard = Padded<Mutex<ShardState>>;

pub(crate) struct Resident {
    shards: Box<[Shard]>,
}

impl Resident {
    /// An empty table for records in runs of this pool.
    pub(crate) fn new(pool: &Arc<Pool>) -> Resident {
        let shard = |_| Padded(Mutex::new(ShardState::new(Arc::clone(pool))));
        Resident { shards: (0..SHARDS).map(shard).collect() }
    }

    #[inline]
    pub(crate) fn shard(&self, hash: KeyHash) -> MutexGuard<'_, ShardState> {
        lock(&self.shards[(hash.get() >> SHARD_SHIFT) as usize % SHARDS].0)
    }

    /// Shrinks oversized tables. Returns the number of objects, and the bytes that the tables take.
    pub(crate) fn settle(&self) -> (usize, usize) {
        let (mut objects, mut bytes) = (0, 0);
        self.for_each_shard(|shard| {
            shard.table.settle();
            objects += shard.table.len();
            bytes += shard.table.bytes();
        });
        (objects, bytes)
    }

    /// Visits every shard in turn.
    pub(crate) fn for_each_shard(&self, mut visit: impl FnMut(&mut ShardState)) {
        for shard in &self.shards {
            visit(&mut lock(&shard.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 4 << 10;

    #[test]
    fn each_hash_has_an_entry_of_its_own_that_holds_its_run() {
        let pool = Pool::new(8, FRAME).unwrap();
        let resident = Resident::new(&pool);
        let runs: Vec<Run> = (0..3).map(|_| pool.try_take_frame().unwrap()).collect();
        // They differ in one bit each: of the shard, above it, and below.
        let hashes = [0, 40, 47, 48, 63, 39, 8].map(|bit| KeyHash::from_raw(5 ^ (1 << bit)));
        for (n, hash) in hashes.iter().enumerate() {
            let entry = Entry::of(runs[n % 2].clone(), 64 * n as u32);
            assert!(resident.shard(*hash).insert(*hash, entry).is_none());
        }
        assert_eq!(resident.settle().0, hashes.len());
        assert_eq!([runs[0].refs(), runs[1].refs()], [5, 4]);
        for (n, hash) in hashes.iter().enumerate() {
            let mut shard = resident.shard(*hash);
            assert!(shard.get(*hash).unwrap().is_at(runs[n % 2].first(), 64 * n as u32));
            shard.get_mut(*hash).unwrap().move_to(runs[2].clone(), 128);
            assert!(shard.get(*hash).unwrap().is_at(runs[2].first(), 128));
        }
        assert_eq!([runs[0].refs(), runs[1].refs(), runs[2].refs()], [1, 1, 8]);
        let replaced = resident.shard(hashes[0]).insert(hashes[0], Entry::of(runs[0].clone(), 0));
        assert_eq!(replaced.unwrap().run.first(), runs[2].first());
        assert!(resident.shard(hashes[1]).remove(hashes[1]).is_some());
        assert!(!resident.shard(hashes[1]).contains(hashes[1]));
        assert_eq!([runs[0].refs(), runs[2].refs()], [2, 6]);
        drop(resident);
        assert!(runs.iter().all(|run| run.refs() == 1));
    }
}
