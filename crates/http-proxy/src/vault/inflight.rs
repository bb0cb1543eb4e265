//! A body being filled into the store, read by any number of clients meanwhile (read-while-write).
//!
//! Each client reads from byte 0 at its own pace: the stored beginning from the store, the rest
//! from memory. Invariants: memory holds only bytes that the store has not taken yet, less than a
//! section plus one read; a reader never waits for another reader, nor the fill for any reader; if
//! the fill breaks off, all readers do. Threads: written by the fill, read on every worker; the
//! lock is held for a few moves, never across a wait.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use damelo::{ReadError, Store};
use http::HeaderMap;
use hyper::body::Frame;
use tokio::sync::Notify;

use crate::error::BodyError;
use crate::io::locks::lock;
use crate::vault::sections::Sections;

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
    state: Mutex<State>,
    readers: AtomicUsize,
    /// Tells the fill of each new reader.
    joined: Notify,
    /// Source of reader numbers.
    next_reader: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Generation of the stored body, and how many of its bytes can be read.
    stored: Option<(u64, u64)>,
    /// The bytes behind the stored ones.
    tail: VecDeque<Bytes>,
    tail_start: u64,
    /// Bytes that readers may read.
    shown_bytes: u64,
    /// The trailers, or why the body broke off.
    end: Option<Result<Option<Box<HeaderMap>>, BodyError>>,
    waiting: HashMap<u64, Waker>,
}

impl InflightBody {
    /// The body of the response under `key`; `length_bytes` if the origin announced a length.
    pub(crate) fn new(store: &Store, key: Vec<u8>, length_bytes: Option<u64>) -> Arc<InflightBody> {
        Arc::new(InflightBody {
            key,
            length_bytes,
            store: store.clone(),
            state: Mutex::default(),
            readers: AtomicUsize::new(0),
            joined: Notify::new(),
            next_reader: AtomicU64::new(0),
        })
    }

    /// The key of the response.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
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
            state.shown_bytes += bytes.len() as u64;
            state.tail.push_back(bytes);
            state.let_go();
        });
    }

    /// Reports that the first `stored_bytes` of the body can be read from the store.
    pub(crate) fn stored(&self, generation: u64, stored_bytes: u64) {
        let mut state = self.state();
        state.stored = Some((generation, stored_bytes));
        state.let_go();
    }

    /// Ends the body with these trailers or this error. Only the first call counts.
    pub(crate) fn end(&self, end: Result<Option<Box<HeaderMap>>, BodyError>) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    /// Whether the body broke off, so that its readers get nothing more.
    pub(crate) fn has_broken_off(&self) -> bool {
        matches!(self.state().end, Some(Err(_)))
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state();
        how(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl fmt::Debug for InflightBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightBody").field("readers", &self.readers).finish_non_exhaustive()
    }
}

impl State {
    /// Drops the part of the tail that the store has.
    fn let_go(&mut self) {
        let Some((_, stored_bytes)) = self.stored else { return };
        while let Some(first) = self.tail.front() {
            let end = self.tail_start + first.len() as u64;
            if end > stored_bytes {
                return;
            }
            self.tail_start = end;
            self.tail.pop_front();
        }
    }

    /// Bytes of the tail from `offset` on; `None` if they are only in the store.
    fn of_tail(&self, offset: u64) -> Option<Bytes> {
        let mut start = self.tail_start;
        if offset < start {
            return None;
        }
        for chunk in &self.tail {
            let end = start + chunk.len() as u64;
            if offset < end {
                return Some(chunk.slice((offset - start) as usize..));
            }
            start = end;
        }
        None
    }
}

type Reading = Pin<Box<dyn Future<Output = (Sections, Result<Option<Bytes>, ReadError>)> + Send>>;

/// One reader of a body being filled.
pub(crate) struct InflightReader {
    body: Arc<InflightBody>,
    number: u64,
    offset: u64,
    /// `shown_bytes` of the body when the last read began.
    shown_bytes: u64,
    /// Reads the stored bytes; present while no read is under way.
    sections: Option<Sections>,
    reading: Option<Reading>,
    /// The end of the body was delivered.
    ended: bool,
}

