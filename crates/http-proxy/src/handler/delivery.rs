//! What rules do to an answer as it is delivered, whoever it is from: the origin, the cache,
//! another rule, or the proxy itself.
//!
//! Invariants: what is stored is not touched, so that each client gets what the rules say of its
//! own request, now. A request that is refused before rules look at it has no such edits. Threads:
//! the worker's.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use hyper::body::Body as _;

use crate::answer::body::ProxyBody;
use crate::config::LogFormat;
use crate::request::{Ask, hooks};
use crate::ruleset::{self, AnswerEdits, Told};
use crate::worker::Shared;

/// The edits of the answer to one request, an extension of that answer.
#[derive(Debug)]
pub(super) struct Delivery {
    edits: Option<Arc<AnswerEdits>>,
    is_head: bool,
    client: Option<IpAddr>,
    host: Box<str>,
    scheme: &'static str,
    path_and_query: PathAndQuery,
    pub(super) request_id: Option<Box<str>>,
}

impl Delivery {
    /// That of a request, if any rule that it matches has to do with it.
    pub(super) fn of(shared: &Shared, ask: &Ask) -> Option<Arc<Delivery>> {
        let edits = ask.answer_edits.clone();
        let is_logged = shared.config.log.format == LogFormat::Json && ask.request_id().is_some();
        if edits.is_none() && !is_logged {
            return None;
        }
        let told = ask.told();
        Some(Arc::new(Delivery {
            edits,
            is_head: ask.method == Method::HEAD,
            client: told.client,
            host: told.host.into(),
            scheme: told.scheme,
            path_and_query: ask.target.path_and_query.clone(),
            request_id: ask.request_id().map(Box::from),
        }))
    }

    /// Edits the headers of an answer, of which `cache` says what the cache did, as in the log.
    /// Conditions on a response are compared with this one.
    pub(super) fn edit(&self, shared: &Shared, response: &mut Response<ProxyBody>, cache: &str) {
        let Some(edits) = &self.edits else { return };
        let told = Told {
            client: self.client,
            host: &self.host,
            scheme: self.scheme,
            path_and_query: self.path_and_query.as_str(),
            request_id: self.request_id.as_deref(),
        };
        let status = response.status();
        // That of a HEAD is as long as a GET's would be.
        let has_none = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let length_bytes = match self.is_head && !has_none {
            true => hooks::announced_length(response.headers()),
            false => response.body().size_hint().exact(),
        };
        let headers = std::mem::take(response.headers_mut());
        let view = ruleset::response_view(status, &headers, length_bytes);
        let rules = shared.config.ruleset.on_answer(edits, &view);
        *response.headers_mut() = ruleset::edited_answer(&rules, status, headers, &told, cache);
    }
}
