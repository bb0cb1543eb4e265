//! Reads a whole page, and the pages after it when a group is read sequentially.
//!
//! A page read makes all live objects of the page resident in one frame, without copying. Threads:
//! any.

use crate::sync::mpsc::channel;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::disk::{AwaitedRead, Found, InHand, Look, RawRecord};
use super::flight::{Flight, Joined, Lead};
use super::memory::InMemory;
use super::page_choice::{Question, page_pays};
use super::under_way::Room;
use crate::device::{IoOp, submit_deferred};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::{PAGE_HEADER_BYTES, PageHeader, RecordHeader, UNIT_BYTES, verify_body};
use crate::group::GroupState;
use crate::group::neighbours::Before;
use crate::index::{Candidate, Location};
use crate::memory::pool::Run;
use crate::memory::resident::Entry;
use crate::object::Object;
use crate::policy::residency::{Arrival, Hint, Queue};
use crate::space::PageAt;
use crate::stats::add;
use crate::types::{GroupId, KeyHash, SegmentLife};

/// Most bytes of one read-ahead I/O, the requested page included.
const READ_AHEAD_BYTES: u64 = 256 << 10;
/// Counts of neighbours, of a group and of all groups, are halved beyond these.
const GROUP_NEIGHBOURS_MAX: u32 = 512;
const ALL_NEIGHBOURS_MAX: u32 = 8192;
/// Assumed percentage of neighbours that are wanted, before any were observed.
const ASSUMED_PERCENT: u64 = 50;

impl Engine {
    /// True if the candidate lies on a page that is worth reading whole.
    pub(crate) fn wants_page(&self, hash: KeyHash, candidate: &Candidate) -> bool {
        let bytes = candidate.length_class.units() * UNIT_BYTES;
        let several = self.index.candidates(hash.get()).len() > 1;
        if several || bytes > self.page_record_max() || candidate.length_class.is_large() {
            return false;
        }
        // The object's group is stored in its record on disk; the page's main group is the best
        // guess.
        let Some(group) = self.page_group(candidate.location) else {
            return self.rotates();
        };
        let state = self.groups.entry(group);
        let hint = state.hint();
        let loved = hint == Hint::Loved;
        let frames = self.cache.queue_frames();
        let pool = &self.cache.pool;
        let spare = pool.available_bytes() / pool.frame_bytes() > pool.frames() / 64 + 4;
        let unloved = frames[0] + frames[1] + frames[2];
        let memory_free = spare || (loved && unloved > pool.frames() / 64 + 4);
        page_pays(&Question {
            neighbours: self.neighbours_of(candidate),
            wanted_percent: state
                .neighbours
                .wanted_percent(self.neighbours.wanted_percent(ASSUMED_PERCENT)),
            regret_percent: self.cache.regret_percent(hint),
            memory_free,
            loved,
            cost_ratio_percent: self.reads.costs.ratio_percent(
                self.space.page_bytes,
                // On average the read also covers half a block at either end of the object.
                bytes + self.space.block(),
                self.rotates(),
            ),
        })
    }

    fn neighbours_of(&self, candidate: &Candidate) -> u64 {
        let bytes = candidate.length_class.units() * UNIT_BYTES;
        (self.space.page_bytes / bytes.max(UNIT_BYTES)).saturating_sub(1)
    }

    /// An object is read alone: notes whether a page read would have been better.
    pub(crate) fn note_alone(&self, hash: KeyHash, candidate: &Candidate) {
        let Some(group) = self.page_group(candidate.location) else { return };
        let state = self.groups.entry(group);
        let place = self.page_place(self.page_with(candidate.location));
        match self.touched.note(place, hash, self.cache.now()) {
            Before::Another(then) if self.cache.is_recent(then) => {
                state.neighbours.used();
                self.neighbours.used();
            }
            Before::Itself(then) if self.cache.is_recent(then) => {}
            _ => self.note_neighbours(&state, self.neighbours_of(candidate)),
        }
    }

    fn note_neighbours(&self, state: &GroupState, count: u64) {
        state.neighbours.came(count as u32, GROUP_NEIGHBOURS_MAX);
        self.neighbours.came(count as u32, ALL_NEIGHBOURS_MAX);
    }

