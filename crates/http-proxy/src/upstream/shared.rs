//! HTTP/2 connections to one endpoint, which requests share: as many as the requests in flight
//! need.
//!
//! Invariants: a connection never has more requests in flight than `streams_max`, nor more than its
//! origin's concurrency limit (a limit of 0 counts as 1): hyper would queue the excess, which looks
//! like an origin that does not answer. Until the origin's SETTINGS arrive (its connection preface,
//! RFC 9113 §3.4) a connection carries one request; it gets no further ones if they do not arrive
//! within the connect timeout, nor once a request was waited for in vain while nothing at all came.
//! Threads: `Shared` is behind the lock of its pool; each connection has two tasks on the pool's
//! worker, one that reads and writes frames and one that learns the origin's limit.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::error::FetchError;
use crate::io::idle::IdleTimer;
use crate::io::locks::lock;
use crate::upstream::OriginBody;
use crate::upstream::pool::{Age, PoolSettings};
use crate::upstream::stream::{SparingStream, Stream as Wire};

/// Time limit for an origin's answer to a PING.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Flow-control window of each response: the most that waits in memory for a slow client.
const WINDOW_BYTES: u32 = 256 << 10;
/// Flow-control window of a connection: the largest possible, because the unread bytes of slow
/// clients would exhaust a smaller one and stall all other responses. Memory is bounded by
/// [`WINDOW_BYTES`] times the responses in flight.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Stands for the origin's limit until its SETTINGS arrive: more than SETTINGS can express, and
/// less than the value by which hyper represents a missing limit.
const STREAMS_UNKNOWN: usize = usize::MAX - 1;

/// An origin's SETTINGS on one connection, which may be yet to arrive.
#[derive(Clone)]
pub(super) struct Preface {
    /// Concurrent requests that the origin allows; `None` until its SETTINGS arrive.
    limit: watch::Receiver<Option<usize>>,
    /// End of the connect timeout of the request that opened the connection.
    due: Instant,
}

/// The end of a wait for an origin's SETTINGS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Arrived,
    Overdue,
    /// The connection ended before; its sender has the error.
    Ended,
}

impl Preface {
    fn is_awaited(&self) -> bool {
        self.limit.borrow().is_none()
    }

    fn is_overdue(&self) -> bool {
        self.is_awaited() && self.due <= Instant::now()
    }

    /// Waits for the SETTINGS.
    pub(super) async fn outcome(&mut self) -> Outcome {
        match timeout_at(self.due.into(), self.limit.wait_for(Option::is_some)).await {
            Ok(Ok(_)) => Outcome::Arrived,
            Ok(Err(_)) => Outcome::Ended,
            Err(_) => Outcome::Overdue,
        }
    }
}

/// What is known of the other end of a connection. It has a clone for each request in flight, and
/// one more.
#[derive(Debug)]
struct Peer {
    /// Time since bytes last came from it.
    silence: Arc<IdleTimer>,
    /// It was silent while it owed an answer, as one is that is no longer there: nobody sends a
    /// reset in its place where a firewall or a balancer has forgotten the connection.
    lost: AtomicBool,
}

/// A new connection to an origin.
pub(super) struct Opened {
    sender: http2::SendRequest<OriginBody>,
    preface: Preface,
    peer: Arc<Peer>,
}

/// Speaks HTTP/2 on a new stream to an origin, whose SETTINGS must arrive before `due`. The
/// connection ends when the origin closes it or the sender is dropped; errors reach the sender.
pub(super) async fn open(
    stream: Wire,
    settings: &PoolSettings,
    due: Instant,
) -> Result<Opened, FetchError> {
    let header_list_max = u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX);
    let frames = FrameTasks::default();
    let silence = Arc::new(IdleTimer::new());
    let stream = SparingStream::new(stream, &settings.transit).heard_by(&silence);
    let (sender, mut connection) = http2::Builder::new(frames.clone())
        .timer(TokioTimer::new())
        .keep_alive_interval(settings.http2_ping)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_max_send_streams(STREAMS_UNKNOWN)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(header_list_max)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| FetchError::Broken)?;
    let (learned, limit) = watch::channel(None);
    tokio::spawn(poll_fn(move |cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        let allowed = connection.current_max_send_streams();
        if allowed != STREAMS_UNKNOWN {
            learned.send_if_modified(|old| old.replace(allowed) != Some(allowed));
        } else {
            frames.wake_when_polled(cx.waker());
        }
        polled
    }));
    let peer = Arc::new(Peer { silence, lost: AtomicBool::new(false) });
    Ok(Opened { sender, preface: Preface { limit, due }, peer })
}

/// Runs the tasks that read and write frames. After each poll of one, it wakes the task that waits
/// for the origin's SETTINGS.
#[derive(Clone, Default)]
struct FrameTasks {
    waiting: Arc<Mutex<Option<Waker>>>,
}

impl FrameTasks {
    fn wake_when_polled(&self, waker: &Waker) {
        *lock(&self.waiting) = Some(waker.clone());
    }

