//! A whole trace in memory with its names, as designs and papers need it.

use damelo_lab::output::TraceIdentity;
use damelo_lab::trace::{Trace, load as load_all};
use damelo_lab::{Catalogue, Request};

use super::reading::{ReadArgs, Reading, remarks};
use crate::failure::Failure;

/// Requests in order, and what their ids stand for.
pub(crate) struct Loaded {
    pub(crate) identity: TraceIdentity,
    pub(crate) requests: Vec<Request>,
    pub(crate) names: Catalogue,
}

/// Reads all of a trace.
pub(crate) fn load(name: &str, args: &ReadArgs) -> Result<Loaded, Failure> {
    let mut trace = Trace::open(name, &args.options(None)?)?;
    let mut reading = Reading::of(&trace);
    let (requests, names) = load_all(&mut trace, |requests| reading.set(requests))?;
    drop(reading);
    remarks(&trace);
    Ok(Loaded { identity: TraceIdentity::of(&trace), requests, names })
}