impl InflightReader {
    pub(crate) fn new(body: Arc<InflightBody>) -> InflightReader {
        body.readers.fetch_add(1, Ordering::SeqCst);
        body.joined.notify_one();
        let number = body.next_reader.fetch_add(1, Ordering::Relaxed);
        InflightReader {
            body,
            number,
            offset: 0,
            shown_bytes: 0,
            sections: None,
            reading: None,
            ended: false,
        }
    }

    /// Continues at this offset.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Returns the next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        match poll_fn(|cx| self.poll_chunk(cx)).await? {
            Chunk::Bytes(bytes) => Ok(Some(bytes)),
            Chunk::End(_) => Ok(None),
        }
    }

    /// Skips bytes that the client received another way.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.offset += bytes;
    }

    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Chunk, BodyError>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let (sections, piece) = ready!(reading.as_mut().poll(cx));
                (self.reading, self.sections) = (None, Some(sections));
                let Ok(Some(mut piece)) = piece else {
                    return Poll::Ready(Err(BodyError::Store));
                };
                let shown = usize::try_from(self.shown_bytes - self.offset).unwrap_or(usize::MAX);
                piece.truncate(shown);
                return Poll::Ready(Ok(self.took(piece)));
            }
            let mut state = self.body.state();
            if self.offset >= state.shown_bytes {
                match &state.end {
                    Some(Ok(_)) if self.ended => return Poll::Ready(Ok(Chunk::End(None))),
                    Some(Ok(trailers)) => {
                        self.ended = true;
                        return Poll::Ready(Ok(Chunk::End(trailers.clone())));
                    }
                    Some(Err(error)) => return Poll::Ready(Err(*error)),
                    None => {}
                }
                state.waiting.insert(self.number, cx.waker().clone());
                return Poll::Pending;
            }
            if let Some(bytes) = state.of_tail(self.offset) {
                drop(state);
                return Poll::Ready(Ok(self.took(bytes)));
            }
            let (stored, shown_bytes) = (state.stored, state.shown_bytes);
            drop(state);
            self.shown_bytes = shown_bytes;
            match stored {
                Some((generation, stored)) => self.reading = Some(self.read(generation, stored)),
                None => return Poll::Ready(Err(BodyError::Store)),
            }
        }
    }

    fn took(&mut self, bytes: Bytes) -> Chunk {
        self.offset += bytes.len() as u64;
        Chunk::Bytes(bytes)
    }

    fn read(&mut self, generation: u64, stored_bytes: u64) -> Reading {
        let (store, key) = (&self.body.store, &self.body.key);
        let growing = || Sections::growing(store, key, generation, stored_bytes);
        let mut sections = self.sections.take().unwrap_or_else(growing);
        sections.grow(stored_bytes);
        sections.seek(self.offset..u64::MAX);
        Box::pin(async move {
            let piece = sections.next().await;
            (sections, piece)
        })
    }
}

impl Drop for InflightReader {
    fn drop(&mut self) {
        self.body.readers.fetch_sub(1, Ordering::SeqCst);
        self.body.state().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use damelo::{ByteSize, Config};

    use super::*;

    #[test]
    fn what_comes_after_its_end_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let size = ByteSize::new(64 << 20);
        let mut config = Config::new(directory.path().join("store"), size);
        config.memory = ByteSize::new(8 << 20);
        let body = InflightBody::new(&Store::open(config).unwrap(), b"k".to_vec(), None);
        body.push(Bytes::from_static(b"read along"));
        // The store abandoned the fill; the fill's own client continues.
        body.end(Err(BodyError::Broken));
        for _ in 0..100 {
            body.push(Bytes::from_static(b"for that one alone"));
        }
        let state = body.state();
        assert_eq!((state.tail.len(), state.shown_bytes), (1, 10));
    }
}
