//! A complete response that is stored for all while its client asked for a part: the client reads
//! along with the fill, as followers do.
//!
//! Invariant: no part is promised before it is known that the whole is being stored.
//! Threads: the worker's.

use http::response;

use crate::answer::{self, Answer};
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::fetch::Fetch;
use crate::fetch::fill::{Fill, Storing};
use crate::upstream::Timed;
use crate::vault::entry::StoredResponse;
use crate::vault::insertion::Insertion;
use crate::vault::{Found, FoundBody};

impl Fetch<'_> {
    /// Stores a complete response of this length, and cuts the client's range from it as it
    /// arrives.
    pub(crate) async fn fill_and_cut(
        mut self,
        parts: &response::Parts,
        mut body: Timed,
        length_bytes: u64,
        insertion: Box<Insertion>,
    ) -> Answer {
        let worker = self.worker;
        let ask = self.ask;
        let (response, placement) = (&insertion.response, insertion.placement());
        let age_s = response.policy.age_s(worker.now_ms());
        // Some fields may be for this client only.
        let headers = answer::own_fields(&parts.headers);
        let own = StoredResponse { headers, ..response.clone() };
        let from_store = |body| {
            let found = Found::assembled(own, body, placement);
            answer::from_store(worker, ask, Box::new(found), age_s)
        };
        if let Some(bytes) = body.take_whole(length_bytes).await {
            drop(body);
            self.store_whole(insertion, bytes.clone()).await;
            return (from_store(FoundBody::Whole(bytes)), self.status);
        }
        let inflight = worker.inflight(insertion.key.clone(), Some(length_bytes));
        let rest = self.rest_of(response, Some(length_bytes));
        // Joins as a reader at once; otherwise the fill would find no reader.
        let answer = from_store(FoundBody::Inflight(inflight.clone(), rest));
        if let Some(lead) = &self.lead {
            let shared = SharedResponse::of(&insertion, Some(length_bytes), &ask.headers);
            lead.herald().filling(SharedFill { shared, body: inflight.clone() });
        }
        let primary = ask.target.primary.clone();
        let storing = Storing::new(worker, primary, insertion, self.lead.take());
        worker.spawn(Fill::for_readers(storing, body, inflight).run());
        (answer, self.status)
    }
}
