//! The flusher: builds pages of the objects that wait in the nursery (`page_build`) and writes
//! pages and extents.
//!
//! Invariants: an object is in the index only after its bytes are on the device; a page's entries
//! move from nursery to page frame under the shard lock, so that a remove or replace in between is
//! seen. Threads: one flusher builds and submits; completions run on I/O threads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::compaction::compact;
use super::nursery::{Finished, Staged, StagedExtent, Work};
use super::packer::{best_stride, fill_page};
use super::page_build::{BuiltPage, build_page, cut_page, finish_page, split_largest};
use super::publish::{drop_extent, drop_page, publish_extent, publish_page};
use super::segment::{
    OpenSegment, Wanted, close_segment, continue_segment, open_segment, rest_segment,
};
use super::superseded::{leave_out_dead, leave_out_dead_extents, replaced_ever, some_expired};
use crate::device::IoOp;
use crate::engine::Engine;
use crate::format::{
    BLOCK_BYTES, PAGE_HEADER_BYTES, RecordKind, SummaryEntry, UNIT_BYTES, page_stride_min,
    settle_record,
};
use crate::memory::mapped::AlignedBuf;
use crate::memory::pool::Run;
use crate::policy::residency::Hint;
use crate::space::PageAt;
use crate::stats::add;
use crate::types::{GroupId, Sequence};

/// Most bytes of pages or extents in one write.
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// Writes in flight or waiting for the device: as many as fit in 1/`WRITES_MEMORY_SHARE` of the
/// memory, within limits. A device that completes all its writes at once is idle until it gets
/// more, so as many should wait as it takes at once.
const WRITES_MEMORY_SHARE: u64 = 8;
const WRITES_MIN: u64 = 2;
const WRITES_MAX: u64 = 16;
/// If more than 1/`EMPTY_PART` of a page of small groups would stay empty, one of the next groups
/// is split to fill it and takes one page more. Otherwise groups of similar size would leave up to
/// half of each page empty.
const EMPTY_PART: u32 = 8;
/// How long a page waits for a frame while readers hold them all; after that, the spare frame is
/// used.
const FRAME_WAIT: Duration = Duration::from_millis(100);
/// Longest sleep without work unless the store is at rest, and the interval at which timers are
/// checked.
const NAP: Duration = Duration::from_millis(20);

pub(crate) struct Flusher {
    pages: Option<OpenSegment>,
    extents: Option<OpenSegment>,
    batch: Vec<BuiltPage>,
    /// Bytes from one page to the next in the next segment, by the objects of the one before.
    next_stride: u64,
    /// A frame set aside, so that waiting objects reach the disk even if readers hold all others.
    spare: Option<Run>,
    /// The value of [`replaced_ever`] when nothing waited: while it is unchanged, no waiting object
    /// has died.
    replaced_before: u64,
}

/// The outcome of a step of the flusher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Worked,
    Idle,
    Stopped,
}

impl Flusher {
    pub(crate) fn new(engine: &Engine) -> Flusher {
        let spare = engine.cache.pool.try_take_frame();
        let replaced_before = replaced_ever(engine);
        let next_stride = engine.space.page_bytes;
        let batch = Vec::new();
        Flusher { pages: None, extents: None, batch, next_stride, spare, replaced_before }
    }

    /// The flusher thread: runs until the nursery is stopped and empty, then seals.
    pub(crate) fn run(mut self, engine: &Arc<Engine>) {
        engine.recovery.wait_ring_known();
        let mut ticked = Instant::now();
        loop {
            let step = self.step(engine, || engine.rest.nap(NAP));
            if step == Step::Stopped {
                break;
            }
            if ticked.elapsed() >= NAP {
                ticked = Instant::now();
                engine.tick();
                engine.rest.looked(step == Step::Idle && engine.nursery.bytes() == 0);
            }
        }
        self.end(engine);
    }

    /// Does the next piece of work; waits for one, at most `nap`.
    pub(super) fn step(&mut self, engine: &Arc<Engine>, nap: impl Fn() -> Duration) -> Step {
        let page_bytes = engine.space.page_bytes;
        match engine.nursery.take(page_bytes, || engine.clock.monotonic(), nap) {
            Work::Pages { groups, partial } => self.build(engine, groups, partial),
            Work::Extents(extents) => self.write_extents(engine, extents),
            Work::Sparse { groups, came_before } => {
                let left = compact(engine, groups, came_before);
                self.build(engine, left, true);
            }
            Work::Idle => {
                engine.nursery.release_open();
                self.note_empty(engine);
                return Step::Idle;
            }
            Work::Stop => return Step::Stopped,
        }
        self.seal_passed(engine);
        Step::Worked
    }

