//! Generators of requests, by name, as they stand where a trace is expected: `gen:NAME?...`. All are
//! seeded and declared synthetic in every output.

use crate::error::TraceError;
use crate::trace::RecordSource;

/// The generator that a `gen:` name asks for.
pub(crate) fn generator(given: &str) -> Result<Box<dyn RecordSource>, TraceError> {
    let reason = "there is none of that name".to_owned();
    Err(TraceError::Generator { given: given.to_owned(), reason })
}
