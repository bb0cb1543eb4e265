//! Consecutive slices of a resource, from the store or as they arrive from the origin.
//!
//! Invariants: one slice is held at a time, or the requested part of it, and the next one is
//! requested while it is read (of two slices, the part already read of the second is held as well).
//! All slices are of the first one's version; otherwise the body breaks off and all slices are
//! removed. Where the origin sends the whole of that version in place of a slice, the body goes on
//! with that; where it fails, with what is stale, if that may stand in. Threads: as the body that
//! it feeds; read-ahead is a task of its worker.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::error::BodyError;
use crate::io::locks;
use crate::request::Ask;
use crate::rules::parts::Slices;
use crate::slices::got::{Begun, Failed, Got, How};
use crate::slices::slice;
use crate::slices::verdict::Version;
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightReader;
use crate::vault::sections::Sections;
use crate::vault::{FoundBody, NextPiece, RangeReader, Stretch};
use crate::worker::Worker;

pub(crate) struct SliceReader {
    job: Arc<Job>,
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
        self.job.version.complete_bytes
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
    /// That of the first slice.
    version: Version,
    /// When the answer began.
    begun_ms: u64,
    /// How the origin has failed the answer, if it has.
    failed: OnceLock<Failed>,
}

enum Source {
    /// The bytes held of a slice, and their offset in the slice.
    Stored(Bytes, u64),
    /// The mutex is never contended: it only makes the type `Sync`, since a found response may be
    /// borrowed across an await.
    Inflight(Box<Mutex<InflightReader>>),
    /// The whole, which the origin has sent in place of a slice.
    Whole(Box<Mutex<InflightReader>>),
    /// The same, once it is stored.
    StoredWhole(Box<Sections>),
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
        reader.job.note(first);
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
        let version = Version::of(response, complete_bytes)?;
        let ask = ask.for_slices(&worker.shared.config.ruleset);
        let (worker, begun_ms) = (worker.clone(), worker.now_ms());
        let failed = OnceLock::new();
        let job = Arc::new(Job { worker, ask, slices, version, begun_ms, failed });
        let (offset, end, ahead) = (0, 0, 0);
        let (open, kept, coming) = (None, None, None);
        Some(SliceReader { job, offset, end, open, kept, ahead, coming })
    }

    /// The answer, for which slices are got.
    pub(crate) fn begun(&self) -> Begun<'_> {
        self.job.begun()
    }

    /// Keeps a slice until its turn: a partially read one, which saves a second read, or one that
    /// the origin has just sent or confirmed, which may not be reusable once it is stored, or that
    /// stands in.
    pub(crate) fn keep(&mut self, index: u64, got: &Got) {
        let slices = self.job.slices;
        self.job.note(got);
        let partial = got.response.part.is_none_or(|part| !slices.is_slice(index, &part));
        let is_new = matches!(got.body, FoundBody::Inflight(..));
        let is_anew = matches!(got.how, How::Validated { .. } | How::StoodIn { .. });
        if partial || is_new || is_anew {
            self.kept = source_of(got, slices, index).map(|source| (index, source));
        }
    }

    /// Whether a slice is of the same version; if not, removes all slices.
    pub(crate) fn accepts(&self, got: &Got) -> bool {
        let (job, response) = (&self.job, &got.response);
        let part_of = response.part.map(|part| part.complete_bytes);
        let complete_bytes = part_of.unwrap_or(got.body.length_bytes());
        let same = job.version.is_of(&response.headers, complete_bytes);
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
            Some((_, Source::Whole(reader))) => {
                let reader = locks::get_mut(reader);
                reader.seek(self.offset..u64::MAX);
                reader.next().await?.ok_or(BodyError::Broken)?
            }
            Some((_, Source::StoredWhole(sections))) => {
                sections.seek(self.offset..u64::MAX);
                let piece = sections.next().await.map_err(|_| BodyError::Store)?;
                piece.ok_or(BodyError::Store)?
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
        let end = if self.end < self.complete_bytes() { self.end } else { u64::MAX };
        Stretch::of(self.job.slices, index, self.offset, end)
    }

    /// Gets the requested part of a slice.
    async fn open(&mut self, index: u64) -> Result<(), BodyError> {
        let mut got = match self.came_ahead(index).await {
            Some(got) => got,
            None => {
                let (job, stretch) = (&self.job, self.stretch(index));
                let got = slice::get(&job.worker, &job.ask, stretch, job.begun()).await;
                got.map_err(|lack| lack.breaks_off())?
            }
        };
        if !self.accepts(&got) {
            return Err(BodyError::Changed);
        }
        self.job.note(&got);
        let source = match std::mem::replace(&mut got.body, FoundBody::Unmeasured) {
            FoundBody::Large(sections) if got.response.part.is_none() => {
                Some(Source::StoredWhole(sections))
            }
            body => {
                got.body = body;
                source_of(&got, self.job.slices, index)
            }
        };
        let source = source.ok_or(BodyError::Store)?;
        self.open = Some((index, source));
        Ok(())
    }

    /// What was requested ahead, if it is this slice and can still be read. If it may not be
    /// reused, the origin would be asked for it again.
    async fn came_ahead(&mut self, index: u64) -> Option<Got> {
        let coming = self.coming.take().filter(|_| self.ahead == index)?;
        let got = coming.await.ok().flatten()?;
        let FoundBody::Inflight(body, _) = &got.body else { return Some(got) };
        let first = if got.response.part.is_none() { self.offset } else { 0 };
        (body.is_open() && body.can_be_read(first).await).then_some(got)
    }

    /// Requests the next needed slice ahead, unless it is in memory.
    fn ask_ahead(&mut self, index: u64) {
        let job = &self.job;
        let beyond = index.saturating_mul(job.slices.slice_bytes) >= self.end;
        let kept = self.kept.as_ref().is_some_and(|(kept, _)| *kept == index);
        let is_whole = |held: Option<&(u64, Source)>| {
            matches!(held, Some((_, Source::Whole(_) | Source::StoredWhole(_))))
        };
        let is_there = kept || is_whole(self.open.as_ref()) || is_whole(self.kept.as_ref());
        if beyond || is_there || job.ask.wishes.only_if_cached {
            return;
        }
        let (job, stretch) = (job.clone(), self.stretch(index));
        self.coming = Some(tokio::spawn(async move {
            if stretch.is_small() && job.may_be_stored(index).await {
                return None;
            }
            let got = slice::get(&job.worker, &job.ask, stretch, job.begun()).await.ok()?;
            job.note(&got);
            // What is stored is read again in its turn: it would wait in memory.
            let is_for_this = || matches!(got.how, How::Validated { .. }) && !job.may_use(&got);
            (matches!(got.body, FoundBody::Inflight(..)) || is_for_this()).then_some(got)
        }));
    }
}

