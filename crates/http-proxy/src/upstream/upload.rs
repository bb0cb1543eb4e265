//! The body of a client's request, as it comes in.
//!
//! A client of HTTP/2 may still send when its answer is there: the origin cannot be reached, or
//! refuses what it got so far. hyper then resets the stream right behind the answer, and clients
//! take the reset for the failure of a request that was answered. So what still comes is read and
//! dropped for a while, as on connections of HTTP/1 (`listen::deadlines`). Threads: lives on one
//! worker.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::error::BodyError;
use crate::io::body::{PolledFrame, body};
use crate::upstream::incoming::poll_incoming;

/// A body that is read to its end even if nobody wants it, if there is a time for that. Small, as
/// every connection keeps room for it.
#[derive(Debug)]
pub(crate) struct ClientUpload {
    /// `None`: nothing comes.
    rest: Option<Box<Rest>>,
}

#[derive(Debug)]
struct Rest {
    body: Incoming,
    linger: Option<Duration>,
}

impl ClientUpload {
    /// `linger`: how long what nobody wants is read after this was dropped; `None`: not at all.
    pub(crate) fn new(body: Incoming, linger: Option<Duration>) -> ClientUpload {
        let is_empty = body.is_end_stream();
        ClientUpload { rest: (!is_empty).then(|| Box::new(Rest { body, linger })) }
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = poll_incoming(&mut rest.body, cx);
        if matches!(frame, Poll::Ready(Some(Err(_)))) {
            rest.linger = None;
        }
        frame
    }

    fn has_ended(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn length(&self) -> SizeHint {
        let nothing = SizeHint::with_exact(0);
        self.rest.as_ref().map_or(nothing, |rest| rest.body.size_hint())
    }
}

impl Drop for ClientUpload {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        let Some(mut rest) = self.rest.take() else { return };
        // During shutdown requests are dropped outside the event loops, where nothing can be
        // spawned.
        let (Some(limit), Ok(handle)) = (rest.linger, Handle::try_current()) else { return };
        let reading = async move { while let Some(Ok(_)) = rest.body.frame().await {} };
        handle.spawn(timeout(limit, reading));
    }
}

body!(ClientUpload);
