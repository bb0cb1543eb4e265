//! A body being filled into the store, read by any number of clients meanwhile (read-while-write).
//!
//! Each client reads from byte 0 at its own pace (`reader`): the stored beginning from the store,
//! the rest from memory. If the store takes nothing more, the fill goes on for those who read: at
//! the pace of its first reader, or of the foremost one if that has left. Invariants: memory holds
//! only bytes that the store has not taken yet, less than a section plus one read, and what readers
//! right behind the fill are about to get, at most [`NEAR_BYTES`]; twice that once nothing is
//! stored any more; while as much is in [`Transit`] as may be, a body that nobody reads right
//! behind its fill holds one piece, and who comes there waits for the end of the section, unless
//! its length is unknown and the fill may yet have to wait for a reader; while the store takes the
//! body, a reader never waits for another reader, nor the fill for any reader; if the origin breaks
//! off, all readers do. Threads: written by the fill, read on every worker;
//! the lock is held for a few moves, never across a wait.

mod reader;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::Bytes;
use damelo::Store;
use http::HeaderMap;
use hyper::body::Frame;
use tokio::sync::Notify;

use crate::error::BodyError;
use crate::io::locks::lock;
use crate::io::pieces::join_small;
use crate::io::transit::Transit;
use crate::vault::sections::{self, SECTION_BYTES, Sections};

pub(crate) use reader::InflightReader;

/// A reader at most this far behind the fill is about to catch up with it.
const NEAR_BYTES: u64 = SECTION_BYTES;
/// The place of a reader that gets its bytes another way for now.
const ELSEWHERE: u64 = u64::MAX;

/// One item of a shared body. Trailers are rare and large compared with a chunk, so they are boxed.
#[derive(Debug)]
pub(crate) enum Chunk {
    Bytes(Bytes),
    /// The body is complete; its trailers.
    End(Option<Box<HeaderMap>>),
}

impl Chunk {
    /// Converts to hyper's frame.
    pub(crate) fn into_frame(self) -> Option<Frame<Bytes>> {
        match self {
            Chunk::Bytes(bytes) => Some(Frame::data(bytes)),
            Chunk::End(trailers) => trailers.map(|fields| Frame::trailers(*fields)),
        }
    }
}

/// A fill as its readers see it.
pub(crate) struct InflightBody {
    /// Key of the response.
    key: Vec<u8>,
    length_bytes: Option<u64>,
    store: Store,
    transit: Arc<Transit>,
    state: Mutex<State>,
    readers: AtomicUsize,
    /// Tells the fill of each new reader.
    joined: Notify,
    /// Tells the fill, once nothing is stored any more, that a reader has moved on.
    moved: Notify,
    /// Source of reader numbers.
    next_reader: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Generation of the stored body, and how many of its bytes can be read.
    stored: Option<(u64, u64)>,
    /// The bytes behind the stored ones, in pieces as they came, but for the smallest, each with
    /// its offset in the body.
    tail: VecDeque<(u64, Bytes)>,
    /// Bytes that readers may read.
    shown_bytes: u64,
    /// Nothing more is stored, and this many sections are to be removed in the end.
    unstored: Option<u64>,
    /// The trailers, or why the body broke off.
    end: Option<Result<Option<Box<HeaderMap>>, BodyError>>,
    readers: BTreeMap<u64, Place>,
}

/// Where a reader is.
#[derive(Debug)]
struct Place {
    /// The next byte that it wants.
    offset: u64,
    /// The fill may wait for it.
    is_awaited: bool,
    waker: Option<Waker>,
}

/// A reader that the fill waits for, and its offset.
pub(crate) type Pacer = (u64, u64);

impl InflightBody {
    /// The body of the response under `key`; `length_bytes` if the origin announced a length.
    pub(crate) fn new(
        store: &Store,
        transit: &Arc<Transit>,
        key: Vec<u8>,
        length_bytes: Option<u64>,
    ) -> Arc<InflightBody> {
        Arc::new(InflightBody {
            key,
            length_bytes,
            store: store.clone(),
            transit: transit.clone(),
            state: Mutex::default(),
            readers: AtomicUsize::new(0),
            joined: Notify::new(),
            moved: Notify::new(),
            next_reader: AtomicU64::new(0),
        })
    }

