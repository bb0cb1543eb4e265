//! The origin's responses to HEAD: for the client, and for followers with the same request.
//!
//! Invariants: headers are shared only if those of a GET could be stored and are fresh, and only
//! with requests that could be served them from the store; they are kept only as long as followers
//! wait. Threads: the worker's.

use std::sync::Arc;

use damelo::GroupId;
use http::{Method, response};

use crate::answer::body::ProxyBody;
use crate::answer::{Answer, serve_hit};
use crate::collapse::Outcome;
use crate::collapse::sharing::SharedResponse;
use crate::fetch::Fetch;
use crate::request::{Ask, hooks};
use crate::rules::reuse::{self, Decision};
use crate::rules::{ForwardReason, NotStoredReason, RequestDirectives, ResponseDirectives};
use crate::ruleset::ResponseEffects;
use crate::upstream::Timed;
use crate::vault::FoundBody;
use crate::worker::Worker;

/// The headers that another HEAD brought, if this request may have them.
pub(crate) fn shared(
    worker: &Worker,
    ask: &Ask,
    subject: &SharedResponse,
    reason: ForwardReason,
) -> Option<Answer> {
    let shared = &worker.shared;
    if !subject.stands_for(
        (&ask.headers, &ask.wishes),
        &shared.vault,
        &shared.config.caching,
        worker.now_ms(),
    ) {
        return None;
    }
    let body = subject.length_bytes.map_or(FoundBody::Unmeasured, FoundBody::Length);
    Some(serve_hit(worker, ask, Box::new(subject.found(body)), Some(reason)))
}

impl Fetch<'_> {
    /// Passes the origin's response to a HEAD to all followers.
    pub(crate) fn head_received(
        mut self,
        parts: response::Parts,
        body: Timed,
        effects: &ResponseEffects<'_>,
    ) -> Answer {
        match self.shareable(&parts, effects) {
            Err(reason) => {
                self.remember_own(reason, parts.status);
                let error = Outcome::of_error(parts.status, &parts.headers);
                let refusal = || Outcome::of_refusal(reason, parts.status);
                self.end_lead(error.unwrap_or_else(refusal));
            }
            Ok(subject) if self.lead.is_some() => {
                self.end_lead(Outcome::Head(Arc::new(subject)));
            }
            Ok(_) => self.worker.shared.collapse.remember_shared(&self.key, self.ask.who()),
        }
        let condition = self.condition(&parts);
        self.concluded(condition, parts, ProxyBody::timed(body))
    }

    /// The response as followers may have it: only if a GET's could be stored and served at once.
    fn shareable(
        &self,
        parts: &response::Parts,
        effects: &ResponseEffects<'_>,
    ) -> Result<SharedResponse, NotStoredReason> {
        let worker = self.worker;
        let (ask, caching) = (self.ask, self.caching());
        let directives = ResponseDirectives::of(&parts.headers, caching);
        let exchange = self.exchange(&Method::GET, parts, &directives);
        effects.admit(exchange, caching)?;
        let response = self.to_store(parts, &parts.headers, &directives, effects);
        let (policy, unwishing) = (&response.policy, RequestDirectives::default());
        if reuse::decide(&unwishing, policy, caching, worker.now_ms()) != Decision::Serve {
            return Err(NotStoredReason::NeverUseful);
        }
        let groups = effects.groups_of(&worker.shared.config, ask, &parts.headers);
        let group = GroupId::of(&groups.home);
        Ok(SharedResponse {
            key: ask.target.primary.clone(),
            placement: worker.shared.vault.placement(self.sent.epoch, group, &response)?,
            groups: groups.others.iter().map(GroupId::of).chain([group]).collect(),
            epoch: self.sent.epoch,
            response,
            length_bytes: hooks::announced_length(&parts.headers),
            request: ask.headers.clone(),
        })
    }
}
