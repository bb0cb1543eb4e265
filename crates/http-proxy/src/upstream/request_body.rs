//! The body of a request to the origin, streamed as the client sends it. It fails if the client is
//! too slow (silent for too long at once, or below the least rate over the time spent waiting), or
//! the body is longer than it may be.
//!
//! The beginning of a body is kept while its request may have to be sent again. Invariant: once a
//! later sending of a body has begun, earlier ones get no more frames. Threads: lives on one
//! worker.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::io::deadline::poll_deadline;
use crate::io::idle::IdleTimer;
use crate::io::locks::lock;
use crate::upstream::expectation::{Expectation, Held};
use crate::upstream::incoming::Timed;
use crate::upstream::upload::ClientUpload;

/// Limit on the kept beginning of a body: enough for the whole request of most RPCs.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Body of a request to the origin.
#[derive(Debug)]
pub(crate) enum OriginBody {
    Empty,
    Stream(Sending),
}

/// One sending of a body.
#[derive(Debug)]
pub(crate) struct Sending {
    upload: Arc<Mutex<Upload>>,
    /// Later sendings of the same body have higher numbers.
    number: u32,
}

/// A body on its way to the origin.
#[derive(Debug)]
pub(crate) struct Upload {
    body: Timed,
    /// Time since the origin's connection last took body bytes or delivered response bytes.
    idle: Arc<IdleTimer>,
    pace: Pace,
    /// Bytes that may still come.
    left_bytes: u64,
    /// What it waits for before any of it is read.
    held: Option<Held>,
    /// Number of the latest sending that has asked for a frame.
    number: u32,
    kept: Kept,
    /// Why no more of it comes.
    failure: Option<BodyError>,
}

/// A look at a body that is with the connection by now.
#[derive(Debug)]
pub(crate) struct Watch(Arc<Mutex<Upload>>);

impl Watch {
    /// Why the client's body ended early, if it did.
    pub(crate) fn failure(&self) -> Option<BodyError> {
        lock(&self.0).failure
    }
}

/// The frames that were read from a body, while they are complete and may be sent again.
#[derive(Debug, Default)]
struct Kept {
    wanted: bool,
    lost: bool,
    frames: Vec<Bytes>,
    bytes: usize,
    /// Number of kept frames that the latest sending has had.
    taken: usize,
}

impl Kept {
    /// Keeps a frame that was just read from the body.
    fn took(&mut self, frame: &Result<Frame<Bytes>, BodyError>) {
        if self.lost {
            return;
        }
        match frame.as_ref().ok().and_then(Frame::data_ref) {
            Some(data) if self.wanted && self.bytes + data.len() <= KEPT_BYTES_MAX => {
                self.bytes += data.len();
                self.frames.push(data.clone());
                self.taken += 1;
            }
            _ => self.give_up(),
        }
    }

    fn give_up(&mut self) {
        // Frames that a repeated sending has not had yet stay until it takes them.
        if self.taken == self.frames.len() {
            *self = Kept { lost: true, ..Kept::default() };
        }
        self.wanted = false;
    }
}

impl Sending {
    fn upload(&self) -> MutexGuard<'_, Upload> {
        lock(&self.upload)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut upload = self.upload();
        if self.number > upload.number {
            upload.kept.give_up();
        }
    }
}

impl Upload {
    /// The next frame of the sending with this number.
    fn frame_of(&mut self, number: u32, cx: &mut Context<'_>) -> PolledFrame {
        if number < self.number {
            return Poll::Ready(Some(Err(BodyError::Broken)));
        }
        if number > self.number {
            self.number = number;
            self.kept.taken = 0;
        }
        if let Some(again) = self.kept.frames.get(self.kept.taken) {
            self.kept.taken += 1;
            return Poll::Ready(Some(Ok(Frame::data(again.clone()))));
        }
        let polled = self.next_frame(cx);
        if let Poll::Ready(Some(frame)) = &polled {
            self.kept.took(frame);
        }
        polled
    }

    /// Kept bytes that the sending with this number has not had yet.
    fn kept_bytes(&self, number: u32) -> u64 {
        let taken = if number > self.number { 0 } else { self.kept.taken };
        let frames = self.kept.frames.iter().skip(taken);
        frames.map(|frame| frame.len() as u64).sum()
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(held) = &mut self.held {
            ready!(held.poll_wanted(cx));
            self.held = None;
        }
        let mut polled = self.body.next_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            match self.left_bytes.checked_sub(data_bytes(frame)) {
                Some(left) => self.left_bytes = left,
                None => polled = Poll::Ready(Some(Err(BodyError::TooLarge))),
            }
        }
        match &polled {
            Poll::Ready(frame) => {
                let bytes = frame.as_ref().map_or(0, |frame| frame.as_ref().map_or(0, data_bytes));
                self.pace.came(bytes);
            }
            // While the response runs, the client may send at its own pace.
            Poll::Pending if self.idle.is_answering() => self.pace.pause(),
            // The wait is the client's: the limits of `Timed` and `Pace` apply, not the origin's.
            Poll::Pending => {
                self.idle.pause();
                if self.pace.poll_too_slow(cx).is_ready() {
                    self.failure = Some(BodyError::Idle);
                    return Poll::Ready(Some(Err(BodyError::Idle)));
                }
            }
        }
        if let Poll::Ready(Some(Err(error))) = &polled {
            self.failure = Some(*error);
        }
        polled
    }
}

