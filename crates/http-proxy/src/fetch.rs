//! Requests to the origin: a pool of HTTP/1.1 connections, time limits, and one careful retry.
//!
//! Invariants: a request is sent twice only if the connection came from the pool and either not a
//! byte of it was written or its method is safe and it has no body; nothing waits without a limit.
//! Threads: one `Fetcher` per worker; its connections live on that worker's event loop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::body::OriginBody;
use crate::config::ProxyConfig;
use crate::error::FetchError;
use crate::metrics::Counters;
use crate::origin::Origin;

/// Fewest bytes hyper accepts as a buffer limit.
const BUFFER_BYTES_MIN: usize = 8192;

type Connection = SendRequest<OriginBody>;

struct Idle {
    connection: Connection,
    since: Instant,
}

/// Sends requests to the origin.
pub(crate) struct Fetcher {
    origin: Arc<Origin>,
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    connect_timeout: Duration,
    header_timeout: Duration,
    header_bytes_max: usize,
}

struct Pool {
    idle: Mutex<Vec<Idle>>,
    idle_max: usize,
    idle_timeout: Duration,
}

impl Pool {
    /// The connection used last that still lives.
    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| one.since.elapsed() < self.idle_timeout && one.connection.is_ready());
        idle.pop().map(|one| one.connection)
    }

    fn put(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.idle_max {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }
}

impl Fetcher {
    pub(crate) fn new(
        origin: Arc<Origin>,
        config: &ProxyConfig,
        counters: Arc<Counters>,
    ) -> Fetcher {
        Fetcher {
            origin,
            pool: Arc::new(Pool {
                idle: Mutex::default(),
                idle_max: config.pool_idle_max,
                idle_timeout: config.pool_idle_timeout,
            }),
            counters,
            connect_timeout: config.connect_timeout,
            header_timeout: config.header_timeout,
            header_bytes_max: config.header_bytes_max,
        }
    }

    /// Sends a request and waits for the headers of the final response.
    pub(crate) async fn send(
        &self,
        request: Request<OriginBody>,
    ) -> Result<Response<Incoming>, FetchError> {
        self.counters.forwarded.one();
        let result = self.send_uncounted(request).await;
        if result.is_err() {
            self.counters.origin_errors.one();
        }
        result
    }

    async fn send_uncounted(
        &self,
        request: Request<OriginBody>,
    ) -> Result<Response<Incoming>, FetchError> {
        let Some(pooled) = self.pool.take() else {
            return self.send_on(self.connect().await?, request).await.map_err(|(e, _)| e);
        };
        let spare = spare_copy(&request);
        match self.send_on(pooled, request).await {
            Ok(response) => Ok(response),
            Err((error, unsent)) => {
                let again = unsent.or(spare.filter(|_| error == FetchError::Broken));
                let Some(request) = again else { return Err(error) };
                self.counters.retries.one();
                self.send_on(self.connect().await?, request).await.map_err(|(e, _)| e)
            }
        }
    }

    async fn connect(&self) -> Result<Connection, FetchError> {
        let opening = async {
            let stream = TokioIo::new(self.origin.connect().await?);
            let (sender, connection) = Builder::new()
                .max_buf_size(self.header_bytes_max.max(BUFFER_BYTES_MIN))
                .handshake(stream)
                .await
                .map_err(|_| FetchError::Broken)?;
            // Ends when the origin closes or the sender is dropped; errors reach the sender.
            tokio::spawn(connection);
            Ok(sender)
        };
        timeout(self.connect_timeout, opening).await.map_err(|_| FetchError::ConnectTimeout)?
    }

    /// Sends on one connection; gives the request back if nothing of it was written.
    async fn send_on(
        &self,
        mut connection: Connection,
        request: Request<OriginBody>,
    ) -> Result<Response<Incoming>, (FetchError, Option<Request<OriginBody>>)> {
        let sending = async {
            connection.try_send_request(request).await.map_err(|mut error| {
                let unsent = error.take_message();
                (FetchError::of(error.error()), unsent)
            })
        };
        let response = match timeout(self.header_timeout, sending).await {
            Ok(result) => result?,
            Err(_) => return Err((FetchError::HeaderTimeout, None)),
        };
        // Back to the pool once the body has been read; if it never is, the connection closes.
        let pool = self.pool.clone();
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                pool.put(connection);
            }
        });
        Ok(response)
    }
}

/// What can be sent again without harm: a safe method without body.
fn spare_copy(request: &Request<OriginBody>) -> Option<Request<OriginBody>> {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    if !safe || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(OriginBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
