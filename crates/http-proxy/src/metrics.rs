//! Counters of the proxy, one set per worker so that cores do not share cache lines.
//!
//! Threads: written by one worker (and its fills), read by the admin listener; all relaxed.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rules::storing::NotStoredReason;

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

    fn get(&self) -> u64 {
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
        }

        /// Name, help and reader of each counter.
        const COUNTERS: &[(&str, &str, fn(&Counters) -> &Counter)] =
            &[$((stringify!($name), $help, |counters| &counters.$name),)*];
    };
}

counters! {
    connections: "Connections accepted.",
    connections_refused: "Connections refused: too many from one client, or no PROXY header.",
    client_timeouts: "Connections ended because their client was too slow.",
    tls_failures: "TLS handshakes with clients that failed.",
    certificate_errors: "Changed certificate files that could not be used; the former stay.",
    requests: "Requests received.",
    hits: "Requests answered from the store without asking the origin.",
    revalidated: "Requests answered from the store after the origin said 304.",
    collapsed: "Requests that waited for another one to fetch the same resource.",
    forwarded: "Requests sent to the origin.",
    retries: "Requests sent again because a pooled connection had gone stale.",
    origin_errors: "Requests to the origin that brought no response.",
    origin_failovers: "Requests sent to another origin because one could not be reached.",
    origin_ejections: "Times an origin was not asked any more for a while.",
    origin_checks_failed: "Health checks that failed.",
    tunnels: "Connections joined with an origin's after an upgrade or CONNECT.",
    tunnel_client_bytes: "Bytes from clients through tunnels.",
    tunnel_origin_bytes: "Bytes from origins through tunnels.",
    tunnel_timeouts: "Tunnels cut because nothing moved in them.",
    forward_denied: "Requests that the rules of the forward proxy forbid.",
    forward_unauthorized: "Requests to the forward proxy without credentials that are right.",
    stored: "Responses stored.",
    client_not_modified: "Answers 304 to a client from the cache.",
    own_errors: "Answers 4xx and 5xx that the proxy made itself.",
    invalidations: "Resources invalidated by unsafe methods.",
    damaged_entries: "Stored metadata that could not be decoded, taken for a miss.",
    store_errors: "Reads of the store that failed, taken for a miss.",
    log_lines_dropped: "Access log lines dropped because standard output was too slow.",
}

impl Counters {
    pub(crate) fn not_stored(&self, reason: NotStoredReason) {
        self.not_stored[reason as usize].one();
    }
}

/// All workers' counters summed, in OpenMetrics text without the closing `# EOF`.
pub(crate) fn render(workers: &[Arc<Counters>]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for (name, help, read) in COUNTERS {
        let sum: u64 = workers.iter().map(|counters| read(counters).get()).sum();
        let full = format!("damelo_proxy_{name}");
        let _ = write!(text, "# TYPE {full} counter\n# HELP {full} {help}\n{full}_total {sum}\n");
    }
    let full = "damelo_proxy_not_stored";
    let _ = write!(text, "# TYPE {full} counter\n# HELP {full} Responses not stored, by reason.\n");
    for (index, reason) in NotStoredReason::ALL.iter().enumerate() {
        let sum: u64 = workers.iter().map(|counters| counters.not_stored[index].get()).sum();
        let _ = writeln!(text, "{full}_total{{reason=\"{}\"}} {sum}", reason.name());
    }
    text
}
