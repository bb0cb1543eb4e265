//! Connections to one endpoint: idle HTTP/1.1 connections, and HTTP/2 connections that requests
//! share.
//!
//! `connect` opens connections, for as long as `age` says; `send` sends requests on them, `leased`
//! is the body of a response and gives its connection back; this file keeps the connections in
//! between, some of which `rest` a little.
//!
//! Invariants: a connection is in the pool or belongs to one exchange, never both; a connection
//! that closed, or was idle for too long, is never handed out, nor one that is too old, unless it
//! is one client's own. Every wait has a time limit. Threads: a pool belongs to one worker; its
//! connections live on that worker's event loop.

mod age;
mod connect;
mod leased;
mod rest;
mod send;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Body as _;
use hyper::client::conn::http1;
use tokio::task::AbortHandle;
use tokio::time::{Sleep, timeout};

use crate::config::ProxyConfig;
use crate::config::tables::HEADER_LINES_MAX;
use crate::forward::Permit;
use crate::io::locks::lock;
use crate::io::transit::Transit;
use crate::upstream::OriginBody;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::limits::TimeLimits;
use crate::upstream::pinned::Pinned;
use crate::upstream::shared::{Place, Shared};

pub(in crate::upstream) use age::Age;
pub(crate) use leased::Leased;
pub(in crate::upstream) use rest::RestClock;
pub(crate) use send::{Again, Outgoing, SendError, UploadUnwanted, may_repeat};

/// Longest idle time of a connection that may carry a request which must not be sent twice, where
/// the origin did not announce how long it keeps one. It may be closing a connection that has been
/// idle for longer.
const FRESH: Duration = Duration::from_secs(1);

/// Settings of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolSettings {
    pub(crate) idle_max: usize,
    pub(crate) idle_timeout: Duration,
    /// How long a connection gets new requests.
    pub(crate) age_max: Duration,
    /// Of requests that no rule gives others.
    pub(in crate::upstream) limits: TimeLimits,
    pub(crate) header_bytes_max: usize,
    /// Applies to HTTP/1.1 only.
    pub(crate) header_lines_max: usize,
    /// Requests at once on one HTTP/2 connection.
    pub(crate) http2_streams_max: usize,
    /// Silence after which an HTTP/2 origin that owes a response gets a PING; `None`: never.
    pub(crate) http2_ping: Option<Duration>,
    /// Whether later requests share an HTTP/2 connection.
    pub(crate) keep_http2: bool,
    /// What of the bodies that come is in memory.
    pub(crate) transit: Arc<Transit>,
    pub(in crate::upstream) rest_clock: RestClock,
}