    /// Length of the body, if the origin announced one.
    pub(crate) fn length_bytes(&self) -> Option<u64> {
        self.length_bytes
    }

    /// Bytes that readers may read by now.
    pub(crate) fn shown_bytes(&self) -> u64 {
        self.state().shown_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Number of current readers.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::SeqCst)
    }

    /// Counts one who is about to read, but may have to wait for the store before, as a reader, so
    /// that the fill goes on meanwhile.
    pub(crate) fn await_reader(self: &Arc<InflightBody>) -> Coming {
        self.readers.fetch_add(1, Ordering::SeqCst);
        Coming(self.clone())
    }

    /// Waits until a reader has joined since the last call.
    pub(crate) async fn joined(&self) {
        self.joined.notified().await;
    }

    /// Appends bytes to the body. After its end they are dropped: nobody would read them, and they
    /// would stay in memory.
    pub(crate) fn push(&self, bytes: Bytes) {
        self.change(|state| {
            if state.end.is_some() {
                return;
            }
            let start = state.shown_bytes;
            state.shown_bytes += bytes.len() as u64;
            let join = |last: &mut Bytes| {
                let is_joined = join_small(last, &bytes);
                if is_joined {
                    *last = self.transit.counted(std::mem::take(last));
                }
                is_joined
            };
            if !state.tail.back_mut().is_some_and(|(_, last)| join(last)) {
                state.tail.push_back((start, bytes));
            }
            let is_full = self.transit.is_full();
            state.let_go(is_full);
            let near = self.near(state, start);
            if (is_full || state.unstored.is_some()) && state.is_for_nobody_yet(near) {
                state.let_all_but_the_last_go();
            }
        });
    }

    /// From where on a reader is right behind what comes at `start`. A body of unknown length may
    /// turn out to be too long for the store: then the fill waits for its first reader, wherever
    /// that is, which must find there what is in no section yet.
    fn near(&self, state: &State, start: u64) -> u64 {
        if self.length_bytes.is_none() && !state.first_is_elsewhere() {
            return 0;
        }
        start.saturating_sub(NEAR_BYTES)
    }

    /// Whether so much is in transit that each should hold little.
    pub(crate) fn is_transit_full(&self) -> bool {
        self.transit.is_full()
    }

    /// Reports that the first `stored_bytes` of the body can be read from the store.
    pub(crate) fn stored(&self, generation: u64, stored_bytes: u64) {
        self.change(|state| {
            state.stored = Some((generation, stored_bytes));
            state.let_go(self.transit.is_full());
        });
    }

    /// Reports that nothing more is stored. What was, is kept for readers that are behind, and
    /// removed with this body: `sections` of them, of which the last may not be there.
    pub(crate) fn give_up_storing(&self, generation: u64, sections: u64) {
        self.change(|state| {
            state.stored.get_or_insert((generation, 0));
            state.unstored = Some(sections);
        });
    }

    /// Ends the body with these trailers or this error. Only the first call counts.
    pub(crate) fn end(&self, end: Result<Option<Box<HeaderMap>>, BodyError>) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    /// Whether one who joins now may get all of the body: it neither broke off nor is kept from the
    /// store.
    pub(crate) fn is_open(&self) -> bool {
        self.state().is_open()
    }

    /// Whether what there is at this offset can be read. The store may have evicted it.
    pub(crate) async fn can_be_read(&self, offset: u64) -> bool {
        let (generation, stored_bytes) = {
            let state = self.state();
            if offset >= state.shown_bytes || state.of_tail(offset).is_some() {
                return true;
            }
            match state.stored {
                Some(stored) if offset < stored.1 => stored,
                _ => return state.is_being_stored(),
            }
        };
        let mut sections = Sections::growing(&self.store, &self.key, generation, stored_bytes);
        sections.read_first(offset..u64::MAX).await.is_ok()
    }

    /// Why bytes that were there cannot be read any more. When the origin breaks off, what is
    /// stored is removed.
    fn why_lost(&self) -> BodyError {
        match self.state().end {
            Some(Err(error)) => error,
            _ => BodyError::Store,
        }
    }

    /// The first reader no longer gets its bytes from the fill itself, but from here on.
    pub(crate) fn leave_first_at(&self, offset: u64) {
        if let Some(first) = self.state().readers.get_mut(&0).filter(|it| it.offset == ELSEWHERE) {
            first.offset = offset;
        }
    }

    /// The reader that the fill, which stores nothing any more, has to wait for.
    pub(crate) fn awaited(&self) -> Option<Pacer> {
        let state = self.state();
        let near = state.shown_bytes.saturating_sub(NEAR_BYTES);
        state.pacer().filter(|(_, offset)| *offset < near)
    }

    /// Waits until the reader that sets the pace is another one, or elsewhere.
    pub(crate) async fn moved(&self, from: Pacer) {
        while self.state().pacer() == Some(from) {
            self.moved.notified().await;
        }
    }

    /// A reader takes nothing: the fill waits for it no longer.
    pub(crate) fn wait_no_longer_for(&self, pacer: Pacer) {
        if let Some(place) = self.state().readers.get_mut(&pacer.0) {
            place.is_awaited = false;
        }
    }

    /// Whether any reader sets the pace of a fill that stores nothing any more.
    pub(crate) fn has_pacer(&self) -> bool {
        self.state().pacer().is_some()
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state();
        how(&mut state);
        let waiting: Vec<_> = state.readers.values_mut().filter_map(|it| it.waker.take()).collect();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for InflightBody {
    fn drop(&mut self) {
        let state = self.state();
        if let (Some(sections), Some((generation, _))) = (state.unstored, state.stored) {
            sections::forget(&self.store, &self.key, generation, sections);
        }
    }
}

/// One who is about to read a body.
pub(crate) struct Coming(Arc<InflightBody>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for InflightBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightBody").field("readers", &self.readers).finish_non_exhaustive()
    }
}

