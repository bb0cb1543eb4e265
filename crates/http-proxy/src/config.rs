//! What a proxy is started with: plain data with defaults that suit most, every limit named.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use damelo::{Clock, SystemClock};

use crate::transport::Transport;

/// The origin that the proxy stands before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The built-in demo origin, started with the proxy on a free port of 127.0.0.1.
    Demo,
    /// `http://host[:port]` or `https://host[:port]`.
    Url(String),
}

impl std::str::FromStr for Target {
    type Err = std::convert::Infallible;

    /// `demo` is the demo; everything else is checked as a URL when the proxy starts.
    fn from_str(text: &str) -> Result<Target, Self::Err> {
        Ok(if text == "demo" { Target::Demo } else { Target::Url(text.to_owned()) })
    }
}

/// Everything a proxy is started with. Start from [`ProxyConfig::new`] and change fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// Address to listen on; port 0 takes a free one.
    pub from: SocketAddr,
    /// The origin.
    pub to: Target,
    /// Address for `/metrics` and `/healthz`; loopback is advised. Default none.
    pub admin: Option<SocketAddr>,
    /// Threads that serve, each with its own event loop. Default: one per core.
    pub workers: usize,
    /// Name of this cache in `Cache-Status` and `Via`: a token. Default `damelo`.
    pub name: String,
    /// Send the client's `Host` to the origin and cache by it. Default false: the origin's own.
    pub preserve_host: bool,
    /// Obey `no-cache`, `max-age`, `min-fresh` and `max-stale` of requests. Default true.
    pub obey_request_directives: bool,
    /// Write a line per request to standard output. Default false.
    pub access_log: bool,
    /// Request and origin response headers larger than this are refused. Default 64 KiB.
    pub header_bytes_max: usize,
    /// Connections of clients at once; further ones wait to be accepted. Default 10,000.
    pub connections_max: usize,
    /// Largest response body stored. Default 1 GiB.
    pub body_bytes_max: u64,
    /// Bodies up to this size are stored with their headers and served as one piece of memory,
    /// larger ones lie apart and are streamed. Default 256 KiB.
    pub whole_body_bytes_max: u64,
    /// Time to connect to the origin, TLS included. Default 5 s.
    pub connect_timeout: Duration,
    /// Time from the end of a request to the origin's headers. Default 60 s.
    pub header_timeout: Duration,
    /// Longest silence within a body, in either direction. Default 30 s.
    pub body_idle_timeout: Duration,
    /// Idle origin connections kept per worker. Default 64.
    pub pool_idle_max: usize,
    /// Time an idle origin connection is kept. Default 30 s.
    pub pool_idle_timeout: Duration,
    /// Longest wait for another request that fetches the same resource. Default 10 s.
    pub collapse_wait: Duration,
    /// A fill goes on without its client if no more than this is left. Default 1 MiB.
    pub finish_bytes_max: u64,
    /// A fill goes on without its client if this share is done, in percent. Default 50.
    pub finish_percent_min: u8,
    /// Time for answers under way when the proxy is told to stop. Default 10 s.
    pub drain_timeout: Duration,
    /// Listeners, limits towards clients, how origins are reached.
    pub transport: Transport,
    /// Source of the time of day.
    pub clock: Arc<dyn Clock>,
}

impl ProxyConfig {
    /// A proxy from `from` to `to` with the defaults for everything else.
    pub fn new(from: SocketAddr, to: Target) -> ProxyConfig {
        ProxyConfig {
            from,
            to,
            admin: None,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            name: "damelo".to_owned(),
            preserve_host: false,
            obey_request_directives: true,
            access_log: false,
            header_bytes_max: 64 << 10,
            connections_max: 10_000,
            body_bytes_max: 1 << 30,
            whole_body_bytes_max: 256 << 10,
            connect_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(60),
            body_idle_timeout: Duration::from_secs(30),
            pool_idle_max: 64,
            pool_idle_timeout: Duration::from_secs(30),
            collapse_wait: Duration::from_secs(10),
            finish_bytes_max: 1 << 20,
            finish_percent_min: 50,
            drain_timeout: Duration::from_secs(10),
            transport: Transport::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl fmt::Debug for ProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfig")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("admin", &self.admin)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
