//! The registry of metrics: each is declared once here, for `Store::stats`, the OpenMetrics text
//! and the documentation. Counters only grow; gauges are filled in when a snapshot is taken
//! (`Engine::stats`).
//!
//! Threads: any; relaxed atomics, since no decision depends on a counter.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::device::DeviceStats;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that rises and falls.
    Gauge,
}

/// One metric with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Family name, such as `damelo_misses`.
    pub name: &'static str,
    /// Description with unit.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Labels, such as `reason="not_found"`.
    pub labels: Vec<(&'static str, String)>,
    /// Current value.
    pub value: f64,
}

/// `counters`: field, family, labels, help; `gauges`: field, family, help, which documents the
/// field.
macro_rules! registry {
    (
        counters {$(
            $field:ident $family:literal [$($label:literal = $text:literal),*] $help:literal;
        )*}
        gauges {$($gauge:ident $gauge_family:literal $gauge_help:literal;)*}
    ) => {
        /// Live counters of a store.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: AtomicU64,)*
            pub(crate) read_latency: Histogram,
            pub(crate) write_latency: Histogram,
            pub(crate) create_latency: Histogram,
        }

        /// Values of every counter and gauge at one moment. Each field names the metric by which
        /// [`Stats::metrics`] and `docs/operations.md` know it.
        #[derive(Debug, Clone, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Stats {
            $(
                #[doc = $help]
                #[doc = ""]
                #[doc = concat!("`", $family, $("{", $label, "=\"", $text, "\"}",)* "`")]
                pub $field: u64,
            )*
            $(
                #[doc = $gauge_help]
                #[doc = ""]
                #[doc = concat!("`", $gauge_family, "`")]
                pub $gauge: u64,
            )*
            /// Frames in the hated, probation, protected and loved queues.
            pub queue_frames: [u64; 4],
            /// Counters of each volume's device.
            pub devices: Vec<DeviceStats>,
            /// Time of disk reads, submission to verified object: `(upper bound, count)` of
            /// buckets, of which the last has the bound [`Duration::MAX`].
            pub read_latency: Vec<(Duration, u64)>,
            /// Sum of these times.
            pub read_latency_sum: Duration,
            /// Time of writes of pages and extents, submission to completion; buckets as above.
            pub write_latency: Vec<(Duration, u64)>,
            /// Sum of these times.
            pub write_latency_sum: Duration,
            /// Time of creates, from the call until readers see the object, including waits for
            /// memory; for streams, the time of the commit. Buckets as above.
            pub create_latency: Vec<(Duration, u64)>,
            /// Sum of these times.
            pub create_latency_sum: Duration,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats {
                    $($field: self.$field.load(Ordering::Relaxed),)*
                    read_latency: self.read_latency.snapshot(),
                    read_latency_sum: self.read_latency.sum(),
                    write_latency: self.write_latency.snapshot(),
                    write_latency_sum: self.write_latency.sum(),
                    create_latency: self.create_latency.snapshot(),
                    create_latency_sum: self.create_latency.sum(),
                    ..Stats::default()
                }
            }
        }

        impl Stats {
            fn counter_metrics(&self) -> Vec<Metric> {
                vec![$(Metric {
                    name: $family,
                    help: $help,
                    kind: MetricKind::Counter,
                    labels: vec![$(($label, $text.to_owned())),*],
                    value: self.$field as f64,
                }),*]
            }

            fn gauge_metrics(&self) -> Vec<Metric> {
                vec![$(gauge($gauge_family, $gauge_help, self.$gauge as f64)),*]
            }
        }
    };
}

