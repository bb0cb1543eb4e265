//! The body of a request to the origin, streamed as the client sends it, and cut off if the client is
//! too slow with it: silent for too long at once, or too long in all for what came.
//!
//! Threads: lives on one worker.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::io::deadline::poll_deadline;
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
    pace: Pace,
}

impl Upload {
    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let polled = self.body.next_frame(cx);
        match &polled {
            Poll::Ready(frame) => {
                self.idle.touch();
                let bytes = frame.as_ref().map_or(0, |frame| frame.as_ref().map_or(0, data_bytes));
                self.pace.came(bytes);
            }
            // The client is waited for, which is the limit of `Timed`, and of its pace.
            Poll::Pending => {
                self.idle.pause();
                if self.pace.poll_too_slow(cx).is_ready() {
                    return Poll::Ready(Some(Err(BodyError::Idle)));
                }
            }
        }
        polled
    }
}

/// How long a client may be waited for in all: a while, and as long as what came takes at the least
/// rate. Only waiting counts, so that an origin that is slow to take a body costs its client nothing.
#[derive(Debug)]
struct Pace {
    /// At the least rate; none: there is none.
    second_bytes: Option<NonZeroU32>,
    /// What is left of the time that is granted.
    left: Duration,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    fn new(second_bytes: u32, grace: Duration) -> Pace {
        let second_bytes = NonZeroU32::new(second_bytes);
        Pace { second_bytes, left: grace, waiting_since: None, timer: None }
    }

    fn came(&mut self, bytes: u64) {
        let Some(second_bytes) = self.second_bytes else { return };
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        let earned_ms = bytes.saturating_mul(1000) / u64::from(second_bytes.get());
        self.left = self.left.saturating_add(Duration::from_millis(earned_ms));
    }

    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.second_bytes.is_none() {
            return Poll::Pending;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        match since.checked_add(self.left) {
            // Later than any clock goes.
            None => Poll::Pending,
            Some(deadline) => poll_deadline(&mut self.timer, deadline, cx),
        }
    }
}

impl OriginBody {
    /// Streams `body`, silence in which may last as long as `limit`; of what is waited for beyond that,
    /// each second must bring `second_bytes`.
    pub(crate) fn stream(body: Incoming, limit: Duration, second_bytes: u32) -> OriginBody {
        if body.is_end_stream() {
            OriginBody::Empty
        } else {
            let (body, idle) = (Timed::new(body, limit), Arc::new(IdleTimer::new()));
            let pace = Pace::new(second_bytes, limit);
            OriginBody::Stream(Box::new(Upload { body, idle, pace }))
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_waiting_uses_up_what_bytes_earn() {
        let mut cx = Context::from_waker(Waker::noop());
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let mut pace = Pace::new(500, Duration::from_secs(2));
        assert!(pace.poll_too_slow(&mut cx).is_pending());
        wait(1).await;
        pace.came(1);
        // The origin takes its time.
        wait(100).await;
        pace.came(1500);
        assert!(pace.poll_too_slow(&mut cx).is_pending());
        wait(3).await;
        assert!(pace.poll_too_slow(&mut cx).is_pending(), "1 s and 3 s are left of it");
        wait(2).await;
        assert!(pace.poll_too_slow(&mut cx).is_ready());
        let mut any = Pace::new(0, Duration::ZERO);
        assert!(any.poll_too_slow(&mut cx).is_pending());
    }
}
