//! A leader's response as its followers see it: as if it were stored, with the body being filled
//! into the store, or, for a HEAD, without a body.
//!
//! Invariant: a follower gets only a response that could be served to it from the store, were it
//! stored. Threads: made by the leader, read on every worker.

use std::fmt;
use std::sync::Arc;

use damelo::GroupId;
use http::HeaderMap;

use crate::rules::vary::{self, Vary};
use crate::rules::{CachingConfig, RequestDirectives, reuse};
use crate::vault::entry::StoredResponse;
use crate::vault::inflight::InflightBody;
use crate::vault::insertion::Insertion;
use crate::vault::{Epoch, Found, FoundBody, Placement, Vault};

/// A leader's response, and the request fields that decide which followers may have it.
pub(crate) struct SharedResponse {
    /// The key that it will be stored under.
    pub(crate) key: Vec<u8>,
    /// Its place once it is stored.
    pub(crate) placement: Placement,
    /// All groups that it is in.
    pub(crate) groups: Vec<GroupId>,
    pub(crate) epoch: Epoch,
    pub(crate) response: StoredResponse,
    /// Length of its body, if the origin announced one.
    pub(crate) length_bytes: Option<u64>,
    /// Fields of the leader's request.
    pub(crate) request: HeaderMap,
}

/// A response whose body is being filled into the store.
#[derive(Debug)]
pub(crate) struct SharedFill {
    pub(crate) shared: SharedResponse,
    pub(crate) body: Arc<InflightBody>,
}

impl SharedFill {
    /// The response as if it were stored, its body read from byte 0.
    pub(crate) fn found(&self) -> Found {
        self.shared.found(FoundBody::Inflight(self.body.clone(), None))
    }
}

impl SharedResponse {
    /// A response that is being stored, in answer to a request with these fields.
    pub(crate) fn of(
        insertion: &Insertion,
        length_bytes: Option<u64>,
        request: &HeaderMap,
    ) -> SharedResponse {
        SharedResponse {
            key: insertion.key.clone(),
            placement: insertion.placement(),
            groups: insertion.groups(),
            epoch: insertion.epoch,
            response: insertion.response.clone(),
            length_bytes,
            request: request.clone(),
        }
    }

    /// Whether this request may have the response, or the whole that it is a part of, as if it were
    /// stored and fresh.
    pub(crate) fn stands_for(
        &self,
        (headers, wishes): (&HeaderMap, &RequestDirectives),
        vault: &Vault,
        caching: &CachingConfig,
        now_ms: u64,
    ) -> bool {
        let response = &self.response;
        self.is_variant_for(headers, caching)
            && reuse::suits_credentials(response.status, headers)
            && self.is_current(vault)
            // Purges by marks end no epoch: they cover responses fetched before them.
            && vault.is_untouched(&self.key, &self.placement)
            && reuse::decide(wishes, &response.policy, caching, now_ms) == reuse::Decision::Serve
    }

    /// Whether it will be stored, as far as changes of its resource and of its groups, and hard
    /// purges, decide that.
    pub(crate) fn is_current(&self, vault: &Vault) -> bool {
        !vault.is_outdated(&self.key, self.epoch, &self.groups, &self.placement)
    }

    /// Whether a request with these fields is for the same variant.
    pub(crate) fn is_variant_for(&self, headers: &HeaderMap, caching: &CachingConfig) -> bool {
        match vary::with_configured(&self.response.headers, caching) {
            Vary::Nothing => true,
            Vary::Star => false,
            Vary::Names(names) => {
                let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
                vary::secondary_key(&names, &self.request, caching, &mut ours);
                vary::secondary_key(&names, headers, caching, &mut theirs);
                ours == theirs
            }
        }
    }

    /// The response as if it were stored with this body.
    pub(crate) fn found(&self, body: FoundBody) -> Found {
        Found::assembled(self.response.clone(), body, self.placement.clone())
    }
}

impl fmt::Debug for SharedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResponse")
            .field("status", &self.response.status)
            .finish_non_exhaustive()
    }
}