registry! {
    counters {
        hits_memory "damelo_hits" ["from" = "memory"] "Reads answered.";
        hits_disk "damelo_hits" ["from" = "disk"] "Reads answered.";
        hit_bytes "damelo_hit_bytes" [] "Bytes of values found in memory: whole ones, also by ranges and look-ups.";
        misses_not_found "damelo_misses" ["reason" = "not_found"] "Reads that found nothing.";
        misses_collision "damelo_misses" ["reason" = "tag_collision"] "Reads that found nothing.";
        misses_expired "damelo_misses" ["reason" = "expired"] "Reads that found nothing.";
        misses_purged "damelo_misses" ["reason" = "purged"] "Reads that found nothing.";
        misses_damaged "damelo_misses" ["reason" = "damaged"] "Reads that found nothing.";
        misses_overwritten "damelo_misses" ["reason" = "overwritten"] "Reads that found nothing.";
        misses_io "damelo_misses" ["reason" = "io_error"] "Reads that found nothing.";
        collision_reads "damelo_collision_reads" [] "Disk reads that brought another key's object.";
        object_reads "damelo_disk_reads" ["unit" = "object"] "Disk reads by unit.";
        page_reads "damelo_disk_reads" ["unit" = "page"] "Disk reads by unit.";
        range_reads "damelo_disk_reads" ["unit" = "range"] "Disk reads by unit.";
        maintenance_reads "damelo_disk_reads" ["unit" = "maintenance"] "Disk reads by unit.";
        disk_read_bytes "damelo_disk_read_bytes" [] "Bytes read from disk for callers.";
        readahead_pages "damelo_readahead_pages" [] "Pages read before they were asked for.";
        prefetched "damelo_prefetched_objects" [] "Objects that came into memory with a page.";
        prefetch_hits "damelo_prefetch_hits" [] "Prefetched objects that were asked for.";
        prefetch_wasted "damelo_prefetch_wasted" [] "Prefetched objects that left memory unasked.";
        shared_reads "damelo_shared_reads" [] "Reads that waited for another reader's I/O.";
        creates "damelo_creates" [] "Objects created.";
        create_bytes "damelo_create_bytes" [] "Bytes of values created.";
        replaced "damelo_replaced" [] "Creates of a key that was there.";
        removes "damelo_removes" [] "Removes that found something.";
        purges "damelo_purges" [] "Purge marks set.";
        pages_written "damelo_pages_written" [] "Pages written.";
        pages_through_spare "damelo_pages_through_spare" [] "Pages written while readers held all memory.";
        nursery_moved_bytes "damelo_nursery_moved_bytes" [] "Bytes of records moved in memory while they wait to be written.";
        extents_written "damelo_extents_written" [] "Extents written.";
        written_bytes "damelo_written_bytes" [] "Bytes written to segments, summaries included.";
        written_object_bytes "damelo_written_object_bytes" [] "Bytes of new records written.";
        checkpoint_bytes "damelo_checkpoint_bytes" [] "Bytes written for checkpoints of the index.";
        journal_bytes "damelo_journal_bytes" [] "Bytes written to the journal, in both of its copies.";
        reinserted_objects "damelo_reinserted_objects" [] "Objects kept when their segment was reused.";
        reinserted_bytes "damelo_reinserted_bytes" [] "Bytes of records kept when reused.";
        segments_sealed "damelo_segments_sealed" [] "Segments filled.";
        segments_continued "damelo_segments_continued" [] "Segments of an earlier life that are filled further.";
        segments_reused "damelo_segments_reused" [] "Segments taken for reuse.";
        segments_reused_early "damelo_segments_reused_early" [] "Of these, those taken before older ones since little was left in them.";
        evicted_ring "damelo_evictions" ["reason" = "ring"] "Objects forgotten on disk.";
        evicted_index_full "damelo_evictions" ["reason" = "index_full"] "Objects forgotten on disk.";
        evicted_collision "damelo_evictions" ["reason" = "tag_collision"] "Objects forgotten on disk.";
        evicted_memory "damelo_memory_evictions" [] "Objects that left memory and stay on disk.";
        drops_memory_full "damelo_drops" ["reason" = "memory_full"] "Objects not stored.";
        drops_not_admitted "damelo_drops" ["reason" = "not_admitted"] "Objects not stored.";
        drops_write_error "damelo_drops" ["reason" = "write_error"] "Objects not stored.";
        drops_abandoned "damelo_drops" ["reason" = "abandoned"] "Objects not stored.";
        drops_too_large "damelo_drops" ["reason" = "too_large"] "Objects not stored.";
        drops_overwritten "damelo_drops" ["reason" = "overwritten"] "Objects not stored.";
        drops_superseded "damelo_drops" ["reason" = "superseded"] "Objects not stored.";
        reads_refused "damelo_reads_refused" [] "Reads refused because readers held all memory.";
        reads_unanswered "damelo_reads_unanswered" [] "Reads refused because their volume answered none before.";
        damaged_records "damelo_damaged_records" [] "Records whose checksum or header was wrong.";
        journal_records "damelo_journal_records" [] "Records written to the journal.";
        journal_errors "damelo_journal_errors" [] "Journal writes that failed.";
        checkpoints "damelo_checkpoints" [] "Index checkpoints completed.";
        checkpoint_errors "damelo_checkpoint_errors" [] "Index checkpoints that failed.";
        recovered_objects "damelo_recovered_objects" [] "Objects found again at open.";
        create_waits "damelo_create_waits" [] "Creates that waited for memory.";
        writer_waits "damelo_writer_waits" [] "Pieces of streamed objects that waited for memory.";
        read_waits "damelo_read_waits" [] "Disk reads that waited for memory.";
        reads_queued "damelo_reads_queued" [] "Awaited reads that began only when others had ended, as together they would have taken too much memory.";
        metadata_waits "damelo_metadata_waits" [] "New metadata that waited for its object to be on disk.";
    }
    gauges {
        index_objects "damelo_index_objects" "Objects in the index.";
        index_slots "damelo_index_slots" "Slots of the index.";
        index_bytes "damelo_index_bytes" "Memory of the index.";
        resident_objects "damelo_resident_objects" "Objects in memory.";
        memory_used_bytes "damelo_memory_used_bytes" "Data memory in use.";
        memory_bytes "damelo_memory_bytes" "Declared data memory.";
        memory_large_page_bytes "damelo_memory_large_page_bytes" "Data memory that the system is to keep in large pages.";
        nursery_bytes "damelo_nursery_bytes" "Bytes waiting to be written.";
        groups_tracked "damelo_groups_tracked" "Groups remembered.";
        purge_marks "damelo_purge_marks" "Purge marks remembered.";
        segments "damelo_segments" "Segments in all.";
        segments_free "damelo_segments_free" "Segments that hold nothing.";
        volumes_out "damelo_volumes_out" "Volumes out of service.";
        damaged_superblocks "damelo_damaged_superblocks" "Copies of superblocks, two a volume, that were found damaged at open.";
        volumes_unanswering "damelo_volumes_unanswering" "Volumes that answer no reads.";
        recovery_segments_loaded "damelo_recovery_segments_loaded" "Segments whose contents are known.";
        recovery_segments_wanted "damelo_recovery_segments_wanted" "Segments that recovery must look at.";
    }
}

