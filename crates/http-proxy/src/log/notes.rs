//! What is learned of a request while it is answered, for its line in the access log.
//!
//! Invariant: of several origins that were asked, the last one counts. Threads: whoever works for
//! the request writes; the line is written wherever the answer ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, StatusCode};

use crate::io::locks::lock;

/// The notes on one request that has a line in the log. Its answer may come from a task of its own,
/// and from a later origin than the first.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    asked: Mutex<Option<Asked>>,
    left_out: AtomicBool,
}

/// An origin that was asked, and the status that it answered with.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) origin: Arc<str>,
    pub(crate) status: Option<StatusCode>,
}

impl Notes {
    /// Those that go with a request to an origin.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Arc<Notes>> {
        request.extensions().get::<Arc<Notes>>().cloned()
    }

    /// This origin is asked now.
    pub(crate) fn asks(&self, origin: &Arc<str>) {
        *lock(&self.asked) = Some(Asked { origin: origin.clone(), status: None });
    }

    /// The origin that was asked last has answered.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(asked) = lock(&self.asked).as_mut() {
            asked.status = Some(status);
        }
    }

    pub(crate) fn asked(&self) -> Option<Asked> {
        lock(&self.asked).clone()
    }

    /// The request gets no line.
    pub(crate) fn leave_out(&self) {
        self.left_out.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_left_out(&self) -> bool {
        self.left_out.load(Ordering::Relaxed)
    }
}
