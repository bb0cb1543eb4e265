//! The body of a response as its connection sends it. Threads: lives on one worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{Response, Version};
use hyper::body::{Body, SizeHint};

use crate::answer::body::ProxyBody;
use crate::client::activity::Active;
use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::listen::http2_streams::Progress;

/// Most that a client of HTTP/2 must take before it is seen to take something: hyper asks for the
/// next piece once the stream has had window for one byte of this one. With its frame's head of 9
/// bytes it fills one record of TLS; a byte more would begin another record.
const HTTP2_PIECE_BYTES_MAX: usize = (16 << 10) - 9;

/// A response's body; its request counts as in flight until the body ends.
pub(crate) struct ClientBody {
    body: ProxyBody,
    active: Active,
    /// On HTTP/2 a body is polled again only once the client has had window for what it gave last,
    /// so if it gave bytes and is not polled again, its client is not reading.
    progress: Option<Arc<Progress>>,
    /// For an HTTP/1.0 client a body of unannounced length ends with the connection, so a truncated
    /// body must not end in a normal close.
    ends_by_close: bool,
}

impl ClientBody {
    /// Gives an answer to a request of HTTP/1 in this version its body.
    pub(super) fn of_http1(
        mut response: Response<ProxyBody>,
        active: Active,
        version: Version,
    ) -> Response<ClientBody> {
        let ends_by_close = version < Version::HTTP_11;
        if ends_by_close {
            end_for_old(&mut response, &active);
        }
        response.map(|body| ClientBody { body, active, progress: None, ends_by_close })
    }

    /// The body of an answer on a stream of HTTP/2.
    pub(super) fn of_http2(body: ProxyBody, active: Active, progress: Arc<Progress>) -> ClientBody {
        let (body, progress) = (body.in_pieces(HTTP2_PIECE_BYTES_MAX), Some(progress));
        ClientBody { body, active, progress, ends_by_close: false }
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = self.body.next_frame(cx);
        if let Some(progress) = &self.progress {
            progress.moved(matches!(frame, Poll::Ready(Some(Ok(_)))));
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

/// Notes, and has hyper say, how an answer to a client of HTTP/1.0 ends.
fn end_for_old(response: &mut Response<ProxyBody>, active: &Active) {
    let (headers, body) = (response.headers(), response.body());
    // hyper writes a length that is known where the headers have none.
    let has_length = headers.contains_key(CONTENT_LENGTH) || body.length().exact().is_some();
    let is_ended_by_close = !has_length && !body.has_ended();
    if is_ended_by_close {
        active.ends_by_close();
    }
    if is_ended_by_close || headers.get(CONNECTION).is_some_and(|value| value == "close") {
        // Otherwise hyper adds `Connection: keep-alive` for a client that asked for it. `ab -k`
        // then takes the body for the next answer.
        *response.version_mut() = Version::HTTP_10;
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        if self.progress.as_ref().is_some_and(|progress| progress.is_given_up()) {
            self.body.not_taken();
        }
        if let Some(by) = self.body.broken_by() {
            self.active.broken(by);
        }
    }
}

body!(ClientBody);
