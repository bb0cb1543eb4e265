//! What `damelo lab trace stat` writes for programs and as a page: its figures by name, and its
//! curves. Invariant: the same trace gives the same bytes. Pure.

use damelo_lab::output::{LineChart, Report as Page, Series, Table, Unit};
use damelo_lab::trace::{TraceCurves, TraceStat};
use serde_json::{Value, json};

/// Names of the curves in CSV.
const POPULARITY: &str = "popularity";
const REUSE_WITHIN: &str = "reuse_percent_within";
const BYTES_WITHIN: &str = "object_percent_within";

/// A row for each figure, `at` empty but of those that are several (quantiles, methods), and one
/// for each point of a curve. Nothing is rounded.
pub(super) fn table(stat: &TraceStat, curves: &TraceCurves) -> Table {
    let mut table = figures(stat);
    for (what, points) in [
        (POPULARITY, &curves.popularity),
        (REUSE_WITHIN, &curves.reuse_distance),
        (BYTES_WITHIN, &curves.object_bytes),
    ] {
        for (at, value) in points {
            table.row(vec![what.to_owned(), at.to_string(), value.to_string()]);
        }
    }
    table
}

fn figures(stat: &TraceStat) -> Table {
    let mut table = Table::new(&["what", "at", "value"]);
    let mut row = |what: &str, at: &str, value: &Value| {
        let text = match value {
            Value::Null => String::new(),
            value => value.to_string(),
        };
        table.row(vec![what.to_owned(), at.to_owned(), text]);
    };
    let Value::Object(members) = json!(stat) else { return table };
    for (what, value) in &members {
        match value {
            Value::Object(parts) => parts.iter().for_each(|(at, value)| row(what, at, value)),
            value => row(what, "", value),
        }
    }
    table
}

/// The report.
pub(super) fn page(name: &str, synthetic: bool, stat: &TraceStat, curves: &TraceCurves) -> Page {
    let mut page = Page::new(&format!("Trace: {name}"), synthetic);
    page.table(&figures(stat));
    page.section("Popularity");
    page.chart(&LineChart {
        x_label: "rank of the object".to_owned(),
        y_label: "requests for it".to_owned(),
        log_y: true,
        ..chart("Requests of objects by rank", &curves.popularity)
    });
    page.section("Reuse");
    page.chart(&LineChart {
        x_label: "different objects since, at most".to_owned(),
        y_label: "percent of what is asked for again".to_owned(),
        ..chart("Distance to the last request for the same", &curves.reuse_distance)
    });
    page.section("Sizes");
    page.chart(&LineChart {
        x_label: "size of the object, at most".to_owned(),
        x_unit: Unit::Bytes,
        y_label: "percent of the objects".to_owned(),
        ..chart("Sizes of objects", &curves.object_bytes)
    });
    page
}

fn chart(title: &str, points: &[(f64, f64)]) -> LineChart {
    LineChart {
        title: title.to_owned(),
        x_label: String::new(),
        x_unit: Unit::Number,
        y_label: String::new(),
        y_unit: Unit::Number,
        log_x: true,
        log_y: false,
        series: vec![Series { name: "the trace".to_owned(), points: points.to_vec() }],
    }
}
