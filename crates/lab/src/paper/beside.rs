//! Our store on a paper's workload, beside the paper's designs: what is best, and by how much the
//! store is behind where it is not.
//!
//! Threads: none.

use super::{Exhibit, Published};
use crate::disk::Direction;
use crate::machine::Report;

/// The table; `why` tells what the numbers of this workload come from.
pub(super) fn exhibit(workload: &str, rows: &[(String, &Report)], why: &'static str) -> Exhibit {
    let title = format!("The shipped store beside the paper's designs, {workload}");
    let mut table = Exhibit::new("store", &title, why);
    let seconds = |report: &Report| report.disk_total_ns() as f64 / 1e9;
    for (name, report) in rows {
        let mut add = |what: &str, unit, value| {
            table.row(format!("{name}, {what}"), unit, Published::Ours, value);
        };
        add("hit rate", "%", report.hit_percent());
        add("disk reads", "requests", report.io.requests_of(Direction::Read) as f64);
        add("disk writes", "requests", report.io.requests_of(Direction::Write) as f64);
        add("disk time", "s", seconds(report));
        add("mean response", "ms", report.responses.mean_ms());
    }
    let store = rows.iter().find(|(name, _)| name == "store").map(|(_, report)| seconds(report));
    let others = rows.iter().filter(|(name, _)| name != "store");
    let best = others.min_by(|a, b| seconds(a.1).total_cmp(&seconds(b.1)));
    if let (Some(store_s), Some((name, report))) = (store, best) {
        let times = store_s / seconds(report).max(1e-9);
        let label = format!("disk time of the store over the best other's ({name})");
        table.row(label, "times", Published::Ours, times);
    }
    table
}
