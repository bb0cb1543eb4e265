//! HTTP/2 connections to one endpoint, which requests share: as many as the requests under way need.
//!
//! Invariant: no connection has more than `streams_max` requests under way. An origin sets a limit of its own, which the
//! library keeps by letting requests wait; waiting there looks like an origin that does not answer, so that the
//! limit here is to be no higher than the origin's (RFC 9113 §6.5.2 recommends origins to allow 100).
//! Threads: lies behind the lock of its pool.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::client::conn::http2;

use crate::upstream::OriginBody;

/// The connections. The first ones are filled first, so that those beyond need can grow idle and close.
#[derive(Default)]
pub(super) struct Shared {
    connections: Vec<Http2>,
}

struct Http2 {
    sender: http2::SendRequest<OriginBody>,
    address: Option<IpAddr>,
    used: Instant,
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
pub(super) struct Stream(#[expect(dead_code, reason = "held for its count")] Arc<()>);

impl Http2 {
    fn place(&mut self) -> Place {
        self.used = Instant::now();
        Place { sender: self.sender.clone(), stream: Stream(Arc::clone(&self.streams)) }
    }

    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
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
        let free = |one: &&mut Http2| one.streams() < streams_max && allowed(one.address);
        connections.find(free).map(Http2::place)
    }

    /// Takes a new connection in; the first place on it.
    pub(super) fn put(
        &mut self,
        sender: http2::SendRequest<OriginBody>,
        address: Option<IpAddr>,
    ) -> Place {
        let mut one = Http2 { sender, address, used: Instant::now(), streams: Arc::default() };
        let place = one.place();
        self.connections.push(one);
        place
    }
}

/// A place on a connection that nothing else uses.
pub(super) fn unshared(sender: http2::SendRequest<OriginBody>) -> Place {
    Place { sender, stream: Stream(Arc::default()) }
}
