//! The body of a response, and the connection that it came on.
//!
//! Invariant: a connection returns to its pool, or to the client that it is pinned to, only after
//! the end of the response was read. Threads: lives on the pool's worker.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body as _, Incoming, SizeHint};

use crate::io::body::PolledFrame;
use crate::io::idle::IdleTimer;
use crate::upstream::pinned::Pinned;
use crate::upstream::poll_incoming;
use crate::upstream::pool::{Http1, Pool};
use crate::upstream::shared::Stream;

/// The body of a response. At its end an HTTP/1.1 connection returns to the pool; if the end is
/// never read, the connection closes. Over HTTP/2 the body holds its stream's place until its end.
#[derive(Debug)]
pub(crate) struct Leased {
    incoming: Incoming,
    lease: Option<Lease>,
    stream: Option<Stream>,
    answering: Option<Answering>,
}

/// Marks an exchange whose request has a body as answering, from the response headers to the end of
/// the response.
#[derive(Debug)]
struct Answering(Arc<IdleTimer>);

impl Answering {
    fn begin(exchange: Arc<IdleTimer>) -> Answering {
        exchange.touch();
        exchange.set_answering(true);
        Answering(exchange)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set_answering(false);
    }
}

/// An HTTP/1.1 connection that a response is read from.
pub(super) struct Lease {
    pub(super) pool: Pool,
    pub(super) connection: Http1,
    /// The owner to return the connection to, instead of the pool.
    pub(super) pinned: Option<Pinned>,
    /// The rest of the request is never sent.
    pub(super) is_unwanted: bool,
}

impl Lease {
    fn give_back(self) {
        match self.pinned {
            None => self.pool.put(self.connection),
            Some(pinned) => pinned.put(self.pool, self.connection),
        }
    }

    /// Gives the connection back once the rest of the request's body is sent: an origin may answer
    /// before it has read all. If it takes none of the rest for as long as it may be silent before
    /// an answer, its connection ends; otherwise the connections of origin and client would stay
    /// for as long as both like.
    async fn give_back_after(mut self, exchange: Arc<IdleTimer>) {
        let limit = self.pool.inner.settings.limits.origin_header;
        let is_ready = tokio::select! {
            biased;
            ready = self.connection.sender.ready() => ready.is_ok(),
            () = exchange.expired(limit) => false,
        };
        if is_ready {
            self.give_back();
        } else {
            self.connection.task.abort();
        }
    }
}

impl From<Incoming> for Leased {
    fn from(incoming: Incoming) -> Leased {
        Leased { incoming, lease: None, stream: None, answering: None }
    }
}

impl Leased {
    pub(super) fn new(
        incoming: Incoming,
        lease: Option<Lease>,
        stream: Option<Stream>,
        exchange: Option<Arc<IdleTimer>>,
    ) -> Leased {
        let answering = exchange.map(Answering::begin);
        let mut leased = Leased { incoming, lease, stream, answering };
        leased.give_back_at_end(false);
        leased
    }

    pub(crate) fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = ready!(poll_incoming(&mut self.incoming, cx));
        self.give_back_at_end(frame.is_none());
        Poll::Ready(frame)
    }

    fn give_back_at_end(&mut self, ended: bool) {
        if !ended && !self.incoming.is_end_stream() {
            return;
        }
        self.stream = None;
        let exchange = self.answering.take().map(|answering| answering.0.clone());
        match (self.lease.take(), exchange) {
            (Some(lease), _) if lease.is_unwanted => lease.connection.task.abort(),
            (Some(lease), Some(exchange)) if !lease.connection.sender.is_ready() => {
                tokio::spawn(lease.give_back_after(exchange));
            }
            (Some(lease), _) => lease.give_back(),
            (None, _) => {}
        }
    }

    pub(crate) fn exchange(&self) -> Option<Arc<IdleTimer>> {
        self.answering.as_ref().map(|answering| answering.0.clone())
    }

    /// The body was waited for in vain, for this long.
    pub(crate) fn waited_in_vain(&self, limit: Duration) {
        if let Some(stream) = &self.stream {
            stream.waited_in_vain(limit);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(crate) fn length(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}
