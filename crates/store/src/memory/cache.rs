//! The memory cache: queues of runs, the logs that single objects are copied into (`logs`), and
//! eviction.
//!
//! Invariants: every run with entries is tracked by a queue, an open log, or held by the nursery,
//! so that its memory can always be reclaimed; an entry is published before its run is tracked, or
//! checked after. Lock order: resident shard, then log, then queues, then slot, then pool; never
//! the other way. Threads: any.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::pool::{Pool, Run};
use super::regret::Regret;
use super::resident::{Entry, FoundMut, Resident, records};
use crate::format::PAGE_HEADER_BYTES;
use crate::index::Index;
use crate::policy::residency::{Arrival, Fate, Hint, Leaving, Queue, ResidencyPolicy, Usage};
use crate::types::{GroupId, KeyHash};

mod logs;
mod names;
use logs::{OpenLog, open_logs_max};

/// Frames reserved for log copies, so that eviction can always copy hot objects on.
const RESERVE_FRAMES: usize = 2;
/// Largest share of an evicted run that is copied on, in percent, so that each eviction frees
/// memory.
const KEEP_PERCENT_MAX: usize = 90;
/// An object that fills at least this percentage of a run of its own stays in place when kept: such
/// runs are already trimmed to the object's length, rounded up to 4 KiB.
const FILLS_PERCENT_MIN: usize = 85;
/// Runs that one waiting caller evicts with objects kept; after these, runs are evicted whole.
const SPARING_RUNS_MAX: u32 = 24;
/// How often places are freed for one long run: other threads may take them first.
const WINDOWS_MAX: usize = 4;

/// A tracked run: the queue's own reference, and where records lie in the run. Which objects they
/// are, their headers say.
struct Slot {
    run: Option<Run>,
    queue: Queue,
    generation: u32,
    records: Range<u32>,
}

impl Slot {
    /// The hashes of the objects put into the run; empty if there is no run.
    fn hashes(&self) -> Vec<KeyHash> {
        let run = self.run.as_ref();
        let records = run.into_iter().flat_map(|run| records(run, self.records.clone()));
        records.map(|record| record.head.key_hash()).collect()
    }

    /// The hash of the run's first object, and whether that is the only one.
    fn first_hash(&self) -> Option<(KeyHash, bool)> {
        let mut records = records(self.run.as_ref()?, self.records.clone());
        let hash = records.next()?.head.key_hash();
        Some((hash, records.next().is_none()))
    }
}

#[derive(Default)]
struct Queues {
    waiting: [VecDeque<(u32, u32)>; 4],
    /// Bytes of the runs in each queue. Signed: a run may be evicted before the thread that tracked
    /// or moved it has counted it.
    bytes: [isize; 4],
}

fn leaving(entry: &FoundMut<'_>, hash: KeyHash) -> Leaving {
    let bytes = entry.record().head.stored_bytes() as u32;
    let (hits, epoch) = (entry.state.hits(), entry.state.epoch());
    Leaving { hash: hash.get(), bytes, hits, epoch }
}

/// Counters of objects that left memory.
#[derive(Default)]
pub(crate) struct CacheCounters {
    pub(crate) evicted_objects: AtomicU64,
    /// Objects that came along with a page and left without a hit.
    pub(crate) prefetch_wasted: AtomicU64,
}

pub(crate) struct Cache {
    pub(crate) pool: Arc<Pool>,
    pub(crate) resident: Resident,
    pub(crate) counters: CacheCounters,
    slots: Box<[Mutex<Slot>]>,
    queues: Mutex<Queues>,
    /// Open logs of each queue. There are several, so that a record finds one it fills well.
    logs: [Mutex<Vec<OpenLog>>; 4],
    open_logs_max: usize,
    policy: Arc<dyn ResidencyPolicy>,
    regret: Regret,
    index: Arc<Index>,
}

impl Cache {
    pub(crate) fn new(
        pool: Arc<Pool>,
        policy: Arc<dyn ResidencyPolicy>,
        index: Arc<Index>,
    ) -> Cache {
        let regret = Regret::new(pool.frames(), pool.frame_bytes());
        let slot = || {
            Mutex::new(Slot { run: None, queue: Queue::Probation, generation: 0, records: 0..0 })
        };
        Cache {
            slots: (0..pool.places()).map(|_| slot()).collect(),
            open_logs_max: open_logs_max(pool.frames()),
            resident: Resident::new(&pool),
            pool,
            counters: CacheCounters::default(),
            queues: Mutex::default(),
            logs: Default::default(),
            regret,
            policy,
            index,
        }
    }