    /// Seals an open segment that fills so slowly that many of the other kind have been begun since
    /// it was.
    fn seal_passed(&mut self, engine: &Arc<Engine>) {
        for slot in [&mut self.pages, &mut self.extents] {
            if let Some(passed) = slot.take_if(|open| engine.ring.is_passed(open.id)) {
                // It is nearly empty although nothing of it is gone: what it holds would be the
                // youngest to be forgotten, or written again for nothing.
                engine.ring.refer(passed.id);
                close_segment(engine, passed);
            }
        }
    }

    /// Seals the open segments, to be continued by the next open, and waits until everything is
    /// written.
    pub(super) fn end(mut self, engine: &Arc<Engine>) {
        for open in [self.pages.take(), self.extents.take()].into_iter().flatten() {
            rest_segment(engine, open);
        }
        engine.wait_writes(0);
    }

    /// Records the counter of replacements if nothing waits. The counter is read first, so that
    /// later deaths are seen.
    fn note_empty(&mut self, engine: &Engine) {
        let replaced = replaced_ever(engine);
        if engine.nursery.bytes() == 0 {
            engine.reads.assembled.clear();
            self.replaced_before = replaced;
        }
    }

    fn build(&mut self, engine: &Arc<Engine>, groups: Vec<(GroupId, Vec<Staged>)>, partial: bool) {
        let capacity = self.capacity(engine);
        // Keeps enough of a group for its next page to have a choice of objects too, unless all
        // must go.
        let keep = if partial { capacity } else { capacity + capacity / 4 };
        let some_died = self.replaced_before != replaced_ever(engine);
        let mut small: Vec<(GroupId, Vec<Staged>)> = Vec::new();
        for (group, mut objects) in groups {
            // Before pages are cut: objects that are overwritten again and again would leave them
            // empty.
            if some_died || some_expired(engine, &objects) {
                leave_out_dead(engine, &mut objects);
            }
            let mut bytes: u64 = objects.iter().map(|s| u64::from(s.stored_bytes)).sum();
            let mut objects = VecDeque::from(objects);
            while bytes > keep {
                let page = cut_page(&mut objects, self.capacity(engine) as u32);
                bytes -= page.iter().map(|s| u64::from(s.stored_bytes)).sum::<u64>();
                self.add_page(engine, page);
            }
            if partial {
                small.push((group, objects.into()));
            } else {
                engine.nursery.put_back(group, objects.into());
            }
        }
        self.build_mixed(engine, small);
        self.write_batch(engine);
    }

    /// Bytes from a page built now to the next: it will most likely lie in the open segment, the
    /// one that the store was closed with, or the next.
    fn stride(&self, engine: &Engine) -> u64 {
        let open = self.pages.as_ref().map(|open| open.page_stride);
        open.or_else(|| engine.ring.resting_page_stride()).unwrap_or(self.next_stride)
    }

    /// Bytes of records that a page takes now: it must not reach the page behind it.
    fn capacity(&self, engine: &Engine) -> u64 {
        self.stride(engine) - PAGE_HEADER_BYTES as u64
    }

    /// Builds pages of several small groups, each group contiguous and on as few pages as possible.
    fn build_mixed(&mut self, engine: &Arc<Engine>, mut groups: Vec<(GroupId, Vec<Staged>)>) {
        groups.retain(|(_, objects)| !objects.is_empty());
        // Summed once: a page takes few of what may be hundreds of thousands of groups.
        let mut sizes: Vec<u32> = groups
            .iter()
            .map(|(_, objects)| objects.iter().map(|s| s.stored_bytes).sum())
            .collect();
        while !groups.is_empty() {
            let capacity = self.capacity(engine) as u32;
            let mut chosen = fill_page(&sizes, capacity);
            chosen.sort_unstable();
            let mut page = Vec::new();
            let mut room = capacity;
            for index in chosen.into_iter().rev() {
                room -= sizes.swap_remove(index);
                page.extend(groups.swap_remove(index).1);
            }
            if room > capacity / EMPTY_PART {
                page.extend(split_largest(&mut groups, &mut sizes, room));
            }
            self.add_page(engine, page);
        }
    }

