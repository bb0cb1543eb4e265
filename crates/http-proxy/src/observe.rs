//! What is kept of every answer: its class and how long it took.
//!
//! Threads: the worker's own counters, which nobody else writes.

use std::time::Duration;

use http::Response;

use crate::body::ProxyBody;
use crate::rules::cache_status::CacheStatus;
use crate::worker::Worker;

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
