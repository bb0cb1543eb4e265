//! Building one page: choosing objects of a group, copying them into the frame, and writing the
//! page header and the entries of the segment's summary.
//!
//! Invariant: only the flusher knows the frame until the page is published. Threads: the flusher.

use std::collections::VecDeque;

use super::nursery::{Finished, Staged};
use super::packer::{LOOK_AHEAD, fill_page};
use super::segment::OpenSegment;
use super::superseded::{add_dead, finish_dead, wanted_on_disk};
use crate::engine::Engine;
use crate::format::{
    PAGE_HEADER_BYTES, PageHeader, RECORD_HEADER_BYTES, SummaryEntry, UNIT_BYTES, settle_record,
};
use crate::memory::pool::Run;
use crate::stats::add;
use crate::types::{GroupId, KeyHash};

/// One object on its way from nursery to page.
pub(super) struct Placed {
    pub(super) hash: KeyHash,
    pub(super) group: GroupId,
    /// Where its record begins in the page.
    pub(super) offset: u32,
    /// Keeps its bytes alive until the resident entry points to the page.
    pub(super) staged: Staged,
}

pub(super) struct BuiltPage {
    pub(super) run: Run,
    pub(super) objects: Vec<Placed>,
    /// Up to here the page is used, its header included.
    pub(super) used_bytes: u32,
    /// The frame is the spare one and is needed again: the objects leave memory once they are on
    /// disk.
    pub(super) passing: bool,
}

impl BuiltPage {
    pub(super) fn staged(&self) -> impl Iterator<Item = &Staged> {
        self.objects.iter().map(|object| &object.staged)
    }
}

/// Takes one page's worth of objects from the front.
pub(super) fn cut_page(objects: &mut VecDeque<Staged>, capacity: u32) -> Vec<Staged> {
    let mut sum = 0;
    let fits = |s: &&Staged| {
        sum += u64::from(s.stored_bytes);
        sum <= u64::from(capacity)
    };
    let window = objects.iter().take_while(fits).count() + LOOK_AHEAD;
    let sizes: Vec<u32> = objects.iter().take(window).map(|s| s.stored_bytes).collect();
    let chosen = fill_page(&sizes, capacity);
    let last = chosen.iter().max().copied().unwrap_or(0);
    let mut take = vec![false; last + 1];
    for index in &chosen {
        take[*index] = true;
    }
    let mut page = Vec::with_capacity(chosen.len());
    let mut rest = Vec::new();
    for (index, object) in objects.drain(..=last).enumerate() {
        if take[index] { page.push(object) } else { rest.push(object) }
    }
    for object in rest.into_iter().rev() {
        objects.push_front(object);
    }
    page
}

/// Takes at most `room` bytes of objects from the largest of the next groups; the rest of the group
/// stays.
pub(super) fn split_largest(
    groups: &mut [(GroupId, Vec<Staged>)],
    sizes: &mut [u32],
    room: u32,
) -> Vec<Staged> {
    let next = 0..groups.len().min(LOOK_AHEAD);
    let Some(largest) = next.max_by_key(|at| sizes[*at]) else { return Vec::new() };
    let mut objects = VecDeque::from(std::mem::take(&mut groups[largest].1));
    let part = match objects.iter().any(|object| object.stored_bytes <= room) {
        true => cut_page(&mut objects, room),
        false => Vec::new(),
    };
    sizes[largest] -= part.iter().map(|object| object.stored_bytes).sum::<u32>();
    groups[largest].1 = objects.into();
    part
}

/// Copies the objects that are still wanted into a page frame.
pub(super) fn build_page(engine: &Engine, run: Run, objects: Vec<Staged>) -> Option<BuiltPage> {
    let mut offset = PAGE_HEADER_BYTES;
    let mut placed = Vec::with_capacity(objects.len());
    let mut dead = Finished::default();
    for staged in objects {
        // Checked again: the object may have died since its page was cut.
        let Some(group) = wanted_on_disk(engine, &staged) else {
            add_dead(engine, &staged, &mut dead);
            continue;
        };
        let len = staged.stored_bytes as usize;
        // SAFETY: the frame is fresh and only this thread knows it.
        unsafe { run.bytes_mut(offset, len) }
            .copy_from_slice(staged.run.bytes(staged.offset as usize, len));
        let hash = staged.record().head.key_hash();
        placed.push(Placed { hash, group, offset: offset as u32, staged });
        offset += len;
    }
    finish_dead(engine, &dead);
    if placed.is_empty() {
        return None;
    }
    // SAFETY: as above; the tail of the page must not carry bytes of the frame's former life.
    unsafe { run.bytes_mut(offset, run.len_bytes() - offset) }.fill(0);
    Some(BuiltPage { run, objects: placed, used_bytes: offset as u32, passing: false })
}

/// Writes the page header, makes the records the segment's, and adds the page's entries to the
/// segment's summary.
pub(super) fn finish_page(engine: &Engine, open: &mut OpenSegment, page: &BuiltPage) {
    assert!(u64::from(page.used_bytes) <= open.page_stride, "a page that reaches into the next");
    let header = PageHeader {
        nonce: engine.space.nonce,
        segment_seq: open.life.get(),
        page_index: (open.cursor / open.page_stride) as u32,
        record_count: page.objects.len() as u32,
        used_bytes: page.used_bytes,
        stride_bytes: open.page_stride as u32,
        primary_group: page.objects[0].group.get(),
    };
    // SAFETY: the frame is not published yet.
    unsafe { page.run.bytes_mut(0, PAGE_HEADER_BYTES) }.copy_from_slice(&header.encode());
    for Placed { hash, group, offset, staged } in &page.objects {
        // SAFETY: as above.
        let record = unsafe { page.run.bytes_mut(*offset as usize, RECORD_HEADER_BYTES) };
        let size = u64::from(staged.stored_bytes);
        if !staged.reinserted {
            add(&engine.counters.written_object_bytes, size);
        }
        open.note(SummaryEntry {
            hash: hash.get(),
            group: group.get(),
            seq: staged.record().head.sequence().get(),
            offset_units: ((open.cursor + u64::from(*offset)) / UNIT_BYTES) as u32,
            stored_units: staged.stored_bytes / UNIT_BYTES as u32,
            kind: settle_record(record, engine.space.nonce, open.life),
        });
    }
}
