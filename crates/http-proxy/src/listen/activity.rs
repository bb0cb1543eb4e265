//! What a connection is doing: which requests are under way, and whether their answers move.
//!
//! Invariant: `active` counts the requests from their headers to the last byte of the answer that
//! hyper took. Threads: one connection's state, shared by the tasks of its worker.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant};

use crate::answer::body::ProxyBody;
use crate::error::BodyError;
use crate::io::body::{PolledFrame, body};
use crate::listen::limits::Counted;

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    active: AtomicUsize,
    begun: AtomicU64,
    /// Answers with bytes ready that the client does not take.
    stalled: AtomicUsize,
    moved_ms: AtomicU64,
    /// What the connection counts for, tunnels that were made of it included.
    _counted: Option<Counted>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Activity {
    pub(crate) fn new(
        counted: Option<Counted>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Arc<Activity> {
        Arc::new(Activity {
            _counted: counted,
            _permit: permit,
            opened: Instant::now(),
            active: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            stalled: AtomicUsize::new(0),
            moved_ms: AtomicU64::new(0),
        })
    }

    /// A request begins; it ends when what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Activity>) -> Active {
        self.active.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        Active { activity: self.clone() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Relaxed) == 0
    }

    /// Requests so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// When the client last took a part of an answer, if it has one before it and does not.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        let moved = Duration::from_millis(self.moved_ms.load(Relaxed));
        (self.stalled.load(Relaxed) > 0).then(|| self.opened + moved)
    }

    fn moved(&self) {
        let ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(ms, Relaxed);
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Active {
    activity: Arc<Activity>,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.activity.active.fetch_sub(1, Relaxed);
    }
}

/// An answer's body, which is part of the request until its end.
pub(crate) struct ClientBody {
    body: ProxyBody,
    active: Active,
    /// On HTTP/2 a body is polled only when the client has room for more, so a body that gave
    /// bytes and is not polled again is one whose client does not read.
    watched: bool,
    stalled: bool,
}

impl ClientBody {
    pub(crate) fn new(body: ProxyBody, active: Active, watched: bool) -> ClientBody {
        ClientBody { body, active, watched, stalled: false }
    }

    fn set_stalled(&mut self, stalled: bool) {
        let count = &self.active.activity.stalled;
        match (self.stalled, stalled) {
            (false, true) => _ = count.fetch_add(1, Relaxed),
            (true, false) => _ = count.fetch_sub(1, Relaxed),
            _ => {}
        }
        self.stalled = stalled;
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = self.body.next_frame(cx);
        if self.watched {
            self.active.activity.moved();
            self.set_stalled(matches!(frame, Poll::Ready(Some(Ok(_)))));
        }
        frame
    }

    fn has_ended(&self) -> bool {
        self.body.has_ended()
    }

    fn length(&self) -> SizeHint {
        self.body.length()
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        self.set_stalled(false);
    }
}

body!(ClientBody);
