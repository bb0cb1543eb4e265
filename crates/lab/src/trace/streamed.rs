//! Traces that are too long to be kept: read once to learn what must be known before, then anew
//! for each that plays them.
//!
//! Owns how a trace is opened again. Invariants: at most as many requests are in memory as may be
//! kept; each reading gives the same requests with the same ids, as long as the file does not
//! change; that one gave fewer is remembered, and told by [`StreamedTrace::check`]. One thread.

use std::cell::RefCell;
use std::path::Path;

use super::reader::{ReadOptions, RecordSource};
use super::source::{Gathered, Interner, Trace, gather};
use crate::error::TraceError;
use crate::request::{Catalogue, Request};
use crate::requests::Requests;

/// Requests of a trace that are read again for each pass.
#[derive(Debug)]
pub struct StreamedTrace {
    name: String,
    options: ReadOptions,
    len: usize,
    earliest_us: u64,
    latest_us: u64,
    failure: RefCell<Option<TraceError>>,
}

impl StreamedTrace {
    /// Requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// From the earliest to the latest request, in microseconds.
    pub(crate) fn span_us(&self) -> u64 {
        self.latest_us - self.earliest_us
    }

    /// That all passes so far came to the end.
    ///
    /// # Errors
    /// What the first that did not met: the trace cannot be read any more, or has become shorter.
    pub fn check(&self) -> Result<(), TraceError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Begins to read from the first request on.
    pub(crate) fn begin(&self) -> Reading<'_> {
        let interner = Interner::without_names();
        Reading { of: self, trace: None, interner, chunk: Vec::new(), at: 0, read: 0 }
    }

    fn fail(&self, error: TraceError) {
        self.failure.borrow_mut().get_or_insert(error);
    }
}

/// Requests that are decoded at once.
const CHUNK: usize = 1 << 12;

/// One pass over a streamed trace.
pub(crate) struct Reading<'a> {
    of: &'a StreamedTrace,
    trace: Option<Trace>,
    interner: Interner,
    chunk: Vec<Request>,
    at: usize,
    read: usize,
}

impl Reading<'_> {
    /// The next request; none at the end, or where it cannot be read.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<Request> {
        if self.at == self.chunk.len() {
            self.refill();
        }
        self.chunk.get(self.at).copied()
    }

    /// Goes on behind what `peek` gave.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.at += 1;
    }

    fn refill(&mut self) {
        self.chunk.clear();
        self.at = 0;
        if self.read == self.of.len {
            return;
        }
        if let Err(error) = self.try_refill() {
            self.of.fail(error);
            self.chunk.clear();
        }
    }

    fn try_refill(&mut self) -> Result<(), TraceError> {
        let of = self.of;
        let trace = match &mut self.trace {
            Some(trace) => trace,
            none => none.insert(Trace::open(&of.name, &of.options)?),
        };
        let wanted = CHUNK.min(of.len - self.read);
        while self.chunk.len() < wanted {
            if !trace.advance()? {
                let found = self.read + self.chunk.len();
                let path = of.name.clone();
                return Err(TraceError::Changed { path, counted: of.len, found });
            }
            let request = self.interner.request(&trace.record())?;
            let time_us = request.time_us.saturating_sub(of.earliest_us);
            self.chunk.push(Request { time_us, ..request });
        }
        self.read += wanted;
        Ok(())
    }
}

/// All requests of a trace, kept if they are few.
#[derive(Debug)]
pub enum AllRequests {
    /// In memory.
    Kept(Vec<Request>),
    /// Read for each pass.
    Streamed(Box<StreamedTrace>),
}

impl AllRequests {
    /// To be gone through, as often as wanted.
    #[must_use]
    pub fn get(&self) -> Requests<'_> {
        match self {
            AllRequests::Kept(requests) => Requests::Kept(requests),
            AllRequests::Streamed(trace) => Requests::Streamed(trace),
        }
    }

    /// See [`StreamedTrace::check`].
    ///
    /// # Errors
    /// As there; none of what is in memory.
    pub fn check(&self) -> Result<(), TraceError> {
        match self {
            AllRequests::Kept(_) => Ok(()),
            AllRequests::Streamed(trace) => trace.check(),
        }
    }
}

/// What must be known of requests before they are played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// Their times differ.
    pub has_times: bool,
    /// Any has a body of its own.
    pub has_body: bool,
    /// None comes before the one that stands before it.
    pub is_in_order: bool,
}

