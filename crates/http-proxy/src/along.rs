//! A body on its way into the store, read by any number of clients while it comes.
//!
//! Each client reads from byte 0 at its own pace: what is in the store already from there, the rest
//! from memory. Invariants: memory holds only what the store has not taken, less than a section and
//! what one read brought; a reader never waits for another, nor the fill for any of them; all of them
//! break off if the fill does. Threads: written by the fill, read on every worker; the lock is held
//! for a few moves, never across a wait.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use damelo::{GroupId, ReadError, Store};
use http::header::ACCEPT_RANGES;
use http::{HeaderMap, StatusCode};

use crate::answer::body::Chunk;
use crate::ask::Ask;
use crate::error::BodyError;
use crate::rules::vary::{self, Vary};
use crate::rules::{Rules, ranges, reuse};
use crate::vault::entry::StoredResponse;
use crate::vault::sections::Sections;
use crate::vault::{Epoch, Found, FoundBody, Vault};

/// A range that begins so far ahead of a fill is waited for.
const NEAR_BYTES: u64 = 8 << 20;

/// What the response is that is being stored, and for whom.
pub(crate) struct Subject {
    /// Where it will lie.
    pub(crate) key: Vec<u8>,
    pub(crate) group: GroupId,
    pub(crate) epoch: Epoch,
    pub(crate) response: StoredResponse,
    /// Length of its body, if that was announced.
    pub(crate) length_bytes: Option<u64>,
    /// Fields of the request that brought it.
    pub(crate) request: HeaderMap,
}

/// A fill as those see it who read along.
pub(crate) struct Along {
    /// Set before there is a reader.
    subject: OnceLock<Subject>,
    store: Store,
    state: Mutex<State>,
    readers: AtomicUsize,
    /// Numbers the readers.
    next_reader: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Generation of the body in the store, and how much of it is there.
    stored: Option<(u64, u64)>,
    /// What follows in memory.
    tail: VecDeque<Bytes>,
    tail_start: u64,
    /// Bytes that may be read.
    shown_bytes: u64,
    /// What followed the body, or why it broke off.
    end: Option<Result<Option<Box<HeaderMap>>, BodyError>>,
    waiting: HashMap<u64, Waker>,
}

impl Along {
    pub(crate) fn new(store: &Store) -> Arc<Along> {
        Arc::new(Along {
            subject: OnceLock::new(),
            store: store.clone(),
            state: Mutex::default(),
            readers: AtomicUsize::new(0),
            next_reader: AtomicU64::new(0),
        })
    }

    /// Says what it is that can be read along.
    pub(crate) fn announce(&self, subject: Subject) {
        // There is one announcement for each fill.
        let _ = self.subject.set(subject);
    }

    /// Length of the body, if that was announced.
    pub(crate) fn length_bytes(&self) -> Option<u64> {
        self.subject.get()?.length_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who read along now.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::SeqCst)
    }

    /// The next bytes of the body; behind its end nobody reads them, and they would stay in memory.
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

    /// The first `stored_bytes` of the body can be read from the store.
    pub(crate) fn stored(&self, generation: u64, stored_bytes: u64) {
        let mut state = self.state();
        state.stored = Some((generation, stored_bytes));
        state.let_go();
    }

    /// There is no more but these trailers. What was said first counts.
    pub(crate) fn end(&self, end: Result<Option<Box<HeaderMap>>, BodyError>) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    /// Whether those who read along get no more of it.
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

    /// Whether this request may read the response along as if it were stored and fresh: all of it, or
    /// a range that the fill comes to.
    pub(crate) fn is_for(&self, ask: &Ask, vault: &Vault, rules: &Rules, now_s: u64) -> bool {
        let Some(subject) = self.subject.get() else { return false };
        let cut = subject.length_bytes.is_some() && subject.response.status == StatusCode::OK;
        subject.response.part.is_none()
            && (cut || !ask.wants_range())
            && self.stands_for(ask, vault, rules, now_s)
    }

    /// Whether a range is so far from where the fill has come to that its origin, which can send
    /// ranges, had better be asked for it.
    pub(crate) fn is_far(&self, ask: &Ask) -> bool {
        let Some(subject) = self.subject.get().filter(|_| ask.wants_range()) else { return false };
        let ranged = subject.response.headers.get(ACCEPT_RANGES);
        let specs = ranges::parse(&ask.headers).unwrap_or_default();
        let length_bytes = subject.length_bytes.unwrap_or(u64::MAX);
        let begins = specs.iter().map(|spec| spec.within(length_bytes).start).min().unwrap_or(0);
        ranged.is_some_and(|unit| unit.as_bytes().eq_ignore_ascii_case(b"bytes"))
            && begins > self.state().shown_bytes.saturating_add(NEAR_BYTES)
    }

    /// As [`Subject::stands_for`].
    pub(crate) fn stands_for(&self, ask: &Ask, vault: &Vault, rules: &Rules, now_s: u64) -> bool {
        self.subject.get().is_some_and(|subject| subject.stands_for(ask, vault, rules, now_s))
    }

    /// The response as if it were stored, its body read along from byte 0.
    pub(crate) fn found(self: &Arc<Along>, vault: &Vault) -> Option<Found> {
        self.subject.get()?.found(vault, FoundBody::Along(self.clone()))
    }
}

