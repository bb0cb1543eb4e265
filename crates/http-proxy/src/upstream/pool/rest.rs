//! The rest of a connection after the answer to a HEAD: some origins send the body behind it all
//! the same, and who came next on that connection would get it for an answer. What comes to a
//! connection that nobody uses closes it.
//!
//! Invariant: a connection that rests is in the pool, and gets no request. Threads: the pool's
//! worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use damelo::Clock;
use http::{HeaderMap, Method};

use crate::upstream::head::announces_body;

/// Longer than an origin takes between the two, mostly, and short beside what a connection costs.
const REST: Duration = Duration::from_millis(250);

/// The clock that tells how long connections have rested.
#[derive(Clone)]
pub(in crate::upstream) struct RestClock(Arc<dyn Clock>);

impl RestClock {
    pub(in crate::upstream) fn new(clock: Arc<dyn Clock>) -> RestClock {
        RestClock(clock)
    }

    /// When a rest that begins now is over.
    pub(super) fn end_of_rest(&self) -> Duration {
        self.0.monotonic().saturating_add(REST)
    }

    pub(super) fn has_passed(&self, end: Duration) -> bool {
        self.0.monotonic() >= end
    }
}

/// Two are the same if one tells what the other does.
impl PartialEq for RestClock {
    fn eq(&self, other: &RestClock) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RestClock {}

impl fmt::Debug for RestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestClock")
    }
}

/// Whether a connection rests after the answer, with these fields, to a request of this method.
pub(super) fn is_wanted(method: &Method, answer: &HeaderMap) -> bool {
    *method == Method::HEAD && announces_body(answer)
}
