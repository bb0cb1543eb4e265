//! Counters of the proxy, one set per worker so that cores do not share cache lines.
//!
//! Threads: written by one worker (and its fills), read by the admin listener; all relaxed.

pub(crate) mod heavy_hitters;
pub(crate) mod histogram;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::StatusCode;

use crate::metrics::heavy_hitters::HeavyHitters;
use crate::metrics::histogram::{Histogram, Snapshot};
use crate::purge::url_of_key;
use crate::rules::NotStoredReason;

/// Refusals remembered by each worker.
const REFUSALS_MAX: usize = 512;

/// A response that was not stored.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) when: Instant,
    pub(crate) url: Box<[u8]>,
    pub(crate) reason: NotStoredReason,
}

/// Classes of status codes, 2xx first.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// One number that only grows.
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

macro_rules! counters {
    ($($name:ident: $help:literal,)*) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            not_stored: [Counter; NotStoredReason::ALL.len()],
            responses: [Counter; CLASSES.len()],
            /// The latest responses that were not stored.
            pub(crate) refusals: Mutex<VecDeque<Refusal>>,
            /// What is asked for most.
            pub(crate) hot: Mutex<HeavyHitters>,
            /// Time from a request's headers to those of its answer: served from the store.
            pub(crate) hit_latency: Histogram,
            /// The same where the origin was asked.
            pub(crate) miss_latency: Histogram,
        }

        /// Name, help and reader of each counter.
        const COUNTERS: &[(&str, &str, fn(&Counters) -> &Counter)] =
            &[$((stringify!($name), $help, |counters| &counters.$name),)*];
    };
}

counters! {
    connections: "Connections accepted.",
    connections_refused: "Connections refused: too many from one client, or no PROXY header.",
    connections_rested: "Times that an HTTP/1 connection, silent for a while, let go of its buffers.",
    client_timeouts: "Connections ended because their client was too slow.",
    tls_failures: "TLS handshakes with clients that failed.",
    certificate_errors: "Changed certificate files that could not be used; the former stay.",
    requests: "Requests received.",
    hits: "Requests answered from the store without asking the origin.",
    revalidated: "Requests answered from the store after the origin said 304.",
    collapsed: "Requests that waited for another one to fetch the same resource.",
    read_along: "Of these, those that got the body while it was still coming.",
    forwarded: "Requests sent to the origin.",
    retries: "Requests sent again because a pooled connection had gone stale.",
    origin_errors: "Requests to the origin that brought no response.",
    origin_failovers: "Requests sent to another origin because one could not be reached.",
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
    stored: "Responses stored.",
    client_not_modified: "Answers 304 to a client from the cache.",
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
    store_errors: "Reads of the store that failed, taken for a miss.",
    log_lines_dropped: "Access log lines dropped because what they are written to was too slow.",
}

impl Counters {
    /// Counts a response that was not stored, and remembers it for `explain`.
    pub(crate) fn not_stored(&self, reason: NotStoredReason, key: &[u8]) {
        self.not_stored[reason as usize].one();
        let refusal = Refusal { when: Instant::now(), url: url_of_key(key).into(), reason };
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() >= REFUSALS_MAX {
            refusals.pop_front();
        }
        refusals.push_back(refusal);
    }

    /// Counts an answer by its class.
    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        self.responses[class.min(CLASSES.len() - 1)].one();
    }
}

/// The counters of all workers summed, by name.
pub(crate) fn values(workers: &[Arc<Counters>]) -> serde_json::Map<String, serde_json::Value> {
    let sum = |read: &fn(&Counters) -> &Counter| -> u64 {
        workers.iter().map(|counters| read(counters).get()).sum()
    };
    COUNTERS.iter().map(|(name, _, read)| ((*name).to_owned(), sum(read).into())).collect()
}

/// Times of answers of all workers: from the store, and with the origin asked.
pub(crate) fn latencies(workers: &[Arc<Counters>]) -> (Snapshot, Snapshot) {
    let (mut hits, mut misses) = (Snapshot::default(), Snapshot::default());
    for counters in workers {
        counters.hit_latency.add_to(&mut hits);
        counters.miss_latency.add_to(&mut misses);
    }
    (hits, misses)
}

/// Values of [`SINGLES`] at one moment, in its order.
pub(crate) type SingleValues = [u64; SINGLES.len()];

/// Name, help, and whether it goes both ways.
const SINGLES: [(&str, &str, bool); 3] = [
    ("log_write_errors", "Access log lines that could not be written.", false),
    ("purge_marks", "Purge marks kept as they were set; older ones are kept coarser.", true),
    (
        "collapsed_waiting",
        "Requests that wait now for another one to fetch the same resource.",
        true,
    ),
];

const NOT_STORED: (&str, &str) = ("not_stored", "Responses not stored, by reason.");
const RESPONSES: (&str, &str) = ("responses", "Answers to clients, by class of their status.");
const LATENCY: (&str, &str) = (
    "latency_seconds",
    "Time from the end of a request's headers to the headers of its answer: from=\"store\" \
     without, from=\"origin\" with a request to the origin.",
);

