//! Consecutive slices of a resource, from the store or as they arrive from the origin.
//!
//! Invariants: one slice is held at a time, or the requested part of it, and the next one is
//! requested while it is read (of two slices, the part already read of the second is held as well).
//! All slices are of the first one's version; otherwise the body breaks off and all slices are
//! removed. Threads: as the body that it feeds; read-ahead is a task of its worker.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::HeaderMap;
use tokio::task::JoinHandle;

use crate::error::BodyError;
use crate::io::locks;
use crate::request::Ask;
use crate::rules::parts::{self, Slices};
use crate::slices::slice::{self, Got, How};
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightReader;
use crate::vault::{FoundBody, NextPiece, RangeReader, Stretch};
use crate::worker::Worker;

pub(crate) struct SliceReader {
    job: Arc<Job>,
    complete_bytes: u64,
    offset: u64,
    end: u64,
    open: Option<(u64, Source)>,
    /// Part of a slice that was read before its turn.
    kept: Option<(u64, Source)>,
    /// The slice requested ahead.
    ahead: u64,
    /// What comes of that, unless it was stored already.
    coming: Option<JoinHandle<Option<Got>>>,
}

impl RangeReader for SliceReader {
    fn complete_bytes(&self) -> u64 {
        self.complete_bytes
    }

    fn seek(&mut self, range: Range<u64>) {
        (self.offset, self.end) = (range.start, range.end);
    }

    fn next(&mut self) -> NextPiece<'_> {
        Box::pin(self.next_piece())
    }
}

/// Everything needed to get slices of one version.
struct Job {
    worker: Arc<Worker>,
    ask: Ask,
    slices: Slices,
    /// Fields of the first slice, and when it was received.
    version: HeaderMap,
    arrived_s: u64,
    /// When the answer began.
    begun_ms: u64,
}

enum Source {
    /// The bytes held of a slice, and their offset in the slice.
    Stored(Bytes, u64),
    /// The mutex is never contended: it only makes the type `Sync`, since a found response may be
    /// borrowed across an await.
    Inflight(Box<Mutex<InflightReader>>),
}

impl SliceReader {
    /// Begins with slice `index`; `None` if its version could not be compared with other slices'.
    pub(crate) fn new(
        worker: &Arc<Worker>,
        ask: &Ask,
        slices: Slices,
        index: u64,
        first: &Got,
    ) -> Option<SliceReader> {
        let (response, part) = (&first.response, first.response.part?);
        let mut reader =
            SliceReader::of_version(worker, ask, slices, response, part.complete_bytes)?;
        reader.open = Some((index, source_of(first, slices, index)?));
        Some(reader)
    }

    /// For slices of the same version as a response of this length, none of which is there yet;
    /// `None` if they could not be compared with it.
    pub(crate) fn of_version(
        worker: &Arc<Worker>,
        ask: &Ask,
        slices: Slices,
        response: &StoredResponse,
        complete_bytes: u64,
    ) -> Option<SliceReader> {
        let arrived_s = response.policy.response_time_s();
        if !parts::may_combine(&response.headers, &response.headers, arrived_s) {
            return None;
        }
        let ask = ask.for_slices(&worker.shared.config.ruleset);
        let worker = worker.clone();
        let (version, begun_ms) = (response.headers.clone(), worker.now_ms());
        let job = Arc::new(Job { worker, ask, slices, version, arrived_s, begun_ms });
        let (offset, end, ahead) = (0, 0, 0);
        let (open, kept, coming) = (None, None, None);
        Some(SliceReader { job, complete_bytes, offset, end, open, kept, ahead, coming })
    }

    /// Keeps a slice until its turn: a partially read one, which saves a second read, or one that
    /// the origin has just sent or confirmed, which may not be reusable once it is stored.
    pub(crate) fn keep(&mut self, index: u64, got: &Got) {
        let slices = self.job.slices;
        let partial = got.response.part.is_some_and(|part| !slices.is_slice(index, &part));
        let is_new = matches!(got.body, FoundBody::Inflight(..));
        if partial || is_new || matches!(got.how, How::Validated { .. }) {
            self.kept = source_of(got, slices, index).map(|source| (index, source));
        }
    }

