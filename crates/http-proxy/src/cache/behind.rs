//! Validations behind answers: the client has what is stored already (RFC 5861 §3).
//!
//! Invariant: of a resource one at a time, and none for a moment after one has failed. Threads: a
//! task of the worker.

use std::sync::Arc;

use crate::collapse::{Lead, Outcome, Role};
use crate::fetch::{Audience, Fetch};
use crate::request::Ask;
use crate::rules::{ForwardReason, is_passing_failure};
use crate::vault::{Found, Lookup};
use crate::worker::Worker;

/// Validates a stored response while its client is served (RFC 5861 §3), unless another request
/// already does, or one for it has just failed, or the origin is out of reach and was tried just
/// now: an origin in trouble would be asked anew as soon as it has failed.
pub(super) fn validate_behind(worker: &Arc<Worker>, ask: &Ask, stale: &Found) {
    let key = stale.key(&ask.target.primary);
    if worker.shared.collapse.unvalidated.of(key).is_on() {
        return;
    }
    let Role::Leader(lead) = worker.shared.collapse.lead_or_follow(key) else { return };
    if worker.shared.forward.is_none() && !worker.fetcher.may_validate_behind(ask.site) {
        return;
    }
    let ask = ask.for_nobody(&worker.shared.config.ruleset);
    let (worker, key) = (worker.clone(), key.to_vec());
    let served_since_ms = stale.response.policy.response_time_ms;
    tokio::spawn(async move { validate(&worker, &ask, key, lead, served_since_ms).await });
}

/// `served_since_ms`: when the response that the client is served came, or was last validated.
async fn validate(worker: &Arc<Worker>, ask: &Ask, key: Vec<u8>, lead: Lead, served_since_ms: u64) {
    let vault = &worker.shared.vault;
    let pause = worker.shared.collapse.unvalidated.of(&key);
    // Looked up without its body, which may be large and is not needed.
    let looked = vault.lookup(&ask.target.primary, &ask.headers, false, &worker.counters).await;
    let found = match looked {
        Lookup::Found(found) => Some(found),
        Lookup::Missed { .. } | Lookup::Unkeyable => None,
    };
    let is_newer = |found: &Found| found.response.policy.response_time_ms > served_since_ms;
    if found.as_deref().is_some_and(is_newer) {
        // Another leader finished between the lookup for the client and this lead.
        return lead.end(Outcome::Stored);
    }
    worker.counters.validated_behind.one();
    let fetching = Fetch {
        lead: Some(lead),
        audience: Audience::Nobody,
        ..Fetch::new(worker, ask, found, key, ForwardReason::Stale)
    };
    let (_, status) = fetching.run().await;
    // What is not stored for its own sake is no failure, and may be the asking client's doing.
    if !status.stored && status.forward_status.is_none_or(is_passing_failure) {
        pause.begin();
    }
}
