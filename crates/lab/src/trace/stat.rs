//! What a trace is like: the figures by which traces are described and compared. One pass; about 60
//! bytes for each object. One thread.

use std::collections::BTreeMap;

use serde::Serialize;

use super::curves::TraceCurves;
use super::reader::RecordSource;
use super::source::Interner;
use crate::error::TraceError;
use crate::histogram::Histogram;
use crate::request::{Op, Request};
use crate::stack_distance::StackDistance;

/// Size of a page of the papers' machines; small objects are those that fit.
const SMALL_BYTES: u64 = 8 << 10;

/// Quantiles of a distribution; below 64 exact, else at most 3.2% too high.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half are at most this.
    pub p50: u64,
    /// 90% are.
    pub p90: u64,
    /// 99% are.
    pub p99: u64,
    /// The greatest, exact.
    pub max: u64,
}

impl Quantiles {
    /// Of a histogram; `None` if it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Option<Quantiles> {
        let at = |share| histogram.quantile(share);
        Some(Quantiles { p50: at(0.5)?, p90: at(0.9)?, p99: at(0.99)?, max: histogram.max() })
    }
}

/// The figures of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceStat {
    /// Requests, malformed ones not among them.
    pub requests: u64,
    /// Malformed lines that were skipped.
    pub skipped: u64,
    /// Time of the earliest request, in microseconds since what the trace counts from.
    pub first_us: u64,
    /// Time of the latest.
    pub last_us: u64,
    /// Requests earlier than the one before.
    pub out_of_order: u64,
    /// Distinct clients, 0 if the trace names none.
    pub clients: u64,
    /// Distinct hosts, whatever their case and port; 0 if the trace names none.
    pub hosts: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Objects asked for once.
    pub one_timers: u64,
    /// Sum of all sizes; what 64 bits hold, if it is more.
    pub bytes: u64,
    /// Sum of the first sizes of all objects that are asked for, above 0: the working set.
    pub working_set_bytes: u64,
    /// Requests of size 0.
    pub empty_requests: u64,
    /// Requests of at most 8 KiB.
    pub small_requests: u64,
    /// Requests whose size differs from the object's last one: changed, or broken off.
    pub changed_requests: u64,
    /// Share of requests for something that was answered with a body before: what an unlimited
    /// cache would hit. What has no body of its own hits what is there, and does not count where
    /// nothing is.
    pub hit_ratio_max: f64,
    /// The same in bytes.
    pub byte_hit_ratio_max: f64,
    /// First sizes of objects above 0; 0 for those that never had another.
    pub object_bytes: Option<Quantiles>,
    /// Exponent alpha of the popularity: requests of the r-th object fall as 1 / r^alpha.
    pub popularity_slope: Option<f64>,
    /// How well that describes it, 1 is best (r squared of the fit).
    pub popularity_fit: Option<f64>,
    /// Different objects between two requests for the same.
    pub reuse_distance: Option<Quantiles>,
    /// Share of requests to the host of the request before; 0 to 1, none without hosts.
    pub same_host_ratio: Option<f64>,
    /// Different hosts between two requests to the same.
    pub host_distance: Option<Quantiles>,
    /// Share of requests to one of the ten hosts last asked.
    pub recent_host_ratio: Option<f64>,
    /// Requests by method.
    pub methods: BTreeMap<String, u64>,
    /// Requests by status.
    pub statuses: BTreeMap<u16, u64>,
}

#[derive(Clone, Copy, Default)]
struct ObjectSeen {
    requests: u32,
    first_bytes: u64,
    last_bytes: u64,
    /// Answered with a body, and not deleted since.
    is_there: bool,
    /// Ever asked for.
    was_asked_for: bool,
}

#[derive(Default)]
struct Counting {
    objects: Vec<ObjectSeen>,
    object_stack: StackDistance,
    host_stack: StackDistance,
    reuse: Histogram,
    host_reuse: Histogram,
    hits: u64,
    /// Of 128 bits, as `asked_bytes`: a ratio of sums that stop is none.
    byte_hits: u128,
    /// Requests but deletes and those that are about nothing, and their bytes.
    asked: u64,
    asked_bytes: u128,
    has_hosts: bool,
    /// Nothing named counts as a name with the interner, but is none.
    has_no_host: bool,
    has_no_client: bool,
    previous_us: u64,
    /// Keyed by the method's bytes: one lookup a request, no allocation but the first.
    methods: BTreeMap<Vec<u8>, u64>,
}

/// Reads a trace to its end and counts. `progress` is told the requests so far, now and then.
///
/// # Errors
/// When the trace cannot be read.
pub fn trace_stat(
    trace: &mut dyn RecordSource,
    progress: impl FnMut(u64),
) -> Result<TraceStat, TraceError> {
    trace_curves(trace, progress).map(|(stat, _)| stat)
}

