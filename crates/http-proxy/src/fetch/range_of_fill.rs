//! A complete response that is stored for all while its client asked for a part: the client reads
//! along with the fill, as followers do.
//!
//! Invariant: no part is promised before it is known that the whole is being stored.
//! Threads: the worker's.

use http::response;
use hyper::body::Body as _;

use crate::answer::{self, Answer};
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::fetch::Fetch;
use crate::fetch::fill::{Fill, Storing};
use crate::rules::Policy;
use crate::upstream::Timed;
use crate::vault::entry::StoredResponse;
use crate::vault::insertion::Insertion;
use crate::vault::{Found, FoundBody};
use crate::worker::Worker;

/// A response that cannot be cut is passed on as it is.
pub(crate) enum Cut<'a> {
    Answered(Answer),
    Not(Box<Fetch<'a>>, Timed, Box<Insertion>),
}

impl<'a> Fetch<'a> {
    /// Stores a complete response of known length, and cuts the client's range from it as it
    /// arrives.
    pub(crate) async fn fill_and_cut(
        mut self,
        worker: &Worker,
        parts: &response::Parts,
        mut body: Timed,
        insertion: Box<Insertion>,
        policy: Policy,
    ) -> Cut<'a> {
        let (vault, ask) = (&worker.shared.vault, self.ask);
        let response = self.shared_response(worker, parts, policy);
        let placement = vault.placement_now(insertion.group, self.epoch, &response);
        let (Some(length_bytes), Some(placement)) = (body.size_hint().exact(), placement) else {
            return Cut::Not(Box::new(self), body, insertion);
        };
        let age_s = policy.age_s(worker.now_ms());
        // Some fields may be for this client only.
        let headers = answer::own_fields(&parts.headers);
        let own = StoredResponse { headers, ..response.clone() };
        if let Some(bytes) = body.take_whole(length_bytes).await {
            drop(body);
            self.store_whole(worker, insertion, bytes.clone()).await;
            let found = Found::assembled(own, FoundBody::Whole(bytes), placement);
            return Cut::Answered((
                answer::from_store(worker, ask, Box::new(found), age_s),
                self.status,
            ));
        }
        let (key, group, epoch) = (insertion.key.clone(), insertion.group, self.epoch);
        let groups = insertion.groups();
        let inflight = worker.inflight(key.clone(), Some(length_bytes));
        let (length_bytes, request) = (Some(length_bytes), ask.headers.clone());
        let rest = self.rest_of(&response, length_bytes);
        let shared = SharedResponse { key, group, groups, epoch, response, length_bytes, request };
        let found = Found::assembled(own, FoundBody::Inflight(inflight.clone(), rest), placement);
        // Joins as a reader at once; otherwise the fill would find no reader.
        let answer = answer::from_store(worker, ask, Box::new(found), age_s);
        if let Some(lead) = &self.lead {
            lead.herald().filling(SharedFill { shared, body: inflight.clone() });
        }
        let primary = ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        let fill = Fill::for_readers(storing, body, inflight);
        let alive = worker.alive.clone();
        tokio::spawn(async move {
            fill.run().await;
            drop(alive);
        });
        Cut::Answered((answer, self.status))
    }
}