    fn rotates(&self) -> bool {
        self.space.seeks()
    }

    /// The group that a page mostly holds, if known.
    fn page_group(&self, location: Location) -> Option<GroupId> {
        let page = self.page_with(location);
        self.page_groups.get(page.segment, page.number)
    }

    /// Where it is noted whether neighbours on the page with this location are wanted: for the
    /// group that the choice to read the page goes by.
    pub(super) fn neighbours_at(&self, location: Option<Location>) -> Option<Arc<GroupState>> {
        self.groups.get(self.page_group(location?)?)
    }

    /// The page with this location, by the stride that its segment has now.
    fn page_with(&self, location: Location) -> PageAt {
        let (segment, offset) = self.space.split(location);
        self.ring.page_with(segment, offset)
    }

    /// Reads the candidate's page, and the record itself from it if that is no object in memory
    /// then, such as a patch. `None`: a page read is not possible; read the object alone.
    pub(crate) fn read_page_for(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: &[u8],
        candidate: &Candidate,
        look: Look,
    ) -> Result<Option<Found>, ReadError> {
        let page = self.page_with(candidate.location);
        if !self.space.holds_page(page) {
            return Ok(None);
        }
        let lead = match self.reads.flights.join(self.page_place(page)) {
            Joined::Follower(flight) if look.shared => {
                add(&self.counters.shared_reads, 1);
                flight.wait();
                return Ok(Some(Found::LookAgain));
            }
            Joined::Follower(_) => return Ok(None),
            Joined::Leader(lead) => lead,
        };
        if !look.shared {
            drop(lead);
            return Ok(None);
        }
        let mut pages = vec![(page, lead)];
        self.add_read_ahead(&mut pages);
        let life = self.life_of(candidate.location);
        let Some(run) = self.read_pages(pages) else { return Ok(None) };
        if let Some(object) = self.lookup_fresh(hash, key) {
            return Ok(Some(Found::in_memory(object)));
        }
        let raw = self.raw_of_page(run, page, candidate.location, life);
        self.accept_one(hash, key, candidate, raw, look).map(Some)
    }

    /// The record at this location, in its page that was read.
    fn raw_of_page(
        &self,
        run: Run,
        page: PageAt,
        location: Location,
        life: SegmentLife,
    ) -> RawRecord {
        let (_, offset) = self.space.split(location);
        let start = (offset - page.start()) as usize;
        RawRecord { run, start, len: page.stride as usize, life }
    }

    /// An object that a page read has just brought in; it counts as a hit on disk, not in memory. A
    /// manifest or patch created meanwhile does not qualify: its bytes are not the object's.
    fn lookup_fresh(&self, hash: KeyHash, key: &[u8]) -> Option<Object> {
        let mut shard = self.cache.resident.shard(hash);
        let entry = shard.get_mut(hash)?;
        let record = entry.record();
        let head = record.head;
        if record.key() != key
            || !head.is_object()
            || self.death(head.group(), key, head.sequence(), head.expires_s()).is_some()
        {
            return None;
        }
        let object = Object::of(&record, false);
        if let Some(came) = entry.state.take_prefetched() {
            // The object was requested, so it was not prefetched.
            if let Some(state) = self.neighbours_at(entry.state.location()) {
                state.neighbours.one_less();
            }
            self.neighbours.one_less();
            self.cache.first_used(hash, came);
            self.cache.read_again(hash);
            if let Some(state) = self.groups.get(object.group()) {
                state.not_prefetched();
            }
            self.counters.prefetched.fetch_sub(1, Ordering::Relaxed);
        }
        Some(object)
    }

    /// Key of a page's flight, distinct from those of objects (which are never this large).
    pub(super) fn page_place(&self, page: PageAt) -> u64 {
        (1 << 63) | self.space.location(page.segment, page.start()).units()
    }