impl Stats {
    /// Bytes written for each byte of new records, those of checkpoints and of the journal
    /// included; 1 if no record was written. Of the journal these are the bytes of its records: the
    /// system writes them out as whole blocks, several records together unless each is synced.
    pub fn write_amplification(&self) -> f64 {
        if self.written_object_bytes == 0 {
            return 1.0;
        }
        let beside = self.checkpoint_bytes + self.journal_bytes;
        (self.written_bytes + beside) as f64 / self.written_object_bytes as f64
    }

    /// Every metric with its value, in a fixed order.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all = self.counter_metrics();
        all.extend(self.gauge_metrics());
        all.push(gauge(
            "damelo_write_amplification",
            "Bytes written for each byte of new records, checkpoints and journal included.",
            self.write_amplification(),
        ));
        let queues = ["hated", "probation", "protected", "loved"];
        all.extend(queues.into_iter().zip(self.queue_frames).map(|(queue, frames)| Metric {
            labels: vec![("queue", queue.to_owned())],
            ..gauge("damelo_queue_frames", "Frames of data memory by queue.", frames as f64)
        }));
        all.extend(device_metrics(&self.devices));
        all
    }

    /// The metrics as OpenMetrics text, without the closing `# EOF` so that texts can be joined.
    pub fn to_openmetrics(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for metric in self.metrics() {
            let kind = if metric.kind == MetricKind::Counter { "counter" } else { "gauge" };
            if metric.name != last {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    text,
                    "# TYPE {} {kind}\n# HELP {} {}",
                    metric.name, metric.name, metric.help
                );
                last = metric.name;
            }
            let labels: Vec<String> =
                metric.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let labels =
                if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let suffix = if metric.kind == MetricKind::Counter { "_total" } else { "" };
            let _ = writeln!(text, "{}{suffix}{labels} {}", metric.name, metric.value);
        }
        self.latencies().iter().for_each(|latency| latency_openmetrics(&mut text, latency));
        text
    }

    /// The latency histograms, which [`Stats::metrics`] does not list.
    pub fn latencies(&self) -> [Latency<'_>; 3] {
        [
            Latency {
                name: "damelo_disk_read_seconds",
                help: "Time of disk reads.",
                buckets: &self.read_latency,
                sum: self.read_latency_sum,
            },
            Latency {
                name: "damelo_disk_write_seconds",
                help: "Time of writes of pages and extents.",
                buckets: &self.write_latency,
                sum: self.write_latency_sum,
            },
            Latency {
                name: "damelo_create_seconds",
                help: "Time of creates until readers see the object, of streams of their commit.",
                buckets: &self.create_latency,
                sum: self.create_latency_sum,
            },
        ]
    }
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
    Metric { name, help, kind: MetricKind::Gauge, labels: Vec::new(), value }
}