    /// The queue for an arriving object. Notes a request that missed memory.
    pub(crate) fn arrive(&self, hint: Hint, arrival: Arrival) -> Queue {
        if let Arrival::Asked { hash, .. } = arrival {
            self.regret.asked(hash);
        }
        self.policy.arrive(hint, arrival)
    }

    /// A new object was written, and is in memory.
    pub(crate) fn written(&self, hash: KeyHash) {
        self.policy.written(hash.get());
    }

    /// The stamp for an entry that is published now.
    pub(crate) fn epoch(&self) -> u8 {
        self.policy.epoch()
    }

    /// An object that came with a page at `then` is requested for the first time. True if it came
    /// recently.
    pub(crate) fn first_used(&self, hash: KeyHash, then: u32) -> bool {
        self.policy.first_used(hash.get());
        self.regret.is_recent(then)
    }

    /// True if little came into memory since `then`.
    pub(crate) fn is_recent(&self, then: u32) -> bool {
        self.regret.is_recent(then)
    }

    /// The clock for `is_recent`: bytes brought into memory so far, in frames.
    pub(crate) fn now(&self) -> u32 {
        self.regret.now()
    }

    /// An object that came with a page is the one the page was read for.
    pub(crate) fn read_again(&self, hash: KeyHash) {
        self.regret.asked(hash.get());
        self.policy.read_with_page(hash.get());
    }

    /// Takes a run for `bytes`, evicting as needed; `None` when nothing more can be freed now.
    pub(crate) fn take(&self, bytes: usize, requester: Hint) -> Option<Run> {
        let mut sparing = SPARING_RUNS_MAX;
        let room = self.pool.run_bytes_for(bytes) + RESERVE_FRAMES * self.pool.frame_bytes();
        // A run pinned by a guard frees nothing; the loop gives up after one round over all places.
        for _ in 0..self.pool.places() + 1 {
            if self.pool.available_bytes() >= room {
                if let Some(run) = self.pool.try_take(bytes) {
                    return Some(run);
                }
                // The limit has room, so a single free place exists; another thread took it first.
                if bytes > self.pool.frame_bytes() {
                    return self.take_window(bytes);
                }
            }
            if !self.evict_one(requester, &mut sparing) {
                break;
            }
        }
        // The reserve is meant for copies, but refusing a caller would be worse.
        self.pool.try_take(bytes).or_else(|| self.take_window(bytes))
    }

    /// Takes a run of one frame, as [`Cache::take`] does.
    pub(crate) fn take_frame(&self, requester: Hint) -> Option<Run> {
        self.take(self.pool.frame_bytes(), requester)
    }

    /// Takes a run for one of the pages that lie `stride` bytes apart: a frame, unless much of it
    /// would be unused.
    pub(crate) fn take_for_page(&self, stride: u64, requester: Hint) -> Option<Run> {
        self.take(self.pool.part_of_frame(stride as usize), requester)
    }

    /// Frees consecutive places by evicting exactly the runs that overlap them.
    fn take_window(&self, bytes: usize) -> Option<Run> {
        if bytes <= self.pool.frame_bytes() {
            return None;
        }
        for _ in 0..WINDOWS_MAX {
            let window = self.pool.window(bytes, |first| self.is_unpinned(first))?;
            for first in window {
                self.evict_run(first as u32, false);
            }
            if let Some(run) = self.pool.try_take(bytes) {
                return Some(run);
            }
        }
        None
    }

    fn is_unpinned(&self, first: usize) -> bool {
        let (refs, hashes) = {
            let slot = lock(&self.slots[first]);
            let Some(run) = &slot.run else { return false };
            (run.refs(), slot.hashes())
        };
        let mut own = 1;
        for hash in hashes {
            let shard = self.resident.shard(hash);
            own += u32::from(shard.get(hash).is_some_and(|e| e.is_in(first as u32)));
        }
        refs <= own
    }