    /// Adds the following pages if the page's group is known and read sequentially.
    fn add_read_ahead(&self, pages: &mut Vec<(PageAt, Lead)>) {
        let first = pages[0].0;
        let Some(group) = self.page_groups.get(first.segment, first.number) else { return };
        let state = self.groups.entry(group);
        let here = self.page_place(first);
        let step = first.stride / UNIT_BYTES;
        let in_order = state.next_page.load(Ordering::Relaxed) == here;
        if in_order {
            let mut page = first.next();
            while (pages.len() as u64) < READ_AHEAD_BYTES / first.stride {
                if !self.space.holds_page(page)
                    || self.page_groups.get(page.segment, page.number) != Some(group)
                {
                    break;
                }
                match self.reads.flights.join(self.page_place(page)) {
                    Joined::Leader(lead) => pages.push((page, lead)),
                    Joined::Follower(_) => break,
                }
                page = page.next();
            }
        }
        state.next_page.store(here + step * pages.len() as u64, Ordering::Relaxed);
    }

    /// Reads consecutive pages in one I/O and makes their objects resident; returns the first page.
    /// `None` if that is not possible.
    fn read_pages(self: &Arc<Engine>, pages: Vec<(PageAt, Lead)>) -> Option<Run> {
        // Does not wait for a page frame: if none is available, the caller waits for the memory of
        // the object alone.
        let runs = self.runs_for(pages[0].0.stride, pages.len());
        let started = self.clock.monotonic();
        let done = !runs.is_empty() && self.transfer(pages[0].0, &runs);
        let first = runs.first().filter(|_| done).cloned();
        self.pages_read(pages, done.then_some(runs), started);
        first
    }

    /// Runs for as many of `pages` pages as there is memory for without waiting.
    fn runs_for(&self, stride: u64, pages: usize) -> Vec<Run> {
        (0..pages).map_while(|_| self.cache.take_for_page(stride, Hint::Loved)).collect()
    }

    /// Completes a page I/O, successful if there are runs: counts it, admits its objects, and lands
    /// the flights.
    fn pages_read(
        self: &Arc<Engine>,
        pages: Vec<(PageAt, Lead)>,
        runs: Option<Vec<Run>>,
        started: Duration,
    ) {
        if let Some(runs) = runs {
            let (time, count) = (self.clock.monotonic().saturating_sub(started), runs.len());
            self.reads.costs.note(true, time / count as u32);
            self.counters.read_latency.record(time);
            self.count_read(&self.counters.page_reads, count as u64 * pages[0].0.stride);
            add(&self.counters.readahead_pages, count as u64 - 1);
            for (run, (page, _)) in runs.into_iter().zip(&pages) {
                self.admit_page(*page, run);
            }
        }
        for (_, lead) in pages {
            drop(lead);
        }
    }

    /// Asynchronous page read for an object; falls back to `fallback` where that is not possible.
    /// `reserved`: what a read has that waited for room.
    pub(crate) fn submit_page_read(
        self: &Arc<Engine>,
        asked: AwaitedRead,
        candidate: &Candidate,
        was_loading: bool,
        fallback: impl FnOnce(Option<InHand>) + Send + 'static,
        reserved: Option<Room>,
    ) {
        let page = self.page_with(candidate.location);
        if !self.space.holds_page(page) {
            return fallback(None);
        }
        let page_bytes = self.space.page_bytes as usize;
        let Some(room) = self.room_to_submit(page.segment, page_bytes, reserved) else {
            return self.submit_when_room(page.segment, page_bytes, asked, fallback);
        };
        let lead = match self.reads.flights.join(self.page_place(page)) {
            Joined::Follower(flight) => return self.follow(&flight, asked, fallback),
            Joined::Leader(lead) => lead,
        };
        let mut pages = vec![(page, lead)];
        self.add_read_ahead(&mut pages);
        let ahead = self.room_for_read_ahead(&mut pages);
        let started = self.clock.monotonic();
        let runs = self.runs_for(pages[0].0.stride, pages.len());
        if runs.is_empty() {
            self.pages_read(pages, None, started);
            return fallback(None);
        }
        let AwaitedRead { hash, key, promise } = asked;
        self.index.bump_freq(hash.get(), candidate.location, 1);
        let (this, held) = (Arc::clone(self), runs.clone());
        let (candidate, life) = (*candidate, self.life_of(candidate.location));
        let pieces = runs.into_iter().map(|run| (run, page.stride as usize)).collect();
        self.space.submit(IoOp::Read, page.segment, page.start(), pieces, move |outcome| {
            let run = held.first().filter(|_| outcome.is_ok()).cloned();
            this.pages_read(pages, outcome.is_ok().then_some(held), started);
            match this.lookup_fresh(hash, &key) {
                Some(object) => {
                    add(&this.counters.hits_disk, 1);
                    promise.put(Ok(Some(object)));
                }
                None => fallback(run.map(|run| InHand {
                    candidate,
                    raw: this.raw_of_page(run, page, candidate.location, life),
                    was_loading,
                    room,
                })),
            }
            drop(ahead);
        });
    }