impl Job {
    fn begun(&self) -> Begun<'_> {
        let (at_ms, failed) = (self.begun_ms, self.failed.get().copied());
        Begun { at_ms, version: Some(&self.version), failed }
    }

    /// Remembers the failure for which this stands in: what follows stands in as well.
    fn note(&self, got: &Got) {
        if let Some(failed) = got.how.failed() {
            let _ = self.failed.set(failed);
        }
    }

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
        Some((_, Source::Whole(_) | Source::StoredWhole(_))) => true,
        None => false,
    }
}

fn source_of(got: &Got, slices: Slices, index: u64) -> Option<Source> {
    match &got.body {
        FoundBody::Whole(bytes) => {
            let Some(part) = got.response.part else {
                let (first, last) = slices.bounds(index);
                let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                return Some(Source::Stored(bytes.slice(at(first)..at(last + 1)), 0));
            };
            let start = part.start.checked_sub(slices.bounds(index).0)?;
            Some(Source::Stored(bytes.clone(), start))
        }
        FoundBody::Inflight(body, _) => {
            let reader = Box::new(Mutex::new(InflightReader::new(body.clone(), None)));
            Some(match got.response.part {
                Some(_) => Source::Inflight(reader),
                None => Source::Whole(reader),
            })
        }
        _ => None,
    }
}
