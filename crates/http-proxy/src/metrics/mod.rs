//! Counters of the proxy, one set per worker so that cores do not share cache lines.
//!
//! `exposition` lists them for `/metrics`; everything else is generated from that list: the
//! document by `reference`, the files for Grafana and Prometheus by `dashboard`. Threads: written
//! by one worker (and its fills), read by the admin listener; all accesses are relaxed.

#[cfg(test)]
mod dashboard;
pub(crate) mod exposition;
pub(crate) mod heavy_hitters;
pub(crate) mod histogram;
pub(crate) mod not_stored;
pub(crate) mod process;
#[cfg(test)]
mod reference;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use http::{StatusCode, Version};

use crate::error::{BodyError, FetchError};
use crate::io::locks::lock;
use crate::metrics::heavy_hitters::HeavyHitters;
use crate::metrics::histogram::{Histogram, Snapshot};
use crate::metrics::not_stored::NotStoredLately;
use crate::purge::{url_hash, url_of_key};
use crate::rules::NotStoredReason;

/// Classes of status codes, 2xx first.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Versions of HTTP, as their requests name them.
const VERSIONS: [&str; 3] = ["1.0", "1.1", "2"];

/// A monotonic counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A gauge.
#[derive(Debug, Default)]
pub(crate) struct Level(AtomicU64);

impl Level {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes an `up`, on any thread.
    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Source of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodySource {
    /// The store, without a request to the origin.
    Store,
    /// An origin that was asked for this response, or the store after the origin validated it.
    Origin,
    /// The proxy itself: errors, answers to PURGE.
    #[default]
    Own,
}

impl BodySource {
    pub(crate) const ALL: [(BodySource, &str); 3] =
        [(BodySource::Store, "store"), (BodySource::Origin, "origin"), (BodySource::Own, "own")];
}

/// The party that ended a response early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokenBy {
    /// The client left, or stopped reading.
    Client,
    /// The origin broke off, or changed the resource meanwhile.
    Origin,
    /// The origin was silent for too long, or the exchange exceeded its time limit or that of a
    /// stop.
    Timeout,
    /// The stored body could not be read to its end.
    Store,
}

impl BrokenBy {
    pub(crate) const ALL: [(BrokenBy, &str); 4] = [
        (BrokenBy::Client, "client"),
        (BrokenBy::Origin, "origin"),
        (BrokenBy::Timeout, "timeout"),
        (BrokenBy::Store, "store"),
    ];

    /// Classifies the error that a body broke off with.
    pub(crate) fn of(error: BodyError) -> BrokenBy {
        match error {
            BodyError::Broken | BodyError::Changed => BrokenBy::Origin,
            BodyError::Idle | BodyError::Deadline => BrokenBy::Timeout,
            BodyError::Store => BrokenBy::Store,
            BodyError::TooLarge => BrokenBy::Client,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        BrokenBy::ALL[self as usize].1
    }
}

macro_rules! counters {
    ($($name:ident: $help:literal,)*) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            not_stored: [Counter; NotStoredReason::ALL.len()],
            responses: [Counter; CLASSES.len()],
            client_body_bytes: [Counter; BodySource::ALL.len()],
            broken: [Counter; BrokenBy::ALL.len()],
            origin_errors: [Counter; FetchError::NAMES.len()],
            versions: [Counter; VERSIONS.len()],
            /// The worker stops, and drops what is still under way.
            cutting: AtomicBool,
            /// Requests in flight, until the last byte of their responses, and tunnels.
            pub(crate) under_way: Level,
            /// The latest responses that were not stored.
            pub(crate) not_stored_lately: Mutex<NotStoredLately>,
            /// The busiest URLs and hosts.
            pub(crate) hot: Mutex<HeavyHitters>,
            /// Time from a request's headers to those of its response, served from the store.
            pub(crate) hit_latency: Histogram,
            /// The same when the origin was asked.
            pub(crate) miss_latency: Histogram,
        }

        /// Name, help and reader of each counter.
        const COUNTERS: &[(&str, &str, fn(&Counters) -> &Counter)] =
            &[$((stringify!($name), $help, |counters| &counters.$name),)*];
    };
}

