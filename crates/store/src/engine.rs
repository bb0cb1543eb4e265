//! The engine: owns every part of an open store and the few operations that involve several parts.
//!
//! `Store` is a handle on the engine. Its threads are the flusher, the recovery thread with its
//! helpers, the keeper (checkpoints), one that makes large pages, and the workers; devices have
//! threads of their own. Invariants across parts: an object is in the resident table, in the index,
//! or gone; sequence numbers are unique and grow with time.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, Padded, RwLock};
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use crate::config::{Config, OwnPolicies, WhenMemoryFull};
use crate::device::DeviceStats;
use crate::durable::deletes::Deletes;
use crate::durable::journal::Journal;
use crate::durable::marks::Marks;
use crate::durable::progress::{CheckpointState, RecoveryState};
use crate::durable::superblocks::DamagedCopies;
use crate::format::{JournalOp, KEY_BYTES_MAX, META_BYTES_MAX, SUMMARY_ENTRY_BYTES};
use crate::group::Groups;
use crate::group::hints::PendingHints;
use crate::group::neighbours::{Neighbours, Touched};
use crate::index::{Index, Location};
use crate::memory::cache::Cache;
use crate::memory::pool::Run;
use crate::page_frames::PageFrames;
use crate::page_groups::PageGroups;
use crate::policy::admission::{AdmissionPolicy, unless_always};
use crate::policy::disk::{DiskPolicy, disk_policy};
use crate::policy::reinsertion::{ReinsertionPolicy, reinsertion_policy};
use crate::policy::residency::Hint;
use crate::process::Process;
use crate::read::assembled::Assembled;
use crate::read::flight::Flights;
use crate::read::gathering::Gathering;
use crate::read::heads::Heads;
use crate::read::page_choice::ReadCosts;
use crate::read::under_way::UnderWay;
use crate::rest::Rest;
use crate::ring::Ring;
use crate::signal::Signal;
use crate::space::{Space, Volume};
use crate::stats::{Counters, Stats, add};
use crate::types::{Clock, GroupId, KeyHash, Sequence};
use crate::waiting::Waiting;
use crate::workers::Workers;
use crate::write::gate::Gate;
use crate::write::inline_slot::InlineSlot;
use crate::write::nursery::Nursery;

/// How often the thread behind large pages looks whether one is wanted, and its longest rest.
const ENLARGING_NAP: Duration = Duration::from_millis(50);

/// A page record takes at most 1/`PAGE_SHARE` of a page.
const PAGE_SHARE: u64 = 3;

/// Longest value that is read in one piece, however large the memory: its length, and with what
/// lies beside it that of its run, are kept in 32 bits.
const PIECE_BYTES_MAX: u64 = 2 << 30;
/// At most what is beside the value in its run: key, metadata, header, and the rest of a page.
const BESIDE_PIECE_BYTES: u64 = KEY_BYTES_MAX as u64 + META_BYTES_MAX as u64 + (2 << 20);
const _: () = assert!(PIECE_BYTES_MAX + BESIDE_PIECE_BYTES <= u32::MAX as u64);

pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) space: Arc<Space>,
    pub(crate) index: Arc<Index>,
    pub(crate) cache: Cache,
    pub(crate) ring: Ring,
    pub(crate) nursery: Nursery,
    pub(crate) inline: InlineSlot,
    pub(crate) gate: Gate,
    pub(crate) groups: Groups,
    pub(crate) hints: PendingHints,
    pub(crate) page_groups: PageGroups,
    pub(crate) page_frames: PageFrames,
    pub(crate) marks: Marks,
    pub(crate) journal: Journal,
    pub(crate) counters: Padded<Counters>,
    /// Copies of superblocks that the first write writes again.
    pub(crate) damaged_superblocks: DamagedCopies,
    pub(crate) reads: Reads,
    /// Averages over all groups, assumed for a new group.
    pub(crate) neighbours: Padded<Neighbours>,
    pub(crate) touched: Touched,
    pub(crate) policies: Policies,
    pub(crate) recovery: RecoveryState,
    pub(crate) checkpoints: CheckpointState,
    pub(crate) workers: Workers,
    pub(crate) hash_seed: u64,
    pub(crate) next_seq: Padded<AtomicU64>,
    /// Deletes that are consulted until recovery has applied them.
    pub(crate) deletes: RwLock<Deletes>,
    /// Held shared while an existing object is written again under a new sequence number,
    /// exclusively by purges.
    pub(crate) purge_lock: RwLock<()>,
    /// Entries of the summary of the segment of pages filled last, or of a longer one being filled.
    pub(crate) summary_entries: AtomicUsize,
    /// Memory of the pool that writers fill.
    pub(crate) writers_held_bytes: AtomicU64,
    pub(crate) writes_in_flight: Mutex<usize>,
    pub(crate) writes_done: Signal,
    pub(crate) rest: Rest,
    pub(crate) closed: AtomicBool,
    /// The process that opened the store.
    pub(crate) process: Process,
    pub(crate) warnings: Vec<String>,
    pub(crate) created: bool,
    pub(crate) paths: Vec<PathBuf>,
}

