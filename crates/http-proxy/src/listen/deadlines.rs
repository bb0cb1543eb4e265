//! A client's stream with deadlines: for the headers of a request, for the time between requests,
//! and for a client that does not read its response. The stream ends in a reset where a normal
//! close would make a truncated response look complete.
//!
//! hyper has one limit for headers and idle time together, and closes silently. Here they are two
//! limits, and a client that is slow with its headers gets a 408. No timer is armed per request: a
//! timer that fires early checks the current deadline and is armed again. Threads: polled by the
//! connection's task only.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Duration, Instant, Sleep, sleep, sleep_until};

use crate::client::activity::{Activity, DELIVERY_LOOK};
use crate::client::interim::Interim;
use crate::io::deadline::poll_deadline;
use crate::io::stream::{PolledRead, reads};
use crate::listen::stream::ClientStream;
use crate::listen::write_progress::WriteProgress;
use crate::metrics::Counters;

/// Sent only while no request is in flight, so that it cannot end up within a response.
pub(crate) const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Shortest time between two checks of a connection whose request is in flight.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Bytes read at a time that nobody wants.
const LINGERING_BYTES: usize = 8 << 10;

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) header: Duration,
    pub(crate) idle: Duration,
    pub(crate) rest: Duration,
    pub(crate) write: Duration,
}

/// The protocol, as far as deadlines depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// Streams share the connection, and bytes need not belong to a request: here it has only the
    /// limit of a full socket. `http2` ends it when it is unused, and single streams that stall.
    Http2,
}

/// A stream that closes itself when its client is too slow.
pub(crate) struct Watched {
    inner: ClientStream,
    protocol: Protocol,
    deadlines: Deadlines,
    activity: Arc<Activity>,
    counters: Arc<Counters>,
    /// Number of requests begun when `since` was set.
    begun: u64,
    /// When the connection began to wait for a request.
    since: Instant,
    /// Whether part of the headers has arrived.
    in_headers: bool,
    /// When the connection began to wait for more of the headers. No clock is read for headers that
    /// arrive whole.
    headers_since: Option<Instant>,
    /// Whether it looks out for clients that leave, in place of the library.
    notices_leaving: bool,
    progress: WriteProgress,
    /// Whether the last answer was delivered and the end said.
    is_shut: bool,
    /// The end of the time for what a client still sends after its last answer.
    lingers_until: Option<Instant>,
    read_timer: Option<Pin<Box<Sleep>>>,
    /// Interim responses to HTTP/1.1 requests, and the waker for them.
    interim: Arc<Interim>,
    woken: Option<Waker>,
}

/// The action when a deadline has passed.
enum Late {
    Headers,
    Idle,
}

impl Watched {
    pub(crate) fn new(
        inner: ClientStream,
        protocol: Protocol,
        deadlines: Deadlines,
        activity: Arc<Activity>,
        counters: Arc<Counters>,
    ) -> Watched {
        activity.set_held(inner.held(), protocol == Protocol::Http2);
        Watched {
            inner,
            protocol,
            deadlines,
            begun: activity.begun(),
            activity,
            counters,
            since: Instant::now(),
            in_headers: false,
            headers_since: None,
            notices_leaving: false,
            progress: WriteProgress::new(deadlines.write),
            is_shut: false,
            lingers_until: None,
            read_timer: None,
            interim: Arc::default(),
            woken: None,
        }
    }

    /// Sets whether the stream fails when the client leaves while its request is in flight. False:
    /// it does not, because that is not wanted, or because this stream cannot tell.
    pub(crate) fn notice_leaving(&mut self, wanted: bool) -> bool {
        self.notices_leaving = wanted && self.inner.is_plain();
        self.notices_leaving
    }

