//! Opening connections of a pool, each within the connect timeout.
//!
//! Invariant: while one request opens a connection to an endpoint that may speak HTTP/2, no other
//! request of this pool does; the others may share that connection. Threads: the pool's worker.

use std::sync::atomic::Ordering;
use std::time::Instant;

use http::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout_at;

use crate::error::FetchError;
use crate::forward::Permit;
use crate::io::BUFFER_BYTES_MIN;
use crate::io::locks::lock;
use crate::upstream::OriginBody;
use crate::upstream::endpoint::Purpose;
use crate::upstream::pinned::Pinned;
use crate::upstream::pool::{Age, Connection, Http1, Lasting, Pool, allowed};
use crate::upstream::shared::{self, Outcome, Preface};
use crate::upstream::stream::{SparingStream, Stream};

/// Read buffer limit of an origin connection, unless the header limit is larger: 128 KiB of body
/// and its headers. In a smaller buffer the headers would displace the end of a body whose length
/// is a power of two, and that remainder would be read, stored and sent separately.
const READ_BYTES_MAX: usize = (128 + 16) << 10;

/// The sender of a connection, and the connection that must be run for it.
type Http1Parts =
    (http1::SendRequest<OriginBody>, http1::Connection<TokioIo<SparingStream>, OriginBody>);

impl Pool {
    /// A new connection for a request, or a place on one that another request opened meanwhile, by
    /// the request's `deadline` at the latest.
    pub(super) async fn connect_for(
        &self,
        request: &Request<OriginBody>,
        permit: Option<&dyn Permit>,
        deadline: Option<Instant>,
    ) -> Result<Connection, FetchError> {
        let due = Instant::now() + self.inner.settings.limits.of(request).connect;
        let due = deadline.map_or(due, |deadline| deadline.min(due));
        let pinned = request.extensions().get::<Pinned>().is_some();
        let connecting = async {
            match pinned {
                true => self.open_own(permit, due).await,
                false => self.connect(permit, due).await,
            }
        };
        timeout_at(due.into(), connecting).await.unwrap_or(Err(FetchError::ConnectTimeout))
    }

    async fn connect(
        &self,
        permit: Option<&dyn Permit>,
        due: Instant,
    ) -> Result<Connection, FetchError> {
        let endpoint = &self.inner.endpoint;
        if !endpoint.may_http2.load(Ordering::Relaxed) || !self.inner.settings.keep_http2 {
            return self.open(Purpose::Requests, permit, due).await;
        }
        let turn = self.inner.connecting.lock().await;
        // The previous holder of the lock may have opened a connection that all can share.
        loop {
            if let Some(place) = self.take_http2(permit) {
                return Ok(Connection::Http2(place));
            }
            // Or it has found that there is nothing to share, and nobody to wait for.
            if !endpoint.may_http2.load(Ordering::Relaxed) {
                drop(turn);
                return self.open(Purpose::Requests, permit, due).await;
            }
            let arrived = match self.awaited_preface(permit) {
                Some(mut preface) => preface.outcome().await == Outcome::Arrived,
                None => false,
            };
            if !arrived {
                return self.open(Purpose::Requests, permit, due).await;
            }
        }
    }

    /// A connection that may switch to another protocol.
    pub(super) async fn connect_for_upgrade(
        &self,
        request: &Request<OriginBody>,
        permit: Option<&dyn Permit>,
    ) -> Result<http1::SendRequest<OriginBody>, FetchError> {
        let due = Instant::now() + self.inner.settings.limits.of(request).connect;
        let opening = async {
            let (endpoint, turn) = (&self.inner.endpoint, self.turn());
            let connecting = endpoint.connect(Purpose::Upgrade, permit, due.into(), turn);
            let (stream, _) = connecting.await?;
            let (sender, connection) = self.speak_http1(stream, BUFFER_BYTES_MIN).await?;
            tokio::spawn(connection.with_upgrades());
            Ok(sender)
        };
        let opened = timeout_at(due.into(), opening).await;
        opened.unwrap_or(Err(FetchError::ConnectTimeout))
    }

    /// A connection for one client alone. It uses HTTP/1.1 where there is a choice, because servers
    /// tie a connection to a user in that version only.
    async fn open_own(
        &self,
        permit: Option<&dyn Permit>,
        due: Instant,
    ) -> Result<Connection, FetchError> {
        self.open(Purpose::Upgrade, permit, due).await
    }

    async fn open(
        &self,
        purpose: Purpose,
        permit: Option<&dyn Permit>,
        due: Instant,
    ) -> Result<Connection, FetchError> {
        let endpoint = &self.inner.endpoint;
        let (stream, address) = endpoint.connect(purpose, permit, due.into(), self.turn()).await?;
        let (settings, shares) = (&self.inner.settings, purpose == Purpose::Requests);
        if !endpoint.is_http2(&stream) {
            if shares {
                endpoint.may_http2.store(false, Ordering::Relaxed);
            }
            let (sender, connection) = self.speak_http1(stream, READ_BYTES_MAX).await?;
            // The task ends when the origin closes or the sender is dropped; errors reach the
            // sender.
            let task = tokio::spawn(connection).abort_handle();
            return Ok(Connection::Http1(Http1 {
                sender,
                task,
                lasting: Box::new(Lasting { address, age: Age::begin(settings.age_max) }),
                keeps: None,
                lengths_only: false,
                needs_rest: false,
                timer: None,
            }));
        }
        let opened = shared::open(stream, settings, due).await?;
        if !settings.keep_http2 || !shares {
            return Ok(Connection::Http2(shared::unshared(opened)));
        }
        let mut shared = lock(&self.inner.shared);
        Ok(Connection::Http2(shared.put(opened, address, Age::begin(settings.age_max))))
    }

    /// Speaks HTTP/1.1 on a new stream. The read buffer may grow to `buffer_bytes_max`, or to the
    /// header limit if that is larger.
    async fn speak_http1(
        &self,
        stream: Stream,
        buffer_bytes_max: usize,
    ) -> Result<Http1Parts, FetchError> {
        let settings = &self.inner.settings;
        http1::Builder::new()
            .max_buf_size(settings.header_bytes_max.max(buffer_bytes_max))
            .max_headers(settings.header_lines_max)
            // They are removed (RFC 9112 §5.1).
            .allow_spaces_after_header_name_in_responses(true)
            .handshake(TokioIo::new(SparingStream::new(stream, &settings.transit)))
            .await
            .map_err(|_| FetchError::Broken)
    }

    /// The number of the next connection.
    fn turn(&self) -> usize {
        self.inner.turn.fetch_add(1, Ordering::Relaxed)
    }

    fn awaited_preface(&self, permit: Option<&dyn Permit>) -> Option<Preface> {
        let shared = lock(&self.inner.shared);
        shared.awaited(|address| allowed(address, permit))
    }
}