/// A histogram of durations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency<'a> {
    /// Family name, such as `damelo_disk_read_seconds`.
    pub name: &'static str,
    /// Description.
    pub help: &'static str,
    /// Upper bounds, each with the number of durations above the previous bound and up to this one.
    /// The last bound is [`Duration::MAX`], `le="+Inf"` as OpenMetrics: all longer ones. Empty in a
    /// child of `fork`.
    pub buckets: &'a [(Duration, u64)],
    /// Sum of all durations.
    pub sum: Duration,
}

impl Latency<'_> {
    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

fn latency_openmetrics(text: &mut String, latency: &Latency<'_>) {
    let Latency { name, help, .. } = latency;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# TYPE {name} histogram\n# HELP {name} {help}");
    let mut sum = 0;
    for (bound, count) in latency.buckets.iter().filter(|(bound, _)| *bound < Duration::MAX) {
        sum += count;
        let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {sum}", bound.as_secs_f64());
    }
    let all = latency.count();
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {all}\n{name}_count {all}");
    let _ = writeln!(text, "{name}_sum {}", latency.sum.as_secs_f64());
}

/// Family by family: a text that names one twice is refused whole by strict readers.
fn device_metrics(devices: &[DeviceStats]) -> impl Iterator<Item = Metric> {
    type Value = fn(&DeviceStats) -> f64;
    const FAMILIES: [(&str, &str, Value); 9] = [
        ("damelo_device_reads", "Reads the device did.", |d| d.reads as f64),
        ("damelo_device_read_bytes", "Bytes the device read.", |d| d.read_bytes as f64),
        ("damelo_device_writes", "Writes the device did.", |d| d.writes as f64),
        ("damelo_device_write_bytes", "Bytes the device wrote.", |d| d.write_bytes as f64),
        ("damelo_device_read_errors", "Reads that failed.", |d| d.read_errors as f64),
        ("damelo_device_write_errors", "Writes that failed.", |d| d.write_errors as f64),
        ("damelo_device_sync_errors", "Syncs that failed.", |d| d.sync_errors as f64),
        ("damelo_device_queue_seconds", "Time I/Os waited in our queue.", |d| {
            d.queue_ns as f64 / 1e9
        }),
        ("damelo_device_busy_seconds", "Time I/Os spent at the device.", |d| {
            d.device_ns as f64 / 1e9
        }),
    ];
    FAMILIES.into_iter().flat_map(move |(name, help, value)| {
        devices.iter().enumerate().map(move |(volume, device)| Metric {
            name,
            help,
            kind: MetricKind::Counter,
            labels: vec![("volume", volume.to_string())],
            value: value(device),
        })
    })
}