    /// Whether a slice is of the same version; if not, removes all slices.
    pub(crate) fn accepts(&self, got: &Got) -> bool {
        let (job, response) = (&self.job, &got.response);
        let same = response.part.is_some_and(|part| part.complete_bytes == self.complete_bytes)
            && parts::may_combine(&job.version, &response.headers, job.arrived_s);
        if !same {
            job.worker.shared.vault.forget_slices(&job.ask.target.primary);
        }
        same
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let slice_bytes = self.job.slices.slice_bytes;
        let index = self.offset / slice_bytes;
        let within = self.offset % slice_bytes;
        if !holds(self.open.as_ref(), index, within) {
            self.open = self.kept.take().filter(|kept| holds(Some(kept), index, within));
            if self.open.is_none() {
                self.open(index).await?;
            }
        }
        if self.ahead != index + 1 {
            self.ahead = index + 1;
            self.ask_ahead(self.ahead);
        }
        let mut piece = match &mut self.open {
            Some((_, Source::Stored(bytes, start))) => {
                let at = within.saturating_sub(*start);
                bytes.slice(usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len())..)
            }
            Some((_, Source::Inflight(reader))) => {
                let reader = locks::get_mut(reader);
                reader.seek(within..u64::MAX);
                reader.next().await?.ok_or(BodyError::Broken)?
            }
            None => return Err(BodyError::Store),
        };
        piece.truncate(usize::try_from(self.end - self.offset).unwrap_or(usize::MAX));
        if piece.is_empty() {
            return Err(BodyError::Store);
        }
        self.offset += piece.len() as u64;
        Ok(Some(piece))
    }

    /// The requested part of a slice. To the end of the resource is to the end of its slice, which
    /// may be short.
    fn stretch(&self, index: u64) -> Stretch {
        let end = if self.end < self.complete_bytes { self.end } else { u64::MAX };
        Stretch::of(self.job.slices, index, self.offset, end)
    }

    /// Gets the requested part of a slice.
    async fn open(&mut self, index: u64) -> Result<(), BodyError> {
        let got = match self.came_ahead(index).await {
            Some(got) => got,
            None => {
                let (job, stretch) = (&self.job, self.stretch(index));
                let got = slice::get(&job.worker, &job.ask, stretch, job.begun_ms).await;
                got.map_err(|lack| lack.breaks_off())?
            }
        };
        if !self.accepts(&got) {
            return Err(BodyError::Changed);
        }
        let source = source_of(&got, self.job.slices, index).ok_or(BodyError::Store)?;
        self.open = Some((index, source));
        Ok(())
    }

    /// What was requested ahead, if it is this slice and can still be read. If it may not be
    /// reused, the origin would be asked for it again.
    async fn came_ahead(&mut self, index: u64) -> Option<Got> {
        let coming = self.coming.take().filter(|_| self.ahead == index)?;
        let got = coming.await.ok().flatten()?;
        let FoundBody::Inflight(body, _) = &got.body else { return Some(got) };
        (body.is_open() && body.can_be_read(0).await).then_some(got)
    }

    /// Requests the next needed slice ahead, unless it is in memory.
    fn ask_ahead(&mut self, index: u64) {
        let job = &self.job;
        let beyond = index.saturating_mul(job.slices.slice_bytes) >= self.end;
        let kept = self.kept.as_ref().is_some_and(|(kept, _)| *kept == index);
        if beyond || kept || job.ask.wishes.only_if_cached {
            return;
        }
        let (job, stretch) = (job.clone(), self.stretch(index));
        self.coming = Some(tokio::spawn(async move {
            if stretch.is_small() && job.may_be_stored(index).await {
                return None;
            }
            let got = slice::get(&job.worker, &job.ask, stretch, job.begun_ms).await.ok()?;
            // What is stored is read again in its turn: it would wait in memory.
            let is_for_this = || matches!(got.how, How::Validated { .. }) && !job.may_use(&got);
            (matches!(got.body, FoundBody::Inflight(..)) || is_for_this()).then_some(got)
        }));
    }
}

impl Job {
    /// Whether what was just validated is found again, and may be served, in its turn.
    fn may_use(&self, got: &Got) -> bool {
        matches!(got.how, How::Validated { kept: true, .. })
            && slice::is_usable(&self.worker, &self.ask, &got.response.policy, self.begun_ms)
    }

    /// If so, a small part of it would be read twice, since partial reads do not stay in memory.
    async fn may_be_stored(&self, index: u64) -> bool {
        let (vault, primary) = (&self.worker.shared.vault, &self.ask.target.primary);
        let generation = vault.slices_generation(primary).await;
        generation.is_some_and(|it| vault.may_have_slice(primary, self.slices, it, index))
    }
}

/// Whether the held bytes include offset `within` of a slice.
fn holds(held: Option<&(u64, Source)>, index: u64, within: u64) -> bool {
    match held {
        Some((open, Source::Stored(bytes, start))) => {
            *open == index && (*start..start + bytes.len() as u64).contains(&within)
        }
        Some((open, Source::Inflight(_))) => *open == index,
        None => false,
    }
}

fn source_of(got: &Got, slices: Slices, index: u64) -> Option<Source> {
    match &got.body {
        FoundBody::Whole(bytes) => {
            let start = got.response.part?.start.checked_sub(slices.bounds(index).0)?;
            Some(Source::Stored(bytes.clone(), start))
        }
        FoundBody::Inflight(body, _) => {
            let reader = InflightReader::new(body.clone(), None);
            Some(Source::Inflight(Box::new(Mutex::new(reader))))
        }
        _ => None,
    }
}
