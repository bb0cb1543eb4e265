//! Connections to one endpoint: idle HTTP/1.1 connections, and HTTP/2 connections that requests
//! share.
//!
//! Invariants: a request is sent twice only in two cases. Either an HTTP/2 origin refused it
//! unprocessed; or its connection came from the pool, and none of its bytes were written or it has
//! a safe method and no body (RFC 9110 §9.2.2). Every wait has a time limit. Threads: a pool
//! belongs to one worker; its connections live on that worker's event loop.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming, SizeHint};
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::config::ProxyConfig;
use crate::error::FetchError;
use crate::forward::Permit;
use crate::io::BUFFER_BYTES_MIN;
use crate::io::body::PolledFrame;
use crate::io::idle::IdleTimer;
use crate::io::locks::lock;
use crate::metrics::Counters;
use crate::upstream::endpoint::{Endpoint, Purpose};
use crate::upstream::head::{check_head, kept_for};
use crate::upstream::pinned::{self, Pinned};
use crate::upstream::shared::{self, Place, Shared, Stream, StreamsLimit};
use crate::upstream::version::{as_http1, as_http2};
use crate::upstream::{OriginBody, poll_incoming};

/// Read buffer limit of an origin connection, unless the header limit is larger: 128 KiB of body
/// and its headers. In a smaller buffer the headers would displace the end of a body whose length
/// is a power of two, and that remainder would be read, stored and sent separately.
const READ_BYTES_MAX: usize = (128 + 16) << 10;
/// Longest idle time of a connection that may carry a request which must not be sent twice. The
/// origin may be closing a connection that has been idle for longer.
const FRESH: Duration = Duration::from_secs(1);
/// Settings of a pool.
#[derive(Debug, Clone)]
pub(crate) struct PoolSettings {
    pub(crate) idle_max: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) origin_header_timeout: Duration,
    pub(crate) header_bytes_max: usize,
    /// Applies to HTTP/1.1 only.
    pub(crate) header_lines_max: usize,
    /// Requests at once on one HTTP/2 connection.
    pub(crate) http2_streams_max: usize,
    /// Silence after which an HTTP/2 origin that owes a response gets a PING; `None`: never.
    pub(crate) http2_ping: Option<Duration>,
    /// Whether later requests share an HTTP/2 connection.
    pub(crate) keep_http2: bool,
}

impl PoolSettings {
    pub(crate) fn of(config: &ProxyConfig) -> PoolSettings {
        PoolSettings {
            idle_max: config.pool_idle_max,
            idle_timeout: config.pool_idle_timeout,
            connect_timeout: config.connect_timeout,
            origin_header_timeout: config.origin_header_timeout,
            header_bytes_max: config.header_bytes_max,
            header_lines_max: config.transport.upstream.header_lines_max,
            http2_streams_max: config.transport.upstream.http2_streams_max,
            http2_ping: config.transport.upstream.http2_ping,
            keep_http2: true,
        }
    }
}

/// Connections to one endpoint. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Arc<Endpoint>,
    settings: PoolSettings,
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Shared>,
    /// Held while connecting to an endpoint that may speak HTTP/2: the requests that wait for it
    /// may share the new connection.
    connecting: tokio::sync::Mutex<()>,
}

struct Idle {
    connection: Http1,
    since: Instant,
}

pub(super) struct Http1 {
    sender: http1::SendRequest<OriginBody>,
    address: Option<IpAddr>,
    /// How long the origin announced to keep the idle connection, less a margin.
    keeps: Option<Duration>,
    /// The origin answered in HTTP/1.0. hyper then speaks HTTP/1.0 too and would omit a body of
    /// unknown length, which that version cannot carry.
    lengths_only: bool,
}

/// Requirements of a request on a connection that was used before.
#[derive(Clone, Copy)]
struct Need {
    /// The connection was in use within [`FRESH`].
    fresh: bool,
    /// The connection can carry a body of unknown length.
    chunks: bool,
}