    /// Puts a run in a queue. Its entries have been published; they are of records that fill this
    /// part of the run.
    pub(crate) fn track(&self, run: Run, queue: Queue, records: Range<u32>) {
        self.regret.filled(run.len_bytes());
        self.enqueue(run, queue, records);
    }

    /// The tracked run that starts at this place, if it may be a page's frame: its records begin
    /// where those of a page do. A log, whose records may not be written yet, begins with them.
    pub(crate) fn page_frame(&self, first: u32) -> Option<Run> {
        let slot = lock(self.slots.get(first as usize)?);
        let begins_so = slot.records.start == PAGE_HEADER_BYTES as u32;
        slot.run.as_ref().filter(|_| begins_so).cloned()
    }

    fn enqueue(&self, run: Run, queue: Queue, records: Range<u32>) {
        let (first, bytes) = (run.first(), run.len_bytes());
        let generation = {
            let mut slot = lock(&self.slots[first as usize]);
            assert!(slot.run.is_none(), "a run is tracked once");
            slot.run = Some(run);
            slot.queue = queue;
            slot.records = records;
            slot.generation = slot.generation.wrapping_add(1);
            slot.generation
        };
        let mut queues = lock(&self.queues);
        queues.bytes[queue as usize] += bytes as isize;
        self.line_up(&mut queues, queue, first, generation);
    }

    fn usage(&self) -> Usage {
        let bytes = lock(&self.queues).bytes.map(|n| n.max(0) as usize);
        let frames = bytes.map(|n| n.div_ceil(self.pool.frame_bytes()));
        Usage { frames, total: self.pool.frames() }
    }

    /// Memory held by each queue in frames, rounded up.
    pub(crate) fn queue_frames(&self) -> [usize; 4] {
        self.usage().frames
    }

    /// Evicts one run; false if there is none left. While `sparing` is above zero, the policy may
    /// keep objects of the run. Runs are spared whole at most once around: with hits that come as
    /// fast as this goes round, it would never end.
    fn evict_one(&self, requester: Hint, sparing: &mut u32) -> bool {
        let mut spared = 0;
        loop {
            let Some(queue) = self.policy.victim(&self.usage(), requester) else {
                return self.close_some_log();
            };
            let next = lock(&self.queues).waiting[queue as usize].pop_front();
            let Some((first, generation)) = next else {
                return self.close_some_log();
            };
            let current = {
                let slot = lock(&self.slots[first as usize]);
                slot.run.is_some() && slot.generation == generation
            };
            if current {
                let may_spare = self.policy.spares_whole_runs() && spared < self.pool.places();
                if may_spare && self.spare_run(first, queue, generation) {
                    spared += 1;
                    continue;
                }
                let may_keep = *sparing > 0;
                *sparing = sparing.saturating_sub(1);
                if !(may_keep && self.keep_large(first, queue, generation)) {
                    self.evict_run(first, may_keep);
                }
                return true;
            }
        }
    }

    /// LRU by runs: a run with a hit since it was last examined goes to the back of the queue.
    fn spare_run(&self, first: u32, queue: Queue, generation: u32) -> bool {
        let hashes = lock(&self.slots[first as usize]).hashes();
        let mut hit = false;
        for hash in hashes {
            let mut shard = self.resident.shard(hash);
            if let Some(entry) = shard.get_mut(hash).filter(|e| e.is_in(first)) {
                hit |= entry.state.hits() > 0;
                self.tell_disk_of_hits(&entry, hash);
                entry.state.set_hits(0);
            }
        }
        if hit {
            lock(&self.queues).waiting[queue as usize].push_back((first, generation));
        }
        hit
    }