/// Buckets with an upper bound, from 1 us to 8.4 s.
const BOUNDED: usize = 24;

/// Counts of durations in buckets that double, in microseconds, and one of all that are longer.
#[derive(Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDED + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        let micros = time.as_micros().max(1) as u64;
        let bucket = (u64::BITS - (micros - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(BOUNDED)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed))
    }

    fn snapshot(&self) -> Vec<(Duration, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .map(|(bucket, count)| {
                let bound = Duration::from_micros(1 << bucket);
                let bound = if bucket < BOUNDED { bound } else { Duration::MAX };
                (bound, count.load(Ordering::Relaxed))
            })
            .collect()
    }
}

/// Adds to a counter.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_each_family_once_and_carry_values() {
        let counters = Counters::default();
        add(&counters.hits_disk, 3);
        counters.read_latency.record(Duration::from_millis(1500));
        counters.read_latency.record(Duration::from_millis(500));
        let mut stats = counters.snapshot();
        stats.devices =
            vec![DeviceStats::default(), DeviceStats { reads: 7, ..Default::default() }];
        let text = stats.to_openmetrics();
        assert!(text.contains("damelo_hits_total{from=\"disk\"} 3"), "{text}");
        assert!(text.contains("damelo_device_reads_total{volume=\"1\"} 7"), "{text}");
        let mut families: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count, "{text}");
        let times = "damelo_disk_read_seconds_count 2\ndamelo_disk_read_seconds_sum 2\n";
        assert!(text.contains(times), "{text}");
        assert!(text.contains("damelo_queue_frames{queue=\"loved\"} 0"), "{text}");
    }

    #[test]
    fn what_is_written_beside_records_counts_as_written_for_them() {
        let counters = Counters::default();
        add(&counters.written_bytes, 110);
        add(&counters.checkpoint_bytes, 30);
        add(&counters.journal_bytes, 10);
        let amplification = || counters.snapshot().write_amplification();
        assert!((amplification() - 1.0).abs() < 1e-9, "for nothing new");
        add(&counters.written_object_bytes, 100);
        assert!((amplification() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn only_samples_of_counters_end_in_total() {
        // OpenMetrics takes what ends so for a counter.
        let metrics = Counters::default().snapshot().metrics();
        assert!(metrics.iter().all(|metric| !metric.name.ends_with("_total")));
    }

    #[test]
    fn histogram_buckets_are_upper_bounds() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(64));
        histogram.record(Duration::from_micros(65));
        let rows = histogram.snapshot();
        assert_eq!(rows[6], (Duration::from_micros(64), 1));
        assert_eq!(rows[7], (Duration::from_micros(128), 1));
    }

    /// Disks hang for longer than the last bound.
    #[test]
    fn no_bound_is_told_of_what_exceeds_all() {
        let counters = Counters::default();
        for micros in [1 << 23, (1 << 23) + 1, 3_600_000_000] {
            counters.read_latency.record(Duration::from_micros(micros));
        }
        let stats = counters.snapshot();
        assert_eq!(stats.read_latency.last(), Some(&(Duration::MAX, 2)));
        let text = stats.to_openmetrics();
        let end = "damelo_disk_read_seconds_bucket{le=\"4.194304\"} 0\n\
                   damelo_disk_read_seconds_bucket{le=\"8.388608\"} 1\n\
                   damelo_disk_read_seconds_bucket{le=\"+Inf\"} 3\n\
                   damelo_disk_read_seconds_count 3\n";
        assert!(text.contains(end), "{text}");
    }
}