/// The body of a response. At its end an HTTP/1.1 connection returns to the pool; if the end is
/// never read, the connection closes. Over HTTP/2 the body holds its stream's place until its end.
#[derive(Debug)]
pub(crate) struct Leased {
    incoming: Incoming,
    lease: Option<Lease>,
    stream: Option<Stream>,
    answering: Option<Answering>,
}

/// Marks an exchange whose request has a body as answering, from the response headers to the end of
/// the response.
#[derive(Debug)]
struct Answering(Arc<IdleTimer>);

impl Answering {
    fn begin(exchange: Arc<IdleTimer>) -> Answering {
        exchange.touch();
        exchange.set_answering(true);
        Answering(exchange)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set_answering(false);
    }
}

struct Lease {
    pool: Pool,
    connection: Http1,
    /// The owner to return the connection to, instead of the pool.
    pinned: Option<Pinned>,
}

enum Connection {
    Http1(Http1),
    Http2(Place),
}

/// A request on its way. Boxed, because it is large and moves at every step.
pub(crate) type Outgoing = Box<Request<OriginBody>>;

/// The failure of a request, with the request itself if none of its bytes were written.
pub(crate) struct SendError {
    pub(crate) error: FetchError,
    pub(crate) unsent: Option<Outgoing>,
}

fn allowed(address: Option<IpAddr>, permit: Option<&dyn Permit>) -> bool {
    match (address, permit) {
        (Some(address), Some(permit)) => permit.permits(address.to_canonical()),
        _ => true,
    }
}

impl Http1 {
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn takes(&self, need: Need) -> bool {
        !(self.lengths_only && need.chunks)
    }
}

impl Need {
    fn of(request: &Request<OriginBody>) -> Need {
        let (body, fresh) = (request.body(), !may_repeat(request));
        Need { fresh, chunks: !body.is_end_stream() && body.size_hint().exact().is_none() }
    }
}

