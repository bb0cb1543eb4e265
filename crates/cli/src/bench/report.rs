//! Results of a microbenchmark, as numbers, as JSON and as lines of a table.

use std::time::Duration;

use damelo::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::disk::DiskCounters;
use crate::bench::latency::LatencySummary;
use crate::bench::workload::{Order, Stage};
use crate::failure::Failure;
use crate::output::{Out, thousands};

/// Results of one stage on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Operations done.
    pub(crate) operations: u64,
    /// From the start of all threads to the end of the last.
    pub(crate) seconds: f64,
    /// Operations a second, all threads together.
    pub(crate) operations_per_second: f64,
    /// Latencies of single operations.
    #[serde(flatten)]
    pub(crate) latency: LatencySummary,
    /// Seconds after the stage until all its data was on disk; not part of the rate.
    pub(crate) settle_seconds: f64,
    /// Reads that returned content other than was created.
    pub(crate) wrong: u64,
    /// Reads and deletes of objects that were not there.
    pub(crate) missing: u64,
    /// Operations that failed.
    pub(crate) failed: u64,
    /// After create: objects missing from the index. `None` if the side has no index to ask.
    pub(crate) lost: Option<u64>,
    /// Disk traffic, settling included.
    #[serde(flatten)]
    pub(crate) disk: DiskCounters,
    /// The thesis's hit rate: objects requested over objects brought from disk.
    pub(crate) hit_rate: Option<f64>,
    /// Disk reads for each object read.
    pub(crate) disk_reads_per_object: Option<f64>,
}

impl Measurement {
    /// A measurement without counters yet.
    pub(crate) fn new(operations: u64, took: Duration, latency: LatencySummary) -> Measurement {
        let seconds = took.as_secs_f64();
        Measurement {
            operations,
            seconds,
            operations_per_second: operations as f64 / seconds.max(1e-9),
            latency,
            settle_seconds: 0.0,
            wrong: 0,
            missing: 0,
            failed: 0,
            lost: None,
            disk: DiskCounters::default(),
            hit_rate: None,
            disk_reads_per_object: None,
        }
    }

    /// Derives the figures that only the read stage has. The hit rate of thesis §5.1 is the number
    /// of times objects on a page are requested over the number of objects on the pages read:
    /// `reads / (page reads x objects per page)`. Since not every read is of a whole page, objects
    /// brought from disk are counted as bytes read over the mean object size.
    pub(crate) fn derive_hit_rate(&mut self, size_mean: f64) {
        let operations = self.operations as f64;
        self.disk_reads_per_object = self.disk.reads.map(|reads| reads as f64 / operations);
        self.hit_rate = self
            .disk
            .read_bytes
            .filter(|&bytes| bytes > 0)
            .map(|bytes| operations / (bytes as f64 / size_mean));
    }
}

/// One of the fifteen benchmarks: a stage in an order, on the store and optionally on files.
pub(crate) struct Benchmark {
    /// Order of operations.
    pub(crate) order: Order,
    /// Stage.
    pub(crate) stage: Stage,
    /// Results of the store.
    pub(crate) store: Measurement,
    /// Results of the files, if they were measured.
    pub(crate) files: Option<Measurement>,
}

impl Benchmark {
    /// One object for `--json`.
    pub(crate) fn to_json(&self, settings: &Value) -> Value {
        json!({
            "benchmark": format!("{} {}", self.stage.name(), self.order.name()),
            "stage": self.stage,
            "order": self.order,
            "store": self.store,
            "files": self.files,
            "ratio": self.files.as_ref().map(|files| self.ratios(files)),
            "settings": settings,
        })
    }

    /// Ratios: store over files for rates, files over store for latencies and disk reads. Above 1,
    /// the store is better.
    fn ratios(&self, files: &Measurement) -> Value {
        let over = |a: f64, b: f64| if b > 0.0 { Some(a / b) } else { None };
        let settled =
            |m: &Measurement| m.operations as f64 / (m.seconds + m.settle_seconds).max(1e-9);
        let reads = files.disk.reads.zip(self.store.disk.reads);
        json!({
            "operations_per_second":
                over(self.store.operations_per_second, files.operations_per_second),
            "operations_per_second_settled": over(settled(&self.store), settled(files)),
            "mean": over(files.latency.mean_us, self.store.latency.mean_us),
            "p99": over(files.latency.p99_us, self.store.latency.p99_us),
            "max": over(files.latency.max_us, self.store.latency.max_us),
            "disk_reads": reads.and_then(|(files, store)| over(files as f64, store as f64)),
        })
    }

