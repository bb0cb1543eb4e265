//! The body of an answer as its connection sends it. Threads: lives on one worker.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, SizeHint};

use crate::answer::body::ProxyBody;
use crate::client::activity::Active;
use crate::error::BodyError;
use crate::io::body::{PolledFrame, body};

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
        if stalled != self.stalled {
            self.active.set_stalled(stalled);
        }
        self.stalled = stalled;
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = self.body.next_frame(cx);
        if self.watched {
            self.active.moved();
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