impl Subject {
    /// Whether this request may have the response, or what it is a part of, as if it were stored and
    /// fresh.
    pub(crate) fn stands_for(&self, ask: &Ask, vault: &Vault, rules: &Rules, now_s: u64) -> bool {
        let Subject { key, group, epoch, response, request: brought, .. } = self;
        let same_variant = match vary::with_configured(&response.headers, rules) {
            Vary::Nothing => true,
            Vary::Star => false,
            Vary::Names(names) => {
                let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
                vary::secondary_key(&names, brought, rules, &mut ours);
                vary::secondary_key(&names, &ask.headers, rules, &mut theirs);
                ours == theirs
            }
        };
        // Purges by marks end no epoch: they cover what was fetched before them.
        let stands = || {
            let lies = vault.lies_now(*group, *epoch, response);
            lies.is_some_and(|lies| vault.is_untouched(key, &lies))
        };
        same_variant
            && vault.is_current(*epoch)
            && stands()
            && reuse::decide(&ask.wishes, &response.policy, rules, now_s) == reuse::Decision::Serve
    }

    /// The response as if it were stored with this body.
    pub(crate) fn found(&self, vault: &Vault, body: FoundBody) -> Option<Found> {
        let Subject { group, epoch, response, .. } = self;
        let lies = vault.lies_now(*group, *epoch, response)?;
        Some(Found::assembled(response.clone(), body, lies))
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("status", &self.response.status).finish_non_exhaustive()
    }
}

impl fmt::Debug for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Along").field("readers", &self.readers).finish_non_exhaustive()
    }
}

impl State {
    /// Forgets the part of the tail that the store has.
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

    /// Bytes of the tail from `offset` on; none if they are in the store only.
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

/// One who reads along.
pub(crate) struct AlongReader {
    along: Arc<Along>,
    number: u64,
    offset: u64,
    /// What might be read when the last reading began.
    shown_bytes: u64,
    /// Reads what is in the store; here while it is not reading.
    sections: Option<Sections>,
    reading: Option<Reading>,
    /// It was told what followed the body.
    ended: bool,
}

impl AlongReader {
    pub(crate) fn new(along: Arc<Along>) -> AlongReader {
        along.readers.fetch_add(1, Ordering::SeqCst);
        let number = along.next_reader.fetch_add(1, Ordering::Relaxed);
        AlongReader {
            along,
            number,
            offset: 0,
            shown_bytes: 0,
            sections: None,
            reading: None,
            ended: false,
        }
    }

    /// Goes on from here.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        match poll_fn(|cx| self.poll_chunk(cx)).await? {
            Chunk::Bytes(bytes) => Ok(Some(bytes)),
            Chunk::End(_) => Ok(None),
        }
    }

    /// Goes on behind bytes that came another way.
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
            let mut state = self.along.state();
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
            match stored.and_then(|(generation, stored)| self.read(generation, stored)) {
                Some(reading) => self.reading = Some(reading),
                None => return Poll::Ready(Err(BodyError::Store)),
            }
        }
    }

    fn took(&mut self, bytes: Bytes) -> Chunk {
        self.offset += bytes.len() as u64;
        Chunk::Bytes(bytes)
    }

    fn read(&mut self, generation: u64, stored_bytes: u64) -> Option<Reading> {
        let (store, key) = (&self.along.store, &self.along.subject.get()?.key);
        let growing = || Sections::growing(store, key, generation, stored_bytes);
        let mut sections = self.sections.take().unwrap_or_else(growing);
        sections.grow(stored_bytes);
        sections.seek(self.offset);
        Some(Box::pin(async move {
            let piece = sections.next().await;
            (sections, piece)
        }))
    }
}

impl Drop for AlongReader {
    fn drop(&mut self) {
        self.along.readers.fetch_sub(1, Ordering::SeqCst);
        self.along.state().waiting.remove(&self.number);
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
        let along = Along::new(&Store::open(config).unwrap());
        along.push(Bytes::from_static(b"read along"));
        // The store has given it up; its own client goes on.
        along.end(Err(BodyError::Broken));
        for _ in 0..100 {
            along.push(Bytes::from_static(b"for that one alone"));
        }
        let state = along.state();
        assert_eq!((state.tail.len(), state.shown_bytes), (1, 10));
    }
}
