//! The end of an object's write: it enters the index, or is dropped and counted.
//!
//! Invariants: an entry moves from nursery to page frame under the shard lock, so that a remove or
//! replacement in between is seen; an object that could not be written takes the version that it
//! replaces with it. Threads: I/O threads, and the flusher when no segment is available.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::nursery::{Finished, Staged, StagedExtent};
use super::page_build::{BuiltPage, Placed};
use super::superseded::let_go_of_copy;
use crate::engine::Engine;
use crate::format::{PAGE_HEADER_BYTES, UNIT_BYTES};
use crate::index::{EvictionReason, LengthClass, Location};
use crate::memory::resident::{Entry, FoundMut, Record};
use crate::policy::residency::Arrival;
use crate::space::{PageAt, SegmentId};
use crate::stats::add;
use crate::types::{GroupId, KeyHash, SegmentLife};

pub(super) fn publish_page(
    engine: &Arc<Engine>,
    place: PageAt,
    life: SegmentLife,
    page: BuiltPage,
) {
    let mut noted: BTreeSet<GroupId> = BTreeSet::new();
    let mut dead_bytes = 0;
    for object in &page.objects {
        if publish_placed(engine, place, life, &page, object) {
            noted.insert(object.group);
        } else {
            let staged = &object.staged;
            dead_bytes += if staged.may_wait { u64::from(staged.stored_bytes) } else { 0 };
            let_go_of_copy(engine, staged);
        }
    }
    if dead_bytes > 0 {
        engine.nursery.dead_left(dead_bytes);
    }
    let (segment, number) = (place.segment, place.number);
    let is_current = |segment, life| engine.ring.life(segment) == life;
    for group in noted {
        engine.groups.entry(group).note_page(segment, life, number as u32, is_current);
    }
    let primary = page.objects[0].group;
    engine.page_groups.set(segment, number, primary);
    let hint = engine.groups.hint(primary);
    drop(page.objects);
    if page.passing {
        return;
    }
    let queue = engine.cache.arrive(hint, Arrival::Written);
    engine.page_frames.set(segment, number, page.run.first());
    engine.cache.track(page.run, queue, PAGE_HEADER_BYTES as u32..page.used_bytes);
}

/// Publishes an object of a page; false if it is not wanted any more.
fn publish_placed(
    engine: &Arc<Engine>,
    place: PageAt,
    life: SegmentLife,
    page: &BuiltPage,
    object: &Placed,
) -> bool {
    let Placed { hash, group, offset, staged } = object;
    let mut shard = engine.cache.resident.shard(*hash);
    let found = shard.get_mut(*hash);
    let Some(mut entry) = found.filter(|entry| staged.is_entry(entry)) else { return false };
    let location = engine.space.location(place.segment, place.start() + u64::from(*offset));
    let is_new = engine.enters_index(&mut entry, *hash, location, staged);
    // Manifests and patches are not kept in memory: the object that they stand for is, once it is
    // read.
    let mut assembled = None;
    if entry.record().head.is_object() && !page.passing {
        entry.move_to(page.run.clone(), *offset);
    } else {
        assembled = engine.reads.assembled.take(*hash, entry.record().head.sequence());
        shard.remove(*hash);
    }
    if let Some(run) = &assembled {
        let mut entry = Entry::of(run.clone(), 0);
        entry.state.set_location(location);
        entry.state.set_epoch(engine.cache.epoch());
        shard.insert(*hash, entry);
    }
    drop(shard);
    if let Some(run) = assembled {
        // The next new metadata asks which record this one refers to.
        let record = page.run.bytes(*offset as usize, staged.stored_bytes as usize);
        engine.keep_head_at(location, life, record);
        let records = 0..Record::at(&run, 0).head.stored_bytes() as u32;
        engine.track_assembled(*hash, *group, run, records);
    }
    if is_new {
        engine.cache.written(*hash);
    }
    true
}

pub(super) fn drop_page(engine: &Engine, page: BuiltPage, reason: &str) {
    page.objects.iter().for_each(|object| drop_object(engine, object.hash, &object.staged));
    let dropped = Finished::of(page.staged());
    drop(page);
    add(&engine.counters.drops_write_error, dropped.objects());
    engine.nursery.dropped_for(reason, &dropped);
}

/// Forgets an object that could not be written, together with the older version that it replaces,
/// which must not come back.
fn drop_object(engine: &Engine, hash: KeyHash, staged: &Staged) {
    let (first, offset) = (staged.run.first(), staged.offset);
    engine.forget_if(hash, |resident| resident.is_some_and(|entry| entry.is_at(first, offset)));
}