counters! {
    connections: "Connections accepted.",
    connections_given: "Connections that one worker accepted and another, which had fewer, serves.",
    connections_refused: "Connections refused: too many from one client, or no PROXY header.",
    connections_rested: "Times that an HTTP/1 connection, silent for a while, let go of its buffers.",
    connections_made_room: "Connections that nobody used, ended for others as `limits.connections_max` or `limits.connections_per_client_max` was near.",
    http2_cancels_exceeded: "HTTP/2 connections ended because their client cancelled too many requests before their answers.",
    client_timeouts: "Connections ended because their client was too slow.",
    tls_failures: "TLS handshakes with clients that failed.",
    certificate_errors: "Changed certificate files that could not be used; the former stay.",
    requests: "Requests received.",
    hits: "Requests answered from the store without asking the origin.",
    revalidated: "Stored responses that the origin confirmed by a 304, for a request or behind it.",
    collapsed: "Requests that waited for another one to fetch the same resource.",
    read_along: "Of these, those that got the body while it was still coming.",
    resumed: "Answers from the store whose rest came from the origin: the store had let go of it meanwhile.",
    forwarded: "Requests sent to the origin.",
    retries: "Requests sent again because a pooled connection had gone stale, or an HTTP/2 origin did not process them.",
    origin_failovers: "Requests sent to another origin because one could not be reached.",
    origin_resends: "Requests sent once more, to another origin, because one broke off before its answer, or answered by one of `upstream.retry_statuses`.",
    origin_ejections: "Times an origin was not asked any more for a while.",
    origin_checks_failed: "Health checks that failed.",
    groups_loved: "Groups that became loved by use.",
    groups_hated: "Groups that became hated because they only ever came in.",
    groups_let_go: "Groups that lost a hint which they had by use.",
    tunnels: "Connections joined with an origin's after an upgrade or CONNECT.",
    tunnel_client_bytes: "Bytes from clients through tunnels.",
    tunnel_origin_bytes: "Bytes from origins through tunnels.",
    tunnel_timeouts: "Tunnels cut because nothing moved in them.",
    forward_denied: "Requests that the rules of the forward proxy forbid.",
    forward_unauthorized: "Requests to the forward proxy without credentials that are right.",
    forward_checks_refused: "Requests refused because too many passwords were being checked.",
    users_file_errors: "Changed files of users that could not be used, or not in every line.",
    stored: "Responses stored.",
    stale_on_arrival: "Responses with a lifetime that was over when they came, by their `Date` alone: the origin's clock is slow, or a cache before it sends no `Age`.",
    client_not_modified: "Answers 304 to a client from the cache.",
    responded: "Requests that a rule answered by itself (`respond`).",
    clients_disputed: "Requests whose client is not known: a trusted proxy names it by no address, or in two ways.",
    own_errors: "Answers 4xx and 5xx that the proxy made itself.",
    purged_misses: "Lookups that found a stored response and did not use it because a purge covers it.",
    pages_prefetched: "Documents read from disk whose group was then brought into memory.",
    purges: "Purges done, by method or admin API.",
    invalidations: "Resources invalidated by unsafe methods.",
    group_invalidations: "Groups invalidated by responses to unsafe methods.",
    validated_behind: "Stale responses served while they were validated.",
    stale_on_error: "Stale responses served because the origin failed.",
    client_preconditions_failed: "Answers 412 to a client from the cache.",
    damaged_entries: "Stored metadata that could not be decoded, taken for a miss.",
    store_errors: "Reads of the store that failed, or took over 5 s: taken for a miss.",
    origin_body_bytes: "Bytes of bodies received from origins.",
    log_lines_dropped: "Access log lines dropped because what they are written to was too slow.",
}

impl Counters {
    /// Counts a response that was not stored, and remembers it for `explain`.
    pub(crate) fn not_stored(&self, reason: NotStoredReason, key: &[u8]) {
        self.not_stored_by(reason, key, None);
    }

    /// As [`Counters::not_stored`], of what this rule forbids, if one does.
    pub(crate) fn not_stored_by(&self, reason: NotStoredReason, key: &[u8], rule: Option<&str>) {
        self.not_stored[reason as usize].one();
        let rule = rule.filter(|_| reason == NotStoredReason::Rule);
        let url_hash = url_hash(url_of_key(key));
        lock(&self.not_stored_lately).remember(url_hash, Instant::now(), (reason, rule));
    }

    /// Counts a request by its version of HTTP.
    pub(crate) fn asked_by(&self, version: Version) {
        let place = match version {
            Version::HTTP_2 => 2,
            Version::HTTP_11 => 1,
            _ => 0,
        };
        self.versions[place].one();
    }