    fn add_page(&mut self, engine: &Arc<Engine>, objects: Vec<Staged>) {
        let stride = self.stride(engine);
        let Some(run) = engine.take_for_flush(stride, self.spare.is_some()) else {
            return self.pass_page(engine, objects);
        };
        if let Some(page) = build_page(engine, run, objects) {
            self.batch.push(page);
        }
        if self.batch.len() as u64 * engine.space.page_bytes >= WRITE_BYTES_MAX {
            self.write_batch(engine);
        }
    }

    /// Writes one page through the spare frame and waits for the write.
    fn pass_page(&mut self, engine: &Arc<Engine>, objects: Vec<Staged>) {
        self.write_batch(engine);
        let run = self.spare.clone().expect("without a spare a frame is waited for");
        add(&engine.counters.pages_through_spare, 1);
        if let Some(mut page) = build_page(engine, run, objects) {
            page.passing = true;
            self.batch.push(page);
            self.write_batch(engine);
            engine.wait_writes(0);
        }
    }

    /// Writes the pages gathered so far, in one I/O if they fit in one segment.
    fn write_batch(&mut self, engine: &Arc<Engine>) {
        while !self.batch.is_empty() {
            let mut batch = std::mem::take(&mut self.batch);
            let open = match self.ensure_pages(engine, &batch) {
                Ok(open) => open,
                Err(error) => {
                    let reason = error.to_string();
                    batch.into_iter().for_each(|page| drop_page(engine, page, &reason));
                    return;
                }
            };
            let mut entries = 0;
            let mut count = 0_u64;
            for page in &batch {
                entries += page.objects.len();
                if open.room(engine.space.segment_bytes, entries) < (count + 1) * open.page_stride {
                    break;
                }
                count += 1;
                // Built for a smaller stride: what lies between it and the next is not in its run,
                // and of the last page of a write nothing is written that it does not use.
                if (page.run.len_bytes() as u64) < open.page_stride {
                    break;
                }
            }
            let rest = batch.split_off(count as usize);
            submit_pages(engine, open, batch);
            self.batch = rest;
        }
    }

    /// The open segment of pages, with room for the first of these and with pages large enough for
    /// each of them. That of the next segment is what would have suited the objects of the last.
    fn ensure_pages(
        &mut self,
        engine: &Arc<Engine>,
        batch: &[BuiltPage],
    ) -> io::Result<&mut OpenSegment> {
        let page_bytes = engine.space.page_bytes;
        let used = batch.iter().map(|page| u64::from(page.used_bytes)).max().unwrap_or(0);
        let stride_min = used.next_multiple_of(BLOCK_BYTES).max(page_stride_min(page_bytes));
        let (wanted, entries) = (Wanted::Page { stride_min }, batch[0].objects.len());
        if let Some(full) = take_full(&mut self.pages, engine, wanted, entries) {
            engine.summary_entries.store(full.entries.len(), Ordering::Relaxed);
            let lengths = full.entries.iter().map(|e| e.stored_units * UNIT_BYTES as u32);
            self.next_stride = best_stride(lengths, page_bytes);
            close_segment(engine, full);
        }
        let page_stride = self.next_stride.max(stride_min);
        ensure_open(&mut self.pages, engine, wanted, entries, page_stride)
    }

    fn write_extents(&mut self, engine: &Arc<Engine>, mut extents: Vec<StagedExtent>) {
        leave_out_dead_extents(engine, &mut extents);
        let mut waiting = VecDeque::from(extents);
        while let Some(first) = waiting.pop_front() {
            let wanted = Wanted::Extent { bytes: on_disk(&first) };
            if let Some(full) = take_full(&mut self.extents, engine, wanted, 1) {
                close_segment(engine, full);
            }
            let page_stride = engine.space.page_bytes;
            let open = match ensure_open(&mut self.extents, engine, wanted, 1, page_stride) {
                Ok(open) => open,
                Err(error) => {
                    drop_extent(engine, first, &error.to_string());
                    continue;
                }
            };
            let mut bytes = on_disk(&first);
            let mut batch = vec![first];
            while let Some(next) = waiting.front() {
                let together = bytes + on_disk(next);
                let room = open.room(engine.space.segment_bytes, batch.len() + 1);
                if together > WRITE_BYTES_MAX || together > room {
                    break;
                }
                bytes = together;
                batch.extend(waiting.pop_front());
            }
            submit_extents(engine, open, batch);
        }
    }
}

