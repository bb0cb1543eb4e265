//! Reuse of the oldest segment, or of one that is nearly empty: objects that were used are kept,
//! the others are evicted and counted.
//!
//! Kept objects go back to the nursery with a new sequence number, so that they are placed with
//! their group again. The disk policy decides which objects are worth keeping, the reinsertion
//! policy how many of those are written. Invariant: an evicted object does not come back after a
//! crash, since the segment is erased on disk before the index forgets it. Threads: the flusher.

mod read_ahead;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use self::read_ahead::ReadAhead;

use super::create::{NewObject, Replaces};
use super::value::Value;
use crate::durable::segment_contents::segment_entries;
use crate::engine::Engine;
use crate::format::{
    FOOTER_BLOCK_BYTES, JournalOp, Manifest, PAGE_HEADER_BYTES, Patch, RecordHeader, RecordKind,
    SummaryEntry, UNIT_BYTES, verify_record,
};
use crate::index::{Candidate, Location};
use crate::memory::mapped::AlignedBuf;
use crate::memory::resident::Record;
use crate::policy::disk;
use crate::policy::reinsertion::{REINSERT_PERCENT_LIMIT, Survivor};
use crate::policy::residency::Hint;
use crate::ring::SPARSE_PERCENT;
use crate::space::SegmentId;
use crate::stats::add;
use crate::sync::shared;
use crate::types::{KeyHash, SegmentLife, Sequence};

/// What dead objects leave of the share goes to others this many times at most, and only where it
/// is 1/`REFILL_PART` of it or more: else the flusher would read a segment of dead objects a few at
/// a time, and write nothing meanwhile.
const REFILLS_MAX: u32 = 8;
const REFILL_PART: u64 = 16;

/// An object worth keeping.
struct Keeper {
    entry: SummaryEntry,
    location: Location,
    /// The location in the index: the record itself, or the record of newer metadata, which refers
    /// to this one.
    known_at: Location,
    hint: Hint,
    worth: u8,
    freq: u8,
}

impl Keeper {
    /// Offset in its segment, in bytes.
    fn start(&self) -> u64 {
        u64::from(self.entry.offset_units) * UNIT_BYTES
    }

    fn stored_bytes(&self) -> u64 {
        u64::from(self.entry.stored_units) * UNIT_BYTES
    }

    fn end(&self) -> u64 {
        self.start() + self.stored_bytes()
    }

    /// Parts are evicted with their segments; a manifest is kept while its parts exist.
    fn is_kept_by_itself(&self, engine: &Engine) -> bool {
        !matches!(self.entry.kind, None | Some(RecordKind::Part))
            && self.stored_bytes() <= engine.extent_max()
    }

    /// A copy of the record's bytes, if memory holds it.
    fn in_memory(&self, engine: &Engine) -> Option<Vec<u8>> {
        let place = |record: Record<'_>| (record.run.clone(), record.offset);
        let (run, offset) = self.resident(engine, place)?;
        Some(Record::at(&run, offset).bytes().to_vec())
    }

    /// True if memory holds the record.
    fn is_resident(&self, engine: &Engine) -> bool {
        self.resident(engine, |_| ()).is_some()
    }