    /// An object that fills a run of its own stays in place if the policy keeps it: an object of
    /// several frames does not fit in a log, and copying a smaller one would free next to nothing.
    fn keep_large(&self, first: u32, queue: Queue, generation: u32) -> bool {
        let (hash, bytes) = {
            let slot = lock(&self.slots[first as usize]);
            let Some(run) = slot.run.as_ref().filter(|_| slot.generation == generation) else {
                return false;
            };
            let Some((hash, true)) = slot.first_hash() else { return false };
            (hash, run.len_bytes())
        };
        let target = {
            let mut shard = self.resident.shard(hash);
            let Some(mut entry) = shard.get_mut(hash).filter(|e| e.is_in(first)) else {
                return false;
            };
            let stored = entry.record().head.stored_bytes();
            let fills = stored > bytes * FILLS_PERCENT_MIN / 100;
            if bytes <= self.pool.frame_bytes() && !fills {
                return false;
            }
            // If the object is evicted instead, its hits are counted there.
            let Fate::CopyTo(target) = self.policy.fate(queue, &leaving(&entry, hash)) else {
                return false;
            };
            self.tell_disk_of_hits(&entry, hash);
            self.stays(&mut entry, hash, queue);
            target
        };
        self.policy.looked_at(queue, bytes, bytes);
        if target == queue {
            lock(&self.queues).waiting[queue as usize].push_back((first, generation));
        } else {
            self.move_run(first, target);
        }
        true
    }

    /// Releases the run that starts at this place, if it is in a queue: nothing in it is wanted any
    /// more. For the run of an object that has one of its own.
    pub(crate) fn let_go(&self, first: u32) {
        self.evict_run(first, false);
    }

    /// Evicts one tracked run: copies the objects that the policy keeps into logs, and drops the
    /// rest.
    fn evict_run(&self, first: u32, may_keep: bool) {
        let (run, queue, within) = {
            let mut slot = lock(&self.slots[first as usize]);
            let Some(run) = slot.run.take() else { return };
            slot.generation = slot.generation.wrapping_add(1);
            (run, slot.queue, slot.records.clone())
        };
        let bytes = run.len_bytes();
        lock(&self.queues).bytes[queue as usize] -= bytes as isize;
        let is_large = bytes > self.pool.frame_bytes();
        let keep_max = if may_keep && !is_large { bytes * KEEP_PERCENT_MAX / 100 } else { 0 };
        let mut keep_left = keep_max;
        for record in records(&run, within) {
            self.evict_object(record.head.key_hash(), first, queue, &mut keep_left);
        }
        if may_keep {
            self.policy.looked_at(queue, bytes, keep_max - keep_left);
        }
    }

    fn evict_object(&self, hash: KeyHash, first: u32, queue: Queue, keep_left: &mut usize) {
        let mut shard = self.resident.shard(hash);
        let Some(mut entry) = shard.get_mut(hash).filter(|e| e.is_in(first)) else {
            return;
        };
        self.tell_disk_of_hits(&entry, hash);
        let size = entry.record().head.stored_bytes();
        if let Fate::CopyTo(target) = self.policy.fate(queue, &leaving(&entry, hash))
            && size <= *keep_left
            && let Some((run, offset)) = self.append(target, entry.record().bytes(), false)
        {
            *keep_left -= size;
            entry.move_to(run, offset);
            self.stays(&mut entry, hash, queue);
            return;
        }
        self.policy.take_hits(queue, &leaving(&entry, hash));
        self.policy.left(queue, &leaving(&entry, hash));
        let wasted = u64::from(entry.state.is_prefetched());
        self.counters.prefetch_wasted.fetch_add(wasted, Ordering::Relaxed);
        shard.remove(hash);
        self.regret.leaves(hash.get(), queue.hint());
        self.counters.evicted_objects.fetch_add(1, Ordering::Relaxed);
    }

    /// An object of `queue` stays in memory; its hits are handed to the policy.
    fn stays(&self, entry: &mut FoundMut<'_>, hash: KeyHash, queue: Queue) {
        self.policy.take_hits(queue, &leaving(entry, hash));
        entry.state.set_hits(self.policy.hits_after(queue, entry.state.hits()));
        entry.state.set_epoch(self.policy.epoch());
    }

    /// Hits in memory count for the disk policy, too: one for each time the object is examined.
    fn tell_disk_of_hits(&self, entry: &FoundMut<'_>, hash: KeyHash) {
        if entry.state.hits() > 0
            && let Some(location) = entry.state.location()
        {
            self.index.bump_freq(hash.get(), location, 1);
        }
    }

    /// Percentage of the objects leaving memory, loved or others, that are requested again soon:
    /// the cost of a newcomer of a group with this hint.
    pub(crate) fn regret_percent(&self, hint: Hint) -> u64 {
        self.regret.percent(hint)
    }