    /// Reserves memory for the pages after the first. Without it they are left out: a burst of
    /// awaited reads must not evict the cache.
    fn room_for_read_ahead(self: &Arc<Engine>, pages: &mut Vec<(PageAt, Lead)>) -> Option<Room> {
        let bytes = (pages.len() - 1) * self.space.page_bytes as usize;
        let segment = pages[0].0.segment;
        let room = (bytes > 0).then(|| self.room_to_submit(segment, bytes, None)).flatten();
        if room.is_none() {
            for (_, lead) in pages.drain(1..) {
                drop(lead);
            }
        }
        room
    }

    /// Another read will bring the object: looks it up when that read is done, without a waiting
    /// thread.
    pub(crate) fn follow(
        self: &Arc<Engine>,
        flight: &Flight,
        asked: AwaitedRead,
        fallback: impl FnOnce(Option<InHand>) + Send + 'static,
    ) {
        add(&self.counters.shared_reads, 1);
        let this = Arc::clone(self);
        let promise = Arc::clone(&asked.promise);
        flight.then(move || {
            promise.begin(|| match this.lookup_memory(asked.hash, &asked.key) {
                InMemory::Found(object) => promise.put(Ok(Some(object))),
                InMemory::Dead => promise.put(Ok(None)),
                InMemory::Nothing => fallback(None),
            });
        });
    }

    fn transfer(&self, first: PageAt, runs: &[Run]) -> bool {
        let bytes = first.stride as usize;
        if let [run] = runs {
            // SAFETY: the run is fresh and known to this thread only.
            let buf = unsafe { run.bytes_mut(0, bytes) };
            return self.space.read(first.segment, first.start(), buf).is_ok();
        }
        let pieces = runs.iter().map(|run| (run.clone(), bytes)).collect();
        let (sender, receiver) = channel();
        self.space.submit(IoOp::Read, first.segment, first.start(), pieces, move |outcome| {
            // The receiver waits below, unless its thread has died.
            let _ = sender.send(outcome.is_ok());
        });
        submit_deferred();
        receiver.recv().unwrap_or(false)
    }

    /// The header of a page that lies in a run, if it is this page in the present life of its
    /// segment, and whole.
    fn page_header(&self, run: &Run, page: PageAt) -> Option<PageHeader> {
        let stride = page.stride as usize;
        let bytes = (run.len_bytes() >= stride).then(|| run.bytes(0, stride))?;
        let page_bytes = self.space.page_bytes as u32;
        let header = PageHeader::decode(bytes, self.space.nonce, page_bytes).ok()?;
        let is_it = header.life() == self.ring.life(page.segment)
            && u64::from(header.page_index) == page.number
            && u64::from(header.stride_bytes) == page.stride;
        is_it.then_some(header)
    }

    /// The live, undamaged objects of a page that are not in memory yet, and where its records end.
    /// Forgets those that have expired.
    fn wanted_of_page(
        &self,
        run: &Run,
        header: &PageHeader,
        page: PageAt,
    ) -> (Vec<(u32, RecordHeader, Location)>, u32) {
        let mut end = PAGE_HEADER_BYTES as u32;
        let wanted = header
            .records(run.bytes(0, page.stride as usize))
            .map_while(Result::ok)
            .map(|(offset, record)| {
                end = offset + record.stored_bytes() as u32;
                let at = page.start() + u64::from(offset);
                (offset, record, self.space.location(page.segment, at))
            })
            .filter(|(offset, record, location)| {
                !self.forgets_expired(record, *location, header.life())
                    && self.is_wanted(run, *offset, record, *location)
            })
            .collect();
        (wanted, end)
    }