    /// Passes the record to `look` if memory holds it, with the shard locked.
    fn resident<T>(&self, engine: &Engine, look: impl FnOnce(Record<'_>) -> T) -> Option<T> {
        // For a patch or manifest, memory holds the assembled object instead of that record.
        let is_itself = self.entry.kind == Some(RecordKind::Object);
        let hash = self.entry.key_hash();
        let shard = engine.cache.resident.shard(hash);
        let entry = shard.get(hash).filter(|_| is_itself);
        let entry = entry.filter(|e| e.state.location() == Some(self.location));
        entry.map(|e| look(e.record()))
    }
}

/// Frees a sealed segment: a nearly empty one, else the oldest. False if there is none.
pub(crate) fn reclaim_one(engine: &Arc<Engine>) -> bool {
    let sparse = take_sparse(engine);
    let oldest = || engine.ring.take_oldest(&engine.space);
    let Some(segment) = sparse.or_else(oldest) else { return false };
    let entries = segment_entries(engine, segment).unwrap_or_default();
    let newest = newest_of_several(engine, segment, &entries);
    keep_some(engine, segment, choose(engine, segment, &entries));
    journal_gone(engine, &newest);
    // Before the index forgets: a create after that writes no delete record, and after a crash the
    // older version must not be found here.
    let erased = erase(engine, segment);
    for entry in &entries {
        let location = location_of(engine, segment, entry);
        if sparse.is_some() && engine.index.contains_at(entry.hash, location) {
            // Older segments stay, so older versions in them must be forgotten too.
            let age = |l| engine.ring.age(&engine.space, l);
            engine.index.remove_older(entry.hash, location, age);
        }
        let forgotten = if erased {
            engine.index.remove_at(entry.hash, location)
        } else {
            engine.index.drop_at(entry.hash, location)
        };
        add(&engine.counters.evicted_ring, u64::from(forgotten.is_some()));
    }
    forget_unread(engine, segment);
    engine.ring.free(segment);
    add(&engine.counters.segments_reused, 1);
    // The nursery first: an object that leaves it before the ring is asked is then in an open
    // segment, which the ring counts.
    let waiting = engine.nursery.oldest_seq().unwrap_or(Sequence::MAX);
    if let Some(oldest) = engine.ring.oldest_object() {
        engine.marks.prune(waiting.min(oldest));
    }
    true
}

/// The records of a segment without which a crash might bring back older states of their objects:
/// where those need no record in the journal, the newer on disk is what keeps recovery from finding
/// them, until a checkpoint does. So young is a segment only that is reused early, or with a ring
/// that comes round within the time of a checkpoint.
fn newest_of_several(
    engine: &Engine,
    segment: SegmentId,
    entries: &[SummaryEntry],
) -> Vec<(JournalOp, Sequence)> {
    let young = entries.iter().filter(|entry| !engine.checkpoints.covers(entry.sequence()));
    let newest = young.filter(|entry| {
        engine.index.contains_at(entry.hash, location_of(engine, segment, entry))
            && engine.index.has_dropped(entry.hash)
    });
    newest.map(|entry| (JournalOp::DeleteKey { hash: entry.hash }, entry.sequence())).collect()
}

/// Journals that what is older than records which are about to go is dead. What cannot be
/// journalled now is so later, or counted.
fn journal_gone(engine: &Engine, gone: &[(JournalOp, Sequence)]) {
    if gone.is_empty() {
        return;
    }
    gone.iter().for_each(|_| engine.note_journalled());
    let _ = engine.counted(engine.journal.append_late(gone));
}

/// Forgets what else the index has in a segment: nobody could read what that is. The index would
/// point into the segment's next life, where a reader takes what it finds for damage.
fn forget_unread(engine: &Engine, segment: SegmentId) {
    if engine.index.units_in(segment.0) == 0 {
        return;
    }
    let gone = |location| engine.space.split(location).0 == segment;
    let age = |location| engine.ring.age(&engine.space, location);
    let shards = 0..engine.index.shard_count();
    let forgotten: u64 = shards.map(|shard| engine.index.drop_where(shard, gone, age)).sum();
    add(&engine.counters.evicted_ring, forgotten);
}

/// The emptiest segment, if most of its contents are gone. `None` while recovery runs, since the
/// index is incomplete until then.
fn take_sparse(engine: &Engine) -> Option<SegmentId> {
    if !engine.recovery.is_done() {
        return None;
    }
    let held = |segment: SegmentId| engine.index.units_in(segment.0) * UNIT_BYTES;
    let sparse = engine.ring.take_sparse(&engine.space, held);
    add(&engine.counters.segments_reused_early, u64::from(sparse.is_some()));
    sparse
}

/// Erases the marks by which recovery knows the segment, its life in the table, its footer and the
/// header of its first page, so that forgotten objects are not found again. Records stay readable
/// until the segment is reused. False on an I/O error, which the volume counts.
fn erase(engine: &Engine, segment: SegmentId) -> bool {
    engine.leave_clean();
    let mut erased = engine.note_life(segment, SegmentLife::NONE).is_ok();
    let last = engine.space.segment_bytes - FOOTER_BLOCK_BYTES as u64;
    let mut first = AlignedBuf::zeroed(FOOTER_BLOCK_BYTES);
    if engine.read_for_itself(segment, 0, &mut first).is_err() {
        first.fill(0);
    }
    first[..PAGE_HEADER_BYTES].fill(0);
    for (at, block) in [(0, first), (last, AlignedBuf::zeroed(FOOTER_BLOCK_BYTES))] {
        let written = engine.space.write(segment, at, &block).is_ok();
        add(&engine.counters.written_bytes, if written { FOOTER_BLOCK_BYTES as u64 } else { 0 });
        erased &= written;
    }
    if engine.config.durability == crate::config::Durability::Synced {
        erased &= engine.space.sync_at(segment).is_ok();
    }
    erased
}

fn location_of(engine: &Engine, segment: SegmentId, entry: &SummaryEntry) -> Location {
    engine.space.location(segment, u64::from(entry.offset_units) * UNIT_BYTES)
}

/// What is worth keeping of a segment.
struct Chosen {
    /// The worthiest first.
    keepers: VecDeque<Keeper>,
    /// The mean frequency in the segment, in hundredths.
    mean: u32,
    /// Bytes that may be written again.
    share: u64,
}

/// Keeps what the share has room for. Only their records tell which objects have expired or were
/// purged by prefix; what these leave of the share goes to the next.
fn keep_some(engine: &Arc<Engine>, segment: SegmentId, chosen: Chosen) {
    let Chosen { mut keepers, mean, share } = chosen;
    let mut left = share;
    for _ in 0..=REFILLS_MAX {
        let mut fit = take_within(engine, &mut left, &mut keepers);
        // In disk order, so that neighbours are read together.
        fit.sort_unstable_by_key(|k| k.entry.offset_units);
        let mut ahead = ReadAhead::new(engine, segment, &fit);
        let dead = fit.iter().filter(|keeper| !keep(engine, keeper, mean, &mut ahead));
        let dead_bytes: u64 = dead.map(Keeper::stored_bytes).sum();
        left += dead_bytes;
        if dead_bytes == 0 || left < share / REFILL_PART || keepers.is_empty() {
            return;
        }
    }
}

/// The objects to keep.
fn choose(engine: &Engine, segment: SegmentId, entries: &[SummaryEntry]) -> Chosen {
    let mut live: Vec<(SummaryEntry, Location, u8)> = Vec::new();
    for entry in entries {
        let location = location_of(engine, segment, entry);
        let known = engine.index.freq(entry.hash, location).map(|freq| (location, freq));
        let newer = || newer_metadata(engine, entry).map(|newer| (newer.location, newer.freq));
        // Newer metadata has a number of its own, and may have another group.
        let is_purged = || engine.marks.kills_in(entry.group(), Sequence::from_raw(entry.seq));
        if let Some((known_at, freq)) = known.or_else(newer)
            && !(known_at == location && is_purged())
        {
            live.push((
                *entry,
                known_at,
                freq.max(memory_freq(engine, entry.key_hash(), known_at)),
            ));
        }
    }
    let held: u64 = live.iter().map(|(e, ..)| u64::from(e.stored_units) * UNIT_BYTES).sum();
    // Little of the segment is live: keeping that frees more room than it takes.
    let is_sparse = held * 100 <= engine.space.segment_bytes * SPARSE_PERCENT;
    let sum: u32 = live.iter().map(|(_, _, freq)| u32::from(*freq)).sum();
    let mean = sum * 100 / (live.len() as u32).max(1);
    let mut keepers: Vec<Keeper> = live
        .into_iter()
        .filter_map(|(entry, known_at, freq)| {
            let location = location_of(engine, segment, &entry);
            let hint = engine.groups.hint(entry.group());
            let candidate =
                disk::Candidate { freq, loved: hint == Hint::Loved, hated: hint == Hint::Hated };
            let worth = engine.policies.disk.worth(candidate, mean);
            let few = || engine.policies.disk.worth_among_few(candidate).filter(|_| is_sparse);
            let worth = worth.or_else(few)?;
            Some(Keeper { entry, location, known_at, hint, worth, freq })
        })
        .collect();
    keepers.sort_by_key(|k| std::cmp::Reverse(k.worth));
    Chosen { keepers: keepers.into(), mean, share: share(engine, is_sparse) }
}

/// Bytes of a segment that may be written again.
fn share(engine: &Engine, is_sparse: bool) -> u64 {
    let segment_bytes = engine.space.segment_bytes;
    let limit = segment_bytes * u64::from(REINSERT_PERCENT_LIMIT) / 100;
    let now = engine.clock.monotonic();
    let share = engine.policies.reinsertion.budget(segment_bytes, now).min(limit);
    let sparse = segment_bytes * SPARSE_PERCENT / 100;
    if is_sparse && share > 0 { share.max(sparse) } else { share }
}

/// Takes the objects that there is room for and that the reinsertion policy wants written again.
/// Those that there is no room for stay.
fn take_within(engine: &Engine, left: &mut u64, keepers: &mut VecDeque<Keeper>) -> Vec<Keeper> {
    let mut fit = Vec::new();
    for _ in 0..keepers.len() {
        let Some(k) = keepers.pop_front() else { break };
        let survivor = Survivor {
            hash: k.entry.hash,
            group: k.entry.group(),
            hint: k.hint,
            freq: k.freq,
            worth: k.worth,
            bytes: u64::from(k.entry.stored_units) * UNIT_BYTES,
        };
        if survivor.bytes > *left {
            keepers.push_back(k);
        } else if engine.policies.reinsertion.keeps(&survivor) {
            *left -= survivor.bytes;
            fit.push(k);
        }
    }
    fit
}

/// The candidate that may be newer metadata of a large object: a page record, and the only
/// candidate of its hash.
fn newer_metadata(engine: &Engine, entry: &SummaryEntry) -> Option<Candidate> {
    let in_pages = engine.page_record_max() / UNIT_BYTES;
    if entry.kind != Some(RecordKind::Object) || u64::from(entry.stored_units) <= in_pages {
        return None;
    }
    let candidates = engine.index.candidates(entry.hash);
    let only = candidates.iter().next().filter(|_| candidates.len() == 1);
    only.filter(|candidate| candidate.length_class.units() <= in_pages)
}

/// The frequency of a resident object; its hits have not reached the index yet.
fn memory_freq(engine: &Engine, hash: KeyHash, location: Location) -> u8 {
    let shard = engine.cache.resident.shard(hash);
    let entry = shard.get(hash).filter(|e| e.state.location() == Some(location));
    entry.map_or(0, |e| e.state.hits().min(3))
}

/// Puts the object back into the nursery; false if it is not there any more or cannot be read. If
/// it is refused, it is evicted like the other objects.
fn keep(engine: &Arc<Engine>, keeper: &Keeper, mean: u32, ahead: &mut ReadAhead<'_>) -> bool {
    let hash = keeper.entry.key_hash();
    // Checked again with the shard locked when the copy is published; checking here saves a read.
    if !engine.is_only_version(hash, keeper.known_at) {
        return false;
    }
    let Some(kept) = read_copy(engine, keeper, ahead) else { return false };
    let (newest, metadata) = kept.newest();
    let (key, value) = (kept.header.key_range(), kept.header.value_range());
    let (key, value) = (&kept.record[key], &kept.record[value]);
    let new = NewObject {
        kind: kept.header.kind,
        metadata,
        expires_s: newest.expires_s,
        internal: true,
        replaces: Replaces::Itself(keeper.known_at),
        freq: engine.policies.disk.next_freq(keeper.freq, mean),
        ..NewObject::of(key, newest.group(), Value::Whole(value))
    };
    // `purge_lock` orders purges: a later one gets a greater sequence number than the copy, an
    // earlier one is seen here.
    let unpurged = shared(&engine.purge_lock);
    let dead = engine.marks.kills(newest.group(), new.key, newest.sequence())
        || newest.expired(engine.clock.unix_seconds());
    if !dead && engine.create_now(&new).is_ok() {
        if keeper.known_at == keeper.location {
            engine.index.remove_at(hash.get(), keeper.location);
        } else {
            // The record of the metadata stays on disk.
            engine.index.drop_at(hash.get(), keeper.known_at);
        }
        add(&engine.counters.reinserted_objects, 1);
        add(&engine.counters.reinserted_bytes, kept.header.stored_bytes());
    }
    drop(unpurged);
    !dead
}

/// A record to be kept, and the record of its newer metadata, if there is one.
struct Kept<'a> {
    header: RecordHeader,
    record: Cow<'a, [u8]>,
    newer: Option<Newer>,
}

