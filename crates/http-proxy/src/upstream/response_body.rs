//! The body of an origin's response, and the resources that it holds.
//!
//! Invariant: a request counts towards its endpoint's load and keeps its permit until the end of
//! the body has come, which a slow client may get much later, or the body is dropped, or its
//! [`Hold`], where that was taken. Threads: lives on one worker.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::io::idle::IdleTimer;
use crate::io::transit::Transit;
use crate::metrics::Counters;
use crate::upstream::pool::Leased;

/// Counts one request in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct Load(Arc<AtomicUsize>);

impl Load {
    pub(crate) fn new(count: Arc<AtomicUsize>) -> Load {
        count.fetch_add(1, Ordering::Relaxed);
        Load(count)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the body of a request's answer is counted in, and the load count and the permit that the
/// request holds at its endpoint.
#[derive(Debug)]
pub(crate) struct Hold {
    counters: Arc<Counters>,
    transit: Arc<Transit>,
    _load: Load,
    _place: Option<OwnedSemaphorePermit>,
}

impl Hold {
    pub(crate) fn new(
        counters: Arc<Counters>,
        transit: Arc<Transit>,
        load: Load,
        place: Option<OwnedSemaphorePermit>,
    ) -> Hold {
        Hold { counters, transit, _load: load, _place: place }
    }

    /// The same frame, counted while any of its bytes are held.
    fn counted(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.counters.origin_body_bytes.add(data_bytes(&frame));
        frame.map_data(|bytes| self.transit.counted(bytes))
    }
}

/// The body of an origin's response.
#[derive(Debug)]
pub(crate) struct FetchedBody {
    leased: Leased,
    /// Time limit of the whole exchange.
    deadline: Option<Pin<Box<Sleep>>>,
    hold: Option<Hold>,
}

impl FetchedBody {
    pub(crate) fn new(body: impl Into<Leased>) -> FetchedBody {
        FetchedBody { leased: body.into(), deadline: None, hold: None }
    }

    pub(crate) fn holding(mut self, hold: Hold, deadline: Option<Instant>) -> FetchedBody {
        self.hold = Some(hold);
        self.deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        self
    }

    /// Takes the `Hold`, for the tunnel that the connection becomes after an upgrade.
    pub(crate) fn take_hold(&mut self) -> Option<Hold> {
        self.hold.take()
    }

    pub(crate) fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(BodyError::Deadline)));
        }
        let frame = ready!(self.leased.next_frame(cx));
        let counted = |frame| match &self.hold {
            Some(hold) => hold.counted(frame),
            None => frame,
        };
        let frame = frame.map(|frame| frame.map(counted));
        if frame.is_none() || self.leased.has_ended() {
            self.hold = None;
        }
        Poll::Ready(frame)
    }

    /// The exchange's idle timer, if the request had a body and the response has not ended.
    pub(crate) fn exchange(&self) -> Option<Arc<IdleTimer>> {
        self.leased.exchange()
    }

    /// The body was waited for in vain, for this long.
    pub(crate) fn waited_in_vain(&self, limit: Duration) {
        self.leased.waited_in_vain(limit);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.leased.has_ended()
    }

    pub(crate) fn length(&self) -> SizeHint {
        self.leased.length()
    }
}

body!(FetchedBody);
