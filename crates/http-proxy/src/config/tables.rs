//! Tables of the configuration file, one struct each: a field has the name of its key, and
//! `Default` holds its default. `settings/keys.rs` has the syntax of each key, and
//! docs/configuration.md is made from both. Plain data; no threads.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use damelo::ByteSize;
use http::{HeaderName, Method};
use ipnet::IpNet;

use crate::config::transport::CertificateFiles;
#[cfg(doc)]
use crate::config::transport::ForwardedFields;
use crate::config::{Grouping, LogFormat, LogTarget};
use crate::error::ProxyError;

/// `[tls]`: what TLS listeners show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TlsConfig {
    /// Certificates of the TLS listeners; the first also serves clients that name no host or an
    /// unknown one. Read again when a file changes. Default none.
    pub certificates: Vec<CertificateFiles>,
}

/// `[proxy_protocol]`: which load balancers are believed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ProxyProtocolConfig {
    /// Networks whose connections must begin with a PROXY protocol header on listeners that require
    /// one; those listeners reject all other connections. Default none.
    pub networks: Vec<IpNet>,
}

/// More header lines than this are never accepted: memory for them is set aside for each
/// connection.
pub(crate) const HEADER_LINES_MAX: usize = 10_000;

/// The HTTP library takes no longer request target.
pub(crate) const URI_BYTES_MAX: usize = u16::MAX as usize - 1;

/// `[limits]`: what clients and origins may ask of the proxy. Exceeding a limit is answered with a
/// status code or ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Request and origin response headers larger than this are refused. Default 64 KiB.
    pub header_bytes_max: usize,
    /// Connections of clients at once; further ones wait to be accepted. Default 10,000.
    pub connections_max: usize,
    /// Connections at once from one address (IPv6: from one /64); further ones get 429, or are
    /// closed where TLS is spoken. Clients on a loopback address or a Unix socket are not limited,
    /// nor are the proxies that [`ForwardedFields::trust_networks`] lists.
    /// Default 1,024; 0 is no limit.
    pub connections_per_client_max: usize,
    /// Lines in the headers of a request; more get 431. Default 100, at most 10,000.
    pub header_lines_max: usize,
    /// Lines in the headers of a response over HTTP/1.1; more make it a 502. Default 500, at most
    /// 10,000.
    pub origin_header_lines_max: usize,
    /// Slowest upload, in bytes per second, that the proxy waits for, after a grace period of
    /// [`Timeouts::body_idle`] in all; slower ones get 408. Default 500; 0 is no limit.
    pub upload_second_bytes_min: u32,
    /// Longest body of a request; a longer one gets 413, before any of it is read if its length is
    /// said. Default none.
    pub upload_bytes_max: Option<u64>,
    /// Answer an HTTP/1 client that has closed its sending side. By default such a client counts as
    /// gone, since the two look alike, and its request is dropped. Default false.
    pub half_closed_clients: bool,
    /// Bytes of a request target; more get 414. At most `header_bytes_max`. Default 32 KiB.
    pub uri_bytes_max: usize,
    /// Requests at once on one HTTP/2 connection. Default 128.
    pub http2_streams_max: u32,
    /// Streams that an HTTP/2 client may open and reset before the proxy has processed them; one
    /// more ends the connection (CVE-2023-44487, "rapid reset"). Default 20.
    pub http2_resets_max: usize,
    /// Requests that an HTTP/2 client may cancel at once on one connection before their answers
    /// begin, beyond those of [`Limits::http2_cancels_second_max`]; one more ends the connection.
    /// The proxies that [`ForwardedFields::trust_networks`] lists are not limited. Default 500; 0
    /// is no limit.
    pub http2_cancels_max: u32,
    /// How many of them a connection has room for again in each second. Default 33.
    pub http2_cancels_second_max: u32,
    /// Bytes of decoded header fields of one HTTP/2 request; more get 431. More CONTINUATION frames
    /// beyond that end the connection. Default 64 KiB.
    pub http2_header_bytes_max: u32,
    /// Largest response body stored. Default half of the cache, in any case for what is stored in
    /// one piece; all of it for what is stored in slices.
    pub body_bytes_max: Option<u64>,
    /// Bodies up to this size are stored with their headers and served as one piece of memory;
    /// larger ones are stored apart and streamed. Default 256 KiB.
    pub whole_body_bytes_max: u64,
    /// Idle origin connections kept per worker. Default 64.
    pub pool_idle_max: usize,
    /// Bytes of bodies from origins that may be in memory before all that come are read in small
    /// pieces, and kept for nobody who may yet join. Default 64 MiB.
    pub transit_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes_max: 64 << 10,
            connections_max: 10_000,
            connections_per_client_max: 1024,
            header_lines_max: 100,
            origin_header_lines_max: 500,
            upload_second_bytes_min: 500,
            upload_bytes_max: None,
            half_closed_clients: false,
            uri_bytes_max: 32 << 10,
            http2_streams_max: 128,
            http2_resets_max: 20,
            http2_cancels_max: 500,
            http2_cancels_second_max: 33,
            http2_header_bytes_max: 64 << 10,
            body_bytes_max: None,
            whole_body_bytes_max: 256 << 10,
            pool_idle_max: 512,
            transit_bytes_max: 64 << 20,
        }
    }
}