impl State {
    /// Drops the part of the tail that the store has and, unless much is in transit, no reader
    /// is about to get; if nothing is stored any more, what those that the fill waits for cannot
    /// need.
    fn let_go(&mut self, is_transit_full: bool) {
        let stored_bytes = match (self.unstored, self.stored) {
            (Some(_), _) => self.shown_bytes.saturating_sub(2 * NEAR_BYTES),
            (None, Some((_, stored_bytes))) => stored_bytes,
            (None, None) => return,
        };
        while let Some((start, first)) = self.tail.front() {
            let end = start + first.len() as u64;
            let is_near =
                self.unstored.is_none() && !is_transit_full && end + NEAR_BYTES > self.shown_bytes;
            if end > stored_bytes || (is_near && self.is_wanted(*start, end)) {
                return;
            }
            self.tail.pop_front();
        }
    }

    /// Keeps only the piece that came last, which is on its way to the first client all the same:
    /// if that is too slow for the fill, it becomes a reader there.
    fn let_all_but_the_last_go(&mut self) {
        self.tail.drain(..self.tail.len().saturating_sub(1));
    }

    fn is_open(&self) -> bool {
        self.unstored.is_none() && !matches!(self.end, Some(Err(_)))
    }

    /// Whether what has come and is neither in the tail nor in the store will yet be in the store.
    fn is_being_stored(&self) -> bool {
        self.unstored.is_none() && self.end.is_none()
    }

    /// Whether the tail is for readers only that may come: all that there are get their bytes
    /// elsewhere or, from before `near`, from the store, which will have what is in the tail as
    /// well, or wait for what comes later.
    fn is_for_nobody_yet(&self, near: u64) -> bool {
        let is_near = |offset: u64| {
            let is_here = (near..=self.shown_bytes).contains(&offset);
            offset != ELSEWHERE && (is_here || self.unstored.is_some())
        };
        self.stored.is_some() && !self.readers.values().any(|place| is_near(place.offset))
    }

