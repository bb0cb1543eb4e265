//! A whole trace in memory with its names, as designs and papers need it.

use damelo_lab::trace::{Interner, RecordSource, Trace};
use damelo_lab::{Catalogue, Request};

use super::reading::{ReadArgs, Reading, remarks};
use crate::failure::Failure;

/// Requests in order, and what their ids stand for.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) requests: Vec<Request>,
    pub(crate) names: Catalogue,
}

/// Reads all of a trace.
pub(crate) fn load(name: &str, args: &ReadArgs) -> Result<Loaded, Failure> {
    let mut trace = Trace::open(name, &args.options(None)?)?;
    let mut reading = Reading::of(&trace);
    let mut interner = Interner::with_names();
    let mut requests: Vec<Request> = Vec::new();
    while trace.advance()? {
        requests.push(interner.request(&trace.record())?);
        if requests.len().is_multiple_of(1 << 16) {
            reading.set(requests.len() as u64);
        }
    }
    drop(reading);
    remarks(&trace);
    // Designs count from the first request.
    let start_us = requests.first().map_or(0, |r| r.time_us);
    requests.iter_mut().for_each(|r| r.time_us = r.time_us.saturating_sub(start_us));
    let names = interner.catalogue().cloned().unwrap_or_default();
    Ok(Loaded { name: name.to_owned(), requests, names })
}
