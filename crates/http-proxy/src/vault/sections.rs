//! A large body in the store: consecutive sections of [`SECTION_BYTES`], each an object.
//!
//! Invariants: concurrent readers can read a section as soon as it is full, long before the body is
//! complete; a complete body is served only through its response's entry. Section `n` of a body is
//! stored under the key of its response, 0x01, the body's generation, and `n`. If most of a section
//! is requested, it is read with one I/O and stays in memory like any object, and the next section
//! is read ahead; more of them, up to [`AHEAD_MAX`], for a client that has to wait for the disk.
//! All this happens only while all clients together hold no more of sections than [`WholeReads`]
//! allows, so that many slow clients cannot occupy all memory. Beyond that limit, and for small
//! ranges, a section is read in pieces that only its client holds. Threads: a reader belongs to the
//! body that it feeds.

use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut as _, Bytes};
use damelo::{Object, Read, ReadError, Reader, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::io::locks;
use crate::vault::entry::Apart;
use crate::vault::in_time::in_time;
use crate::vault::part_reads::PartReads;

/// Length of every section but the last.
pub(crate) const SECTION_BYTES: u64 = 1 << 20;
/// At most 1/`MEMORY_SHARE` of the store's memory may be sections in flight to clients.
const MEMORY_SHARE: u64 = 4;
/// With less memory than this the store does not read a section in one piece.
const MEMORY_BYTES_MIN: u64 = 16 * SECTION_BYTES;
/// Most sections that one reader reads ahead. It begins with one, and doubles whenever the section
/// that it needs is still on its way.
const AHEAD_MAX: usize = 4;
/// Bytes that one permit stands for: a short section takes fewer than a long one.
const PERMIT_BYTES: u64 = 64 << 10;

/// The key of a section of the body of the response under `key`.
pub(crate) fn section_key(key: &[u8], generation: u64, section: u64) -> Vec<u8> {
    let mut full = Vec::with_capacity(key.len() + 17);
    full.extend_from_slice(key);
    full.push(1);
    full.put_u64(generation);
    full.put_u64(section);
    full
}

/// True for the key of a section that is not the first of its body. Another key may look like one,
/// by chance.
pub(super) fn is_later_section(key: &[u8]) -> bool {
    let is_later = |[mark, rest @ ..]: &[u8; 17]| *mark == 1 && rest[8..] != [0; 8];
    key.last_chunk().is_some_and(is_later)
}

/// Removes the first sections of a body that no entry refers to.
pub(crate) fn forget(store: &Store, key: &[u8], generation: u64, sections: u64) {
    for section in 0..sections {
        // A section that cannot be removed is unreachable, and its space is reclaimed when the log
        // wraps around.
        let _ = store.remove(&section_key(key, generation, section));
    }
}

/// Shared by all readers: how much of sections is held whole, and the cost of partial reads of
/// sections and slices.
#[derive(Debug)]
pub(crate) struct WholeReads {
    /// A permit for each [`PERMIT_BYTES`] that may be held.
    permits: Arc<Semaphore>,
    permits_max: usize,
    /// Whether the store has memory for whole sections.
    takes_sections: bool,
    pub(super) parts: PartReads,
}

impl WholeReads {
    /// For a store with `memory_bytes` of memory.
    pub(super) fn new(memory_bytes: u64) -> WholeReads {
        let permits = memory_bytes / MEMORY_SHARE / PERMIT_BYTES;
        let permits_max =
            usize::try_from(permits).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        WholeReads {
            permits: Arc::new(Semaphore::new(permits_max)),
            permits_max,
            takes_sections: memory_bytes >= MEMORY_BYTES_MIN,
            parts: PartReads::new(),
        }
    }

    /// Permits for a section of this length.
    fn permits_for_section(&self, section_bytes: u64) -> Option<OwnedSemaphorePermit> {
        self.takes_sections.then(|| self.permits_for(section_bytes)).flatten()
    }

    /// Whether so few sections are held that a reader may read more than one ahead: what other
    /// clients need is left alone.
    fn has_plenty(&self) -> bool {
        self.permits.available_permits() > self.permits_max / 2
    }

    /// Permits for what is read whole and has this length.
    pub(super) fn permits_for(&self, whole_bytes: u64) -> Option<OwnedSemaphorePermit> {
        let count = u32::try_from(whole_bytes.div_ceil(PERMIT_BYTES)).ok()?;
        Arc::clone(&self.permits).try_acquire_many_owned(count).ok()
    }
}

/// Reads a body from front to back, or from any offset.
pub(crate) struct Sections {
    store: Store,
    key: Vec<u8>,
    generation: u64,
    length_bytes: u64,
    offset: u64,
    /// End of the requested range.
    end: u64,
    /// `None` while following a fill, whose sections are in memory, or soon unreachable.
    whole_reads: Option<Arc<WholeReads>>,
    /// The section read last.
    open: Option<(u64, Open)>,
    /// The next sections, being read ahead, in their order. The mutex is never contended: it only
    /// makes the type `Sync`, since a found response may be borrowed across an await.
    ahead: Mutex<VecDeque<Ahead>>,
    /// How many sections are to be read ahead.
    ahead_count: usize,
    /// A piece read before it was requested, and its offset.
    first: Option<(u64, Bytes)>,
}

/// An open section.
enum Open {
    Whole(Bytes),
    InPieces(Reader),
}

/// A section being read ahead.
struct Ahead {
    section: u64,
    read: Reading,
    permit: OwnedSemaphorePermit,
}

/// A read that was begun, and may have ended at once.
enum Reading {
    UnderWay(Read),
    Ended(Result<Option<Object>, ReadError>),
}

impl Reading {
    /// What came, and whether it had to be waited for.
    async fn outcome(self) -> (Result<Option<Object>, ReadError>, bool) {
        let mut read = match self {
            Reading::UnderWay(read) => read,
            Reading::Ended(outcome) => return (outcome, false),
        };
        let mut waited = false;
        let outcome = poll_fn(|cx| {
            let polled = Pin::new(&mut read).poll(cx);
            waited |= polled.is_pending();
            polled
        });
        (outcome.await, waited)
    }
}

/// A section's bytes, or a slice's. The permit is held until the last reference to them is dropped.
struct Held {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Bytes that hold their permit, if they have one.
pub(super) fn held(bytes: Bytes, permit: Option<OwnedSemaphorePermit>) -> Bytes {
    match permit {
        Some(permit) => Bytes::from_owner(Held { bytes, _permit: permit }),
        None => bytes,
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Sections {
    /// A body still being filled, of which `length_bytes` can be read.
    pub(crate) fn growing(store: &Store, key: &[u8], generation: u64, length_bytes: u64) -> Self {
        Sections {
            store: store.clone(),
            key: key.to_vec(),
            generation,
            length_bytes,
            offset: 0,
            end: u64::MAX,
            whole_reads: None,
            open: None,
            ahead: Mutex::default(),
            ahead_count: 1,
            first: None,
        }
    }

    /// A complete body. What the store has evicted of it is yet to be asked ([`Sections::has`]): to
    /// ask for all of it takes time in proportion to its length, and mostly a part is wanted.
    pub(super) fn complete(
        store: &Store,
        key: &[u8],
        apart: &Apart,
        whole_reads: &Arc<WholeReads>,
    ) -> Sections {
        let mut sections = Sections::growing(store, key, apart.generation, apart.length_bytes);
        sections.whole_reads = Some(Arc::clone(whole_reads));
        sections
    }

    /// Whether the store has evicted nothing of this range. Costs no I/O, so an unreadable section
    /// shows only when it is read.
    pub(crate) fn has(&self, range: Range<u64>) -> bool {
        let end = range.end.min(self.length_bytes).div_ceil(SECTION_BYTES);
        let mut sections = range.start / SECTION_BYTES..end;
        sections.all(|section| self.store.may_contain(&self.section_key(section)))
    }

    fn section_key(&self, section: u64) -> Vec<u8> {
        section_key(&self.key, self.generation, section)
    }

    /// Length of a section: the last one may be short.
    fn section_bytes(&self, section: u64) -> u64 {
        self.length_bytes.saturating_sub(section * SECTION_BYTES).min(SECTION_BYTES)
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Updates how many bytes can be read.
    pub(crate) fn grow(&mut self, length_bytes: u64) {
        self.length_bytes = self.length_bytes.max(length_bytes);
    }

    /// Continues with this range of the body.
    pub(crate) fn seek(&mut self, range: Range<u64>) {
        self.offset = range.start.min(self.length_bytes);
        self.end = range.end;
    }

    /// Reads the first piece of a range, which [`Sections::next`] will then return. A read error is
    /// thus found while the response can still be fetched instead.
    pub(crate) async fn read_first(&mut self, range: Range<u64>) -> Result<(), ReadError> {
        self.seek(range.clone());
        let piece = self.next().await?;
        self.seek(range);
        self.first = piece.map(|piece| (self.offset, piece));
        Ok(())
    }

    /// Returns the next piece, which may go beyond the range, or `None` at the end of the readable
    /// bytes.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        if let Some((offset, piece)) = self.first.take()
            && offset == self.offset
        {
            self.offset += piece.len() as u64;
            return Ok(Some(piece));
        }
        if self.offset >= self.length_bytes {
            return Ok(None);
        }
        in_time(self.read_on()).await.unwrap_or(Err(ReadError::Gone))
    }

    /// Reads the next piece.
    async fn read_on(&mut self) -> Result<Option<Bytes>, ReadError> {
        let (section, within) = (self.offset / SECTION_BYTES, self.offset % SECTION_BYTES);
        let opened = match self.open.take() {
            Some((open, opened)) if open == section => opened,
            _ => {
                let opened = self.open_section(section).await?;
                self.read_ahead(section);
                opened
            }
        };
        let piece = match opened {
            // Not kept open: no read follows, and only the client should hold the bytes.
            Open::Whole(bytes) => Some(bytes.slice(within as usize..)),
            Open::InPieces(mut reader) => {
                reader.select(within..self.end.saturating_sub(section * SECTION_BYTES));
                let piece = reader.next().await?;
                self.open = Some((section, Open::InPieces(reader)));
                piece
            }
        };
        self.offset += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }

    /// Opens a section; a section of unexpected length counts as missing.
    async fn open_section(&mut self, section: u64) -> Result<Open, ReadError> {
        let expected = self.section_bytes(section);
        if let Some((bytes, permit)) = self.read_whole(section).await? {
            if bytes.len() as u64 != expected {
                return Err(ReadError::Gone);
            }
            return Ok(Open::Whole(held(bytes, permit)));
        }
        let reader = self.store.reader(&self.section_key(section)).await?.ok_or(ReadError::Gone)?;
        if reader.info().length_bytes != expected {
            return Err(ReadError::Gone);
        }
        Ok(Open::InPieces(reader))
    }

    /// The whole section, if it is in memory, was read ahead, or is mostly requested. `None`: read
    /// it in pieces.
    async fn read_whole(
        &mut self,
        section: u64,
    ) -> Result<Option<(Bytes, Option<OwnedSemaphorePermit>)>, ReadError> {
        let ahead = self.take_ahead(section);
        let was_ahead = ahead.is_some();
        let (read, permit) = match ahead {
            Some(Ahead { read, permit, .. }) => (read, Some(permit)),
            None => {
                let key = self.section_key(section);
                let read = self.store.read(&key);
                if read.is_ready() {
                    (Reading::UnderWay(read), None)
                } else if let Some(permit) = self.permit_to_read(&key, section) {
                    (Reading::UnderWay(read), Some(permit))
                } else {
                    return Ok(None);
                }
            }
        };
        let (outcome, waited) = read.outcome().await;
        if waited && was_ahead {
            // The client is faster than the disk.
            self.ahead_count = (2 * self.ahead_count).min(AHEAD_MAX);
        }
        match outcome {
            Ok(Some(object)) => Ok(Some((object.into(), permit))),
            Ok(None) => Err(ReadError::Gone),
            // There may be memory for a smaller read.
            Err(_) => Ok(None),
        }
    }

    fn permit_to_read(&self, key: &[u8], section: u64) -> Option<OwnedSemaphorePermit> {
        let shared = self.whole_reads.as_ref()?;
        let before = section * SECTION_BYTES;
        let whole_bytes = self.section_bytes(section);
        let within = |offset: u64| offset.saturating_sub(before).min(whole_bytes);
        let wanted = within(self.offset)..within(self.end);
        let in_part = shared.parts.suffices(key, wanted, whole_bytes);
        if in_part { None } else { shared.permits_for_section(whole_bytes) }
    }

    /// This section, if it is read ahead.
    fn take_ahead(&mut self, section: u64) -> Option<Ahead> {
        let ahead = locks::get_mut(&mut self.ahead);
        // What was skipped, and after a step back all.
        while ahead.front().is_some_and(|front| front.section != section) {
            ahead.pop_front();
        }
        ahead.pop_front()
    }

    /// Starts reading the sections behind this one ahead.
    fn read_ahead(&mut self, section: u64) {
        let last = locks::get_mut(&mut self.ahead).back().map_or(section, |last| last.section);
        for next in last + 1..=section + self.ahead_count as u64 {
            let is_first = next == section + 1;
            let may = is_first || self.whole_reads.as_ref().is_some_and(|it| it.has_plenty());
            if !may || !self.ask_ahead(next) {
                return;
            }
        }
    }

    /// Starts reading a section ahead, if it is requested from its first byte on and is not in
    /// memory. False if those behind it should not be read ahead either.
    fn ask_ahead(&mut self, section: u64) -> bool {
        let start = section * SECTION_BYTES;
        let end = self.end.min(self.length_bytes);
        let wanted_bytes = end.saturating_sub(start);
        if wanted_bytes == 0 || wanted_bytes < SECTION_BYTES / 2 && end < self.length_bytes {
            return false;
        }
        let section_bytes = self.section_bytes(section);
        let shared = self.whole_reads.as_ref();
        let Some(permit) = shared.and_then(|shared| shared.permits_for_section(section_bytes))
        else {
            return false;
        };
        let mut read = self.store.read(&self.section_key(section));
        if read.is_ready() {
            return false;
        }
        // The first poll starts the read; the later await polls it again with its own waker. What
        // was read by then is held like all else: its client would find it in memory, for nothing.
        let read = match Pin::new(&mut read).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Reading::UnderWay(read),
            Poll::Ready(outcome) => Reading::Ended(outcome),
        };
        locks::get_mut(&mut self.ahead).push_back(Ahead { section, read, permit });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use std::path::PathBuf;
    use std::pin::pin;
    use std::sync::Condvar;

    use damelo::device::Device;
    use damelo::{ByteSize, Config, GroupId, Stats};
    use damelo_store_sim::{SimClock, SimDisk, SimOptions, SimWorld};

    use super::*;
    use crate::tapped::{Tap, Tapped};

    const KEY: &[u8] = b"http://h/large";
    const STORE_BYTES: u64 = 128 << 20;
    /// Of the last section there is less than a third.
    const LENGTH: u64 = 2 * SECTION_BYTES + (300 << 10);

    fn byte_at(offset: u64) -> u8 {
        (offset % 251) as u8
    }

    /// A store with a body of two sections and a short one, none of it in memory.
    fn store(directory: &tempfile::TempDir) -> Store {
        let store = Store::open(config(directory.path().join("store"))).unwrap();
        put(&store, LENGTH);
        store
    }

    fn config(path: PathBuf) -> Config {
        let mut config = Config::new(path, ByteSize::new(STORE_BYTES));
        config.memory = ByteSize::new(32 << 20);
        config
    }

    fn world() -> SimWorld {
        let options = SimOptions { history: false, ..SimOptions::new(1) };
        SimWorld::start(&[SimDisk::blank(STORE_BYTES)], &options, Arc::new(SimClock::new()))
    }

    /// The same on a disk that reads before it is waited for.
    fn store_on_a_quick_disk() -> Store {
        let world = world();
        let opened = Store::open_on(config("sim".into()), world.devices(), world.clock());
        let store = opened.unwrap();
        put(&store, LENGTH);
        store
    }

    /// Stores a body of this length, none of it in memory.
    fn put(store: &Store, length_bytes: u64) {
        let bytes: Vec<u8> = (0..length_bytes).map(byte_at).collect();
        for (section, bytes) in bytes.chunks(SECTION_BYTES as usize).enumerate() {
            let key = section_key(KEY, 1, section as u64);
            store.create(&key, GroupId::of("h"), bytes).wait().unwrap();
        }
        store.sync().unwrap();
        store.drop_memory();
    }

    /// How many reads of a disk may go on: each waits until the test lets it.
    struct Allowed(Arc<(Mutex<usize>, Condvar)>);

    impl Tap for Allowed {
        fn before_read(&self) {
            let (allowed, more) = &*self.0;
            let none = |allowed: &mut usize| *allowed == 0;
            *more.wait_while(allowed.lock().unwrap(), none).unwrap() -= 1;
        }
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    fn open(store: &Store, shared: &Arc<WholeReads>) -> Sections {
        Sections::complete(store, KEY, &Apart { generation: 1, length_bytes: LENGTH }, shared)
    }

    /// Reads a range and holds every piece, like a client that has stopped reading.
    async fn pieces(sections: &mut Sections, range: Range<u64>) -> Vec<Bytes> {
        sections.seek(range.clone());
        let (mut at, mut pieces) = (range.start, Vec::new());
        while at < range.end.min(LENGTH) {
            let piece = sections.next().await.unwrap().expect("it goes on");
            assert!(piece.iter().zip(at..).all(|(byte, at)| *byte == byte_at(at)));
            at += piece.len() as u64;
            pieces.push(piece);
        }
        pieces
    }

    fn reads(stats: &Stats) -> (u64, u64) {
        (stats.object_reads, stats.range_reads)
    }

    #[test]
    fn a_body_costs_one_read_a_section_and_is_in_memory_then() {
        let directory = tempfile::tempdir().unwrap();
        let (store, shared) = (store(&directory), Arc::new(WholeReads::new(32 << 20)));
        for _ in 0..2 {
            let mut sections = open(&store, &shared);
            assert_eq!(run(pieces(&mut sections, 0..u64::MAX)).len(), 3);
            assert_eq!(reads(&store.stats()), (3, 0));
        }
        assert_eq!(shared.permits.available_permits(), 8 * 16, "nothing is held any more");
    }

    #[test]
    fn what_is_small_is_read_alone_until_it_is_wanted_often() {
        let directory = tempfile::tempdir().unwrap();
        let (store, shared) = (store(&directory), Arc::new(WholeReads::new(32 << 20)));
        let mut sections = open(&store, &shared);
        let piece = run(pieces(&mut sections, 100_000..120_000)).remove(0);
        assert!((piece.len() as u64) < SECTION_BYTES / 2);
        assert_eq!(store.stats().object_reads, 0);
        for _ in 0..40 {
            run(pieces(&mut open(&store, &shared), 100_000..120_000));
        }
        assert_eq!(store.stats().object_reads, 1);
    }

    #[test]
    fn of_a_section_read_in_pieces_no_more_is_read_than_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let (store, shared) = (store(&directory), Arc::new(WholeReads::new(32 << 20)));
        for range in [0..100, 500_000..500_100, SECTION_BYTES + 1..SECTION_BYTES + 2] {
            let before = store.stats().disk_read_bytes;
            let pieces = run(pieces(&mut open(&store, &shared), range.clone()));
            assert_eq!(pieces.concat().len() as u64, range.end - range.start);
            // The head of the section's object, a chunk of it, and parts of blocks.
            let read = store.stats().disk_read_bytes - before;
            assert!(read <= 80 << 10, "{read} bytes of {range:?}");
        }
        assert_eq!(store.stats().object_reads, 0);
    }

    #[test]
    fn clients_that_take_nothing_hold_no_more_than_their_share() {
        let directory = tempfile::tempdir().unwrap();
        [store(&directory), store_on_a_quick_disk()].iter().for_each(hold_what_they_may);
    }

    fn hold_what_they_may(store: &Store) {
        let shared = Arc::new(WholeReads::new(16 << 20));
        let held: Vec<Vec<Bytes>> = (0..4)
            .map(|_| {
                store.drop_memory();
                run(pieces(&mut open(store, &shared), 0..u64::MAX))
            })
            .collect();
        assert!(shared.permits.available_permits() < 5, "not even a short section's");
        let longest = held.last().unwrap().iter().map(Bytes::len).max().unwrap();
        assert!((longest as u64) < SECTION_BYTES, "in pieces by then: {longest}");
        drop(held);
        assert_eq!(shared.permits.available_permits(), 4 * 16);
    }

    /// A client that is faster than the disk takes so many sections: how many are read ahead then.
    fn ahead_of_a_fast_client(taken: usize, shared: &Arc<WholeReads>) -> usize {
        let world = world();
        let allowed = Arc::new((Mutex::new(usize::MAX), Condvar::new()));
        let held =
            |disk| Arc::new(Tapped { disk, tap: Allowed(allowed.clone()) }) as Arc<dyn Device>;
        let disks = world.devices().into_iter().map(held).collect();
        let store = Store::open_on(config("sim".into()), disks, world.clock()).unwrap();
        let length_bytes = 8 * SECTION_BYTES;
        put(&store, length_bytes);
        *allowed.0.lock().unwrap() = 0;
        let mut sections =
            Sections::complete(&store, KEY, &Apart { generation: 1, length_bytes }, shared);
        let ahead = run(async {
            for _ in 0..taken {
                // What is being read already, or the first.
                let reads = sections.ahead.get_mut().unwrap().len().max(1);
                let mut next = pin!(sections.next());
                let first = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
                assert!(first.is_pending(), "no read may go on yet");
                *allowed.0.lock().unwrap() = reads;
                allowed.1.notify_all();
                assert!(next.await.unwrap().is_some());
            }
            sections.ahead.get_mut().unwrap().len()
        });
        // The store waits for its reads when it is closed.
        *allowed.0.lock().unwrap() = usize::MAX;
        allowed.1.notify_all();
        ahead
    }

    #[test]
    fn who_waits_for_the_disk_has_more_read_ahead() {
        let plenty = Arc::new(WholeReads::new(128 << 20));
        assert_eq!([1, 2, 3].map(|taken| ahead_of_a_fast_client(taken, &plenty)), [1, 2, 4]);
        let scarce = Arc::new(WholeReads::new(16 << 20));
        assert_eq!(ahead_of_a_fast_client(3, &scarce), 1, "others need the rest");
    }

    #[test]
    fn a_section_that_is_gone_ends_the_body() {
        let directory = tempfile::tempdir().unwrap();
        let (store, shared) = (store(&directory), Arc::new(WholeReads::new(32 << 20)));
        let mut sections = open(&store, &shared);
        store.remove(&section_key(KEY, 1, 1)).unwrap();
        run(async {
            assert!(sections.next().await.unwrap().is_some());
            assert!(matches!(sections.next().await, Err(ReadError::Gone)));
        });
    }
}
