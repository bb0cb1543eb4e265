//! Generators of requests, by name, where a trace is expected: `gen:NAME?parameter=value&...`. All
//! are seeded; the same name gives the same requests. All are declared synthetic in every output.

mod build;
mod files;
mod parameters;
mod polygraph;
mod thesis;
mod web;
mod zipf;

use crate::error::TraceError;
use crate::name_hint::there_are;
use crate::trace::{ObjectName, Record, RecordSource};
use parameters::Parameters;

/// One request as a generator makes it; text lies in buffers that it uses again and again.
#[derive(Debug, Default)]
struct Made {
    time_us: u64,
    client: String,
    method: &'static str,
    status: u16,
    size_bytes: u64,
    url: String,
}

impl Made {
    fn record(&self) -> Record<'_> {
        Record {
            time_us: self.time_us,
            client: self.client.as_bytes(),
            method: self.method.as_bytes(),
            status: self.status,
            cache_result: b"",
            size_bytes: self.size_bytes,
            object: ObjectName::Text(self.url.as_bytes()),
        }
    }
}

/// Makes one request after the other.
trait Generator: Send {
    /// Makes the next request; false when there is none.
    fn make(&mut self, made: &mut Made) -> bool;
}

struct Source<G> {
    generator: G,
    made: Made,
}

impl<G: Generator> RecordSource for Source<G> {
    fn advance(&mut self) -> Result<bool, TraceError> {
        Ok(self.generator.make(&mut self.made))
    }

    fn record(&self) -> Record<'_> {
        self.made.record()
    }
}

/// Names of the generators with one line on each, and their parameters with defaults.
pub const GENERATORS: [(&str, &str, &str); 6] = [
    (
        "thesis",
        "creates, reads, deletes in the orderings of the Dámelo thesis §5.1",
        thesis::PARAMETERS,
    ),
    ("web", "a web-like stream: sessions, pages, hosts, drift, changes", web::PARAMETERS),
    ("polygraph", "Web Polygraph as in the Dámelo thesis §5.4", polygraph::PARAMETERS),
    ("files", "reads of remote files as in Hades §4.2", files::PARAMETERS),
    ("build", "a source tree compiled by some clients, after Hades §4.3", build::PARAMETERS),
    ("zipf", "independent requests of a Zipf popularity", zipf::PARAMETERS),
];

/// The generator that a `gen:` name asks for.
pub(crate) fn generator(given: &str) -> Result<Box<dyn RecordSource>, TraceError> {
    let bad = |reason| TraceError::Generator { given: given.to_owned(), reason };
    let (name, query) = given.split_once('?').unwrap_or((given, ""));
    let (name, _, defaults) =
        GENERATORS.into_iter().find(|(known, ..)| *known == name).ok_or_else(|| {
            let known = there_are(name, GENERATORS.map(|(name, ..)| name));
            bad(format!("there is none of that name; {known}"))
        })?;
    let mut p = Parameters::parse(defaults, query).map_err(bad)?;
    let source: Result<Box<dyn RecordSource>, String> = match name {
        "thesis" => thesis::Thesis::new(&mut p).map(source),
        "web" => web::Web::new(&mut p).map(source),
        "polygraph" => polygraph::Polygraph::new(&mut p).map(source),
        "files" => files::Files::new(&mut p).map(source),
        "build" => build::Build::new(&mut p).map(source),
        _ => zipf::ZipfRequests::new(&mut p).map(source),
    };
    source.map_err(bad)
}

/// The seed of the generator that a `gen:` name asks for.
pub(crate) fn seed(given: &str) -> Option<u64> {
    parameters(given)?.seed().ok()
}

/// How many requests that generator makes, if that is one of its parameters.
pub(crate) fn requests(given: &str) -> Option<u64> {
    parameters(given)?.whole("requests", 0, u64::MAX).ok()
}

fn parameters(given: &str) -> Option<Parameters> {
    let (name, query) = given.split_once('?').unwrap_or((given, ""));
    let (.., defaults) = GENERATORS.into_iter().find(|(known, ..)| *known == name)?;
    Parameters::parse(defaults, query).ok()
}

fn source<G: Generator + 'static>(generator: G) -> Box<dyn RecordSource> {
    let made = Made { status: 200, ..Made::default() };
    Box::new(Source { generator, made })
}

#[cfg(test)]
mod tests;