/// Reads a trace, and keeps it if it has at most `kept_max` requests; a longer one is read again
/// for each pass: opened by its name, with `options`. The names of all objects and hosts are kept.
/// Time counts from the earliest request; `tell` hears now and then how many were read.
///
/// # Errors
/// When the trace cannot be read or goes on for centuries; when it is too long and no file, so that
/// it cannot be read again.
pub fn load_or_stream(
    trace: &mut Trace,
    options: &ReadOptions,
    kept_max: usize,
    tell: impl FnMut(u64),
) -> Result<(AllRequests, Catalogue, RequestFacts), TraceError> {
    let name = trace.name().to_owned();
    let is_made = trace.requests_to_come().is_some();
    let mut kept = Some(Vec::new());
    let (mut len, mut last_us) = (0, 0);
    let mut facts = RequestFacts { is_in_order: true, ..RequestFacts::default() };
    let each = |request: Request| {
        if kept.as_ref().is_some_and(|kept| kept.len() == kept_max) {
            if !is_made && !Path::new(&name).is_file() {
                return Err(TraceError::NotAgain { path: name.clone(), max: kept_max });
            }
            kept = None;
        }
        if let Some(kept) = &mut kept {
            kept.push(request);
        }
        len += 1;
        facts.has_body |= request.has_body();
        facts.is_in_order &= last_us <= request.time_us;
        last_us = request.time_us;
        Ok(())
    };
    let Gathered { names, earliest_us, latest_us } = gather(trace, |_| true, tell, each)?;
    facts.has_times = earliest_us < latest_us;
    let requests = match kept {
        Some(mut requests) => {
            requests.iter_mut().for_each(|request| request.time_us -= earliest_us);
            AllRequests::Kept(requests)
        }
        None => AllRequests::Streamed(Box::new(StreamedTrace {
            name: trace.name().to_owned(),
            options: ReadOptions { requests_max: Some(len as u64), ..options.clone() },
            len,
            earliest_us,
            latest_us,
            failure: RefCell::new(None),
        })),
    };
    Ok((requests, names, facts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    fn file(lines: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), lines).expect("written");
        file
    }

    fn loaded(name: &str, kept_max: usize) -> (AllRequests, Catalogue, RequestFacts) {
        let options = ReadOptions::default();
        let mut trace = Trace::open(name, &options).expect("opened");
        load_or_stream(&mut trace, &options, kept_max, |_| ()).expect("read")
    }

    /// What is read again is what would have been kept: over several chunks, with times from the
    /// earliest on, as often as anybody asks.
    #[test]
    fn each_pass_gives_what_would_be_kept() {
        let name = "gen:web?seed=3&requests=10000&hosts=30&pages=200";
        let (kept, names, facts) = loaded(name, 10_000);
        let (streamed, other_names, other_facts) = loaded(name, 9_999);
        assert!(matches!((&kept, &streamed), (AllRequests::Kept(_), AllRequests::Streamed(_))));
        assert_eq!(facts, other_facts);
        assert_eq!(names.urls_len(), other_names.urls_len());
        let all: Vec<Request> = kept.get().iter().collect();
        assert_eq!((all.len(), kept.get().len(), streamed.get().len()), (10_000, 10_000, 10_000));
        for _ in 0..2 {
            assert!(streamed.get().iter().eq(all.iter().copied()));
        }
        streamed.check().expect("read to the end");
    }

    #[test]
    fn facts_are_those_of_all_requests() {
        let log = file(
            "5 9 u TCP_HIT/200 900 GET http://a/1 - NONE/- -\n\
             3 9 u TCP_MISS/200 900 GET http://a/2 - NONE/- -\n",
        );
        let name = log.path().to_str().expect("a name");
        for kept_max in [1, 2] {
            let (requests, _, facts) = loaded(name, kept_max);
            let wanted = RequestFacts { has_times: true, has_body: true, is_in_order: false };
            assert_eq!(facts, wanted);
            let times: Vec<u64> = requests.get().iter().map(|request| request.time_us).collect();
            assert_eq!(times, [2_000_000, 0], "from the earliest on");
            assert!(requests.get().iter().all(|request| request.op == Op::Read));
        }
    }

    /// That a file became shorter is told, once, and what is left of it is given.
    #[test]
    fn a_trace_that_shrank_is_told() {
        let log = file("1\n2\n3\n");
        let name = log.path().to_str().expect("a name");
        let (requests, ..) = loaded(name, 2);
        std::fs::write(log.path(), "1\n2\n").expect("written");
        assert_eq!(requests.get().iter().count(), 0, "the chunk is not whole");
        let error = requests.check().expect_err("shorter").to_string();
        assert!(error.contains("changed") && error.contains('3') && error.contains('2'), "{error}");
        requests.check().expect("told");
    }
}
