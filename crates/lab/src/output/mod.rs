//! What runs print: tables for terminals and files, charts as SVG, one self-contained HTML report,
//! and the manifest from which a run can be repeated. The same run gives the same bytes: nothing
//! here looks at a clock.

mod bars;
mod chart;
mod html;
mod manifest;
mod names;
mod strips;
mod table;
mod unit;
mod written;

pub use bars::BarChart;
pub use chart::{LineChart, Series};
pub use html::Report;
pub use manifest::{DriveIdentity, Machine, Manifest, TraceIdentity};
pub use strips::StripChart;
pub use table::Table;
pub use unit::Unit;
pub use written::{Difference, Form, ReportError, Written};