    /// Whether the reader whose request began the fill is there, and gets its bytes another way.
    fn first_is_elsewhere(&self) -> bool {
        self.readers.get(&0).is_some_and(|first| first.offset == ELSEWHERE)
    }

    /// Whether a reader is within these bytes.
    fn is_wanted(&self, start: u64, end: u64) -> bool {
        self.readers.values().any(|place| (start..end).contains(&place.offset))
    }

    /// The first reader, whose request began the fill; the foremost one if it has left.
    fn pacer(&self) -> Option<Pacer> {
        let awaited = |place: &Place| place.is_awaited && place.offset != ELSEWHERE;
        let all = || self.readers.iter().filter(|(_, place)| awaited(place));
        let first = all().next().filter(|(number, _)| **number == 0);
        let pacer = first.or_else(|| all().max_by_key(|(_, place)| place.offset));
        pacer.map(|(number, place)| (*number, place.offset))
    }

    /// Bytes of the tail from `offset` on; `None` if they are only in the store.
    fn of_tail(&self, offset: u64) -> Option<Bytes> {
        // Searched, not walked through: a reader asks for each piece, and there may be thousands.
        let behind = self.tail.partition_point(|(start, _)| *start <= offset);
        let (start, piece) = self.tail.get(behind.checked_sub(1)?)?;
        let within = usize::try_from(offset - start).ok()?;
        (within < piece.len()).then(|| piece.slice(within..))
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use damelo::{ByteSize, Config, GroupId};

    use super::*;
    use crate::vault::sections::section_key;

    fn store(directory: &std::path::Path) -> Store {
        let size = ByteSize::new(64 << 20);
        let mut config = Config::new(directory.join("store"), size);
        config.memory = ByteSize::new(8 << 20);
        Store::open(config).unwrap()
    }

    /// A body of unknown length beside which this many bytes may be in transit.
    fn body(directory: &std::path::Path, transit_bytes_max: u64) -> Arc<InflightBody> {
        body_of(directory, transit_bytes_max, None)
    }

    fn body_of(
        directory: &std::path::Path,
        transit_bytes_max: u64,
        length_bytes: Option<u64>,
    ) -> Arc<InflightBody> {
        let transit = Arc::new(Transit::new(transit_bytes_max));
        InflightBody::new(&store(directory), &transit, b"k".to_vec(), length_bytes)
    }

    /// What of it is in memory.
    fn tail_bytes(body: &InflightBody) -> u64 {
        body.state().tail.iter().map(|(_, piece)| piece.len() as u64).sum()
    }

    /// What a reader gets at once; `None` if it has to wait.
    fn get(reader: &mut InflightReader) -> Option<Result<usize, BodyError>> {
        match reader.poll_chunk(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Chunk::Bytes(bytes))) => Some(Ok(bytes.len())),
            Poll::Ready(Ok(Chunk::End(_))) => Some(Ok(0)),
            Poll::Ready(Err(error)) => Some(Err(error)),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_a_reader_at_the_head_is_about_to_get_stays_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), u64::MAX);
        let mut reader = InflightReader::new(body.clone(), None);
        assert_eq!(get(&mut reader), None);
        body.push(Bytes::from(vec![1; 1000]));
        // As it is in the store no more: it was evicted at once.
        body.stored(7, 1000);
        assert_eq!(get(&mut reader), Some(Ok(1000)));
        assert_eq!(get(&mut reader), None);
        body.push(Bytes::from(vec![2; NEAR_BYTES as usize]));
        let starts: Vec<_> = body.state().tail.iter().map(|(start, _)| *start).collect();
        assert_eq!(starts, [1000], "nobody is about to get what came before");
    }

    /// It may wait for the store meanwhile, and the client that began the fill may leave.
    #[test]
    fn who_is_about_to_read_counts_as_a_reader() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), u64::MAX);
        let coming = body.await_reader();
        assert_eq!(body.readers(), 1);
        let reader = InflightReader::new(body.clone(), None);
        drop(coming);
        assert_eq!(body.readers(), 1);
        drop(reader);
        assert_eq!(body.readers(), 0);
    }

    /// An origin may send its bytes one by one.
    #[test]
    fn what_comes_in_the_smallest_pieces_is_kept_in_larger_ones_and_found() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), u64::MAX);
        let count = NEAR_BYTES as usize;
        for at in 0..count {
            body.push(Bytes::from_static(if at % 2 == 0 { b"a" } else { b"b" }));
        }
        let state = body.state();
        assert!(state.tail.len() <= count / 512, "{} pieces", state.tail.len());
        for at in (0..count as u64).rev() {
            let piece = state.of_tail(at).unwrap();
            assert_eq!(piece[0], if at % 2 == 0 { b'a' } else { b'b' });
        }
        assert_eq!(state.of_tail(count as u64), None);
        assert!(body.transit.held_bytes() > NEAR_BYTES - 512, "and counted");
    }

    #[test]
    fn a_fill_that_is_not_stored_waits_for_its_first_reader_or_else_the_foremost() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), u64::MAX);
        let read_on = |reader: &mut InflightReader| while get(reader).is_some() {};
        let mut first = InflightReader::new(body.clone(), None);
        let mut others = [0, 1].map(|_| InflightReader::new(body.clone(), None));
        body.give_up_storing(7, 0);
        assert!(!body.is_open());
        let half = Bytes::from(vec![1; NEAR_BYTES as usize / 2]);
        for _ in 0..3 {
            body.push(half.clone());
        }
        others.iter_mut().for_each(read_on);
        assert_eq!(body.awaited(), Some((0, 0)), "however far the others are");
        read_on(&mut first);
        assert_eq!(body.awaited(), None);
        drop(first);
        for _ in 0..3 {
            body.push(half.clone());
            read_on(&mut others[0]);
        }
        assert_eq!(body.awaited(), None, "one is at the head");
        for _ in 0..3 {
            body.push(half.clone());
            read_on(&mut others[0]);
        }
        assert_eq!(get(&mut others[1]), Some(Err(BodyError::Store)), "too far behind");
        assert!(body.has_pacer());
        for number in [1, 2] {
            body.wait_no_longer_for((number, 0));
        }
        assert!(!body.has_pacer(), "nobody takes anything");
        body.end(Ok(None));
        assert_eq!(get(&mut others[0]), Some(Ok(0)), "its end");
    }

    #[test]
    fn what_is_removed_as_the_origin_broke_off_was_not_lost_by_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), u64::MAX);
        let mut behind = InflightReader::new(body.clone(), None);
        let mut said = || loop {
            if let Some(said) = get(&mut behind) {
                return said;
            }
        };
        for _ in 0..2 {
            body.push(Bytes::from(vec![1; NEAR_BYTES as usize]));
        }
        // As they are in the store no more.
        body.stored(7, 2 * NEAR_BYTES);
        assert_eq!(said(), Err(BodyError::Store));
        body.end(Err(BodyError::Broken));
        assert_eq!(said(), Err(BodyError::Broken));
    }

    #[tokio::test]
    async fn while_much_is_in_transit_only_what_is_read_along_is_kept_and_who_joins_waits() {
        let directory = tempfile::tempdir().unwrap();
        let body = body_of(directory.path(), 0, Some(2 * SECTION_BYTES + SECTION_BYTES / 2));
        let half = Bytes::from(vec![1; NEAR_BYTES as usize / 2]);
        body.push(half.clone());
        body.push(half.clone());
        assert_eq!(tail_bytes(&body), NEAR_BYTES, "it may yet be stored with its head");
        body.stored(7, 0);
        body.push(half.clone());
        assert_eq!(tail_bytes(&body), NEAR_BYTES / 2, "what came last");
        let mut late = InflightReader::new(body.clone(), None);
        assert_eq!(get(&mut late), None, "what is not kept is on its way into the store");
        for section in 0..2 {
            let key = section_key(&body.key, 7, section);
            let value = vec![1; SECTION_BYTES as usize];
            body.store.create(&key, GroupId::of("g"), &value).wait().unwrap();
        }
        body.stored(7, SECTION_BYTES);
        let mut read_bytes = 0;
        while read_bytes < SECTION_BYTES {
            let piece = get(&mut late).map_or(0, |piece| piece.unwrap());
            read_bytes += piece as u64;
        }
        assert_eq!(get(&mut late), Some(Ok(half.len())));
        read_bytes += half.len() as u64;
        assert_eq!(get(&mut late), None);
        body.push(half.clone());
        assert_eq!(tail_bytes(&body), NEAR_BYTES, "one is right behind it");
        body.stored(7, 2 * SECTION_BYTES);
        assert_eq!(tail_bytes(&body), 0, "it can be read");
        while read_bytes < 2 * SECTION_BYTES {
            let piece = get(&mut late).map_or(0, |piece| piece.unwrap());
            read_bytes += piece as u64;
        }
        assert_eq!(get(&mut late), None);
        body.end(Ok(None));
        assert_eq!(get(&mut late), Some(Ok(0)));
    }

    #[test]
    fn for_who_waits_for_what_comes_later_nothing_else_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let some = Bytes::from(vec![1; 2 * NEAR_BYTES as usize]);
        let length = some.len() as u64;
        let body = body_of(directory.path(), 0, Some(4 * length));
        let mut ahead = InflightReader::new(body.clone(), None);
        ahead.seek(2 * length + 10..4 * length);
        body.stored(7, 0);
        assert_eq!(get(&mut ahead), None);
        for _ in 0..2 {
            body.push(some.clone());
            assert_eq!((tail_bytes(&body), get(&mut ahead)), (length, None));
        }
        body.push(some.clone());
        assert_eq!(get(&mut ahead), Some(Ok(some.len() - 10)));
    }

    #[test]
    fn who_waits_for_what_is_not_kept_is_told_if_it_is_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), 0);
        let some = Bytes::from_static(&[1; 2000]);
        body.stored(7, 0);
        for _ in 0..2 {
            body.push(some.clone());
        }
        let mut late = InflightReader::new(body.clone(), None);
        assert_eq!(get(&mut late), None);
        body.give_up_storing(7, 0);
        assert_eq!(get(&mut late), Some(Err(BodyError::Store)));
    }

    #[test]
    fn who_was_left_behind_goes_on_if_a_body_of_unknown_length_is_too_long_for_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), 0);
        let some = Bytes::from(vec![1; 2 * NEAR_BYTES as usize]);
        let length = some.len() as u64;
        let mut first = InflightReader::in_reserve(body.clone(), None);
        let mut late = InflightReader::new(body.clone(), None);
        body.stored(7, 0);
        for _ in 0..2 {
            body.push(some.clone());
        }
        assert_eq!(tail_bytes(&body), length, "the first gets it from the fill, the other later");
        body.leave_first_at(length);
        for _ in 0..2 {
            body.push(some.clone());
        }
        body.give_up_storing(7, 0);
        body.end(Ok(None));
        first.skip(length);
        for _ in 0..3 {
            assert_eq!(get(&mut first), Some(Ok(some.len())));
        }
        assert_eq!(get(&mut first), Some(Ok(0)));
        assert_eq!(get(&mut late), Some(Err(BodyError::Store)));
    }

    #[test]
    fn what_comes_after_its_end_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let body = body(directory.path(), u64::MAX);
        body.push(Bytes::from_static(b"read along"));
        body.end(Err(BodyError::Broken));
        for _ in 0..100 {
            body.push(Bytes::from_static(b"for that one alone"));
        }
        let state = body.state();
        assert_eq!((state.tail.len(), state.shown_bytes), (1, 10));
    }
}