impl Pool {
    pub(crate) fn new(endpoint: Arc<Endpoint>, settings: PoolSettings) -> Pool {
        Pool {
            inner: Arc::new(Inner {
                endpoint,
                settings,
                idle: Mutex::default(),
                shared: Mutex::default(),
                connecting: tokio::sync::Mutex::default(),
            }),
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Whether both are handles to the same pool.
    pub(super) fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Drops connections that have been idle for too long. True if the pool can be dropped too: it
    /// has no connection and no other handle.
    pub(crate) fn sweep(&self) -> bool {
        let mut idle = lock(&self.inner.idle);
        self.retain_usable(&mut idle);
        let mut shared = lock(&self.inner.shared);
        shared.retain_usable(self.inner.settings.idle_timeout);
        // A pinned connection holds a handle: without its pool, its client could not find it again.
        idle.is_empty() && shared.is_empty() && Arc::strong_count(&self.inner) == 1
    }

    /// Drops connections that have closed or been idle for too long. A connection that has just
    /// come back may not be ready for a request yet; it stays.
    fn retain_usable(&self, idle: &mut Vec<Idle>) {
        let (limit, now) = (self.inner.settings.idle_timeout, Instant::now());
        let young = |one: &Idle| {
            let limit = one.connection.keeps.map_or(limit, |keeps| keeps.min(limit));
            now.saturating_duration_since(one.since) < limit
        };
        idle.retain(|one| !one.connection.sender.is_closed() && young(one));
    }

    /// A place on a shared HTTP/2 connection, or else the most recently used idle connection that
    /// is open and meets `need`.
    fn take(&self, permit: Option<&dyn Permit>, need: Need) -> Option<Connection> {
        if let Some(place) = self.take_http2(permit) {
            return Some(Connection::Http2(place));
        }
        let mut idle = lock(&self.inner.idle);
        self.retain_usable(&mut idle);
        let usable = |one: &Idle| {
            one.connection.sender.is_ready()
                && allowed(one.connection.address, permit)
                && (!need.fresh || one.since.elapsed() < FRESH)
                && one.connection.takes(need)
        };
        let index = idle.iter().rposition(usable)?;
        Some(Connection::Http1(idle.remove(index).connection))
    }

    fn take_http2(&self, permit: Option<&dyn Permit>) -> Option<Place> {
        let settings = &self.inner.settings;
        let mut shared = lock(&self.inner.shared);
        shared.retain_usable(settings.idle_timeout);
        shared.take(settings.http2_streams_max, |address| allowed(address, permit))
    }

    fn unknown_limit(&self, permit: Option<&dyn Permit>) -> Option<StreamsLimit> {
        let shared = lock(&self.inner.shared);
        shared.unknown(|address| allowed(address, permit))
    }

    /// The pinned connection, which only its client may use.
    async fn take_own(
        &self,
        pinned: &Pinned,
        permit: Option<&dyn Permit>,
        need: Need,
    ) -> Option<Connection> {
        let may = |own: &Http1| allowed(own.address, permit) && own.takes(need);
        let mut own = pinned.take(self).filter(may)?;
        // The connection may have come back just now and not be ready; no other can replace it.
        let ready = timeout(self.inner.settings.connect_timeout, own.sender.ready()).await;
        ready.is_ok_and(|ready| ready.is_ok()).then_some(Connection::Http1(own))
    }

    fn put(&self, connection: Http1) {
        let mut idle = lock(&self.inner.idle);
        if idle.len() < self.inner.settings.idle_max {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Sends a request on a pooled connection, or else on a new one.
    pub(crate) async fn send(
        &self,
        request: Outgoing,
        permit: Option<&dyn Permit>,
    ) -> Result<Response<Leased>, SendError> {
        match self.take(permit, Need::of(&request)) {
            Some(pooled) => self.send_on(pooled, request).await,
            None => Box::pin(self.send_anew(request, permit)).await,
        }
    }

    /// Like [`send`](Self::send), with one retry if a pooled connection proves closed or an HTTP/2
    /// origin did not process the request. Honours pins.
    pub(crate) async fn send_retrying(
        &self,
        request: Outgoing,
        permit: Option<&dyn Permit>,
        counters: &Counters,
    ) -> Result<Response<Leased>, SendError> {
        let need = Need::of(&request);
        let pooled = match request.extensions().get::<Pinned>() {
            Some(pinned) => Box::pin(self.take_own(&pinned.clone(), permit, need)).await,
            None => self.take(permit, need),
        };
        let was_pooled = pooled.is_some();
        let connection = match pooled {
            Some(pooled) => pooled,
            None => match Box::pin(self.connect_for(&request, permit)).await {
                Ok(connection) => connection,
                Err(error) => return Err(SendError { error, unsent: Some(request) }),
            },
        };
        let repeatable = was_pooled && may_repeat(&request);
        let refusable = matches!(connection, Connection::Http2(_));
        let spare = (repeatable || refusable).then(|| spare_copy(&request));
        let SendError { error, unsent } = match self.send_on(connection, request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let spare = spare.filter(|spare| match error {
            FetchError::Refused => spare.body().is_whole(),
            FetchError::Broken => repeatable,
            _ => false,
        });
        let Some(request) = unsent.filter(|_| was_pooled).or(spare) else {
            return Err(SendError { error, unsent: None });
        };
        counters.retries.one();
        Box::pin(self.send_anew(request, permit)).await
    }

    async fn send_anew(
        &self,
        request: Outgoing,
        permit: Option<&dyn Permit>,
    ) -> Result<Response<Leased>, SendError> {
        match self.connect_for(&request, permit).await {
            Ok(connection) => self.send_on(connection, request).await,
            Err(error) => Err(SendError { error, unsent: Some(request) }),
        }
    }

    async fn connect_for(
        &self,
        request: &Request<OriginBody>,
        permit: Option<&dyn Permit>,
    ) -> Result<Connection, FetchError> {
        let limit = self.inner.settings.connect_timeout;
        let pinned = request.extensions().get::<Pinned>().is_some();
        let connecting =
            async { if pinned { self.open_own(permit).await } else { self.connect(permit).await } };
        timeout(limit, connecting).await.unwrap_or(Err(FetchError::ConnectTimeout))
    }

    async fn connect(&self, permit: Option<&dyn Permit>) -> Result<Connection, FetchError> {
        let endpoint = &self.inner.endpoint;
        if !endpoint.may_http2.load(Ordering::Relaxed) || !self.inner.settings.keep_http2 {
            return self.open(Purpose::Requests, permit).await;
        }
        let _turn = self.inner.connecting.lock().await;
        // The previous holder of the lock may have opened a connection that all can share.
        loop {
            if let Some(place) = self.take_http2(permit) {
                return Ok(Connection::Http2(place));
            }
            let known = match self.unknown_limit(permit) {
                Some(mut limit) => limit.wait_for(Option::is_some).await.is_ok(),
                None => false,
            };
            if !known {
                return self.open(Purpose::Requests, permit).await;
            }
        }
    }

    /// A connection for one client alone. It uses HTTP/1.1 where there is a choice, because servers
    /// tie a connection to a user in that version only.
    async fn open_own(&self, permit: Option<&dyn Permit>) -> Result<Connection, FetchError> {
        self.open(Purpose::Upgrade, permit).await
    }

    async fn open(
        &self,
        purpose: Purpose,
        permit: Option<&dyn Permit>,
    ) -> Result<Connection, FetchError> {
        let endpoint = &self.inner.endpoint;
        let (stream, address) = endpoint.connect(purpose, permit).await?;
        let (settings, shares) = (&self.inner.settings, purpose == Purpose::Requests);
        if !endpoint.is_http2(&stream) {
            if shares {
                endpoint.may_http2.store(false, Ordering::Relaxed);
            }
            let (sender, connection) = http1::Builder::new()
                .max_buf_size(settings.header_bytes_max.max(READ_BYTES_MAX))
                .max_headers(settings.header_lines_max)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|_| FetchError::Broken)?;
            // The task ends when the origin closes or the sender is dropped; errors reach the
            // sender.
            tokio::spawn(connection);
            return Ok(Connection::Http1(Http1 {
                sender,
                address,
                keeps: None,
                lengths_only: false,
            }));
        }
        let opened = shared::open(stream, settings).await?;
        if !settings.keep_http2 || !shares {
            return Ok(Connection::Http2(shared::unshared(opened.0)));
        }
        let mut shared = lock(&self.inner.shared);
        Ok(Connection::Http2(shared.put(opened, address)))
    }

    /// Sends a request on a connection of its own, which may switch to another protocol.
    pub(crate) async fn send_upgrade(
        &self,
        request: &Request<OriginBody>,
        permit: Option<&dyn Permit>,
    ) -> Result<Response<Incoming>, FetchError> {
        let settings = &self.inner.settings;
        let opening = async {
            let (stream, _) = self.inner.endpoint.connect(Purpose::Upgrade, permit).await?;
            let (sender, connection) = http1::Builder::new()
                .max_buf_size(settings.header_bytes_max.max(BUFFER_BYTES_MIN))
                .max_headers(settings.header_lines_max)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|_| FetchError::Broken)?;
            tokio::spawn(connection.with_upgrades());
            Ok(sender)
        };
        let opened = timeout(settings.connect_timeout, opening).await;
        let mut sender = opened.unwrap_or(Err(FetchError::ConnectTimeout))?;
        let sending = sender.send_request(*spare_copy(request));
        let response = timeout(settings.origin_header_timeout, sending).await;
        let response = response.map_err(|_| FetchError::HeaderTimeout)?;
        let response = response.map_err(|error| FetchError::of(&error))?;
        check_head(response.headers(), settings.header_bytes_max)?;
        Ok(response)
    }

    async fn send_on(
        &self,
        connection: Connection,
        request: Outgoing,
    ) -> Result<Response<Leased>, SendError> {
        let limit = self.inner.settings.origin_header_timeout;
        let late = SendError { error: FetchError::HeaderTimeout, unsent: None };
        let idle = request.body().idle();
        match connection {
            Connection::Http2(Place { mut sender, stream }) => {
                let sending =
                    sender.try_send_request(as_http2(*request, self.inner.endpoint.scheme()));
                let response = within(limit, idle.clone(), sending).await.ok_or(late)?;
                let response = response.map_err(|error| self.failed_on(&stream, error))?;
                Ok(response.map(|incoming| Leased::new(incoming, None, Some(stream), idle)))
            }
            Connection::Http1(mut connection) => {
                let pinned = request.extensions().get::<Pinned>().cloned();
                let sending = connection.sender.try_send_request(as_http1(*request));
                let result = within(limit, idle.clone(), sending).await.ok_or(late)?;
                let response = result.map_err(SendError::of)?;
                let bytes_max = self.inner.settings.header_bytes_max;
                let checked = check_head(response.headers(), bytes_max);
                // Requests sent here never ask for an upgrade, so a 101 is an error.
                let error = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    Some(FetchError::Unasked)
                } else {
                    checked.err()
                };
                if let Some(error) = error {
                    return Err(SendError { error, unsent: None });
                }
                connection.keeps = kept_for(response.headers());
                connection.lengths_only = response.version() < Version::HTTP_11;
                // The origin asks for connection-based credentials, so it may already have
                // tied this connection to this client: the pool must not get it back.
                let wanted = || pinned::are_wanted(response.headers()).then_some(Pinned(None));
                let pinned = pinned.or_else(wanted);
                let lease = Lease { pool: self.clone(), connection, pinned };
                Ok(response.map(|incoming| Leased::new(incoming, Some(lease), None, idle)))
            }
        }
    }
}

impl Pool {
    /// Why a request failed on an HTTP/2 connection. A connection that refuses requests gets no
    /// more.
    fn failed_on(&self, stream: &Stream, error: TrySendError<Request<OriginBody>>) -> SendError {
        let failed = SendError::of(error);
        if failed.error == FetchError::Refused {
            let mut shared = lock(&self.inner.shared);
            shared.leave_out(stream);
        }
        failed
    }
}

/// The outcome of `sending`; `None` if it takes longer than `limit`. For a request with a body, the
/// limit restarts whenever the origin takes some of the body.
async fn within<T>(
    limit: Duration,
    idle: Option<Arc<IdleTimer>>,
    sending: impl Future<Output = T>,
) -> Option<T> {
    let Some(idle) = idle else { return timeout(limit, sending).await.ok() };
    idle.touch();
    tokio::select! {
        biased;
        sent = sending => Some(sent),
        () = idle.expired(limit) => None,
    }
}

impl From<Incoming> for Leased {
    fn from(incoming: Incoming) -> Leased {
        Leased { incoming, lease: None, stream: None, answering: None }
    }
}

impl Leased {
    fn new(
        incoming: Incoming,
        lease: Option<Lease>,
        stream: Option<Stream>,
        exchange: Option<Arc<IdleTimer>>,
    ) -> Leased {
        let answering = exchange.map(Answering::begin);
        let mut leased = Leased { incoming, lease, stream, answering };
        leased.give_back_at_end(false);
        leased
    }

    pub(crate) fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = ready!(poll_incoming(&mut self.incoming, cx));
        self.give_back_at_end(frame.is_none());
        Poll::Ready(frame)
    }

    fn give_back_at_end(&mut self, ended: bool) {
        if !ended && !self.incoming.is_end_stream() {
            return;
        }
        (self.stream, self.answering) = (None, None);
        if let Some(lease) = self.lease.take() {
            match lease.pinned {
                None => lease.pool.put(lease.connection),
                Some(pinned) => pinned.put(lease.pool, lease.connection),
            }
        }
    }

    pub(crate) fn exchange(&self) -> Option<Arc<IdleTimer>> {
        self.answering.as_ref().map(|answering| answering.0.clone())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(crate) fn length(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

impl SendError {
    fn of(mut error: TrySendError<Request<OriginBody>>) -> SendError {
        let unsent = error.take_message().map(Box::new);
        SendError { error: FetchError::of(error.error()), unsent }
    }
}

/// Whether a request can be repeated without harm, even if the origin processed it: it has a safe
/// method and no body.
fn may_repeat(request: &Request<OriginBody>) -> bool {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    safe && request.body().is_end_stream()
}

fn spare_copy(request: &Request<OriginBody>) -> Outgoing {
    let mut copy = Box::new(Request::new(request.body().again()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    if let Some(pinned) = request.extensions().get::<Pinned>() {
        copy.extensions_mut().insert(pinned.clone());
    }
    copy
}
