//! Hits: turns found responses, stored or being filled, into answers. Threads: the worker's.

use crate::answer::{Answer, from_store};
use crate::request::{Ask, hooks};
use crate::rules::{CacheStatus, ForwardReason};
use crate::vault::Found;
use crate::worker::Worker;

/// A response served without this request asking the origin; it may have waited for another request
/// that did, for the reason `collapsed`.
pub(crate) fn serve_hit(
    worker: &Worker,
    ask: &Ask,
    found: Box<Found>,
    collapsed: Option<ForwardReason>,
) -> Answer {
    let mut status = CacheStatus { hit: true, ..CacheStatus::default() };
    if let Some(reason) = collapsed {
        worker.counters.collapsed.one();
        status = CacheStatus::forwarded(reason);
        status.collapsed = true;
    }
    reused(worker, ask, found, status)
}

/// A response whose body was stored before this request arrived, whether or not the origin was
/// asked.
pub(crate) fn reused(worker: &Worker, ask: &Ask, found: Box<Found>, status: CacheStatus) -> Answer {
    hooks::on_hit(worker, ask, &found);
    with_hit_status(worker, ask, found, status)
}

/// A response from the store, with its remaining freshness lifetime in `Cache-Status`.
pub(crate) fn with_hit_status(
    worker: &Worker,
    ask: &Ask,
    found: Box<Found>,
    mut status: CacheStatus,
) -> Answer {
    let now_ms = worker.now_ms();
    let policy = found.response.policy;
    status.ttl_s = Some(policy.ttl_s(now_ms));
    (from_store(worker, ask, found, policy.age_s(now_ms)), status)
}
