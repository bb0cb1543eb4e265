//! The body of a response as its connection sends it. Threads: lives on one worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Version;
use hyper::body::{Body, SizeHint};

use crate::answer::body::ProxyBody;
use crate::client::activity::Active;
use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::listen::http2_streams::Progress;

/// A response's body; its request counts as in flight until the body ends.
pub(crate) struct ClientBody {
    body: ProxyBody,
    active: Active,
    /// On HTTP/2 a body is polled only when the client has window for more, so if a body gave bytes
    /// and is not polled again, its client is not reading.
    progress: Option<Arc<Progress>>,
    stalled: bool,
    /// For an HTTP/1.0 client a body of unannounced length ends with the connection, so a truncated
    /// body must not end in a normal close.
    ends_by_close: bool,
}

impl ClientBody {
    /// The body of an answer to a request of HTTP/1 in this version.
    pub(super) fn of_http1(body: ProxyBody, active: Active, version: Version) -> ClientBody {
        let ends_by_close = version < Version::HTTP_11;
        ClientBody { body, active, progress: None, stalled: false, ends_by_close }
    }

    /// The body of an answer on a stream of HTTP/2.
    pub(super) fn of_http2(body: ProxyBody, active: Active, progress: Arc<Progress>) -> ClientBody {
        let progress = Some(progress);
        ClientBody { body, active, progress, stalled: false, ends_by_close: false }
    }

    fn set_stalled(&mut self, stalled: bool) {
        if stalled != self.stalled {
            self.active.set_stalled(stalled);
        }
        self.stalled = stalled;
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = self.body.next_frame(cx);
        if let Some(progress) = &self.progress {
            let may_stall = matches!(frame, Poll::Ready(Some(Ok(_))));
            progress.moved(may_stall);
            self.active.moved();
            self.set_stalled(may_stall);
        }
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.active.sent(self.body.source(), data_bytes(frame));
        }
        if self.ends_by_close && matches!(frame, Poll::Ready(Some(Err(_)))) {
            self.active.broke_off();
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
        if let Some(by) = self.body.broken_by() {
            self.active.broken(by);
        }
    }
}

body!(ClientBody);
