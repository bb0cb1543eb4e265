//! What is kept of every answer: its class, how long it took, and what was asked for.
//!
//! Threads: the worker's own counters, which nobody else writes.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use http::Response;

use crate::answer::body::ProxyBody;
use crate::ask::Ask;
use crate::purge::url_of_key;
use crate::rules::CacheStatus;
use crate::worker::Worker;

/// Counts what was asked for, from `start` until now.
pub(crate) fn asked(worker: &Worker, ask: &Ask, status: &CacheStatus, start: Instant) {
    let (url, now) = (url_of_key(&ask.target.primary), Instant::now());
    let mut hot = worker.counters.hot.lock().unwrap_or_else(PoisonError::into_inner);
    hot.record(url, status.hit, now.saturating_duration_since(start), now);
}

/// Counts an answer whose headers are ready, `took` after those of the request.
pub(crate) fn answered(
    worker: &Worker,
    response: &Response<ProxyBody>,
    status: &CacheStatus,
    took: Duration,
) {
    worker.counters.answered(response.status());
    if status.hit {
        worker.counters.hit_latency.record(took);
    } else if status.forward.is_some() {
        worker.counters.miss_latency.record(took);
    }
}