pub(super) fn publish_extent(
    engine: &Arc<Engine>,
    segment: SegmentId,
    at: u64,
    extent: StagedExtent,
) {
    let StagedExtent { staged, part, group, .. } = extent;
    let location = engine.space.location(segment, at);
    let written = Finished::of([&staged]);
    if let Some(part) = part {
        engine.ring.refer(segment);
        // If the writer was abandoned, the receiver is gone and the part is garbage.
        let _ = part.send(Ok((location, engine.ring.life(segment))));
        // Before anybody takes it for written: who waits for its memory is refused where nothing
        // is left to be written.
        drop(staged);
    } else {
        let hash = staged.record().head.key_hash();
        let mut shard = engine.cache.resident.shard(hash);
        let entry = shard.get_mut(hash);
        let mut is_new = false;
        if let Some(mut entry) = entry.filter(|entry| staged.is_entry(entry)) {
            is_new = engine.enters_index(&mut entry, hash, location, &staged);
            if !entry.record().head.is_object() {
                shard.remove(hash);
            }
        }
        drop(shard);
        let_go_of_copy(engine, &staged);
        if is_new {
            engine.cache.written(hash);
        }
        let hint = engine.groups.hint(group);
        let queue = engine.cache.arrive(hint, Arrival::Written);
        let records = staged.offset..staged.offset + staged.stored_bytes;
        engine.cache.track(staged.run, queue, records);
    }
    engine.nursery.finished(&written);
}

pub(super) fn drop_extent(engine: &Engine, extent: StagedExtent, reason: &str) {
    let StagedExtent { staged, part, .. } = extent;
    if let Some(part) = part {
        let _ = part.send(Err(reason.to_owned()));
    } else {
        let hash = staged.record().head.key_hash();
        drop_object(engine, hash, &staged);
    }
    let dropped = Finished::of([&staged]);
    drop(staged);
    add(&engine.counters.drops_write_error, 1);
    engine.nursery.dropped_for(reason, &dropped);
}

impl Engine {
    /// Puts the object of an entry into the index, at its place on disk. True if it had none.
    fn enters_index(
        &self,
        entry: &mut FoundMut<'_>,
        hash: KeyHash,
        location: Location,
        staged: &Staged,
    ) -> bool {
        let class = LengthClass::from_units(u64::from(staged.stored_bytes) / UNIT_BYTES);
        self.index_insert_with(hash, location, class, staged.freq);
        if staged.beside_older {
            self.drop_others(hash, location);
        }
        let is_new = entry.state.location().is_none();
        entry.state.set_location(location);
        is_new
    }

    /// Inserts a location into the index and counts the entries that it evicts.
    pub(crate) fn index_insert(&self, hash: KeyHash, location: Location, class: LengthClass) {
        self.index_insert_with(hash, location, class, 0);
    }

    /// Drops all index entries of a hash but this one: older states of an object whose newest is on
    /// disk now, and rarely another key, as for removes.
    fn drop_others(&self, hash: KeyHash, location: Location) {
        for other in self.index.candidates(hash.get()).iter() {
            if other.location != location {
                self.index.drop_at(hash.get(), other.location);
            }
        }
    }

    /// False if two records certainly are both in pages, or both in extents. Length classes are
    /// rounded, so those next to the limit (a third of a page) are undecided.
    pub(crate) fn may_differ_in_kind(&self, one: LengthClass, other: LengthClass) -> bool {
        let page_units = self.page_record_max() / UNIT_BYTES;
        let unsure = LengthClass::from_units(page_units + 1).units();
        let kind = |class: LengthClass| match class.units() {
            units if units <= page_units => Some(false),
            units if units > unsure => Some(true),
            _ => None,
        };
        kind(one).is_none() || kind(one) != kind(other)
    }

    /// As `index_insert`, with a frequency kept from an earlier place.
    pub(crate) fn index_insert_with(
        &self,
        hash: KeyHash,
        location: Location,
        class: LengthClass,
        freq: u8,
    ) {
        // Two segments are open at once, one for pages and one for extents, so place does not tell
        // whether a page record or an extent is newer. The new record is the newer one: entries
        // that may be of the other kind are dropped.
        for other in self.index.candidates(hash.get()).iter() {
            if self.may_differ_in_kind(class, other.length_class) {
                self.index.drop_at(hash.get(), other.location);
            }
        }
        let age = |location| self.ring.age_of_writing(&self.space, location);
        let inserted = self.index.insert(hash.get(), location, class, freq, age);
        for evicted in &inserted.evicted {
            let counter = match evicted.reason {
                EvictionReason::IndexFull => &self.counters.evicted_index_full,
                EvictionReason::TagLimit => &self.counters.evicted_collision,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}