/// Limit on the total time spent waiting for a client: a grace period, plus the time that the
/// received bytes take at the least rate. Time in which the proxy waits for the origin does not
/// count, so an origin that takes a body slowly does not cause its client's timeout.
#[derive(Debug)]
struct Pace {
    /// The least rate in bytes per second; `None`: no least rate.
    second_bytes: Option<NonZeroU32>,
    /// Waiting time that is left.
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

    /// Ends a wait without counting it.
    fn pause(&mut self) {
        self.waiting_since = None;
    }

    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.second_bytes.is_none() {
            return Poll::Pending;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        match since.checked_add(self.left) {
            // The deadline is beyond the range of the clock.
            None => Poll::Pending,
            Some(deadline) => poll_deadline(&mut self.timer, deadline, cx),
        }
    }
}

impl OriginBody {
    /// Streams `body`. `limit` bounds both a single silence and the grace period of the total wait;
    /// beyond the grace period, each second of waiting must bring `second_bytes` bytes. More than
    /// `bytes_max` are an error.
    pub(crate) fn stream(
        body: ClientUpload,
        limit: Duration,
        second_bytes: u32,
        bytes_max: Option<u64>,
    ) -> OriginBody {
        if body.is_end_stream() {
            OriginBody::Empty
        } else {
            let idle = Arc::new(IdleTimer::new());
            let body = Timed::new(body, limit).of_exchange(Some(idle.clone()));
            let pace = Pace::new(second_bytes, limit);
            let (kept, failure) = (Kept::default(), None);
            let left_bytes = bytes_max.unwrap_or(u64::MAX);
            let held = None;
            let upload = Upload { body, idle, pace, left_bytes, held, number: 0, kept, failure };
            OriginBody::Stream(Sending { upload: Arc::new(Mutex::new(upload)), number: 0 })
        }
    }

    /// Holds the body for so long at most until the origin says that it wants it.
    pub(crate) fn expecting(self, limit: Duration) -> OriginBody {
        if let OriginBody::Stream(sending) = &self {
            sending.upload().held = Some(Held::new(limit));
        }
        self
    }

    /// What it waits for, if it does.
    pub(crate) fn expectation(&self) -> Option<Expectation> {
        match self {
            OriginBody::Empty => None,
            OriginBody::Stream(sending) => {
                sending.upload().held.as_ref().map(|held| held.expectation.clone())
            }
        }
    }

    /// A repeated sending of the same body. It may be used only if the body [is
    /// whole](Self::is_whole) by then.
    pub(super) fn again(&self) -> OriginBody {
        match self {
            OriginBody::Empty => OriginBody::Empty,
            OriginBody::Stream(sending) => {
                sending.upload().kept.wanted = true;
                let (upload, number) = (sending.upload.clone(), sending.number + 1);
                OriginBody::Stream(Sending { upload, number })
            }
        }
    }

    /// Whether the body can still be sent from its beginning.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            OriginBody::Empty => true,
            OriginBody::Stream(sending) => !sending.upload().kept.lost,
        }
    }

    /// The timer for silence of the exchange; `None` without a body.
    pub(crate) fn idle(&self) -> Option<Arc<IdleTimer>> {
        match self {
            OriginBody::Empty => None,
            OriginBody::Stream(sending) => Some(sending.upload().idle.clone()),
        }
    }

    /// A look at the body for the time after it was given away; `None` without one.
    pub(super) fn watch(&self) -> Option<Watch> {
        match self {
            OriginBody::Empty => None,
            OriginBody::Stream(sending) => Some(Watch(sending.upload.clone())),
        }
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            OriginBody::Empty => Poll::Ready(None),
            OriginBody::Stream(sending) => sending.upload().frame_of(sending.number, cx),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            OriginBody::Empty => true,
            OriginBody::Stream(sending) => {
                let upload = sending.upload();
                upload.kept_bytes(sending.number) == 0 && upload.body.has_ended()
            }
        }
    }

    fn length(&self) -> SizeHint {
        match self {
            OriginBody::Empty => SizeHint::with_exact(0),
            OriginBody::Stream(sending) => {
                let upload = sending.upload();
                let (kept_bytes, mut hint) =
                    (upload.kept_bytes(sending.number), upload.body.length());
                if let Some(upper) = hint.upper() {
                    hint.set_upper(upper + kept_bytes);
                }
                hint.set_lower(hint.lower() + kept_bytes);
                hint
            }
        }
    }
}

body!(OriginBody);

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_beginning_is_kept_while_it_is_wanted_and_not_too_long() {
        let frame = |bytes: usize| Ok(Frame::data(Bytes::from(vec![0; bytes])));
        let mut kept = Kept { wanted: true, ..Kept::default() };
        kept.took(&frame(KEPT_BYTES_MAX - 1));
        kept.took(&frame(1));
        assert!(!kept.lost && kept.frames.len() == 2);
        kept.took(&frame(1));
        assert!(kept.lost && kept.frames.is_empty());
        let mut unwanted = Kept::default();
        unwanted.took(&frame(1));
        assert!(unwanted.lost && unwanted.frames.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_uses_up_what_bytes_earn() {
        let mut cx = Context::from_waker(Waker::noop());
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let mut pace = Pace::new(500, Duration::from_secs(2));
        assert!(pace.poll_too_slow(&mut cx).is_pending());
        wait(1).await;
        pace.came(1);
        // Time in which the origin is slow does not count.
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
