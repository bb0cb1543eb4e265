//! A write into a writer: takes the bytes piece by piece, and waits for room between.
//!
//! Invariant: until all bytes are taken the writer is torn. Threads: the writer's.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Writer;
use crate::config::WhenMemoryFull;
use crate::deferred::{Caller, Deferred};
use crate::error::CreateError;
use crate::stats::add;
use crate::write::nursery::Place;

/// A write of bytes into a writer; see [`Writer::write`].
#[must_use = "await it, or call wait()"]
pub struct Write<'a> {
    writer: &'a mut Writer,
    bytes: &'a [u8],
    begun: bool,
    waiting: Option<Deferred<Place>>,
    /// When the wait began, and how many bytes were left then.
    since: Option<(Instant, usize)>,
    /// Nothing was waiting to be written before the attempt, so only readers hold the memory.
    idle: bool,
    /// In the line of those who wait for room in the nursery.
    place: Place,
}

impl fmt::Debug for Write<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").field("bytes_left", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<'a> Write<'a> {
    pub(super) fn of(writer: &'a mut Writer, bytes: &'a [u8]) -> Write<'a> {
        let place = Place::default();
        Write { writer, bytes, begun: false, waiting: None, since: None, idle: false, place }
    }

    /// Takes the bytes, blocking this thread if necessary.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    pub fn wait(mut self) -> Result<(), CreateError> {
        let taken = self.take_all();
        self.writer.replaced_or_removed(taken)
    }

    fn take_all(&mut self) -> Result<(), CreateError> {
        while !self.push()? {
            let since = self.note_wait()?;
            let place = std::mem::take(&mut self.place);
            self.place = self.writer.wait_turn(since, place)(None);
        }
        Ok(())
    }

    /// Copies as much as possible without waiting; true when all bytes were taken. Until then, the
    /// writer is torn.
    fn push(&mut self) -> Result<bool, CreateError> {
        if !self.begun {
            if self.writer.engine.is_closed() {
                return Err(CreateError::Closed);
            }
            self.begun = true;
            if std::mem::replace(&mut self.writer.torn, true) {
                return Err(CreateError::Torn);
            }
        }
        let parts = self.writer.parts.len();
        let done = self.writer.push(&mut self.bytes, self.idle, &mut self.place)?;
        // A part that was sent is about to be written.
        self.idle &= self.writer.parts.len() == parts;
        self.writer.torn = !done;
        Ok(done)
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CreateError>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let Poll::Ready(place) = waiting.poll(cx) else { return Poll::Pending };
                self.place = place;
                self.waiting = None;
            }
            if self.push()? {
                return Poll::Ready(Ok(()));
            }
            let since = self.note_wait()?;
            let wait = self.writer.wait_turn(since, std::mem::take(&mut self.place));
            let work = move |caller: &Caller| wait(Some(caller));
            self.waiting = Some(Deferred::writing(&self.writer.engine, work));
        }
    }

    /// Refuses what has waited for too long; else says since when it waits.
    fn note_wait(&mut self) -> Result<Instant, CreateError> {
        let engine = &self.writer.engine;
        if self.writer.is_given_up() || engine.is_closed() {
            return Err(CreateError::Closed);
        }
        let left = self.bytes.len();
        if self.since.is_none() {
            add(&engine.counters.writer_waits, 1);
        }
        let since = match self.since {
            Some((since, before)) if before == left => since,
            // It made progress since then.
            Some(_) => Instant::now(),
            None => self.writer.caller.as_ref().map_or_else(Instant::now, Caller::since),
        };
        self.since = Some((since, left));
        let refuses = engine.config.when_memory_full == WhenMemoryFull::Refuse && self.idle;
        if refuses || since.elapsed() >= engine.config.creates_wait() {
            add(&engine.counters.drops_memory_full, 1);
            self.writer.counted = true;
            return Err(CreateError::MemoryFull);
        }
        self.idle = engine.nursery.is_empty_for(&self.place);
        Ok(since)
    }
}

impl Future for Write<'_> {
    type Output = Result<(), CreateError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let taken = self.poll_all(cx);
        taken.map(|taken| self.writer.replaced_or_removed(taken))
    }
}
