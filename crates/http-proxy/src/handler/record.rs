//! What is kept of every request: its line in the log, the class of its answer, how long it took, and
//! what was asked for.
//!
//! Threads: the worker's own counters, which nobody else writes.

use std::time::{Duration, Instant};

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use hyper::body::Incoming;

use crate::client::Peer;
use crate::io::locks::lock;
use crate::log::LogRecord;
use crate::metrics::BodySource;
use crate::purge::url_of_key;
use crate::request::naming::Naming;
use crate::request::{Ask, forwarded};
use crate::rules::CacheStatus;
use crate::worker::Worker;

/// Counts what was asked for, from `start` until now.
pub(super) fn asked(worker: &Worker, ask: &Ask, status: &CacheStatus, start: Instant) {
    let (url, now) = (url_of_key(&ask.target.primary), Instant::now());
    let mut hot = lock(&worker.counters.hot);
    hot.record(url, status.hit, now.saturating_duration_since(start), now);
}

/// Counts an answer whose headers are ready, `took` after those of the request; where it comes from.
pub(super) fn answered(
    worker: &Worker,
    code: StatusCode,
    status: &CacheStatus,
    took: Duration,
) -> BodySource {
    worker.counters.answered(code);
    if status.hit {
        worker.counters.hit_latency.record(took);
        return BodySource::Store;
    }
    if status.forward.is_none() {
        return BodySource::Own;
    }
    worker.counters.miss_latency.record(took);
    BodySource::Origin
}

/// The line of the access log that the answer to this request will be, if there is a log.
pub(super) fn begin(
    worker: &Worker,
    request: &Request<Incoming>,
    peer: &Peer,
    start: Instant,
) -> Option<LogRecord> {
    let log = worker.shared.log.clone()?;
    let (uri, headers) = (request.uri(), request.headers());
    // Behind a proxy that is believed, everybody would come from there.
    let told = worker.shared.config.transport.forwarded.trust_client;
    let told = told.then(|| forwarded::client(headers)).flatten();
    let is_forward = worker.shared.forward.is_some();
    Some(LogRecord {
        log,
        format: worker.shared.config.log_format,
        counters: worker.counters.clone(),
        start,
        start_unix_ms: worker.shared.config.clock.unix_millis(),
        client: told.unwrap_or(peer.ip),
        method: request.method().clone(),
        version: request.version(),
        // A forward proxy is asked for URLs of `http`, however it is reached.
        scheme: match is_forward {
            true => "http",
            false => Naming::of(&worker.shared).scheme_asked(peer, headers),
        },
        host: host_asked(uri, headers),
        target: target(uri, is_forward),
        referer: headers.get(REFERER).cloned(),
        user_agent: headers.get(USER_AGENT).cloned(),
        status: StatusCode::OK,
        media_type: None,
        origin: match uri.authority() {
            Some(asked) if is_forward => asked.to_string(),
            _ => worker.shared.sites.main().authority.clone(),
        },
        result: "none",
        body_bytes: 0,
    })
}

/// Host and port that a client asks: HTTP/2 says them in the URI, HTTP/1.1 in a field.
fn host_asked(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let named = || headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into());
    uri.authority().map(ToString::to_string).or_else(named)
}

/// What a client asks for, in one way whatever the version of HTTP: clients of a forward proxy name a URL,
/// those of a site a path.
fn target(uri: &Uri, is_forward: bool) -> String {
    match uri.path_and_query() {
        Some(path) if !is_forward => path.to_string(),
        _ => uri.to_string(),
    }
}
