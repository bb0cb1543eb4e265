//! Traces: read from files in the forms that logs and simulators use, or made by a generator;
//! counted, filtered, sampled and written.

mod binary;
mod clf;
mod columns;
mod curves;
mod damelo_csv;
mod fields;
mod filter;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub, reason = "exported with the feature"))]
mod fuzz_tests;
mod input;
mod lcs;
mod opening;
mod operation;
mod oracle_general;
mod origin;
mod reader;
mod record;
mod sample;
mod source;
mod squid;
mod stat;
mod streamed;
#[cfg(test)]
mod tests;
mod twr;
mod vscsi;
mod write;

pub use columns::ColumnOptions;
pub use curves::TraceCurves;
pub use fields::TimeUnit;
pub use filter::{FILTERS, Filter};
pub use format::Format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzz_tests::fuzz_trace;
pub use input::ReadPosition;
pub use origin::{WrittenTrace, file_digest, manifest_path, manifested_path};
pub use reader::{RawRequest, ReadOptions, RecordSource, Skipped};
pub(crate) use record::scheme_of;
pub use record::{ObjectName, Record, host_of};
pub use sample::{SampleBy, SampleOf, Sampler};
pub use source::{Interner, Trace, is_generator, load, load_kept, sort_by_time};
pub(crate) use stat::popularity_slope;
pub use stat::{Quantiles, TraceStat, trace_curves, trace_stat};
pub(crate) use streamed::Reading as StreamedReading;
pub use streamed::{AllRequests, RequestFacts, StreamedTrace, load_or_stream};
pub use write::{Lost, TraceWriter, WriteFormat};