/// The same, with the curves that its single figures are of.
///
/// # Errors
/// When the trace cannot be read.
pub fn trace_curves(
    trace: &mut dyn RecordSource,
    mut progress: impl FnMut(u64),
) -> Result<(TraceStat, TraceCurves), TraceError> {
    let mut interner = Interner::without_names();
    let mut counting = Counting::default();
    let mut stat = empty();
    while trace.advance()? {
        let record = trace.record();
        let request = interner.request(&record)?;
        let (no_host, no_client) = (record.host().is_empty(), record.client.is_empty());
        counting.has_hosts |= !no_host;
        counting.has_no_host |= no_host;
        counting.has_no_client |= no_client;
        match counting.methods.get_mut(record.method) {
            Some(count) => *count += 1,
            None => {
                counting.methods.insert(record.method.to_vec(), 1);
            }
        }
        *stat.statuses.entry(record.status).or_default() += 1;
        counting.count(&mut stat, &request, record.size_bytes);
        if stat.requests.is_multiple_of(1 << 16) {
            progress(stat.requests);
        }
    }
    stat.skipped = trace.skipped().count;
    stat.objects = interner.objects_len() as u64;
    stat.hosts = interner.hosts_len() as u64 - u64::from(counting.has_no_host);
    stat.clients = interner.clients_len() as u64 - u64::from(counting.has_no_client);
    let curves = counting.finish(&mut stat);
    Ok((stat, curves))
}

fn empty() -> TraceStat {
    TraceStat {
        requests: 0,
        skipped: 0,
        first_us: 0,
        last_us: 0,
        out_of_order: 0,
        clients: 0,
        hosts: 0,
        objects: 0,
        one_timers: 0,
        bytes: 0,
        working_set_bytes: 0,
        empty_requests: 0,
        small_requests: 0,
        changed_requests: 0,
        hit_ratio_max: 0.0,
        byte_hit_ratio_max: 0.0,
        object_bytes: None,
        popularity_slope: None,
        popularity_fit: None,
        reuse_distance: None,
        same_host_ratio: None,
        host_distance: None,
        recent_host_ratio: None,
        methods: BTreeMap::new(),
        statuses: BTreeMap::new(),
    }
}

impl Counting {
    /// `bytes` as logged: of what has no body the request has none.
    fn count(&mut self, stat: &mut TraceStat, request: &Request, bytes: u64) {
        if stat.requests == 0 {
            (stat.first_us, stat.last_us) = (request.time_us, request.time_us);
        }
        stat.out_of_order += u64::from(stat.requests > 0 && request.time_us < self.previous_us);
        self.previous_us = request.time_us;
        stat.first_us = stat.first_us.min(request.time_us);
        stat.last_us = stat.last_us.max(request.time_us);
        stat.requests += 1;
        stat.bytes = stat.bytes.saturating_add(bytes);
        stat.empty_requests += u64::from(bytes == 0);
        stat.small_requests += u64::from(bytes <= SMALL_BYTES);
        self.count_object(stat, request);
        if let Some(distance) = self.host_stack.request(request.host) {
            self.host_reuse.add(distance);
        }
    }

    /// What is deleted, or answered without a body, does not say how large the object is.
    fn count_object(&mut self, stat: &mut TraceStat, request: &Request) {
        let (key, bytes) = (request.key as u32, request.size_bytes);
        let at = key as usize;
        if at == self.objects.len() {
            self.objects.push(ObjectSeen::default());
        }
        let object = &mut self.objects[at];
        if request.op == Op::Delete {
            // Nobody asks for the object: neither its popularity nor its reuse.
            object.is_there = false;
            return;
        }
        object.requests = object.requests.saturating_add(1);
        // As for designs: without a body of its own a read hits what is there, and all else is
        // about nothing.
        let (asks, counts) = match request.op {
            Op::Read => (true, request.has_body() || object.is_there),
            Op::Write => (request.has_body(), request.has_body()),
            Op::Delete => (false, false),
        };
        object.was_asked_for |= asks;
        if counts {
            self.asked += 1;
            self.asked_bytes += u128::from(bytes);
        }
        if counts && object.is_there {
            self.hits += 1;
            self.byte_hits += u128::from(bytes);
        }
        if request.has_body() {
            let is_other = object.last_bytes > 0 && object.last_bytes != bytes;
            stat.changed_requests += u64::from(is_other);
            (object.last_bytes, object.is_there) = (bytes, true);
            if object.first_bytes == 0 {
                object.first_bytes = bytes;
                stat.working_set_bytes = stat.working_set_bytes.saturating_add(bytes);
            }
        }
        if let Some(distance) = self.object_stack.request(key) {
            self.reuse.add(distance);
        }
    }