    /// Prints the lines of the table.
    pub(crate) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let name = format!("{} {}", self.stage.name(), self.order.name());
        print_row(out, &name, "store", &self.store)?;
        if let Some(files) = &self.files {
            print_row(out, "", "files", files)?;
            print_ratio(out, &self.ratios(files))?;
        }
        print_troubles(out, "store", &self.store)?;
        self.files.as_ref().map_or(Ok(()), |files| print_troubles(out, "files", files))?;
        out.flush()
    }
}

/// Prints the table's header.
pub(crate) fn print_header(out: &mut Out) -> Result<(), Failure> {
    out.line(format_args!(
        "{:<18} {:<6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>16} {:>16} {:>6} {:>8} {:>7}",
        "benchmark",
        "",
        "ops/s",
        "mean us",
        "p50 us",
        "p99 us",
        "max us",
        "disk reads",
        "disk writes",
        "hit",
        "reads/ob",
        "settle"
    ))
}

fn print_row(out: &mut Out, name: &str, side: &str, m: &Measurement) -> Result<(), Failure> {
    let decimal = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.3}"));
    out.line(format_args!(
        "{:<18} {:<6} {:>9} {:>9.1} {:>9.1} {:>9.1} {:>9.0} {:>16} {:>16} {:>6} {:>8} {:>6.2}s",
        name,
        side,
        thousands(m.operations_per_second as u64),
        m.latency.mean_us,
        m.latency.p50_us,
        m.latency.p99_us,
        m.latency.max_us,
        traffic(m.disk.reads, m.disk.read_bytes),
        traffic(m.disk.writes, m.disk.write_bytes),
        m.hit_rate.map_or("-".to_owned(), |rate| format!("{rate:.2}")),
        decimal(m.disk_reads_per_object),
        m.settle_seconds,
    ))
}

fn traffic(count: Option<u64>, bytes: Option<u64>) -> String {
    let size = |bytes| ByteSize::new(bytes).to_string();
    match (count, bytes) {
        (Some(count), Some(bytes)) => format!("{} {}", thousands(count), size(bytes)),
        (Some(count), None) => thousands(count),
        (None, Some(bytes)) => size(bytes),
        (None, None) => "-".to_owned(),
    }
}

fn print_ratio(out: &mut Out, ratios: &Value) -> Result<(), Failure> {
    let times =
        |name: &str| ratios[name].as_f64().map_or("-".to_owned(), |ratio| format!("{ratio:.2} x"));
    out.line(format_args!(
        "{:<18} {:<6} {:>9} {:>9} {:>9} {:>9} {:>9}   ({} with settling)",
        "",
        "ratio",
        times("operations_per_second"),
        times("mean"),
        "",
        times("p99"),
        times("max"),
        times("operations_per_second_settled"),
    ))
}

fn print_troubles(out: &mut Out, side: &str, m: &Measurement) -> Result<(), Failure> {
    if let Some(lost) = m.lost {
        out.line(format_args!("{:<18} {side}: {lost} of {} objects lost", "", m.operations))?;
    }
    for (count, what) in
        [(m.wrong, "WRONG BYTES"), (m.missing, "not there"), (m.failed, "operations failed")]
    {
        if count > 0 {
            out.line(format_args!("{:<18} {side}: {count} {what}", ""))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(seconds: u64) -> Measurement {
        let latency = LatencySummary { mean_us: 2.0, p50_us: 1.0, p99_us: 4.0, max_us: 8.0 };
        Measurement::new(1000, Duration::from_secs(seconds), latency)
    }

    #[test]
    fn the_hit_rate_is_the_thesis_s() {
        let mut m = measurement(1);
        // 100 pages of 64 KiB hold 800 objects of 8 KiB; 1000 reads of them.
        m.disk = DiskCounters { reads: Some(100), read_bytes: Some(100 << 16), ..m.disk };
        m.derive_hit_rate(8192.0);
        assert_eq!((m.hit_rate, m.disk_reads_per_object), (Some(1.25), Some(0.1)));
    }

    #[test]
    fn ratios_above_one_speak_for_the_store() {
        let (order, stage) = (Order::Zipf18, Stage::Read);
        let benchmark =
            Benchmark { order, stage, store: measurement(1), files: Some(measurement(6)) };
        let value = benchmark.to_json(&json!({}));
        assert_eq!(value["ratio"]["operations_per_second"], 6.0);
        assert_eq!(value["ratio"]["disk_reads"], Value::Null);
        assert_eq!((&value["order"], &value["stage"]), (&json!("zipf1:8"), &json!("read")));
        let again: Measurement = serde_json::from_value(value["store"].clone()).unwrap();
        assert_eq!(again, benchmark.store);
    }
}
