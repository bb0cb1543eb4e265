//! Results of a measurement, medians over rounds, ratios between proxies, and how they are printed.
//! Pure.

use serde::Serialize;
use serde_json::{Value, json};

use super::load::Seen;
use super::probes::Probe;
use crate::failure::Failure;
use crate::output::{Out, thousands};

/// Results of one proxy in one round. Per-request figures are per good answer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    pub(crate) target: String,
    pub(crate) workload: &'static str,
    pub(crate) run: u64,
    pub(crate) round: u32,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) body_bytes_per_second: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) hit_ratio_told: Option<f64>,
    pub(crate) hit_ratio_origin: f64,
    pub(crate) origin_requests: u64,
    pub(crate) machine_disk_reads_per_request: Option<f64>,
    pub(crate) own_disk_reads_per_request: Option<f64>,
    pub(crate) cpu_us_per_request: Option<f64>,
    pub(crate) load_cpu_seconds: Option<f64>,
    pub(crate) last_failure: Option<String>,
}

impl Measurement {
    /// Derives the figures from the clients' results and the probes' counts.
    pub(crate) fn new(
        (target, workload, run, round): (&str, &'static str, u64, u32),
        seen: &Seen,
        probe: Probe,
        (origin_requests, load_cpu_seconds): (u64, Option<f64>),
    ) -> Measurement {
        let requests = seen.requests.max(1) as f64;
        let seconds = seen.took.as_secs_f64().max(1e-9);
        let latency = seen.latencies.summary();
        let each = |count: Option<u64>| count.map(|count| count as f64 / requests);
        Measurement {
            target: target.to_owned(),
            workload,
            run,
            round,
            requests: seen.requests,
            failed: seen.failed,
            wrong: seen.wrong,
            seconds,
            requests_per_second: seen.requests as f64 / seconds,
            body_bytes_per_second: seen.body_bytes as f64 / seconds,
            mean_us: latency.mean_us,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            p999_us: seen.latencies.quantile_us(0.999),
            max_us: latency.max_us,
            hit_ratio_told: (seen.told > 0).then(|| seen.hits as f64 / seen.told as f64),
            hit_ratio_origin: (1.0 - origin_requests as f64 / requests).max(0.0),
            origin_requests,
            machine_disk_reads_per_request: each(probe.machine_reads),
            own_disk_reads_per_request: each(probe.own_reads),
            cpu_us_per_request: probe.cpu_seconds.map(|seconds| seconds * 1e6 / requests),
            load_cpu_seconds,
            last_failure: seen.why.clone(),
        }
    }

    /// One line of the table.
    pub(crate) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let decimal = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.3}"));
        out.line(format_args!(
            "{:<28} {:>6} {:>9} {:>8.1} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>6} {:>6.3} {:>8} {:>8} {:>7}",
            self.target,
            self.round,
            thousands(self.requests_per_second as u64),
            self.body_bytes_per_second / 1e6,
            self.mean_us,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.max_us,
            decimal(self.hit_ratio_told),
            self.hit_ratio_origin,
            decimal(self.machine_disk_reads_per_request),
            decimal(self.own_disk_reads_per_request),
            self.cpu_us_per_request.map_or("-".to_owned(), |us| format!("{us:.1}")),
        ))?;
        if self.failed > 0 {
            let why = self.last_failure.as_deref().unwrap_or("unknown");
            out.line(format_args!("  {} requests failed, the last: {why}", self.failed))?;
        }
        if self.wrong > 0 {
            out.line(format_args!("  {} answers with WRONG BYTES", self.wrong))?;
        }
        out.flush()
    }
}

/// Prints the table's header.
pub(crate) fn print_header(out: &mut Out) -> Result<(), Failure> {
    out.line(format_args!(
        "{:<28} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>8} {:>8} {:>7}",
        "proxy",
        "round",
        "req/s",
        "MB/s",
        "mean us",
        "p50",
        "p99",
        "p99.9",
        "max",
        "told",
        "hit",
        "disk/req",
        "own/req",
        "cpu us"
    ))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len().is_multiple_of(2) {
        return Some(f64::midpoint(values[middle - 1], upper));
    }
    Some(upper)
}

/// The median of a figure over a target's rounds.
fn median_of(all: &[Measurement], target: &str, field: fn(&Measurement) -> f64) -> Option<f64> {
    median(all.iter().filter(|m| m.target == target).map(field).collect())
}

/// The median over rounds of the first target's figure divided by another's in the same round.
fn ratio_of(
    all: &[Measurement],
    (first, other): (&str, &str),
    field: fn(&Measurement) -> f64,
) -> Option<f64> {
    let of = |target: &str| all.iter().filter(move |m| m.target == target).collect::<Vec<_>>();
    let pairs = of(first).into_iter().zip(of(other)).collect::<Vec<_>>();
    let ratios = pairs.into_iter().map(|(a, b)| field(a) / field(b));
    median(ratios.filter(|ratio| ratio.is_finite()).collect())
}

/// One JSON object per target: its medians, and the ratios of the first target to it.
pub(crate) fn summaries(all: &[Measurement], targets: &[String]) -> Vec<Value> {
    let Some(first) = targets.first() else { return Vec::new() };
    let summary = |target: &String| {
        let mut value = json!({
            "summary": target,
            "requests_per_second": median_of(all, target, |m| m.requests_per_second),
            "p99_us": median_of(all, target, |m| m.p99_us),
            "hit_ratio_origin": median_of(all, target, |m| m.hit_ratio_origin),
        });
        if target != first {
            let pair = (first.as_str(), target.as_str());
            value["ratio"] = json!({
                "of": first,
                "requests_per_second": ratio_of(all, pair, |m| m.requests_per_second),
                "p99_us": ratio_of(all, pair, |m| m.p99_us),
            });
        }
        value
    };
    targets.iter().map(summary).collect()
}

/// Prints the summaries in words.
pub(crate) fn print_summaries(out: &mut Out, summaries: &[Value]) -> Result<(), Failure> {
    for summary in summaries {
        let name = summary["summary"].as_str().unwrap_or_default();
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        out.line(format_args!(
            "median   {name}: {} req/s, p99 {:.0} us, {:.3} hits",
            thousands(number(&summary["requests_per_second"]) as u64),
            number(&summary["p99_us"]),
            number(&summary["hit_ratio_origin"]),
        ))?;
        if let Some(ratio) = summary.get("ratio") {
            let first = ratio["of"].as_str().unwrap_or_default();
            out.line(format_args!(
                "ratio    {first} / {name}: {:.2} x req/s, {:.2} x p99",
                number(&ratio["requests_per_second"]),
                number(&ratio["p99_us"]),
            ))?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }
}
