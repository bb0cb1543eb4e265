//! The reference of all metrics as Markdown: `docs/metrics.md` between its marks. For tests only.

use std::fmt::Write as _;
use std::sync::Arc;

use damelo::MetricKind;

use super::exposition::{Family, Kind, Moment, families};
use super::process::Process;

/// A metric as documents and dashboards see it.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Name of the label; empty for none.
    pub(super) label: &'static str,
    /// Its values, if they are known beforehand.
    values: Vec<String>,
    pub(super) help: String,
}

/// Every metric that a proxy on Linux shows, its own first.
pub(super) fn all() -> Vec<Described> {
    let moment = Moment { process: Some(Process::default()), ..Moment::default() };
    let mut all: Vec<_> = families(&[Arc::default()], &moment).iter().map(described).collect();
    all.extend(of_store());
    all
}

fn described(family: &Family) -> Described {
    let values = family.samples.iter().map(|(value, _)| value.clone());
    let is_known = !family.label.is_empty() && family.kind != Kind::Info;
    Described {
        name: family.name.clone(),
        kind: family.kind,
        label: family.label,
        values: if is_known { values.collect() } else { Vec::new() },
        help: family.help.to_owned(),
    }
}

/// The store's, of one volume.
fn of_store() -> Vec<Described> {
    let mut stats = damelo::Stats::default();
    stats.devices.push(damelo::device::DeviceStats::default());
    let metrics = stats.metrics();
    let families = metrics.chunk_by(|one, next| one.name == next.name).map(|family| {
        let first = &family[0];
        let is_counter = first.kind == MetricKind::Counter;
        let label = first.labels.first().map_or("", |(name, _)| *name);
        let values = family.iter().flat_map(|one| &one.labels).map(|(_, value)| value.to_string());
        Described {
            name: first.name.to_owned(),
            kind: if is_counter { Kind::Counter } else { Kind::Gauge },
            label,
            // Those of volumes are numbers.
            values: if label == "volume" { Vec::new() } else { values.collect() },
            help: first.help.to_owned(),
        }
    });
    let times = stats.latencies().map(|latency| Described {
        name: latency.name.to_owned(),
        kind: Kind::Histogram,
        label: "",
        values: Vec::new(),
        help: latency.help.to_owned(),
    });
    families.chain(times).collect()
}

impl Described {
    fn labels(&self) -> String {
        let values: Vec<_> = self.values.iter().map(|value| format!("`{value}`")).collect();
        match (self.label, self.kind) {
            ("", Kind::Histogram) => "`le`".to_owned(),
            ("", _) => String::new(),
            (label, _) if values.is_empty() => format!("`{label}`"),
            (label, Kind::Histogram) => format!("`{label}`: {}; `le`", values.join(", ")),
            (label, _) => format!("`{label}`: {}", values.join(", ")),
        }
    }
}

/// The table of the document.
pub(super) fn reference() -> String {
    let mut text = String::from("| metric | kind | labels | what it says |\n|---|---|---|---|\n");
    for one in all() {
        let (name, kind) = (&one.name, one.kind.name());
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {} |", one.labels(), one.help);
    }
    text
}