    fn wake(&self) {
        let waiting = lock(&self.waiting).take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for FrameTasks {
    fn execute(&self, task: F) {
        let frames = self.clone();
        tokio::spawn(async move {
            let mut task = pin!(task);
            poll_fn(move |cx| {
                let polled = task.as_mut().poll(cx);
                frames.wake();
                polled
            })
            .await
        });
    }
}

/// The connections of a pool. Earlier ones are filled first, so that surplus ones become idle and
/// close.
#[derive(Default)]
pub(super) struct Shared {
    connections: Vec<Http2>,
}

struct Http2 {
    sender: http2::SendRequest<OriginBody>,
    address: Option<IpAddr>,
    age: Age,
    used: Instant,
    preface: Preface,
    peer: Arc<Peer>,
}

/// A place for one request on a connection.
pub(super) struct Place {
    pub(super) sender: http2::SendRequest<OriginBody>,
    pub(super) stream: Stream,
    /// The origin's SETTINGS, if they have not arrived yet.
    pub(super) awaited: Option<Preface>,
}

/// Counts one request in flight on an HTTP/2 connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Stream(Arc<Peer>);

impl Stream {
    /// The origin was waited for in vain, for at least `limit`. If nothing has come on the
    /// connection in that time, it gets no further requests.
    pub(super) fn waited_in_vain(&self, limit: Duration) {
        if self.0.silence.last().elapsed() >= limit {
            self.0.lost.store(true, Ordering::Relaxed);
        }
    }
}

/// A stream on which an answer is owed. It ends with nothing if that takes too long, or if who
/// waited for it has left.
pub(super) struct Owed {
    stream: Option<Stream>,
    /// Paused while the next piece of the request is awaited from its client.
    upload: Option<Arc<IdleTimer>>,
    since: Instant,
    limit: Duration,
}

impl Owed {
    /// With the silence after which the connection gets no further requests, if nothing was paid by
    /// then.
    pub(super) fn on(stream: Stream, upload: Option<Arc<IdleTimer>>, limit: Duration) -> Owed {
        Owed { stream: Some(stream), upload, since: Instant::now(), limit }
    }

    pub(super) fn paid(mut self) -> Option<Stream> {
        self.stream.take()
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && self.since.elapsed() >= self.limit
            && !self.upload.as_ref().is_some_and(|upload| upload.is_paused())
        {
            stream.waited_in_vain(self.limit);
        }
    }
}

impl Http2 {
    fn place(&mut self) -> Place {
        self.used = Instant::now();
        Place {
            sender: self.sender.clone(),
            stream: Stream(Arc::clone(&self.peer)),
            awaited: self.preface.is_awaited().then(|| self.preface.clone()),
        }
    }

    fn streams(&self) -> usize {
        Arc::strong_count(&self.peer) - 1
    }

    fn has_place(&self, streams_max: usize) -> bool {
        // An origin that allows no streams now may allow some later: one request may wait for that.
        let allowed = self.preface.limit.borrow().map_or(1, |allowed| allowed.max(1));
        self.streams() < allowed.min(streams_max)
    }
}

impl Shared {
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Drops connections that have closed, are too old, have been idle for `idle_timeout`, or whose
    /// origin did not send its SETTINGS in time, or has fallen silent. Requests in flight on them
    /// continue.
    pub(super) fn retain_usable(&mut self, idle_timeout: Duration) {
        let now = Instant::now();
        self.connections.retain(|one| {
            let idle = one.streams() == 0 && one.used.elapsed() >= idle_timeout;
            let lost = one.peer.lost.load(Ordering::Relaxed) || one.preface.is_overdue();
            one.sender.is_ready() && !one.age.is_over(now) && !idle && !lost
        });
    }

    /// A place on the first connection that has one left and whose address is `allowed`.
    pub(super) fn take(
        &mut self,
        streams_max: usize,
        allowed: impl Fn(Option<IpAddr>) -> bool,
    ) -> Option<Place> {
        let mut connections = self.connections.iter_mut();
        let free = |one: &&mut Http2| one.has_place(streams_max) && allowed(one.address);
        connections.find(free).map(Http2::place)
    }

    /// Sends no new requests on this stream's connection; requests in flight on it continue.
    pub(super) fn leave_out(&mut self, stream: &Stream) {
        self.connections.retain(|one| !Arc::ptr_eq(&one.peer, &stream.0));
    }

    /// The SETTINGS of a connection on which they have not arrived yet; it may have free places
    /// afterwards.
    pub(super) fn awaited(&self, allowed: impl Fn(Option<IpAddr>) -> bool) -> Option<Preface> {
        let awaited = |one: &&Http2| one.preface.is_awaited() && allowed(one.address);
        self.connections.iter().find(awaited).map(|one| one.preface.clone())
    }

    /// Adds a new connection and returns the first place on it.
    pub(super) fn put(
        &mut self,
        Opened { sender, preface, peer }: Opened,
        address: Option<IpAddr>,
        age: Age,
    ) -> Place {
        let mut one = Http2 { sender, address, age, used: Instant::now(), preface, peer };
        let place = one.place();
        self.connections.push(one);
        place
    }
}

/// A place on a connection that no other request uses.
pub(super) fn unshared(Opened { sender, preface, peer }: Opened) -> Place {
    Place { sender, stream: Stream(peer), awaited: Some(preface) }
}