    /// True if the page's frame is in memory, and a read of the page would bring nothing more.
    pub(super) fn is_page_in_memory(&self, page: PageAt) -> bool {
        let frame = self.cache.page_frame(self.page_frames.get(page.segment, page.number));
        frame.is_some_and(|run| {
            let header = self.page_header(&run, page);
            let wanted = header.map(|header| self.wanted_of_page(&run, &header, page).0);
            wanted.is_some_and(|wanted| wanted.is_empty())
        })
    }

    /// Makes every live, undamaged object of a page resident.
    pub(crate) fn admit_page(self: &Arc<Engine>, page: PageAt, run: Run) -> u64 {
        let Some(header) = self.page_header(&run, page) else { return 0 };
        let (wanted, end) = self.wanted_of_page(&run, &header, page);
        let count = wanted.len() as u64;
        let state = self.groups.entry(GroupId::new(header.primary_group));
        add(&self.counters.prefetched, count);
        add(&state.page_reads, 1);
        add(&state.disk_reads, 1);
        self.count_prefetched(&wanted);
        self.note_neighbours(&state, count);
        let queue = self.cache.arrive(state.hint(), Arrival::WithPage);
        let wanted_bytes: u64 = wanted.iter().map(|(_, record, _)| record.stored_bytes()).sum();
        if wanted_bytes * 8 < run.len_bytes() as u64 * 7 {
            self.copy_from_page(&run, queue, &wanted, header.life());
            return count;
        }
        for (offset, record, location) in &wanted {
            let mut entry = Entry::of(run.clone(), *offset);
            entry.state.set_location(*location);
            // Purge marks are checked at the first request.
            entry.state.set_prefetched(self.cache.now());
            self.publish_read(record.key_hash(), entry, header.life());
        }
        self.page_frames.set(page.segment, page.number, run.first());
        self.cache.track(run, queue, PAGE_HEADER_BYTES as u32..end);
        count
    }

    /// Counts objects that came with a page, each for its own group.
    fn count_prefetched(&self, came: &[(u32, RecordHeader, Location)]) {
        for adjacent in came.chunk_by(|(_, one, _), (_, next, _)| one.group() == next.group()) {
            if let Some(state) = self.groups.get(adjacent[0].1.group()) {
                add(&state.prefetched, adjacent.len() as u64);
            }
        }
    }

    /// Some objects of the page are in memory already, or dead. The frame would stay partly unused,
    /// so the remaining objects are copied into logs.
    fn copy_from_page(
        &self,
        run: &Run,
        queue: Queue,
        wanted: &[(u32, RecordHeader, Location)],
        life: SegmentLife,
    ) {
        for (offset, record, location) in wanted {
            let bytes = run.bytes(*offset as usize, record.stored_bytes() as usize);
            let Some((log, at)) = self.cache.append(queue, bytes, true) else {
                return;
            };
            let mut entry = Entry::of(log, at);
            entry.state.set_location(*location);
            entry.state.set_prefetched(self.cache.now());
            let may = || self.is_newest(record.key_hash(), *location, life);
            self.cache.publish_logged(record.key_hash(), entry, may);
        }
    }

    /// True for a live, undamaged object that is not in memory yet.
    fn is_wanted(&self, run: &Run, offset: u32, header: &RecordHeader, location: Location) -> bool {
        let hash = header.key_hash();
        let dead = header.kind != crate::format::RecordKind::Object
            || (!self.recovery.is_done() && self.recovery_kills(hash, header.sequence()))
            || !self.is_only_version(hash, location)
            || self.cache.resident.shard(hash).contains(hash);
        let record = run.bytes(offset as usize, header.stored_bytes() as usize);
        !dead && verify_body(header, record)
    }
}