    fn finish(self, stat: &mut TraceStat) -> TraceCurves {
        let ratio =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        stat.one_timers = self.objects.iter().filter(|object| object.requests == 1).count() as u64;
        stat.hit_ratio_max = ratio(self.hits, self.asked);
        stat.byte_hit_ratio_max = match self.asked_bytes {
            0 => 0.0,
            asked => self.byte_hits as f64 / asked as f64,
        };
        let mut sizes = Histogram::default();
        let asked_for = self.objects.iter().filter(|object| object.was_asked_for);
        asked_for.for_each(|object| sizes.add(object.first_bytes));
        stat.object_bytes = Quantiles::of(&sizes);
        stat.reuse_distance = Quantiles::of(&self.reuse);
        if self.has_hosts {
            stat.host_distance = Quantiles::of(&self.host_reuse);
            stat.same_host_ratio = Some(ratio(self.host_reuse.at_most(0), stat.requests));
            stat.recent_host_ratio = Some(ratio(self.host_reuse.at_most(9), stat.requests));
        }
        let mut counts: Vec<u32> = self.objects.iter().map(|object| object.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        if let Some((slope, fit)) = popularity_slope(&counts) {
            (stat.popularity_slope, stat.popularity_fit) = (Some(slope), Some(fit));
        }
        let named = self.methods.into_iter();
        stat.methods = named
            .map(|(method, count)| (String::from_utf8_lossy(&method).into_owned(), count))
            .collect();
        TraceCurves::of(&counts, &self.reuse, &sizes)
    }
}

/// Least squares of log(requests) over log(rank), at eight ranks for each doubling, so that every
/// octave weighs the same, and over objects asked for at least twice: the flat tail of one-timers
/// says where the trace ends, not how popular objects are. `counts` from the greatest on; `None`
/// below ten ranks.
pub(crate) fn popularity_slope(counts: &[u32]) -> Option<(f64, f64)> {
    let repeated = counts.partition_point(|count| *count > 1);
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last_rank = 0;
    for step in 0.. {
        let rank = 2f64.powf(f64::from(step) / 8.0).round() as usize;
        if rank > repeated {
            break;
        }
        if rank > last_rank {
            points.push(((rank as f64).ln(), f64::from(counts[rank - 1]).ln()));
            last_rank = rank;
        }
    }
    if points.len() < 10 {
        return None;
    }
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let xx: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let yy: f64 = points.iter().map(|p| (p.1 - y).powi(2)).sum();
    let xy: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let fit = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
    Some((-xy / xx, fit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::{ObjectName, Record};

    struct Listed(Vec<(u64, &'static str, &'static str, u64)>, usize);

    /// Clients with this name only delete.
    const DELETES: &str = "deletes";

    impl RecordSource for Listed {
        fn advance(&mut self) -> Result<bool, TraceError> {
            self.1 += 1;
            Ok(self.1 <= self.0.len())
        }

        fn record(&self) -> Record<'_> {
            let (time_s, client, url, size_bytes) = self.0[self.1 - 1];
            Record {
                time_us: time_s * 1_000_000,
                client: client.as_bytes(),
                method: if client == DELETES { b"DELETE" } else { b"GET" },
                status: 200,
                cache_result: b"",
                size_bytes,
                object: ObjectName::Text(url.as_bytes()),
            }
        }
    }

    /// Worked out by hand: a/1 three times (once with another size), a/2 and b/1 once each.
    #[test]
    fn figures_of_a_small_trace_are_exact() {
        let mut trace = Listed(
            vec![
                (10, "u", "http://a/1", 100),
                (11, "u", "http://A/2", 9000),
                (12, "v", "http://b/1", 50),
                (12, "v", "http://a/1", 100),
                (11, "u", "http://a/1", 120),
            ],
            0,
        );
        let stat = trace_stat(&mut trace, |_| {}).expect("no file is read");
        assert_eq!((stat.requests, stat.objects, stat.hosts, stat.clients), (5, 3, 2, 2));
        assert_eq!((stat.first_us, stat.last_us), (10_000_000, 12_000_000));
        assert_eq!((stat.out_of_order, stat.one_timers), (1, 2));
        assert_eq!((stat.bytes, stat.working_set_bytes), (9370, 9150));
        assert_eq!((stat.small_requests, stat.changed_requests), (4, 1));
        assert_eq!(stat.hit_ratio_max, 0.4);
        assert_eq!(stat.byte_hit_ratio_max, 220.0 / 9370.0);
        // a/1 again after a/2 and b/1: distance 2; then at once: 0.
        let reuse = stat.reuse_distance.expect("two reuses");
        assert_eq!((reuse.p50, reuse.max), (0, 2));
        // Hosts a a b a a: distances 0, 1, 0.
        assert_eq!(stat.same_host_ratio, Some(0.4));
        assert_eq!(stat.recent_host_ratio, Some(0.6));
        assert_eq!(stat.popularity_slope, None, "one object was asked for twice");
    }

    /// b is deleted before it comes, c is only deleted, a is validated before it comes.
    #[test]
    fn the_working_set_is_what_is_asked_for() {
        let requests = vec![
            (1, "u", "a", 0),
            (2, DELETES, "b", 9),
            (3, DELETES, "c", 9),
            (4, "u", "a", 100),
            (5, "u", "b", 50),
            (6, "u", "a", 300),
        ];
        let stat = trace_stat(&mut Listed(requests, 0), |_| {}).expect("no file is read");
        assert_eq!((stat.working_set_bytes, stat.bytes), (150, 468));
        // Validated, a is not there yet; what is deleted is no request for it.
        assert_eq!((stat.hit_ratio_max, stat.byte_hit_ratio_max), (1.0 / 3.0, 300.0 / 450.0));
        let objects = stat.object_bytes.expect("two objects");
        assert_eq!((objects.p50, objects.max), (50, 100));
    }

    /// An answer without a body says nothing of the size, and what was deleted is no hit.
    #[test]
    fn validations_change_no_size_and_deletes_end_hits() {
        let requests = vec![
            (1, "u", "a", 1000),
            (2, "u", "a", 0),
            (3, "u", "a", 1000),
            (4, DELETES, "a", 0),
            (5, "u", "a", 1000),
            (6, "u", "a", 900),
        ];
        let stat = trace_stat(&mut Listed(requests, 0), |_| {}).expect("no file is read");
        assert_eq!(stat.changed_requests, 1);
        assert_eq!(stat.hit_ratio_max, 3.0 / 5.0);
        assert_eq!(stat.byte_hit_ratio_max, 1900.0 / 3900.0);
    }

    /// `a` and `b` are asked for once each, whatever is deleted, and nothing was asked for again.
    #[test]
    fn deletes_are_no_requests_for_their_objects() {
        let requests = vec![
            (1, "u", "a", 100),
            (2, DELETES, "a", 0),
            (3, "u", "b", 100),
            (4, DELETES, "c", 0),
            (5, DELETES, "b", 0),
        ];
        let stat = trace_stat(&mut Listed(requests, 0), |_| {}).expect("no file is read");
        assert_eq!((stat.one_timers, stat.objects, stat.requests), (2, 3, 5));
        assert_eq!(stat.reuse_distance, None);
    }

    /// Neither before anything is there nor after that was deleted.
    #[test]
    fn what_has_no_body_puts_nothing_there() {
        let whole = |at| (at, "u", "a", 1000);
        for (requests, hits, bytes) in [
            (vec![(1, "u", "a", 0), whole(2), whole(3)], 1.0 / 2.0, 0.5),
            (vec![whole(1), (2, DELETES, "a", 0), (3, "u", "a", 0), whole(4)], 0.0, 0.0),
            (vec![(1, "u", "a", 0), (2, "u", "a", 0)], 0.0, 0.0),
        ] {
            let stat = trace_stat(&mut Listed(requests, 0), |_| {}).expect("no file is read");
            assert_eq!((stat.hit_ratio_max, stat.byte_hit_ratio_max), (hits, bytes));
        }
    }

    /// But the share of bytes is that of the true sums.
    #[test]
    fn sums_that_do_not_fit_stop_at_the_greatest_number() {
        for (urls, size, ratio) in
            [(&["a", "b", "a", "b"][..], 1 << 63, 0.5), (&["a", "b", "a"], u64::MAX, 1.0 / 3.0)]
        {
            let requests = urls.iter().map(|url| (1, "u", *url, size)).collect();
            let stat = trace_stat(&mut Listed(requests, 0), |_| {}).expect("no file is read");
            assert_eq!((stat.bytes, stat.working_set_bytes), (u64::MAX, u64::MAX));
            assert_eq!(stat.byte_hit_ratio_max, ratio);
        }
    }

    #[test]
    fn the_slope_of_a_zipf_popularity_is_found() {
        let counts: Vec<u32> =
            (1..=10_000).map(|rank| (1e6 / f64::from(rank).powf(0.8)).round() as u32).collect();
        let (slope, fit) = popularity_slope(&counts).expect("many ranks");
        assert!((slope - 0.8).abs() < 0.001 && fit > 0.999, "{slope} {fit}");
    }
}
