//! Handles failures of the origin: a stored response may stand in (RFC 5861 §4, RFC 9111 §4.2.4).
//!
//! Invariant: it does so only if nothing has purged it since it was found, and the beginning of its
//! body can still be read. Threads: the worker's.

use crate::answer::{self, Answer, origin_failed, reused};
use crate::collapse::Outcome;
use crate::error::FetchError;
use crate::fetch::{Audience, Fetch};
use crate::rules::reuse::{self, Failure};

impl Fetch<'_> {
    /// The origin gave no answer.
    pub(crate) async fn failed(mut self, error: FetchError) -> Answer {
        let is_of_origin = error.is_for_all() || error.may_be_ones_own();
        // A client is told of it, and the next one asks anew.
        if self.audience == Audience::Nobody
            && let Some(lead) = self.lead.as_ref().filter(|_| is_of_origin)
        {
            lead.pause_validations();
        }
        self.end_lead(Outcome::of_failure(&error));
        if is_of_origin
            && let Some(answer) = self.stand_in(Failure::Disconnected, error.name()).await
        {
            return answer;
        }
        match self.audience {
            Audience::Client => origin_failed(self.worker, error, self.status),
            // Made but not counted: nobody gets it.
            Audience::Nobody => {
                let nothing = answer::text(error.status(), error.name());
                (nothing, self.status)
            }
        }
    }

    /// The stored response, if it may replace this failure and can still be read.
    pub(crate) async fn stand_in(
        &mut self,
        failure: Failure,
        detail: &'static str,
    ) -> Option<Answer> {
        let worker = self.worker;
        let (ask, caching, found) = (self.ask, self.caching(), self.found.as_mut()?);
        let stands = worker.shared.vault.still_stands(&ask.target.primary, found, self.sent.epoch);
        let may = stands
            && failure.is_worse_than(found.response.status)
            && answer::part_suffices(worker, ask, &found.response)
            && reuse::may_serve_on_error(
                &ask.wishes,
                &found.response.policy,
                failure,
                caching,
                worker.now_ms(),
            );
        if !may || !answer::begin(worker, ask, found).await {
            return None;
        }
        if let Failure::Status(status) = failure {
            self.status.forward_status = Some(status);
            self.end_lead(Outcome::StoodIn(status));
        }
        if self.audience == Audience::Client {
            worker.counters.stale_on_error.one();
        }
        self.status.detail = Some(detail);
        let found = self.found.take()?;
        Some(reused(worker, ask, found, std::mem::take(&mut self.status)))
    }
}
