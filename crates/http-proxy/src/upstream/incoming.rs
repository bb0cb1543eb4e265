//! Incoming bodies, of requests from clients and of responses from origins: filtering of trailers,
//! and a limit on silence.
//!
//! Invariant: only trailers that may be forwarded are passed on. Threads: each body lives on one
//! worker.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::io::deadline::poll_deadline;
use crate::io::idle::IdleTimer;
use crate::rules::trailers;
use crate::upstream::response_body::FetchedBody;
use crate::upstream::upload::ClientUpload;

/// An incoming body, from either side.
#[derive(Debug)]
pub(crate) enum Source {
    Client(ClientUpload),
    Origin(FetchedBody),
}

impl From<ClientUpload> for Source {
    fn from(body: ClientUpload) -> Source {
        Source::Client(body)
    }
}

impl From<FetchedBody> for Source {
    fn from(body: FetchedBody) -> Source {
        Source::Origin(body)
    }
}

/// The next frame of a body that hyper reads, with only those trailers that may be forwarded.
pub(crate) fn poll_incoming(body: &mut Incoming, cx: &mut Context<'_>) -> PolledFrame {
    let mut frame = ready!(Pin::new(body).poll_frame(cx));
    if let Some(Ok(frame)) = &mut frame
        && let Some(fields) = frame.trailers_mut()
    {
        trailers::sift(fields);
    }
    Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyError::Broken)))
}

impl Source {
    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            Source::Client(body) => Pin::new(body).poll_frame(cx),
            Source::Origin(body) => body.next_frame(cx),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Source::Client(body) => body.is_end_stream(),
            Source::Origin(body) => body.has_ended(),
        }
    }

    fn length(&self) -> SizeHint {
        match self {
            Source::Client(body) => body.size_hint(),
            Source::Origin(body) => body.length(),
        }
    }
}

/// A body that fails when its sender is silent for too long. While request and response overlap (as
/// in bidirectional RPC), bytes in either direction count as activity of both.
#[derive(Debug)]
pub(crate) struct Timed {
    body: Source,
    limit: Duration,
    /// Time of the last activity in either direction.
    exchange: Option<Arc<IdleTimer>>,
    /// When the current wait for the sender began; `None` while there is no wait.
    waiting_since: Option<Instant>,
    silence: Option<Pin<Box<Sleep>>>,
    /// A frame taken from `body` that the reader has not had yet.
    ahead: Option<Result<Frame<Bytes>, BodyError>>,
    /// The protocol marks the end of a body, and hyper tells whether that mark came.
    marks_end: bool,
}

impl Timed {
    pub(crate) fn new(body: impl Into<Source>, limit: Duration) -> Timed {
        let (waiting_since, silence, ahead) = (None, None, None);
        let (body, exchange) = (body.into(), None);
        Timed { body, limit, exchange, waiting_since, silence, ahead, marks_end: false }
    }

    /// Lets the activity of `exchange`, if there is one, count against silence.
    pub(crate) fn of_exchange(mut self, exchange: Option<Arc<IdleTimer>>) -> Timed {
        self.exchange = exchange;
        self
    }

    /// The body of a response that was received over this version of HTTP.
    pub(crate) fn of_response(body: FetchedBody, limit: Duration, version: Version) -> Timed {
        let exchange = body.exchange();
        let mut timed = Timed::new(body, limit).of_exchange(exchange);
        timed.marks_end = version == Version::HTTP_2;
        timed
    }

    /// Whether the body broke off before its first byte. Looks without waiting; what there is can
    /// still be read.
    pub(crate) async fn begins_broken(&mut self) -> bool {
        if self.ahead.is_none() && !self.body.has_ended() {
            self.ahead = self.look().await;
        }
        matches!(self.ahead, Some(Err(_)))
    }

    /// A frame that is there already. At an end of the body: the next poll reports the end again.
    async fn look(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        poll_fn(|cx| match self.body.next_frame(cx) {
            Poll::Ready(first) => Poll::Ready(first),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// The whole body of this length, if it arrived together with its headers. Otherwise `None`,
    /// and the body can still be read from its beginning.
    pub(crate) async fn take_whole(&mut self, length_bytes: u64) -> Option<Bytes> {
        if length_bytes == 0 {
            return self.body.has_ended().then(Bytes::new);
        }
        let first = match self.ahead.take() {
            Some(first) => first,
            None => self.look().await?,
        };
        // `has_ended` is checked too, because over HTTP/2 trailers may follow.
        let whole = |frame: &Frame<Bytes>| data_bytes(frame) == length_bytes;
        if !first.as_ref().is_ok_and(whole) || !self.body.has_ended() {
            self.ahead = Some(first);
            return None;
        }
        first.ok()?.into_data().ok()
    }

    pub(crate) fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(frame) = self.ahead.take() {
            return Poll::Ready(Some(frame));
        }
        if let Poll::Ready(frame) = self.body.next_frame(cx) {
            self.waiting_since = None;
            if let Some(exchange) = &self.exchange {
                exchange.touch();
            }
            if frame.is_none() && self.marks_end && !self.body.has_ended() {
                // hyper treats RST_STREAM(NO_ERROR) as the end of the body. It only means that the
                // origin wants no more of the request; a complete response ends before it (RFC 9113
                // §8.1), so this one is truncated.
                return Poll::Ready(Some(Err(BodyError::Broken)));
            }
            return Poll::Ready(frame);
        }
        let mut since = *self.waiting_since.get_or_insert_with(Instant::now);
        if let Some(exchange) = &self.exchange {
            since = since.max(exchange.last());
        }
        ready!(poll_deadline(&mut self.silence, since + self.limit, cx));
        if let Source::Origin(body) = &self.body {
            body.waited_in_vain(self.limit);
        }
        Poll::Ready(Some(Err(BodyError::Idle)))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ahead.is_none() && self.body.has_ended()
    }

    pub(crate) fn length(&self) -> SizeHint {
        let mut hint = self.body.length();
        if let Some(Ok(frame)) = &self.ahead {
            let ahead_bytes = data_bytes(frame);
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + ahead_bytes);
            }
            hint.set_lower(hint.lower() + ahead_bytes);
        }
        hint
    }
}

body!(Timed);