    /// Ready once the client has left while its request is in flight. Called when the library has
    /// nothing to write; it reads nothing meanwhile, since each such read would take a new buffer.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.notices_leaving || self.activity.is_idle() || self.activity.may_switch() {
            return Poll::Pending;
        }
        self.inner.poll_end(cx)
    }

    /// The interim responses that this stream sends.
    pub(crate) fn interim(&self) -> Arc<Interim> {
        self.interim.clone()
    }

    /// Called when the library has nothing left to write: interim responses may be written.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.protocol == Protocol::Http2 {
            return Poll::Ready(Ok(()));
        }
        if self.woken.as_ref().is_none_or(|woken| !woken.will_wake(cx.waker())) {
            self.woken = Some(cx.waker().clone());
            self.interim.wake_by(cx.waker());
        }
        self.interim.poll_write(&mut self.inner, cx)
    }

    /// Puts back bytes that were read but not used.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.inner.put_back(bytes);
    }

    /// Waits at rest for the client's next bytes. False: the client was silent for `idle_timeout`,
    /// or `end` completed, and the connection has been closed.
    pub(crate) async fn wait_for_more(&mut self, end: impl Future<Output = ()>) -> bool {
        self.read_timer = None;
        self.progress.rest();
        tokio::select! {
            biased;
            () = self.inner.readable() => return true,
            () = sleep_until(self.since + self.deadlines.idle) => {}
            () = end => {}
        }
        // An error here concerns only the client.
        let _ = self.shutdown().await;
        false
    }

    /// Records that bytes arrived.
    fn arrived(&mut self) {
        if self.protocol != Protocol::Http1 || !self.activity.is_idle() {
            return;
        }
        self.activity.begin_head();
        if !self.in_headers {
            self.in_headers = true;
            self.begun = self.activity.begun();
            self.headers_since = None;
        }
    }

    /// Called when there is nothing to read: checks whether the deadline has passed.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Late> {
        // A tunnel has a limit of its own.
        if self.protocol == Protocol::Http2 || self.activity.has_switched() {
            return Poll::Pending;
        }
        if !self.activity.is_idle() {
            self.look_again(cx);
            return Poll::Pending;
        }
        if self.begun != self.activity.begun() {
            self.begun = self.activity.begun();
            self.since = self.activity.idle_since();
            self.in_headers = false;
        }
        self.look_for_rest(cx);
        let deadline = match self.in_headers {
            true => {
                let since = *self.headers_since.get_or_insert_with(Instant::now);
                since + self.deadlines.header
            }
            false => self.since + self.deadlines.idle,
        };
        ready!(poll_deadline(&mut self.read_timer, deadline, cx));
        Poll::Ready(if self.in_headers { Late::Headers } else { Late::Idle })
    }

    /// Schedules another check while a request is in flight: once the library knows that there is
    /// nothing to read, it does not read again when the request ends.
    fn look_again(&mut self, cx: &mut Context<'_>) {
        let Deadlines { rest, idle, .. } = self.deadlines;
        let soon = rest.min(idle).max(LOOK_INTERVAL_MIN);
        // Ready only if that time has passed, so the next deadline is in the future.
        while poll_deadline(&mut self.read_timer, Instant::now() + soon, cx).is_ready() {}
    }

    /// Tells a connection to rest once it has been silent long enough and nothing is in flight.
    fn look_for_rest(&mut self, cx: &mut Context<'_>) {
        let Deadlines { rest, idle, .. } = self.deadlines;
        let silent = !self.in_headers && !self.progress.is_blocked();
        if silent
            && rest < idle
            && self.activity.may_rest()
            && poll_deadline(&mut self.read_timer, self.since + rest, cx).is_ready()
        {
            self.activity.rest();
            self.counters.connections_rested.one();
        }
    }

    /// Tells the client why, as far as possible, and ends the stream.
    fn end(&mut self, late: &Late, cx: &mut Context<'_>) -> io::Result<()> {
        match late {
            // Between requests a normal close is correct.
            Late::Idle => return Ok(()),
            Late::Headers if !self.progress.is_blocked() => {
                // Delivery is not guaranteed: the connection ends either way.
                let _ = Pin::new(&mut self.inner).poll_write(cx, REQUEST_TIMEOUT);
                let _ = Pin::new(&mut self.inner).poll_flush(cx);
                self.counters.refused(StatusCode::REQUEST_TIMEOUT);
            }
            Late::Headers => {}
        }
        self.counters.client_timeouts.one();
        Err(io::ErrorKind::TimedOut.into())
    }

    fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> PolledRead {
        if let Poll::Ready(result) = Pin::new(&mut self.inner).poll_read(cx, buffer) {
            self.arrived();
            return Poll::Ready(result);
        }
        let late = ready!(self.poll_late(cx));
        Poll::Ready(self.end(&late, cx))
    }

    /// Takes, after the last answer to a request with a body, what its client still sends, until it
    /// ends its side or has had the time that headers get. If bytes came after the socket was
    /// closed, or lay in it unread, the system would send a reset, at which many clients discard
    /// the answer that they have not read yet (RFC 9112 §9.6). Clients of HTTP/2 send windows and
    /// acknowledgements for all that they get: there it ends as soon as they have got everything.
    fn poll_lingering(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingers = self.protocol == Protocol::Http2 || self.activity.may_linger();
        if !lingers || self.activity.has_broken_off() {
            return Poll::Ready(());
        }
        let until = match self.lingers_until {
            Some(until) => until,
            None => {
                self.read_timer = None;
                self.activity.linger();
                *self.lingers_until.insert(Instant::now() + self.deadlines.header)
            }
        };
        let mut scratch = [0; LINGERING_BYTES];
        while until > Instant::now() {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.protocol == Protocol::Http1 => {
                    return poll_deadline(&mut self.read_timer, until, cx);
                }
                Poll::Pending if self.inner.held_bytes().unwrap_or(0) == 0 => break,
                // Nobody tells when the client's system has acknowledged something.
                Poll::Pending => {
                    let look = || Box::pin(sleep(DELIVERY_LOOK));
                    ready!(self.read_timer.get_or_insert_with(look).as_mut().poll(cx));
                    self.read_timer = None;
                }
            }
        }
        Poll::Ready(())
    }

    /// Tracks blocked writes, and fails them when the client has stopped reading for too long.
    fn written<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() == self.progress.is_blocked() {
            self.activity.set_blocked(result.is_pending());
        }
        if result.is_ready() {
            self.progress.wrote();
            return result;
        }
        // A tunnel has a limit of its own, on silence both ways.
        if self.protocol == Protocol::Http1 && self.activity.has_switched() {
            return Poll::Pending;
        }
        ready!(self.progress.poll_full(&self.inner, cx));
        self.counters.client_timeouts.one();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Dropped before its end was said: the client was given up, or the proxy stops.
        let is_cut_off = self.activity.ends_by_close() && !self.is_shut;
        if self.activity.has_broken_off() || is_cut_off {
            self.inner.reset_at_close();
        }
    }
}

reads!([] Watched);

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.written(result, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        this.written(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.poll_left(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let result = match this.poll_interim(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.inner).poll_flush(cx),
            other => other,
        };
        this.written(result, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_shutdown(cx);
        ready!(this.written(result, cx))?;
        this.is_shut = true;
        this.poll_lingering(cx).map(Ok)
    }
}
