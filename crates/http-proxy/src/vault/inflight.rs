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
mod state;

use std::fmt;
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
use crate::vault::sections::{self, Sections};

pub(crate) use reader::InflightReader;
pub(crate) use state::Pacer;
use state::{NEAR_BYTES, State};

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
    /// Tells the fill of each new reader.
    joined: Notify,
    /// Tells the fill, once nothing is stored any more, that a reader has moved on.
    moved: Notify,
}

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
            joined: Notify::new(),
            moved: Notify::new(),
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

    /// How many read it, or are about to.
    pub(crate) fn readers(&self) -> usize {
        let state = self.state();
        state.readers.len() + state.coming
    }

    /// Counts one who is about to read, but may have to wait for the store before, as a reader, so
    /// that the fill goes on meanwhile.
    pub(crate) fn await_reader(self: &Arc<InflightBody>) -> Coming {
        self.state().coming += 1;
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
        if let Some(first) =
            self.state().readers.get_mut(&0).filter(|it| it.offset == state::ELSEWHERE)
        {
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
        self.0.state().coming -= 1;
    }
}

impl fmt::Debug for InflightBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightBody").field("readers", &self.readers()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "inflight/inflight_tests.rs"]
mod tests;
