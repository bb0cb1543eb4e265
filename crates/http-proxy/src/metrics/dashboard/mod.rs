//! Generates the Grafana dashboard, `packaging/grafana-dashboard.json`, and checks that it and the
//! Prometheus alert rules, `packaging/prometheus-alerts.yml`, name only metrics that exist. For
//! tests only.
//!
//! `rows` lays out by hand the panels that an operator looks at first. The remaining metrics of the
//! registry follow in a folded row, so that a new metric appears without further work.

mod rows;

use serde_json::{Value, json};

use crate::metrics::exposition::Kind;
use crate::metrics::reference::{Described, all};
use Drawn::{Now, Quantile, Rate, RateOf, Ratio, Saved};
use rows::ROWS;

/// The selection at the top of the dashboard.
const CHOSEN: &str = "job=~\"$job\",instance=~\"$instance\"";

/// One curve of a panel: metrics by name, without the suffixes of samples.
#[derive(Debug, Clone, Copy)]
enum Drawn {
    /// Rate per second of a counter, per value of a label unless that is empty.
    Rate(&'static str, &'static str),
    /// The same, restricted to samples that match a further selector.
    RateOf(&'static str, &'static str),
    /// Gauges of several instances combined: the aggregation, and by which label.
    Now(&'static str, &'static str, &'static str),
    /// The quotient of two.
    Ratio(&'static Drawn, &'static Drawn),
    /// One minus the quotient.
    Saved(&'static Drawn, &'static Drawn),
    /// A quantile of a histogram, of the samples that match a selector.
    Quantile(&'static str, &'static str, &'static str),
}

/// A panel: its title, its unit in Grafana's terms, and its curves, each with a legend.
struct Panel(&'static str, &'static str, &'static [(Drawn, &'static str)]);

/// Widths and heights in cells of Grafana's grid of 24 columns.
const WIDTH: usize = 6;
const HEIGHT: usize = 7;
const COLUMNS: usize = 24;

fn find<'a>(metrics: &'a [Described], name: &str) -> &'a Described {
    let found = metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("there is no metric {name}"))
}

/// The sample name of a metric drawn as it is.
fn sample(metric: &Described) -> String {
    match metric.kind {
        Kind::Counter => format!("{}_total", metric.name),
        Kind::Gauge => metric.name.clone(),
        Kind::Info => format!("{}_info", metric.name),
        Kind::Histogram => format!("{}_bucket", metric.name),
    }
}

impl Drawn {
    /// The query in PromQL.
    fn query(&self, metrics: &[Described]) -> String {
        match *self {
            Rate(name, by) => rate(find(metrics, name), by, ""),
            RateOf(name, only) => rate(find(metrics, name), "", only),
            Quantile(share, only, name) => quantile(find(metrics, name), share, only),
            Now(how, by, name) => now(find(metrics, name), how, by),
            Ratio(one, other) => format!("{} / {}", one.query(metrics), other.query(metrics)),
            Saved(one, other) => format!("1 - {} / {}", one.query(metrics), other.query(metrics)),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        match *self {
            Rate(name, _) | RateOf(name, _) | Now(_, _, name) | Quantile(_, _, name) => vec![name],
            Ratio(one, other) | Saved(one, other) => [one.names(), other.names()].concat(),
        }
    }
}

/// Selector for a metric's samples, with a further condition besides the dashboard's selection.
fn samples(metric: &Described, only: &str) -> String {
    let comma = if only.is_empty() { "" } else { "," };
    format!("{}{{{CHOSEN}{comma}{only}}}", sample(metric))
}

fn by_label(metric: &Described, by: &str) -> String {
    assert!(by.is_empty() || metric.label == by, "{} has no label {by}", metric.name);
    if by.is_empty() { String::new() } else { format!(" by ({by}) ") }
}

fn rate(metric: &Described, by: &str, only: &str) -> String {
    assert!(metric.kind == Kind::Counter, "{} is no counter", metric.name);
    let (by, samples) = (by_label(metric, by), samples(metric, only));
    format!("sum{by}(rate({samples}[$__rate_interval]))")
}

fn now(metric: &Described, how: &str, by: &str) -> String {
    assert!(metric.kind == Kind::Gauge, "{} is no gauge", metric.name);
    format!("{how}{}({})", by_label(metric, by), samples(metric, ""))
}

fn quantile(metric: &Described, share: &str, only: &str) -> String {
    assert!(metric.kind == Kind::Histogram, "{} is no histogram", metric.name);
    let rate = format!("rate({}[$__rate_interval])", samples(metric, only));
    format!("histogram_quantile({share}, sum by (le) ({rate}))")
}

fn panel(
    id: usize,
    place: (usize, usize),
    title: &str,
    unit: &str,
    drawn: &[(String, &str)],
) -> Value {
    let letters = (b'A'..=b'Z').map(|letter| char::from(letter).to_string());
    let targets = drawn.iter().zip(letters).map(|((query, legend), letter)| {
        json!({ "refId": letter, "expr": query, "legendFormat": legend })
    });
    json!({
        "id": id,
        "type": "timeseries",
        "title": title,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "gridPos": { "x": place.0, "y": place.1, "w": WIDTH, "h": HEIGHT },
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "options": { "tooltip": { "mode": "multi" }, "legend": { "displayMode": "list" } },
        "targets": targets.collect::<Vec<_>>(),
    })
}

/// A panel for a metric that `rows` does not lay out.
fn plain(metric: &Described) -> (&str, String, &'static str) {
    let legend = match metric.label {
        "" => "all",
        "by" => "{{by}}",
        "reason" => "{{reason}}",
        "volume" => "{{volume}}",
        "queue" => "{{queue}}",
        "unit" => "{{unit}}",
        other => panic!("lay out {}, or say how its label {other} reads", metric.name),
    };
    let query = match metric.kind {
        Kind::Counter => rate(metric, metric.label, ""),
        Kind::Histogram => quantile(metric, "0.99", ""),
        Kind::Gauge => now(metric, "sum", metric.label),
        Kind::Info => panic!("lay out {}", metric.name),
    };
    (&metric.help, query, legend)
}

fn variables() -> Value {
    let labels = |name: &str, of: &str| {
        json!({
            "name": name,
            "type": "query",
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "query": format!("label_values({of}, {name})"),
            "refresh": 2,
            "includeAll": true,
            "multi": true,
            "current": { "text": "All", "value": "$__all" },
        })
    };
    json!({ "list": [
        { "name": "datasource", "type": "datasource", "query": "prometheus" },
        labels("job", "damelo_build_info"),
        labels("instance", "damelo_build_info{job=~\"$job\"}"),
    ] })
}

/// Title and unit of a panel, and its queries with their legends.
type Drawing<'a> = (&'a str, &'a str, Vec<(String, &'a str)>);

