//! The body of a request to the origin, streamed as the client sends it.
//!
//! Threads: lives on one worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming, SizeHint};

use crate::error::BodyError;
use crate::io::body::{PolledFrame, body};
use crate::io::idle::IdleTimer;
use crate::upstream::incoming::Timed;

/// Body of a request to the origin.
#[derive(Debug)]
pub(crate) enum OriginBody {
    Empty,
    Stream(Box<Upload>),
}

/// A body on its way to the origin.
#[derive(Debug)]
pub(crate) struct Upload {
    body: Timed,
    /// When the origin's connection took something of it last.
    idle: Arc<IdleTimer>,
}

impl Upload {
    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let polled = self.body.next_frame(cx);
        match polled {
            Poll::Ready(_) => self.idle.touch(),
            // The client is waited for, which is the limit of `Timed`.
            Poll::Pending => self.idle.pause(),
        }
        polled
    }
}

impl OriginBody {
    /// Streams `body`, silence in which may last as long as `limit`.
    pub(crate) fn stream(body: Incoming, limit: Duration) -> OriginBody {
        if body.is_end_stream() {
            OriginBody::Empty
        } else {
            let (body, idle) = (Timed::new(body, limit), Arc::new(IdleTimer::new()));
            OriginBody::Stream(Box::new(Upload { body, idle }))
        }
    }

    /// What says how long nothing of it has moved.
    pub(crate) fn idle(&self) -> Option<Arc<IdleTimer>> {
        match self {
            OriginBody::Empty => None,
            OriginBody::Stream(upload) => Some(upload.idle.clone()),
        }
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            OriginBody::Empty => Poll::Ready(None),
            OriginBody::Stream(upload) => upload.next_frame(cx),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            OriginBody::Empty => true,
            OriginBody::Stream(upload) => upload.body.has_ended(),
        }
    }

    fn length(&self) -> SizeHint {
        match self {
            OriginBody::Empty => SizeHint::with_exact(0),
            OriginBody::Stream(upload) => upload.body.length(),
        }
    }
}

body!(OriginBody);
