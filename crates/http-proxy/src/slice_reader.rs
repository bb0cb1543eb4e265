//! The slices of a resource one after the other, from the store or as they come from the origin.
//!
//! Invariants: one slice is held at a time, and the next one is asked for while it is read; every
//! slice is of the version that the first one was, or the body breaks off and all slices are
//! forgotten. Threads: as the body that it feeds; what is asked for ahead is a task of its worker.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;

use crate::along::AlongReader;
use crate::ask::Ask;
use crate::body::BodyError;
use crate::rules::parts::{self, Slices};
use crate::slice::{self, Got};
use crate::vault::FoundBody;
use crate::worker::Worker;

pub(crate) struct SliceReader {
    job: Arc<Job>,
    complete_bytes: u64,
    offset: u64,
    end: u64,
    open: Option<(u64, Source)>,
    /// The slice that was asked for ahead.
    ahead: u64,
}

/// What it takes to have slices of one version.
struct Job {
    worker: Arc<Worker>,
    ask: Ask,
    slices: Slices,
    /// Fields of the first slice, and when it came.
    version: HeaderMap,
    arrived_s: u64,
}

enum Source {
    Stored(Bytes),
    /// Never locked: what is found may be looked at across a wait, for which it has to be `Sync`.
    Along(Box<Mutex<AlongReader>>),
}

impl SliceReader {
    /// Begins with the slice `index`; `None` if it could not be told whether others are of its version.
    pub(crate) fn new(
        worker: &Arc<Worker>,
        ask: &Ask,
        slices: Slices,
        index: u64,
        first: &Got,
    ) -> Option<SliceReader> {
        let complete_bytes = first.response.part?.complete_bytes;
        let version = first.response.headers.clone();
        let arrived_s = first.response.policy.response_time_s;
        if !parts::may_combine(&version, &version, arrived_s) {
            return None;
        }
        let (worker, ask) = (worker.clone(), ask.for_slices());
        let job = Arc::new(Job { worker, ask, slices, version, arrived_s });
        let open = Some((index, source_of(&first.body)?));
        Some(SliceReader { job, complete_bytes, offset: 0, end: 0, open, ahead: 0 })
    }

    pub(crate) fn complete_bytes(&self) -> u64 {
        self.complete_bytes
    }

    /// Goes on with this range.
    pub(crate) fn seek(&mut self, range: Range<u64>) {
        (self.offset, self.end) = (range.start, range.end);
    }

    /// Whether a slice that was got is of the same version; if not, all are forgotten.
    pub(crate) fn accepts(&self, got: &Got) -> bool {
        let (job, response) = (&self.job, &got.response);
        let same = response.part.is_some_and(|part| part.complete_bytes == self.complete_bytes)
            && parts::may_combine(&job.version, &response.headers, job.arrived_s);
        if !same {
            job.worker.shared.vault.forget_slices(&job.ask.target.primary);
        }
        same
    }

    /// The next piece of the range.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let slice_bytes = self.job.slices.slice_bytes;
        let index = self.offset / slice_bytes;
        if self.open.as_ref().is_none_or(|(open, _)| *open != index) {
            self.open = None;
            let job = &self.job;
            let got = slice::get(&job.worker, &job.ask, job.slices, index).await;
            let got = got.ok_or(BodyError::Store)?;
            if !self.accepts(&got) {
                return Err(BodyError::Changed);
            }
            let source = source_of(&got.body).ok_or(BodyError::Store)?;
            self.open = Some((index, source));
        }
        if self.ahead != index + 1 {
            self.ahead = index + 1;
            self.ask_ahead(self.ahead);
        }
        let within = self.offset % slice_bytes;
        let mut piece = match &mut self.open {
            Some((_, Source::Stored(bytes))) => {
                let start = usize::try_from(within).unwrap_or(usize::MAX).min(bytes.len());
                bytes.slice(start..)
            }
            Some((_, Source::Along(reader))) => {
                let reader = reader.get_mut().unwrap_or_else(PoisonError::into_inner);
                reader.seek(within);
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

    /// Has the slice fetched or read that is wanted next, if it is not in memory.
    fn ask_ahead(&self, index: u64) {
        let job = &self.job;
        let beyond = index.saturating_mul(job.slices.slice_bytes) >= self.end;
        if beyond || job.ask.wishes.only_if_cached {
            return;
        }
        let job = job.clone();
        tokio::spawn(async move {
            // What came of it shows when it is read.
            drop(slice::get(&job.worker, &job.ask, job.slices, index).await);
        });
    }
}

fn source_of(body: &FoundBody) -> Option<Source> {
    match body {
        FoundBody::Whole(bytes) => Some(Source::Stored(bytes.clone())),
        FoundBody::Along(along) => {
            Some(Source::Along(Box::new(Mutex::new(AlongReader::new(along.clone())))))
        }
        _ => None,
    }
}
