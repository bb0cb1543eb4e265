//! Asks the origin whether one of the stored variants answers a request that none matches: sends
//! the entity tags of all, and a 304 identifies one (RFC 9111 §4.1, §4.3.1, §4.3.4).
//!
//! Invariants: only strong tags are sent, and of encoded variants only those in codings the client
//! accepts, so that a 304 cannot mean other bytes than those stored; every variant that a 304
//! identifies is freshened, or forgotten if it may no longer be stored. Threads: the worker's.

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::answer::{self, Answer, reused};
use crate::fetch::Fetch;
use crate::fetch::freshen::{Freshened, Stored, cookies_of, with_cookies};
use crate::request::hooks;
use crate::rules::storing::Exchange;
use crate::rules::validation::{self, TAGS_SENT_MAX};
use crate::rules::{ForwardReason, NotStoredReason, ResponseDirectives};
use crate::ruleset::ResponseEffects;
use crate::upstream::FetchedBody;
use crate::vault::entry::StoredResponse;
use crate::vault::{Found, FoundBody, Variant};

impl Fetch<'_> {
    /// Looks for stored variants that the origin may be asked about.
    pub(crate) async fn find_variants(&mut self) {
        let asks = self.status.forward == Some(ForwardReason::VaryMiss)
            && self.ask.method == Method::GET
            && !self.ask.wishes.no_store;
        if asks {
            let primary = &self.ask.target.primary;
            let vault = &self.worker.shared.vault;
            self.variants = vault.variants(primary, &self.key, TAGS_SENT_MAX).await;
            self.variants.retain(|variant| {
                let stored = &variant.response;
                // A 304 need not repeat the tag that it is about.
                stored.part.is_none()
                    && !stored.policy.is_personal
                    && stored.status == StatusCode::OK
                    && validation::may_stand_for_another(&self.ask.headers, &stored.headers)
            });
        }
    }

    /// Serves the variant that a 304 identifies, and stores it for this request's values too.
    pub(crate) async fn adopt(mut self, response: &Response<FetchedBody>) -> Answer {
        let worker = self.worker;
        let stored: Vec<&HeaderMap> = self.variants.iter().map(|v| &v.response.headers).collect();
        let meant = validation::updated_by_304(response.headers(), &stored);
        let Some(first) = meant.first() else { return self.fetch_again().await };
        let vault = &worker.shared.vault;
        let Some(mut found) = vault.open(&self.variants[*first], &worker.counters).await else {
            return self.fetch_again().await;
        };
        if !answer::begin(worker, self.ask, &mut found).await {
            return self.fetch_again().await;
        }
        // A cookie of this exchange is not for the clients of the stored variant.
        let mut news = response.headers().clone();
        news.remove(SET_COOKIE);
        for index in meant {
            let Variant { key, blob, response, length_bytes } = &self.variants[index];
            let stored = Stored { key, blob, response, length_bytes: Some(*length_bytes) };
            let freshened = self.merged(&stored, &news);
            // What may no longer be stored is forgotten; a concurrent change is more recent.
            let _ = self.keep_freshened(stored, &freshened).await;
        }
        worker.counters.revalidated.one();
        let Freshened { response: freshened, effects } =
            self.merged(&self.stored_of(&found), response.headers());
        self.note_age(&freshened, response.headers(), &effects);
        found.response = freshened;
        self.status.forward_status = Some(StatusCode::NOT_MODIFIED);
        self.status.validated = true;
        let kept = self.store_adopted(&found, &effects).await;
        self.settle(kept);
        let cookies = cookies_of(&effects, response.headers());
        with_cookies(reused(worker, self.ask, Box::new(found), self.status), cookies)
    }

    /// Stores a copy under this request's values; only if the body fits in one piece, since writing
    /// a large one costs more than another 304.
    async fn store_adopted(
        &self,
        found: &Found,
        effects: &ResponseEffects<'_>,
    ) -> Result<(), NotStoredReason> {
        let worker = self.worker;
        let FoundBody::Whole(body) = &found.body else { return Err(NotStoredReason::TooLarge) };
        let (ask, caching) = (self.ask, self.caching());
        let stored = StoredResponse { groups: Vec::new(), ..found.response.clone() };
        let exchange = Exchange {
            method: &ask.method,
            request: &ask.headers,
            wishes: &ask.wishes,
            status: stored.status,
            response: &stored.headers,
            directives: &ResponseDirectives::of(&stored.headers, caching),
            response_time_s: self.response_time_s(),
            // Its tag is a strong one.
            with_cookie: false,
            selective: false,
        };
        effects.admit(exchange, caching)?;
        let target = &ask.target;
        let groups = effects.groups_of(&worker.shared.config, ask, &stored.headers);
        let (vault, length) = (&worker.shared.vault, Some(body.len() as u64));
        let begun =
            vault.begin(target, self.sent.epoch, &ask.headers, stored, length, &groups).await;
        let mut insertion = begun?;
        hooks::on_store(worker, insertion.group, effects.hint);
        let bytes: Bytes = body.clone();
        vault.write(&mut insertion, &bytes, ask.body_idle(&worker.shared.config)).await?;
        vault.commit(&target.primary, insertion).await
    }
}
