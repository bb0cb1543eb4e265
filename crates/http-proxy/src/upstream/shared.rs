//! HTTP/2 connections to one endpoint, which requests share: as many as the requests under way need.
//!
//! Invariants: no connection has more requests under way than `streams_max`, nor than its origin lets run
//! at once: what is beyond that the library lets wait, which looks like an origin that does not answer.
//! Until the origin's settings have come (RFC 9113 §3.4: they are the first thing that it sends) a connection
//! has one request. Threads: lies behind the lock of its pool; each connection is two tasks of the pool's
//! worker, of which one reads frames and the other learns the origin's limit.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;

use crate::error::FetchError;
use crate::io::locks::lock;
use crate::upstream::OriginBody;
use crate::upstream::pool::PoolSettings;
use crate::upstream::stream::Stream as Wire;

/// Time that an origin has to answer a PING.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// What an HTTP/2 origin may send ahead of us, for each response: so much of one waits in memory for a
/// client that is slow.
const WINDOW_BYTES: u32 = 256 << 10;
/// The same for all responses of a connection: as much as can be said, as what slow clients leave unread
/// would else use it up and stop all others. Memory is bounded by the windows of the responses, which are
/// as many as clients wait for, and as the origin lets run at once.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Stands for the origin's limit until its settings have come: more than they can say, and less than
/// what the library takes a missing limit for.
const STREAMS_UNKNOWN: usize = usize::MAX - 1;

/// Requests that an origin lets run at once on a connection; none: it has not said yet.
pub(super) type StreamsLimit = watch::Receiver<Option<usize>>;

/// Speaks HTTP/2 on a new stream to an origin. The connection ends when the origin closes it or the
/// sender is dropped; errors reach the sender.
pub(super) async fn open(
    stream: Wire,
    settings: &PoolSettings,
) -> Result<(http2::SendRequest<OriginBody>, StreamsLimit), FetchError> {
    let header_list_max = u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX);
    let frames = FrameTasks::default();
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
    Ok((sender, limit))
}

/// Runs the tasks that read and write frames, and wakes who waits for what one of them may have read.
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

/// The connections. The first ones are filled first, so that those beyond need can grow idle and close.
#[derive(Default)]
pub(super) struct Shared {
    connections: Vec<Http2>,
}

struct Http2 {
    sender: http2::SendRequest<OriginBody>,
    address: Option<IpAddr>,
    used: Instant,
    limit: StreamsLimit,
    /// Its clones are the requests under way.
    streams: Arc<()>,
}

/// A place for one request on a connection.
pub(super) struct Place {
    pub(super) sender: http2::SendRequest<OriginBody>,
    pub(super) stream: Stream,
}

/// A request under way on an HTTP/2 connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Stream(Arc<()>);

impl Http2 {
    fn place(&mut self) -> Place {
        self.used = Instant::now();
        Place { sender: self.sender.clone(), stream: Stream(Arc::clone(&self.streams)) }
    }

    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }

    fn has_place(&self, streams_max: usize) -> bool {
        // One that allows none now may allow some later: what is sent to it waits.
        let allowed = self.limit.borrow().map_or(1, |allowed| allowed.max(1));
        self.streams() < allowed.min(streams_max)
    }
}

impl Shared {
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Leaves those out that have closed, and those that nothing has used for so long.
    pub(super) fn retain_usable(&mut self, idle_timeout: Duration) {
        self.connections.retain(|one| {
            let idle = one.streams() == 0 && one.used.elapsed() >= idle_timeout;
            one.sender.is_ready() && !idle
        });
    }

    /// A place on a connection that has one left and goes to an address that is `allowed`.
    pub(super) fn take(
        &mut self,
        streams_max: usize,
        allowed: impl Fn(Option<IpAddr>) -> bool,
    ) -> Option<Place> {
        let mut connections = self.connections.iter_mut();
        let free = |one: &&mut Http2| one.has_place(streams_max) && allowed(one.address);
        connections.find(free).map(Http2::place)
    }

    /// Has no new requests sent where this one was; those under way there go on.
    pub(super) fn leave_out(&mut self, stream: &Stream) {
        self.connections.retain(|one| !Arc::ptr_eq(&one.streams, &stream.0));
    }

    /// The limit that is yet to come of a connection which may have places then.
    pub(super) fn unknown(&self, allowed: impl Fn(Option<IpAddr>) -> bool) -> Option<StreamsLimit> {
        let unknown = |one: &&Http2| one.limit.borrow().is_none() && allowed(one.address);
        self.connections.iter().find(unknown).map(|one| one.limit.clone())
    }

    /// Takes a new connection in; the first place on it.
    pub(super) fn put(
        &mut self,
        (sender, limit): (http2::SendRequest<OriginBody>, StreamsLimit),
        address: Option<IpAddr>,
    ) -> Place {
        let (used, streams) = (Instant::now(), Arc::default());
        let mut one = Http2 { sender, address, used, limit, streams };
        let place = one.place();
        self.connections.push(one);
        place
    }
}

/// A place on a connection that nothing else uses.
pub(super) fn unshared(sender: http2::SendRequest<OriginBody>) -> Place {
    Place { sender, stream: Stream(Arc::default()) }
}