/// The policies in force: the embedder's own, or those that the settings name.
pub(crate) struct Policies {
    pub(crate) disk: Arc<dyn DiskPolicy>,
    pub(crate) reinsertion: Arc<dyn ReinsertionPolicy>,
    /// `None` admits every object without reading the clock.
    pub(crate) admission: Option<Arc<dyn AdmissionPolicy>>,
}

impl Policies {
    /// For an index with room for `objects_max` objects.
    pub(crate) fn new(config: &Config, hash_seed: u64, objects_max: u64) -> Policies {
        let OwnPolicies { disk, reinsertion, admission, .. } = config.own_policies.clone();
        let c = config;
        let named_disk = || disk_policy(c.disk_policy, c.fbc_count_max, c.fbc_average_max_percent);
        let named_reinsertion = || reinsertion_policy(c.reinsertion, c.reinsert_percent_max);
        let memory_bytes = c.memory.bytes();
        Policies {
            disk: disk.unwrap_or_else(|| named_disk().into()),
            reinsertion: reinsertion.unwrap_or_else(|| named_reinsertion().into()),
            admission: admission
                .or_else(|| unless_always(c.admission, hash_seed, objects_max, memory_bytes)),
        }
    }
}

/// What reads share: those under way, and what lately ended ones leave to the next.
pub(crate) struct Reads {
    pub(crate) flights: Flights,
    /// Of each volume.
    pub(crate) under_way: Box<[Arc<UnderWay>]>,
    pub(crate) gathering: Arc<Gathering>,
    pub(crate) assembled: Assembled,
    pub(crate) heads: Heads,
    pub(crate) costs: Padded<ReadCosts>,
}

impl Reads {
    /// For a store with `memory_bytes` of memory for data.
    pub(crate) fn new(memory_bytes: u64, volumes: usize) -> Reads {
        Reads {
            flights: Flights::default(),
            under_way: UnderWay::of_volumes(memory_bytes as usize, volumes),
            gathering: Arc::new(Gathering::new(memory_bytes as usize)),
            assembled: Assembled::new(memory_bytes),
            heads: Heads::new(memory_bytes),
            costs: Padded(ReadCosts::new()),
        }
    }
}

