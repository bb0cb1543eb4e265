//! One reader of a body being filled.
//!
//! Where the store loses what a reader has yet to get, and the fill is past it, the reader goes on
//! with the rest that it was given, if any. Invariant: its place is known to the body as long as it
//! reads along, and no longer. Threads: belongs to the response that it feeds.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use damelo::ReadError;

use super::state::{ELSEWHERE, State};
use super::{Chunk, InflightBody};
use crate::error::BodyError;
use crate::vault::RangeReader;
use crate::vault::sections::Sections;

type Reading = Pin<Box<dyn Future<Output = (Sections, Result<Option<Bytes>, ReadError>)> + Send>>;
type Rest = Box<dyn RangeReader>;
type ReadingRest = Pin<Box<dyn Future<Output = (Rest, Result<Option<Bytes>, BodyError>)> + Send>>;

pub(crate) struct InflightReader {
    body: Arc<InflightBody>,
    number: u64,
    offset: u64,
    /// End of the requested range.
    end: u64,
    /// `shown_bytes` of the body when the last read began.
    shown_bytes: u64,
    /// Reads the stored bytes; present while no read is under way.
    sections: Option<Sections>,
    reading: Option<Reading>,
    /// Reads what the store has lost; absent while a read of it is under way.
    rest: Option<Rest>,
    reading_rest: Option<ReadingRest>,
    /// It no longer reads along: it goes on with the rest.
    left: bool,
    /// The end of the body was delivered.
    ended: bool,
}

impl InflightReader {
    /// A reader that goes on with `rest`, if it is given one, where the body cannot be read.
    pub(crate) fn new(body: Arc<InflightBody>, rest: Option<Rest>) -> InflightReader {
        InflightReader::at(body, rest, 0)
    }

    /// A reader of a client that still gets its bytes another way.
    pub(crate) fn in_reserve(body: Arc<InflightBody>, rest: Option<Rest>) -> InflightReader {
        InflightReader::at(body, rest, ELSEWHERE)
    }

    fn at(body: Arc<InflightBody>, rest: Option<Rest>, offset: u64) -> InflightReader {
        let number = body.state().join(offset);
        body.joined.notify_one();
        InflightReader {
            body,
            number,
            offset: 0,
            end: u64::MAX,
            shown_bytes: 0,
            sections: None,
            reading: None,
            rest,
            reading_rest: None,
            left: false,
            ended: false,
        }
    }

    /// Continues with this range.
    pub(crate) fn seek(&mut self, range: Range<u64>) {
        (self.offset, self.end) = (range.start, range.end);
    }

    /// Returns the next piece, which may go beyond the range; `None` at the end.
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
        if !self.left {
            match ready!(self.poll_along(cx)) {
                Err(BodyError::Store) if self.rest.is_some() => self.leave(),
                Err(BodyError::Store) => return Poll::Ready(Err(self.body.why_lost())),
                other => return Poll::Ready(other),
            }
        }
        self.poll_rest(cx)
    }

    fn poll_along(&mut self, cx: &mut Context<'_>) -> Poll<Result<Chunk, BodyError>> {
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
            self.is_here(&mut state);
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
                return self.wait(&mut state, cx);
            }
            if let Some(bytes) = state.of_tail(self.offset) {
                drop(state);
                return Poll::Ready(Ok(self.took(bytes)));
            }
            let (stored, shown_bytes) = (state.stored, state.shown_bytes);
            let is_stored = stored.is_some_and(|(_, stored_bytes)| self.offset < stored_bytes);
            if !is_stored && state.is_being_stored() {
                return self.wait(&mut state, cx);
            }
            drop(state);
            self.shown_bytes = shown_bytes;
            match stored {
                Some((generation, stored)) if self.offset < stored => {
                    self.reading = Some(self.read(generation, stored));
                }
                _ => return Poll::Ready(Err(BodyError::Store)),
            }
        }
    }

    /// Waits for the next change of the body.
    fn wait(&self, state: &mut State, cx: &mut Context<'_>) -> Poll<Result<Chunk, BodyError>> {
        if let Some(place) = state.readers.get_mut(&self.number) {
            place.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Tells the body, and a fill that may wait for it, where this reader is.
    fn is_here(&self, state: &mut State) {
        let Some(place) = state.readers.get_mut(&self.number) else { return };
        if place.offset != self.offset {
            place.offset = self.offset;
            self.body.moved.notify_one();
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

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<Chunk, BodyError>> {
        if self.reading_rest.is_none() {
            let Some(mut rest) = self.rest.take() else {
                return Poll::Ready(Err(BodyError::Store));
            };
            // Each time anew: a range of several may begin elsewhere.
            rest.seek(self.offset..self.end.min(rest.complete_bytes()));
            self.reading_rest = Some(Box::pin(async move {
                let piece = rest.next().await;
                (rest, piece)
            }));
        }
        let Some(reading) = &mut self.reading_rest else {
            return Poll::Ready(Err(BodyError::Store));
        };
        let (rest, piece) = ready!(reading.as_mut().poll(cx));
        (self.reading_rest, self.rest) = (None, Some(rest));
        Poll::Ready(piece.map(|piece| piece.map_or(Chunk::End(None), |bytes| self.took(bytes))))
    }

    /// Reads along no longer.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        self.body.state().readers.remove(&self.number);
        self.body.moved.notify_one();
    }
}

impl Drop for InflightReader {
    fn drop(&mut self) {
        self.leave();
    }
}