/// Position of the next panel.
#[derive(Default)]
struct Layout {
    panels: Vec<Value>,
    id: usize,
    x: usize,
    y: usize,
}

impl Layout {
    fn next_id(&mut self) -> usize {
        self.id += 1;
        self.id
    }

    /// Adds a row of panels below the others.
    fn row(&mut self, title: &str, is_folded: bool, drawn: Vec<Drawing<'_>>) {
        let (head, top) = (self.next_id(), self.y);
        self.y += 1;
        let mut inside = Vec::new();
        for (title, unit, queries) in drawn {
            inside.push(panel(self.next_id(), (self.x, self.y), title, unit, &queries));
            self.x += WIDTH;
            if self.x == COLUMNS {
                (self.x, self.y) = (0, self.y + HEIGHT);
            }
        }
        if self.x > 0 {
            (self.x, self.y) = (0, self.y + HEIGHT);
        }
        let (within, beside) = if is_folded { (inside, Vec::new()) } else { (Vec::new(), inside) };
        self.panels.push(json!({
            "id": head,
            "type": "row",
            "title": title,
            "collapsed": is_folded,
            "gridPos": { "x": 0, "y": top, "w": COLUMNS, "h": 1 },
            "panels": within,
        }));
        self.panels.extend(beside);
    }
}

fn panels(metrics: &[Described]) -> Vec<Value> {
    let mut layout = Layout::default();
    for (title, drawn) in ROWS {
        let queries = |Panel(title, unit, drawn): &Panel| {
            let queries = drawn.iter().map(|(drawn, legend)| (drawn.query(metrics), *legend));
            (*title, *unit, queries.collect::<Vec<_>>())
        };
        layout.row(title, false, drawn.iter().map(queries).collect());
    }
    let drawn = ROWS.iter().flat_map(|(_, panels)| *panels).flat_map(|panel| panel.2);
    let laid_out: Vec<_> = drawn.flat_map(|(drawn, _)| drawn.names()).collect();
    let rest = metrics
        .iter()
        .filter(|metric| metric.kind != Kind::Info && !laid_out.contains(&metric.name.as_str()))
        .map(plain)
        .map(|(title, query, legend)| (title, "short", vec![(query, legend)]));
    layout.row("Everything else", true, rest.collect());
    layout.panels
}

/// The dashboard, ready for import.
pub(super) fn dashboard() -> String {
    let dashboard = json!({
        "uid": "damelo",
        "title": "Damelo",
        "tags": ["damelo", "cache"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" },
        "templating": variables(),
        "panels": panels(&all()),
    });
    format!("{dashboard:#}\n")
}

/// Words that can only be metric names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("damelo_") || word.starts_with("process_"))
}

const ALERTS: &str = include_str!("../../../../../packaging/prometheus-alerts.yml");

/// The alert rules, each with its text behind its name.
pub(super) fn alerts() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALERTS.split("- alert: ").skip(1).filter_map(|rule| rule.split_once('\n'))
}

/// Names in the alert rules, and whether each is a sample name.
pub(super) fn names_in_alerts() -> Vec<(&'static str, bool)> {
    let metrics = all();
    let is_known = |name: &str| metrics.iter().any(|metric| sample(metric) == name);
    names(ALERTS).map(|name| (name, is_known(name))).collect()
}
