//! All requests of a run, in order, to be gone through as often as anybody wants: in memory, or
//! read anew from the trace.
//!
//! Invariant: each pass gives the same requests, but for a trace that changes, see
//! [`StreamedTrace::check`]. Threads: one user of a pass.

use crate::request::Request;
use crate::trace::{StreamedReading, StreamedTrace};

/// Requests of a run.
#[derive(Debug, Clone, Copy)]
pub enum Requests<'a> {
    /// In memory.
    Kept(&'a [Request]),
    /// Read for each pass.
    Streamed(&'a StreamedTrace),
}

impl<'a> Requests<'a> {
    /// For designs that do not look ahead.
    pub const NONE: Requests<'static> = Requests::Kept(&[]);

    /// How many.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Requests::Kept(requests) => requests.len(),
            Requests::Streamed(trace) => trace.len(),
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// From the first on.
    #[must_use]
    pub fn iter(self) -> Pass<'a> {
        match self {
            Requests::Kept(requests) => Pass(Source::Kept(requests.iter())),
            Requests::Streamed(trace) => Pass(Source::Streamed(Box::new(trace.begin()))),
        }
    }

    /// The number, from 1, and the time in microseconds of the first that comes later than that.
    pub(crate) fn first_after(self, max_us: u64) -> Option<(usize, u64)> {
        if matches!(self, Requests::Streamed(trace) if trace.span_us() <= max_us) {
            return None;
        }
        let late = self.iter().map(|request| request.time_us).enumerate();
        late.map(|(at, us)| (at + 1, us)).find(|(_, us)| *us > max_us)
    }
}

impl<'a> From<&'a [Request]> for Requests<'a> {
    fn from(requests: &'a [Request]) -> Requests<'a> {
        Requests::Kept(requests)
    }
}

impl<'a> From<&'a Vec<Request>> for Requests<'a> {
    fn from(requests: &'a Vec<Request>) -> Requests<'a> {
        Requests::Kept(requests)
    }
}

impl<'a, const N: usize> From<&'a [Request; N]> for Requests<'a> {
    fn from(requests: &'a [Request; N]) -> Requests<'a> {
        Requests::Kept(requests)
    }
}

/// One pass over requests.
pub struct Pass<'a>(Source<'a>);

enum Source<'a> {
    Kept(std::slice::Iter<'a, Request>),
    Streamed(Box<StreamedReading<'a>>),
}

impl Pass<'_> {
    /// The next one, which stays the next.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<Request> {
        match &mut self.0 {
            Source::Kept(requests) => requests.as_slice().first().copied(),
            Source::Streamed(reading) => reading.peek(),
        }
    }
}

impl Iterator for Pass<'_> {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        match &mut self.0 {
            Source::Kept(requests) => requests.next().copied(),
            Source::Streamed(reading) => {
                let request = reading.peek()?;
                reading.pass();
                Some(request)
            }
        }
    }
}