/// Bytes that an extent takes on disk.
fn on_disk(extent: &StagedExtent) -> u64 {
    u64::from(extent.staged.stored_bytes).next_multiple_of(BLOCK_BYTES)
}

/// Takes the open segment if it has no room for this. One on a volume out of service is taken too:
/// every write up to its end would fail.
fn take_full(
    slot: &mut Option<OpenSegment>,
    engine: &Engine,
    wanted: Wanted,
    entries: usize,
) -> Option<OpenSegment> {
    slot.take_if(|open| {
        !open.has_room(engine, wanted, entries) || engine.space.spot(open.id, 0).volume.is_out()
    })
}

/// The open segment, which has room for this if there is one; else the one that rests, or a new one
/// whose pages have this stride.
fn ensure_open<'a>(
    slot: &'a mut Option<OpenSegment>,
    engine: &Arc<Engine>,
    wanted: Wanted,
    entries: usize,
    page_stride: u64,
) -> io::Result<&'a mut OpenSegment> {
    if slot.is_none() {
        *slot = continue_segment(engine, wanted, entries);
    }
    if slot.is_none() {
        *slot = Some(open_segment(engine, wanted.kind(), page_stride)?);
    }
    let open = slot.as_mut().expect("opened just above");
    if !open.has_room(engine, wanted, entries) {
        return Err(io::Error::other("an empty segment is too small for this"));
    }
    Ok(open)
}

fn writes_max(engine: &Engine) -> usize {
    let share = engine.config.memory.bytes() / WRITES_MEMORY_SHARE / WRITE_BYTES_MAX;
    share.clamp(WRITES_MIN, WRITES_MAX) as usize
}

fn submit_pages(engine: &Arc<Engine>, open: &mut OpenSegment, pages: Vec<BuiltPage>) {
    let stride = open.page_stride;
    let first = PageAt::with(open.id, open.cursor, stride);
    for page in &pages {
        finish_page(engine, open, page);
        open.cursor += stride;
    }
    engine.summary_entries.fetch_max(open.entries.len(), Ordering::Relaxed);
    let (id, life) = (open.id, open.life);
    add(&engine.counters.pages_written, pages.len() as u64);
    // Nobody reads a page beyond what it uses, so the last one is not written beyond it either: of
    // a page with one small object, that a sync waits for, a block.
    let used = pages.last().map_or(0, |page| page.used_bytes.next_multiple_of(BLOCK_BYTES as u32));
    let mut pieces: Vec<(Run, usize)> =
        pages.iter().map(|page| (page.run.clone(), stride as usize)).collect();
    if let Some((_, bytes)) = pieces.last_mut() {
        *bytes = used as usize;
    }
    let this = Arc::clone(engine);
    let done = begin_write(engine, open, &pieces, move |outcome| {
        let mut written = Finished::default();
        let mut place = first;
        let failed = outcome.err().map(|error| error.to_string());
        for page in pages {
            if let Some(reason) = &failed {
                drop_page(&this, page, reason);
            } else {
                page.staged().for_each(|staged| written.add(staged));
                publish_page(&this, place, life, page);
            }
            place = place.next();
        }
        this.nursery.finished(&written);
    });
    engine.space.submit(IoOp::Write, id, first.start(), pieces, done);
}