impl Engine {
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        // In a summary, zero means "no hash".
        KeyHash::from_raw(twox_hash::XxHash3_64::oneshot_with_seed(self.hash_seed, key).max(1))
    }

    pub(crate) fn new_seq(&self) -> Sequence {
        Sequence::from_raw(self.next_seq.fetch_add(1, Ordering::SeqCst))
    }

    /// True if this record is the only candidate of its hash in the index, so that no newer version
    /// of its key can be there.
    pub(crate) fn is_only_version(&self, hash: KeyHash, location: Location) -> bool {
        let candidates = self.index.candidates(hash.get());
        candidates.len() == 1 && candidates.iter().all(|c| c.location == location)
    }

    /// Removes every version of a key from the index: when the newest is gone, an older one must
    /// not come back. Entries of other keys with the same tag are removed too, which is rare and
    /// allowed.
    pub(crate) fn forget(&self, hash: KeyHash) -> usize {
        let removed = self.index.remove_all(hash.get(), |l| self.ring.age(&self.space, l)).len();
        if removed > 1 {
            add(&self.counters.evicted_collision, removed as u64 - 1);
        }
        removed
    }

    /// True if the store is closed, or was opened by another process (before a fork).
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.process.is_another()
    }

    /// Longest record that goes into a page, a third of the page. With larger page records, objects
    /// of equal length would leave up to a third of each page, and of its memory, empty; as an
    /// extent, such a record wastes at most one 4 KiB block.
    pub(crate) fn page_record_max(&self) -> u64 {
        self.space.page_bytes / PAGE_SHARE
    }

    /// Largest record that is kept in memory, or read, in one piece, in bytes.
    pub(crate) fn piece_max(&self) -> u64 {
        let memory = self.cache.pool.frames() as u64 * self.space.page_bytes;
        piece_max_of(memory, self.space.page_bytes)
    }

    /// Largest record that is written as one extent, in bytes.
    pub(crate) fn extent_max(&self) -> u64 {
        self.piece_max().min(self.space.segment_bytes / 2)
    }

    /// Longest metadata of one object: the format's limit, or less on small segments or with little
    /// memory.
    pub(crate) fn metadata_max(&self) -> usize {
        (self.extent_max() / 2).min(u64::from(crate::format::META_BYTES_MAX)) as usize
    }

    /// Takes a run of `bytes` bytes, waiting for readers as configured. `None`: refused. `waited`
    /// is the time that the caller has waited so far for one operation, and is advanced: an
    /// operation that takes several runs waits no longer for all of them than for one.
    pub(crate) fn take_waiting(
        &self,
        bytes: usize,
        requester: Hint,
        waited: &mut Duration,
    ) -> Option<Run> {
        self.stir();
        let mut waiting = Waiting::default();
        let before = *waited;
        loop {
            let idle = self.nursery.bytes() == 0;
            let run = self.cache.take(bytes, requester);
            *waited = before + waiting.elapsed();
            if run.is_some() {
                return run;
            }
            let refuse = self.config.when_memory_full == WhenMemoryFull::Refuse && idle;
            if refuse || *waited >= self.config.memory_wait || self.is_closed() {
                return None;
            }
            waiting.begin(&self.counters.read_waits);
            if self.nursery.bytes() > 0 {
                self.nursery.request_flush();
                self.work_inline();
            }
            self.cache.pool.wait_freed();
        }
    }

    /// Notes that the store is used: an operation that takes memory or writes calls this first.
    #[inline]
    pub(crate) fn stir(&self) {
        if self.rest.stir() {
            self.nursery.wake();
        }
    }

    /// Writes a delete or purge to the journal; a failure is counted and returned.
    pub(crate) fn journal_append(&self, op: JournalOp, seq: Sequence) -> std::io::Result<()> {
        self.note_journalled();
        self.counted(self.journal.append(op, seq))
    }

    /// As `journal_append`, for callers that may wait for a checkpoint, and have waited for room.
    /// What is kept for those that may not is left to them, however many come at once. The wait
    /// began at `begun`, and is no longer for being in vain at first.
    pub(crate) fn journal_append_in_room(
        &self,
        op: &JournalOp,
        seq: Sequence,
        begun: Instant,
    ) -> std::io::Result<()> {
        self.note_journalled();
        while !self.counted(self.journal.append_in_room(op, seq, begun))? {
            self.wait_journal_room(begun)?;
        }
        Ok(())
    }

    /// Counts a journal failure, and says of which volume it is.
    pub(crate) fn counted<T>(&self, written: std::io::Result<T>) -> std::io::Result<T> {
        written.map_err(|error| {
            add(&self.counters.journal_errors, 1);
            self.space.of_journal(error)
        })
    }

    /// Sets a group's hint; `Neutral` removes it.
    pub(crate) fn hint(&self, group: GroupId, hint: Hint) {
        self.stir();
        let before = self.groups.hint(group);
        self.groups.set_hint(group, hint);
        if before == hint {
            return;
        }
        self.hints.add(group, hint);
        if self.inline.is_set() {
            // Without background threads, no later tick would apply the hint.
            self.hints.apply_now(|hints| self.cache.requeue(hints));
        }
    }

    /// The thread behind large pages: makes one after the other while frames would lie in them, and
    /// rests as long as each took. Where the system is slow to provide them (a virtual machine
    /// whose host has to), frames lie in small pages until then, and nobody waits.
    pub(crate) fn enlarge(&self) {
        let mut rest = ENLARGING_NAP;
        while !self.rest.sleep(rest) {
            let start = self.clock.monotonic();
            let is_enlarged = self.cache.pool.enlarge();
            let took = self.clock.monotonic().saturating_sub(start);
            rest = if is_enlarged { took.min(ENLARGING_NAP) } else { ENLARGING_NAP };
        }
    }

    /// Periodic duties of the flusher: charges the current size of the tables to the memory budget,
    /// and applies the hints gathered since to the objects in memory.
    pub(crate) fn tick(&self) {
        self.hints.apply(|| self.clock.monotonic(), |hints| self.cache.requeue(hints));
        let reused = self.counters.segments_reused.load(Ordering::Relaxed);
        let is_current = |segment, life| self.ring.life(segment) == life;
        self.groups.forget_reused(reused, self.ring.segments().into(), is_current);
        let of_pages = self.touched.bytes() + self.page_frames.bytes();
        let admission = self.policies.admission.as_ref().map_or(0, |policy| policy.bytes());
        let tables = self.groups.bytes() + of_pages + self.reads.heads.bytes() + admission;
        self.cache.charge_tables(tables + self.nursery.table_bytes() + self.summary_bytes());
    }

    /// Memory of the summary of a segment being filled: there are two copies of it while it grows,
    /// and while it is written.
    fn summary_bytes(&self) -> usize {
        2 * SUMMARY_ENTRY_BYTES * self.summary_entries.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.counters.snapshot();
        self.cache.resident.for_each_shard(|shard| {
            stats.hits_memory += shard.hits;
            stats.hit_bytes += shard.hit_bytes;
            stats.prefetch_hits += shard.prefetch_hits;
            stats.resident_objects += shard.len() as u64;
        });
        let counters = &self.cache.counters;
        stats.evicted_memory = counters.evicted_objects.load(Ordering::Relaxed);
        stats.prefetch_wasted = counters.prefetch_wasted.load(Ordering::Relaxed);
        stats.journal_bytes = self.journal.written_bytes();
        stats.index_objects = self.index.len();
        stats.index_slots = self.index.slots();
        stats.index_bytes = self.index.memory_bytes();
        stats.memory_used_bytes = self.cache.pool.used_bytes() as u64;
        stats.memory_bytes = self.config.memory.bytes();
        stats.memory_large_page_bytes = self.cache.pool.large_page_bytes() as u64;
        stats.nursery_bytes = self.nursery.bytes();
        stats.groups_tracked = self.groups.tracked() as u64;
        stats.purge_marks = self.marks.count() as u64;
        stats.segments = u64::from(self.ring.segments());
        stats.segments_free = self.ring.free_count() as u64;
        stats.volumes_out = self.space.volumes.iter().filter(|v| v.is_out()).count() as u64;
        stats.damaged_superblocks = self.damaged_superblocks.found();
        let is_silent = |volume: &&Volume| self.space.silent_for(volume).is_some();
        stats.volumes_unanswering = self.space.volumes.iter().filter(is_silent).count() as u64;
        stats.queue_frames = self.cache.queue_frames().map(|frames| frames as u64);
        let device = |volume: &Volume| DeviceStats {
            sync_errors: volume.sync_errors.count(),
            ..volume.device.stats()
        };
        stats.devices = self.space.volumes.iter().map(device).collect();
        let progress = self.recovery.progress();
        stats.recovery_segments_loaded = progress.segments_loaded;
        stats.recovery_segments_wanted = progress.segments_wanted;
        stats
    }
}

fn piece_max_of(memory_bytes: u64, page_bytes: u64) -> u64 {
    (memory_bytes / 8).max(2 * page_bytes).min(PIECE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_one_piece_has_a_length_that_its_guard_can_hold() {
        assert_eq!(piece_max_of(64 << 20, 64 << 10), 8 << 20);
        assert_eq!(piece_max_of(4 << 20, 1 << 20), 2 << 20);
        for memory_bytes in [8 << 30, 64 << 30, 16 << 40] {
            let whole = piece_max_of(memory_bytes, 1 << 20) + BESIDE_PIECE_BYTES;
            assert!(u32::try_from(whole).is_ok(), "{whole} with {memory_bytes} of memory");
        }
    }
}