impl Kept<'_> {
    /// The newest header, which has the group and the expiry, and the newest metadata.
    fn newest(&self) -> (&RecordHeader, &[u8]) {
        match &self.newer {
            Some(Newer { header, bytes }) => (header, &bytes[header.meta_range()]),
            None => (&self.header, &self.record[self.header.meta_range()]),
        }
    }
}

/// The records that are to be written again, from memory or disk, verified.
fn read_copy<'a>(
    engine: &Engine,
    keeper: &Keeper,
    ahead: &'a mut ReadAhead<'_>,
) -> Option<Kept<'a>> {
    if !keeper.is_kept_by_itself(engine) {
        return None;
    }
    // Read the small patch record before the large record that it refers to.
    let is_newest = keeper.known_at == keeper.location;
    let newer = if is_newest { None } else { Some(read_newer(engine, keeper)?) };
    let (record, header) = read_kept(engine, keeper, ahead)?;
    let is_whole = header.kind != RecordKind::Manifest || has_parts(engine, &header, &record);
    (is_whole && Some(header.kind) == keeper.entry.kind).then_some(Kept { header, record, newer })
}

/// True if none of the segments with the object's parts has been reused.
fn has_parts(engine: &Engine, header: &RecordHeader, record: &[u8]) -> bool {
    let value = &record[header.value_range()];
    Manifest::decode(value, engine.space.segment_bytes).is_ok_and(|manifest| {
        manifest.parts.iter().all(|part| {
            let segment = SegmentId(part.segment_id);
            engine.space.holds(segment) && engine.ring.life(segment) == part.life()
        })
    })
}