/// All workers' counters summed, in OpenMetrics text without the closing `# EOF`.
pub(crate) fn render(workers: &[Arc<Counters>], singles: SingleValues) -> String {
    let mut text = String::new();
    let sum = |read: &dyn Fn(&Counters) -> u64| workers.iter().map(|one| read(one)).sum::<u64>();
    // Writing to a String cannot fail.
    for (name, help, read) in COUNTERS {
        let sum = sum(&|counters| read(counters).get());
        let full = head(&mut text, name, help, "counter");
        let _ = writeln!(text, "{full}_total {sum}");
    }
    for ((name, help, is_gauge), value) in SINGLES.iter().zip(singles) {
        let kind = if *is_gauge { "gauge" } else { "counter" };
        let full = head(&mut text, name, help, kind);
        let suffix = if *is_gauge { "" } else { "_total" };
        let _ = writeln!(text, "{full}{suffix} {value}");
    }
    let full = head(&mut text, NOT_STORED.0, NOT_STORED.1, "counter");
    for (index, reason) in NotStoredReason::ALL.iter().enumerate() {
        let sum = sum(&|counters| counters.not_stored[index].get());
        let _ = writeln!(text, "{full}_total{{reason=\"{}\"}} {sum}", reason.name());
    }
    let full = head(&mut text, RESPONSES.0, RESPONSES.1, "counter");
    for (index, class) in CLASSES.iter().enumerate() {
        let sum = sum(&|counters| counters.responses[index].get());
        let _ = writeln!(text, "{full}_total{{class=\"{class}\"}} {sum}");
    }
    let full = head(&mut text, LATENCY.0, LATENCY.1, "histogram");
    let _ = writeln!(text, "# UNIT {full} seconds");
    let (hits, misses) = latencies(workers);
    hits.render(&full, "from=\"store\"", &mut text);
    misses.render(&full, "from=\"origin\"", &mut text);
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) -> String {
    let full = format!("damelo_proxy_{name}");
    let help = help.replace('"', "\\\"");
    let _ = write!(text, "# TYPE {full} {kind}\n# HELP {full} {help}\n");
    full
}

/// The reference of all metrics as Markdown: `docs/metrics.md` between its marks.
#[cfg(test)]
fn reference() -> String {
    let mut text = String::from("| metric | kind | labels | what it says |\n|---|---|---|---|\n");
    let mut row = |name: &str, kind: &str, labels: &str, help: &str| {
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    };
    for (name, help, _) in COUNTERS {
        row(&format!("damelo_proxy_{name}"), "counter", "", help);
    }
    for (name, help, is_gauge) in SINGLES {
        let kind = if is_gauge { "gauge" } else { "counter" };
        row(&format!("damelo_proxy_{name}"), kind, "", help);
    }
    let reasons: Vec<_> = NotStoredReason::ALL.iter().map(|r| format!("`{}`", r.name())).collect();
    let reasons = format!("`reason`: {}", reasons.join(", "));
    row(&format!("damelo_proxy_{}", NOT_STORED.0), "counter", &reasons, NOT_STORED.1);
    row(
        &format!("damelo_proxy_{}", RESPONSES.0),
        "counter",
        "`class`: `2xx` to `5xx`",
        RESPONSES.1,
    );
    row(&format!("damelo_proxy_{}", LATENCY.0), "histogram", "`from`, `le`", LATENCY.1);
    store_reference(&mut row);
    text
}

/// The store's part; of one volume.
#[cfg(test)]
fn store_reference(row: &mut impl FnMut(&str, &str, &str, &str)) {
    let mut stats = damelo::Stats::default();
    stats.devices.push(damelo::device::DeviceStats::default());
    let metrics = stats.metrics();
    let mut index = 0;
    while index < metrics.len() {
        let family: Vec<_> =
            metrics[index..].iter().take_while(|m| m.name == metrics[index].name).collect();
        let first = family[0];
        let kind = if first.kind == damelo::MetricKind::Counter { "counter" } else { "gauge" };
        let values: Vec<_> =
            family.iter().flat_map(|m| &m.labels).map(|(_, value)| format!("`{value}`")).collect();
        let labels = match first.labels.first() {
            // Its values are numbers.
            Some(("volume", _)) => "`volume`".to_owned(),
            Some((name, _)) => format!("`{name}`: {}", values.join(", ")),
            None => String::new(),
        };
        row(first.name, kind, &labels, first.help);
        index += family.len();
    }
    for latency in stats.latencies() {
        row(latency.name, "histogram", "`le`", latency.help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document is held to the code; `DAMELO_BLESS=1` writes it anew.
    #[test]
    fn the_document_lists_every_metric() {
        crate::documents::hold("metrics.md", "metrics", &reference());
    }

    #[test]
    fn every_family_has_one_head_and_counters_end_in_total() {
        let workers: Vec<Arc<Counters>> = (0..2).map(|_| Arc::default()).collect();
        workers[0].requests.add(2);
        workers[1].requests.add(3);
        workers[0].answered(StatusCode::NOT_MODIFIED);
        workers[1].hit_latency.record(std::time::Duration::from_micros(100));
        let text = render(&workers, SingleValues::default());
        assert!(text.contains("damelo_proxy_requests_total 5\n"));
        assert!(text.contains("damelo_proxy_responses_total{class=\"3xx\"} 1\n"));
        assert!(text.contains("damelo_proxy_latency_seconds_count{from=\"store\"} 1\n"));
        let mut family = String::new();
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                assert_eq!(text.matches(&format!("# TYPE {head}\n")).count(), 1, "{head}");
                head.split(' ').next().unwrap().clone_into(&mut family);
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&family), "{line} in {family}");
            }
        }
    }
}