impl PoolSettings {
    pub(crate) fn of(config: &ProxyConfig, transit: &Arc<Transit>) -> PoolSettings {
        PoolSettings {
            idle_max: config.limits.pool_idle_max,
            idle_timeout: config.timeouts.pool_idle,
            age_max: config.timeouts.pool_age,
            limits: TimeLimits::new(&config.timeouts),
            header_bytes_max: config.limits.header_bytes_max,
            header_lines_max: config.limits.origin_header_lines_max.min(HEADER_LINES_MAX),
            http2_streams_max: config.upstream.http2_streams_max,
            http2_ping: config.upstream.http2_ping,
            keep_http2: true,
            transit: transit.clone(),
            rest_clock: RestClock::new(config.clock.clone()),
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
    /// In the order in which they came back.
    idle: Mutex<VecDeque<Idle>>,
    shared: Mutex<Shared>,
    /// Numbers the connections, so that each begins at another address.
    turn: AtomicUsize,
    /// Held while connecting to an endpoint that may speak HTTP/2: the requests that wait for it
    /// may share the new connection.
    connecting: tokio::sync::Mutex<()>,
}

struct Idle {
    connection: Http1,
    since: Instant,
    /// By the clock of rests.
    rests_until: Option<Duration>,
}

pub(in crate::upstream) struct Http1 {
    sender: http1::SendRequest<OriginBody>,
    /// The task that reads and writes.
    task: AbortHandle,
    /// Apart: the rest moves with every request.
    lasting: Box<Lasting>,
    /// How long the origin announced to keep the idle connection, less a margin.
    keeps: Option<Duration>,
    /// The origin answered in HTTP/1.0. hyper then speaks HTTP/1.0 too and would omit a body of
    /// unknown length, which that version cannot carry.
    lengths_only: bool,
    /// It rests before its next request, unless it is one client's own.
    needs_rest: bool,
    /// For the time that an answer may take. It stays armed: most answers come long before.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What does not change about a connection.
struct Lasting {
    address: Option<IpAddr>,
    age: Age,
}

enum Connection {
    Http1(Http1),
    Http2(Place),
}

/// Requirements of a request on a connection that was used before.
#[derive(Clone, Copy)]
struct Need {
    /// The connection was in use so lately that the origin is not about to close it.
    fresh: bool,
    /// The connection can carry a body of unknown length.
    chunks: bool,
}

impl Http1 {
    pub(in crate::upstream) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn takes(&self, need: Need) -> bool {
        !(self.lengths_only && need.chunks)
    }

    /// How long after it was used the origin is surely not closing it: half of what it announced.
    fn fresh_for(&self) -> Duration {
        self.keeps.map_or(FRESH, |keeps| FRESH.max(keeps / 2))
    }
}

impl Need {
    fn of(request: &Request<OriginBody>) -> Need {
        let (body, fresh) = (request.body(), !send::may_repeat(request));
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
                // Workers begin at different addresses.
                turn: AtomicUsize::new(fastrand::usize(..)),
                connecting: tokio::sync::Mutex::default(),
            }),
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Whether it has just this endpoint and these settings.
    pub(crate) fn serves(&self, endpoint: &Arc<Endpoint>, settings: &PoolSettings) -> bool {
        Arc::ptr_eq(&self.inner.endpoint, endpoint) && self.inner.settings == *settings
    }

    /// Whether both are handles to the same pool.
    pub(in crate::upstream) fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Drops connections that are too old or have been idle for too long. True if the pool can be
    /// dropped too: it has no connection and no other handle.
    pub(crate) fn sweep(&self) -> bool {
        let mut idle = lock(&self.inner.idle);
        let now = Instant::now();
        idle.retain(|one| self.is_usable(one, now));
        let mut shared = lock(&self.inner.shared);
        shared.retain_usable(self.inner.settings.idle_timeout);
        // A pinned connection holds a handle: without its pool, its client could not find it again.
        idle.is_empty() && shared.is_empty() && Arc::strong_count(&self.inner) == 1
    }

    /// Whether a connection has neither closed, nor is it too old or was idle for too long. One
    /// that has just come back may not be ready for a request yet.
    fn is_usable(&self, one: &Idle, now: Instant) -> bool {
        let (limit, connection) = (self.inner.settings.idle_timeout, &one.connection);
        let limit = connection.keeps.map_or(limit, |keeps| keeps.min(limit));
        !connection.sender.is_closed()
            && !connection.lasting.age.is_over(now)
            && now.saturating_duration_since(one.since) < limit
    }

    /// A place on a shared HTTP/2 connection, or else the most recently used idle connection that
    /// is open and meets `need`. What is no longer usable stays for [`Self::sweep`], so that the
    /// cost does not grow with the number of idle connections.
    fn take(&self, permit: Option<&dyn Permit>, need: Need) -> Option<Connection> {
        if let Some(place) = self.take_http2(permit) {
            return Some(Connection::Http2(place));
        }
        let (mut idle, now) = (lock(&self.inner.idle), Instant::now());
        let usable = |one: &Idle| {
            let idle_for = now.saturating_duration_since(one.since);
            let rest_clock = &self.inner.settings.rest_clock;
            self.is_usable(one, now)
                && one.rests_until.is_none_or(|end| rest_clock.has_passed(end))
                && one.connection.sender.is_ready()
                && allowed(one.connection.lasting.address, permit)
                && (!need.fresh || idle_for < one.connection.fresh_for())
                && one.connection.takes(need)
        };
        let index = idle.iter().rposition(usable)?;
        idle.remove(index).map(|one| Connection::Http1(one.connection))
    }

    fn take_http2(&self, permit: Option<&dyn Permit>) -> Option<Place> {
        let settings = &self.inner.settings;
        let mut shared = lock(&self.inner.shared);
        shared.retain_usable(settings.idle_timeout);
        shared.take(settings.http2_streams_max, |address| allowed(address, permit))
    }

    /// The pinned connection, which only its client may use; waited for no longer than for a new
    /// one (`patience`).
    async fn take_own(
        &self,
        pinned: &Pinned,
        permit: Option<&dyn Permit>,
        need: Need,
        patience: Duration,
    ) -> Option<Connection> {
        let may = |own: &Http1| allowed(own.lasting.address, permit) && own.takes(need);
        let mut own = pinned.take(self).filter(may)?;
        // The connection may have come back just now and not be ready; no other can replace it.
        let ready = timeout(patience, own.sender.ready()).await;
        ready.is_ok_and(|ready| ready.is_ok()).then_some(Connection::Http1(own))
    }

    /// Keeps a connection that a request has just ended on. If the pool is full, the one that has
    /// been idle for longest goes: connections that are no longer fresh would otherwise hold
    /// the places, and every request that may not be sent twice would open a new connection.
    fn put(&self, connection: Http1) {
        let rest_clock = &self.inner.settings.rest_clock;
        let rests_until = connection.needs_rest.then(|| rest_clock.end_of_rest());
        let mut idle = lock(&self.inner.idle);
        idle.push_back(Idle { connection, since: Instant::now(), rests_until });
        if idle.len() > self.inner.settings.idle_max {
            idle.pop_front();
        }
    }
}

fn allowed(address: Option<IpAddr>, permit: Option<&dyn Permit>) -> bool {
    match (address, permit) {
        (Some(address), Some(permit)) => permit.permits(address.to_canonical()),
        _ => true,
    }
}