impl Limits {
    /// Refuses limits of which one could never be reached: a client would be told that its headers
    /// are too large where the operator allowed the target that makes them so.
    pub(crate) fn check(&self) -> Result<(), ProxyError> {
        if self.uri_bytes_max <= self.header_bytes_max {
            return Ok(());
        }
        let by_default = self.uri_bytes_max == Limits::default().uri_bytes_max;
        Err(ProxyError::TargetsOverHeaders {
            uri_bytes_max: ByteSize::new(self.uri_bytes_max as u64),
            header_bytes_max: ByteSize::new(self.header_bytes_max as u64),
            key: if by_default { "limits.header_bytes_max" } else { "limits.uri_bytes_max" },
        })
    }
}

/// `[timeouts]`: how long the proxy waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Connecting to the origin, TLS and, over HTTP/2, its SETTINGS included. Default 5 s.
    pub connect: Duration,
    /// From the end of a request to the origin's headers. Default 60 s.
    pub origin_header: Duration,
    /// How long the body of a request with `Expect: 100-continue` waits for the origin to say that
    /// it wants it; then it is sent all the same. Default 1 s; 0: the origin is not asked.
    pub origin_continue: Duration,
    /// Longest silence within a body, in either direction. Default 60 s.
    pub body_idle: Duration,
    /// From the first byte of a request to the end of its headers, also for a TLS handshake or a
    /// PROXY header; then 408. Default 10 s.
    pub client_header: Duration,
    /// How long a connection may wait for its next request; then it is closed. Default 75 s.
    pub client_idle: Duration,
    /// Silence between requests after which an HTTP/1 connection frees its buffers and keeps only
    /// its socket. Default 2 s; a value not below `client_idle` disables this.
    pub client_rest: Duration,
    /// Longest time that a client may accept no byte of its response; then the connection is
    /// closed. Default 30 s.
    pub client_write: Duration,
    /// Longest time from sending a request to the origin to the end of its response. Default none.
    pub total: Option<Duration>,
    /// Longest silence in a tunnel before it is closed. Default 10 min.
    pub tunnel_idle: Duration,
    /// How long an idle origin connection is kept. Default 30 s.
    pub pool_idle: Duration,
    /// How long an origin connection gets new requests at most. Default 1 h.
    pub pool_age: Duration,
    /// Longest wait of a request that may have what is stale for another one that fetches the same
    /// resource, and of any for the end of an answer that it cannot read along. Default 10 s.
    pub collapse: Duration,
    /// Time during which a proxy that was told to stop still takes connections while `/readyz` says
    /// 503, so that a balancer sends its clients elsewhere before any is refused; `drain` follows.
    /// Default 0.
    pub leave: Duration,
    /// Time that responses under way have to finish when the proxy is stopped. Default 10 s.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(5),
            origin_header: Duration::from_secs(60),
            origin_continue: Duration::from_secs(1),
            body_idle: Duration::from_secs(60),
            client_header: Duration::from_secs(10),
            client_idle: Duration::from_secs(75),
            client_rest: Duration::from_secs(2),
            client_write: Duration::from_secs(30),
            total: None,
            tunnel_idle: Duration::from_secs(600),
            pool_idle: Duration::from_secs(30),
            pool_age: Duration::from_secs(3600),
            collapse: Duration::from_secs(10),
            leave: Duration::ZERO,
            drain: Duration::from_secs(10),
        }
    }
}