/// A record of newer metadata.
struct Newer {
    header: RecordHeader,
    bytes: Vec<u8>,
}

/// The record of newer metadata, if it refers to this one.
fn read_newer(engine: &Engine, keeper: &Keeper) -> Option<Newer> {
    let candidates = engine.index.candidates(keeper.entry.hash);
    let known = candidates.iter().find(|c| c.location == keeper.known_at)?;
    let stored = known.length_class.units() * UNIT_BYTES;
    let (segment, start, len) = engine.blocks_of(known.location, stored);
    let life = engine.ring.life(segment);
    // Not from the pool: the flusher may be running to free memory there.
    let mut buf = AlignedBuf::zeroed(len as usize);
    engine.read_for_itself(segment, start, &mut buf).ok()?;
    let (_, offset) = engine.space.split(known.location);
    let bytes = buf.get((offset - start) as usize..)?;
    let header = RecordHeader::decode(bytes, engine.space.nonce).ok()?;
    let bytes = bytes.get(..header.stored_bytes() as usize)?.to_vec();
    let is_whole = header.kind == RecordKind::Patch && verify_record(&header, &bytes);
    let value = bytes.get(header.value_range()).filter(|_| is_whole)?;
    let patch = Patch::decode(value).ok()?;
    let refers = patch.base_units == keeper.location.units()
        && patch.base_seq == keeper.entry.seq
        && header.is_of(life)
        && header.hash == keeper.entry.hash;
    refers.then_some(Newer { header, bytes })
}

/// Reads the record from memory, else from disk, and verifies it.
fn read_kept<'a>(
    engine: &Engine,
    keeper: &Keeper,
    ahead: &'a mut ReadAhead<'_>,
) -> Option<(Cow<'a, [u8]>, RecordHeader)> {
    let hash = keeper.entry.key_hash();
    let record = match keeper.in_memory(engine) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(ahead.record(keeper)?),
    };
    let header = RecordHeader::decode(&record, engine.space.nonce).ok()?;
    // Not by the life: a record from memory need not say which.
    let is_listed = header.key_hash() == hash && header.seq == keeper.entry.seq;
    let whole = is_listed && header.stored_bytes() <= record.len() as u64;
    (whole && verify_record(&header, &record)).then_some((record, header))
}
