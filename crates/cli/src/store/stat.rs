//! `damelo stat`: a store's layout, and its counters since it was opened.

use std::time::Duration;

use clap::Args;
use damelo::{ByteSize, Latency, Metric, Store, StoreInfo, VolumeInfo};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::names::hex;
use crate::output::{Out, thousands};
use crate::store::opening::{self, StoreArgs};

const AFTER_HELP: &str = "\
Examples:
  damelo stat cache.damelo
  damelo stat cache.damelo --json | jq .info.objects_max

A store that a proxy has open is locked: ask the proxy's metrics URL instead.";

/// Show what a store is made of, and its counters.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Stat {
    #[command(flatten)]
    store: StoreArgs,
    /// Print as JSON: {"info": ..., "metrics": [...], "latencies": [...]}
    #[arg(long)]
    json: bool,
}

/// Opens the store and prints facts and counters.
pub(crate) fn run(args: &Stat) -> Result<(), Failure> {
    let store = opening::open(&args.store)?;
    let mut out = Out::new();
    if args.json {
        out.json(&to_json(&store))?;
    } else {
        print_info(&mut out, &store)?;
        out.line(format_args!(""))?;
        for metric in store.stats().metrics() {
            out.line(format_args!("{:<64} {}", labelled(&metric), metric.value))?;
        }
        for latency in store.stats().latencies() {
            let (count, sum) = (latency.count(), latency.sum.as_secs_f64());
            out.line(format_args!("{:<64} {count}", format!("{}_count", latency.name)))?;
            out.line(format_args!("{:<64} {sum}", format!("{}_sum", latency.name)))?;
        }
    }
    out.finish()?;
    Ok(store.close()?)
}

fn print_info(out: &mut Out, store: &Store) -> Result<(), Failure> {
    let info = store.info();
    let objects = store.stats().index_objects;
    out.line(format_args!("store     {}", hex(&info.store_id)))?;
    for volume in &info.volumes {
        out.line(format_args!("volume    {}", volume_text(volume)))?;
    }
    out.line(format_args!(
        "segments  {} of {}, pages of {}",
        info.segments,
        ByteSize::new(info.segment_bytes),
        ByteSize::new(info.page_bytes)
    ))?;
    out.line(format_args!(
        "objects   {} of at most {}, each of at most {}",
        thousands(objects),
        thousands(info.objects_max),
        ByteSize::new(info.object_bytes_max)
    ))?;
    out.line(format_args!(
        "memory    {} for data, {} for the index",
        ByteSize::new(info.memory_bytes),
        ByteSize::new(info.index_bytes)
    ))
}

/// One volume in words.
pub(crate) fn volume_text(volume: &VolumeInfo) -> String {
    let out = volume.out_because.as_ref().map(|why| format!(", OUT OF SERVICE: {why}"));
    let silent = volume.unanswering_for.map(|time| format!(", NO ANSWER FOR {} s", time.as_secs()));
    format!(
        "{} ({}, {}{}{}{}{})",
        volume.path.display(),
        ByteSize::new(volume.size_bytes),
        volume.io_engine,
        if volume.direct { ", page cache bypassed" } else { ", through the page cache" },
        if volume.seeks { ", a disk with seeks" } else { "" },
        out.unwrap_or_default(),
        silent.unwrap_or_default(),
    )
}

fn labelled(metric: &Metric) -> String {
    let labels: Vec<String> =
        metric.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    if labels.is_empty() {
        metric.name.to_string()
    } else {
        format!("{}{{{}}}", metric.name, labels.join(","))
    }
}

fn to_json(store: &Store) -> Value {
    let metrics: Vec<Value> = store.stats().metrics().iter().map(metric_json).collect();
    let latencies: Vec<Value> = store.stats().latencies().iter().map(latency_json).collect();
    json!({
        "info": info_json(&store.info()),
        "objects": store.stats().index_objects,
        "metrics": metrics,
        "latencies": latencies,
    })
}

fn info_json(info: &StoreInfo) -> Value {
    let volumes: Vec<Value> = info
        .volumes
        .iter()
        .map(|volume| {
            json!({
                // A path need not be UTF-8.
                "path": volume.path.display().to_string(),
                "size_bytes": volume.size_bytes,
                "io_engine": volume.io_engine,
                "direct": volume.direct,
                "seeks": volume.seeks,
                "in_service": volume.in_service,
                "out_because": volume.out_because,
                "unanswering_s": volume.unanswering_for.map(|time| time.as_secs()),
            })
        })
        .collect();
    json!({
        "store_id": hex(&info.store_id),
        "page_bytes": info.page_bytes,
        "segment_bytes": info.segment_bytes,
        "segments": info.segments,
        "objects_max": info.objects_max,
        "object_bytes_max": info.object_bytes_max,
        "index_bytes": info.index_bytes,
        "memory_bytes": info.memory_bytes,
        "volumes": volumes,
        "warnings": info.warnings,
    })
}

fn latency_json(latency: &Latency<'_>) -> Value {
    let buckets: Vec<Value> = latency
        .buckets
        .iter()
        .map(|(bound, count)| {
            let bound_s = (*bound < Duration::MAX).then_some(bound.as_secs_f64());
            json!({ "up_to_seconds": bound_s, "count": count })
        })
        .collect();
    json!({
        "name": latency.name,
        "count": latency.count(),
        "sum_seconds": latency.sum.as_secs_f64(),
        "buckets": buckets,
    })
}

fn metric_json(metric: &Metric) -> Value {
    let labels: serde_json::Map<String, Value> =
        metric.labels.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    json!({ "name": metric.name, "labels": labels, "value": metric.value })
}
