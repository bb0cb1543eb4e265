//! Playing a paper's requests, and counting them for whoever shows from another thread how far a
//! paper is.
//!
//! Owns the count. Invariant: a rehearsal plays nothing, goes through all of a paper's runs
//! nevertheless, and so counts exactly what the paper will play; what it measures means nothing.
//! Threads: one plays, any may look.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Paper, PaperError, PaperOptions, in_what, run};
use crate::design::Design;
use crate::machine::{Machine, Report, RunOptions, run as play_on};
use crate::request::{Catalogue, Request};

/// Requests that were played, of all designs together.
#[derive(Debug, Default)]
pub struct PlayCount {
    requests: AtomicU64,
    is_rehearsal: bool,
}

impl PlayCount {
    /// So far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn add(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }
}

/// How many requests a paper plays with these options, for one who counts along
/// ([`PaperOptions::played`]). Costs as much as making the requests.
///
/// # Errors
/// As [`run`], but for what only playing finds out.
pub fn requests_to_play(paper: Paper, options: &PaperOptions<'_>) -> Result<u64, PaperError> {
    let rehearsal = PlayCount { is_rehearsal: true, ..PlayCount::default() };
    run(paper, &PaperOptions { played: Some(&rehearsal), ..*options })?;
    Ok(rehearsal.requests())
}

/// What is played in one go.
#[derive(Clone, Copy)]
pub(super) struct Play<'a> {
    pub(super) requests: &'a [Request],
    pub(super) names: &'a Catalogue,
    pub(super) run: RunOptions,
    /// For errors.
    pub(super) what: &'static str,
}

impl PaperOptions<'_> {
    /// Plays requests, and counts them whatever becomes of it.
    pub(super) fn play(
        &self,
        design: &mut dyn Design,
        machine: &mut Machine,
        Play { requests, names, run, what }: Play<'_>,
    ) -> Result<Report, PaperError> {
        let report = match self.is_rehearsal() {
            true => Ok(Report::default()),
            false => play_on(design, machine, requests, names, run).map_err(in_what(what)),
        };
        self.count(requests.len());
        report
    }

    /// Counts requests that are played by other means, or not at all.
    pub(super) fn count(&self, requests: usize) {
        if let Some(played) = self.played {
            played.add(requests);
        }
    }

    pub(super) fn is_rehearsal(&self) -> bool {
        self.played.is_some_and(|played| played.is_rehearsal)
    }
}