/// Waits until few enough writes are in flight, then begins one of these pieces into an open
/// segment: the completion returned has to be given to the write, and calls `done`.
fn begin_write(
    engine: &Arc<Engine>,
    open: &OpenSegment,
    pieces: &[(Run, usize)],
    done: impl FnOnce(io::Result<()>) + Send + 'static,
) -> impl FnOnce(io::Result<()>) + Send + 'static {
    let bytes: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
    add(&engine.counters.written_bytes, bytes as u64);
    engine.wait_writes(writes_max(engine) - 1);
    engine.writes_begin();
    open.writes.begin();
    let newest = Sequence::from_raw(engine.next_seq.load(Ordering::Relaxed));
    engine.ring.note_written(open.id, newest, open.cursor.saturating_sub(bytes as u64));
    let (this, writes) = (Arc::clone(engine), Arc::clone(&open.writes));
    let begun = engine.clock.monotonic();
    move |outcome| {
        if outcome.is_ok() {
            let time = this.clock.monotonic().saturating_sub(begun);
            this.counters.write_latency.record(time);
        }
        done(outcome);
        writes.end(&this);
        this.writes_end();
    }
}

/// Starts one write of consecutive extents. Their records may have readers in memory already, so it
/// is copies of their leading blocks that are made the segment's.
fn submit_extents(engine: &Arc<Engine>, open: &mut OpenSegment, extents: Vec<StagedExtent>) {
    // Before there are copies, which are memory beside that of the runs.
    engine.wait_writes(writes_max(engine) - 1);
    let start = open.cursor;
    // Not a shorter block of the device: NVMe takes no gaps within a page of memory, and the system
    // would split the write there.
    let lead_bytes = BLOCK_BYTES as usize;
    let mut leads = AlignedBuf::zeroed(extents.len() * lead_bytes);
    let mut placed = Vec::with_capacity(extents.len());
    for (extent, lead) in extents.into_iter().zip(leads.chunks_exact_mut(lead_bytes)) {
        let at = open.cursor;
        open.cursor += on_disk(&extent);
        lead.copy_from_slice(extent.staged.run.bytes(0, lead_bytes));
        let kind = settle_record(lead, engine.space.nonce, open.life);
        note_extent(engine, open, &extent, at, kind);
        placed.push((at, extent));
    }
    let pieces: Vec<(Run, usize)> =
        placed.iter().map(|(_, e)| (e.staged.run.clone(), on_disk(e) as usize)).collect();
    let (id, this) = (open.id, Arc::clone(engine));
    let done = begin_write(engine, open, &pieces, move |outcome| {
        let failed = outcome.err().map(|error| error.to_string());
        for (at, extent) in placed {
            match &failed {
                None => publish_extent(&this, id, at, extent),
                Some(error) => drop_extent(&this, extent, error),
            }
        }
    });
    engine.space.submit_led(id, start, leads, pieces, done);
}

/// Adds an extent to its segment's summary.
fn note_extent(
    engine: &Engine,
    open: &mut OpenSegment,
    extent: &StagedExtent,
    at: u64,
    kind: Option<RecordKind>,
) {
    let staged = &extent.staged;
    let head = staged.record().head;
    open.note(SummaryEntry {
        hash: head.key_hash().get(),
        group: extent.group.get(),
        seq: head.sequence().get(),
        offset_units: (at / UNIT_BYTES) as u32,
        stored_units: staged.stored_bytes / UNIT_BYTES as u32,
        kind,
    });
    add(&engine.counters.extents_written, 1);
    if !staged.reinserted {
        add(&engine.counters.written_object_bytes, u64::from(staged.stored_bytes));
    }
}

impl Engine {
    /// A run for a page being built. `None` after `FRAME_WAIT` if there is a spare frame to use
    /// instead.
    fn take_for_flush(&self, stride: u64, has_spare: bool) -> Option<Run> {
        let begun = Instant::now();
        loop {
            if let Some(run) = self.cache.take_for_page(stride, Hint::Loved) {
                return Some(run);
            }
            if has_spare && begun.elapsed() >= FRAME_WAIT {
                return None;
            }
            self.cache.pool.wait_freed();
        }
    }

    pub(crate) fn writes_begin(&self) {
        *crate::sync::lock(&self.writes_in_flight) += 1;
    }

    pub(crate) fn writes_end(&self) {
        *crate::sync::lock(&self.writes_in_flight) -= 1;
        self.writes_done.notify_all();
    }

    pub(crate) fn writes_in_flight(&self) -> usize {
        *crate::sync::lock(&self.writes_in_flight)
    }

    /// Waits until at most `most` writes are in flight.
    pub(crate) fn wait_writes(&self, most: usize) {
        let mut count = crate::sync::lock(&self.writes_in_flight);
        while *count > most {
            count = self.writes_done.wait(count);
        }
    }
}