/// `[fill]`: when the proxy goes on fetching a response whose client has left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FillConfig {
    /// It goes on if at most this many bytes remain; where the length is unknown, while at most
    /// this many have come, and for [`Timeouts::body_idle`] at most. Default 1 MiB.
    pub finish_bytes_max: u64,
    /// It goes on if at least this percentage is done. Default 50.
    pub finish_percent_min: u8,
}

impl Default for FillConfig {
    fn default() -> FillConfig {
        FillConfig { finish_bytes_max: 1 << 20, finish_percent_min: 50 }
    }
}

/// `[groups]`: which responses lie together in the store, and what is known of them as a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GroupsConfig {
    /// Grouping of responses. Default by what the origin names, else by page.
    pub by: Grouping,
    /// When a document is read from disk, prefetch the objects of its group into memory. Default
    /// false.
    pub prefetch: bool,
    /// Set love and hate hints of groups from observed use. Default false.
    pub hints_by_use: bool,
}

/// `[log]`: the access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LogConfig {
    /// Where a line per request is written. Default nowhere.
    pub to: LogTarget,
    /// Format of those lines. Default combined.
    pub format: LogFormat,
}

/// `[errors]`: what the proxy says where it has no answer of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ErrorsConfig {
    /// A file of HTML that is the body of the proxy's own 502, 503 and 504. Default none: a line of
    /// text that says what failed.
    pub page: Option<PathBuf>,
}

/// `[purge]`: purges by the method PURGE.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeConfig {
    /// Take [`methods`](PurgeConfig::methods) as purges instead of passing them on. Default false.
    pub method: bool,
    /// The methods that are purges, where `method` is set. Default `PURGE`.
    pub methods: Vec<Method>,
    /// Header fields with tags, in responses and in orders to purge, besides `Surrogate-Key`,
    /// `Cache-Tag`, `xkey`, `Cache-Groups`, `Cache-Tags` and `X-Magento-Tags`. Default none.
    pub tag_headers: Vec<HeaderName>,
    /// Networks that may purge. Default loopback.
    pub networks: Vec<IpNet>,
    /// Token that purge requests must show, as `Authorization: Bearer TOKEN`. Default none.
    pub token: Option<String>,
}

impl Default for PurgeConfig {
    fn default() -> PurgeConfig {
        PurgeConfig {
            method: false,
            methods: vec![Method::from_bytes(b"PURGE").unwrap_or_default()],
            tag_headers: Vec::new(),
            networks: loopback(),
            token: None,
        }
    }
}

impl PurgeConfig {
    /// Whether requests with this method are orders to purge.
    pub(crate) fn takes(&self, method: &Method) -> bool {
        self.method && self.methods.contains(method)
    }
}

/// `[admin]`: the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminConfig {
    /// Address for `/metrics` and `/healthz`; loopback is advised. Default none; `damelo proxy`
    /// takes a free port of 127.0.0.1.
    pub from: Option<SocketAddr>,
    /// Networks whose requests the admin listener answers. Default loopback.
    pub networks: Vec<IpNet>,
    /// Token that the admin listener demands for anything but reading health and metrics. Default
    /// none.
    pub token: Option<String>,
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        AdminConfig { from: None, networks: loopback(), token: None }
    }
}

/// This host's own addresses.
fn loopback() -> Vec<IpNet> {
    let v4 = std::net::IpAddr::from([127, 0, 0, 0]);
    let v6 = std::net::IpAddr::from([0_u16, 0, 0, 0, 0, 0, 0, 1]);
    // A prefix of 8 bits is within the 32 of an address.
    vec![IpNet::new(v4, 8).unwrap_or_else(|_| IpNet::from(v4)), IpNet::from(v6)]
}
