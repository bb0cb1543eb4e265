//! What is kept of every request: its line in the log, the class of its answer, how long it took, and
//! what was asked for.
//!
//! Threads: the worker's own counters, which nobody else writes.

use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use http::header::{HOST, REFERER, USER_AGENT};
use http::{Request, StatusCode};
use hyper::body::Incoming;

use crate::log::LogRecord;
use crate::metrics::BodySource;
use crate::purge::url_of_key;
use crate::request::{Ask, forwarded};
use crate::rules::CacheStatus;
use crate::worker::Worker;

/// Counts what was asked for, from `start` until now.
pub(super) fn asked(worker: &Worker, ask: &Ask, status: &CacheStatus, start: Instant) {
    let (url, now) = (url_of_key(&ask.target.primary), Instant::now());
    let mut hot = worker.counters.hot.lock().unwrap_or_else(PoisonError::into_inner);
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
    client: IpAddr,
    start: Instant,
) -> Option<LogRecord> {
    let log = worker.shared.log.clone()?;
    // Behind a proxy that is believed, everybody would come from there.
    let told = worker.shared.config.transport.forwarding.trust_client;
    let told = told.then(|| forwarded::client(request.headers())).flatten();
    Some(LogRecord {
        log,
        format: worker.shared.config.log_format,
        counters: worker.counters.clone(),
        start,
        start_unix_ms: worker.shared.config.clock.unix_millis(),
        client: told.unwrap_or(client),
        method: request.method().clone(),
        version: request.version(),
        host: request.headers().get(HOST).cloned(),
        target: request.uri().to_string(),
        referer: request.headers().get(REFERER).cloned(),
        user_agent: request.headers().get(USER_AGENT).cloned(),
        status: StatusCode::OK,
        media_type: None,
        origin: match (&worker.shared.forward, request.uri().authority()) {
            (Some(_), Some(asked)) => asked.to_string(),
            _ => worker.shared.sites.main().authority.clone(),
        },
        result: "none",
        body_bytes: 0,
    })
}