    /// Counts a request to an origin that brought no response.
    pub(crate) fn origin_failed(&self, error: &FetchError) {
        let place = FetchError::NAMES.iter().position(|name| *name == error.name());
        debug_assert!(place.is_some(), "{} is no reason", error.name());
        if let Some(place) = place {
            self.origin_errors[place].one();
        }
    }

    /// All of those.
    fn origin_errors(&self) -> u64 {
        self.origin_errors.iter().map(Counter::get).sum()
    }

    /// Counts a response by its status class.
    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        self.responses[class.min(CLASSES.len() - 1)].one();
    }

    /// Counts a 4xx response to input that never became a request.
    pub(crate) fn refused(&self, status: StatusCode) {
        self.answered(status);
        self.own_errors.one();
    }

    /// From now on, what is dropped before its end is cut off by this worker's stop.
    pub(crate) fn cut_off(&self) {
        self.cutting.store(true, Ordering::Relaxed);
    }

    /// Who ended a response early, given who seems to have: a response that the worker drops looks
    /// like one whose client left.
    pub(crate) fn blamed(&self, by: BrokenBy) -> BrokenBy {
        match by {
            BrokenBy::Client if self.cutting.load(Ordering::Relaxed) => BrokenBy::Timeout,
            by => by,
        }
    }

    /// Counts a response that did not reach its client completely.
    pub(crate) fn broke_off(&self, by: BrokenBy) {
        self.broken[self.blamed(by) as usize].one();
    }

    /// Counts bytes of a response's body that the connection accepted.
    pub(crate) fn sent(&self, from: BodySource, bytes: u64) {
        self.client_body_bytes[from as usize].add(bytes);
    }
}

/// The counters of all workers summed, by name.
pub(crate) fn values(workers: &[Arc<Counters>]) -> serde_json::Map<String, serde_json::Value> {
    let sum = |read: &fn(&Counters) -> &Counter| -> u64 {
        workers.iter().map(|counters| read(counters).get()).sum()
    };
    let errors: u64 = workers.iter().map(|counters| counters.origin_errors()).sum();
    let counted = COUNTERS.iter().map(|(name, _, read)| ((*name).to_owned(), sum(read).into()));
    counted.chain([("origin_errors".to_owned(), errors.into())]).collect()
}

/// Latencies of all workers: served from the store, and with the origin asked.
pub(crate) fn latencies(workers: &[Arc<Counters>]) -> (Snapshot, Snapshot) {
    let (mut hits, mut misses) = (Snapshot::default(), Snapshot::default());
    for counters in workers {
        counters.hit_latency.add_to(&mut hits);
        counters.miss_latency.add_to(&mut misses);
    }
    (hits, misses)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `DAMELO_BLESS=1` rewrites it.
    #[test]
    fn the_document_lists_every_metric() {
        crate::documents::hold("metrics.md", "metrics", &reference::reference());
    }

    /// But those of any process, which are Prometheus' own.
    #[test]
    fn operations_says_how_to_read_each_metric() {
        let text = include_str!("../../../../docs/operations.md");
        let ours = reference::all().into_iter().filter(|one| one.name.starts_with("damelo_"));
        let is_told =
            |name: &str| ["`", "{"].iter().any(|end| text.contains(&format!("`{name}{end}")));
        let missing: Vec<_> = ours.map(|one| one.name).filter(|name| !is_told(name)).collect();
        assert!(missing.is_empty(), "docs/operations.md does not tell of {missing:?}");
    }

    /// `DAMELO_BLESS=1` rewrites it.
    #[test]
    fn the_dashboard_is_made_of_all_metrics() {
        crate::documents::hold_file("packaging/grafana-dashboard.json", &dashboard::dashboard());
    }

    #[test]
    fn the_alerts_name_metrics_that_there_are() {
        let names = dashboard::names_in_alerts();
        assert!(names.len() > 10, "{names:?}");
        assert!(names.iter().all(|(_, is_known)| *is_known), "{names:?}");
    }

    /// A key that is there twice has the whole file refused.
    #[test]
    fn each_alert_has_what_it_needs_once() {
        for (name, rule) in dashboard::alerts() {
            for key in ["expr:", "labels:", "annotations:", "summary:"] {
                let times = rule.lines().filter(|line| line.trim_start().starts_with(key)).count();
                assert_eq!(times, 1, "{key} of {name}");
            }
        }
    }
}