    /// Publishes an entry; removes it again if its run was evicted meanwhile. `may` is called with
    /// the shard locked: an older version must not replace a newer one.
    pub(crate) fn publish_logged(
        &self,
        hash: KeyHash,
        mut entry: Entry,
        may: impl FnOnce() -> bool,
    ) {
        let (first, offset) = (entry.run.first(), entry.state.offset());
        {
            let mut shard = self.resident.shard(hash);
            if shard.contains(hash) || !may() {
                return;
            }
            entry.state.set_epoch(self.policy.epoch());
            shard.insert(hash, entry);
        }
        if !self.is_held(first) {
            let mut shard = self.resident.shard(hash);
            if shard.get(hash).is_some_and(|e| e.is_at(first, offset)) {
                shard.remove(hash);
            }
        }
    }

    fn is_held(&self, first: u32) -> bool {
        self.logs.iter().any(|logs| lock(logs).iter().any(|log| log.run.first() == first))
            || lock(&self.slots[first as usize]).run.is_some()
    }

    /// Evicts every object that is also on disk.
    pub(crate) fn drop_all(&self) {
        self.close_some_log();
        for first in 0..self.pool.places() {
            self.evict_run(first as u32, false);
        }
        let mut queues = lock(&self.queues);
        for waiting in &mut queues.waiting {
            self.clear_old_names(waiting);
        }
    }

    /// Moves every tracked run with objects of these groups to the queue of their new hint. Visits
    /// all places, however few the groups.
    pub(crate) fn requeue(&self, hints: &HashMap<GroupId, Hint>) {
        for first in 0..self.pool.places() as u32 {
            let hash = {
                let slot = lock(&self.slots[first as usize]);
                slot.first_hash()
            };
            let Some((hash, _)) = hash else { continue };
            let group = {
                let shard = self.resident.shard(hash);
                let entry = shard.get(hash).filter(|e| e.is_in(first));
                entry.map(|entry| entry.record().head.group())
            };
            if let Some(hint) = group.and_then(|group| hints.get(&group)) {
                self.move_run(first, self.policy.arrive(*hint, Arrival::Hinted));
            }
        }
    }

    fn move_run(&self, first: u32, target: Queue) {
        let (generation, from, bytes) = {
            let mut slot = lock(&self.slots[first as usize]);
            let Some(run) = &slot.run else { return };
            if slot.queue == target {
                return;
            }
            let bytes = run.len_bytes();
            let from = slot.queue;
            slot.queue = target;
            slot.generation = slot.generation.wrapping_add(1);
            (slot.generation, from, bytes)
        };
        let mut queues = lock(&self.queues);
        queues.bytes[from as usize] -= bytes as isize;
        queues.bytes[target as usize] += bytes as isize;
        self.line_up(&mut queues, target, first, generation);
    }

    /// Bytes of bookkeeping for all places, used or not, and of the queues.
    fn place_bytes(&self) -> usize {
        let names: usize = lock(&self.queues).waiting.iter().map(VecDeque::capacity).sum();
        let place = size_of::<Mutex<Slot>>() + Pool::PLACE_BYTES;
        self.pool.places() * place + names * size_of::<(u32, u32)>()
    }

    /// Lowers the limit of frames in use by the memory that the tables take now, so that all
    /// together stay within the configured memory.
    pub(crate) fn charge_tables(&self, other_bytes: usize) {
        let (objects, bytes) = self.resident.settle();
        self.policy.settle(objects);
        self.regret.set_objects(objects);
        let decides = self.policy.bytes() + self.regret.bytes();
        let places = self.place_bytes() + self.pool.slack_bytes();
        let bytes = bytes + places + decides + other_bytes;
        let frames = self.pool.frames();
        // Data always gets at least a quarter: of the shortest records there is one for each 128
        // bytes, and what finds and judges it takes about half as much.
        let taken = (bytes / self.pool.frame_bytes()).min(frames / 4 * 3);
        self.pool.set_limit(frames - taken);
        let (mut rounds, mut sparing) = (self.pool.places(), SPARING_RUNS_MAX);
        while self.pool.used_bytes() > (frames - taken) * self.pool.frame_bytes()
            && rounds > 0
            && self.evict_one(Hint::Neutral, &mut sparing)
        {
            rounds -= 1;
        }
    }
}
