//! Settings of the transport: listeners, limits towards clients, and how origins are reached.
//!
//! Plain data with defaults that suit most; [`crate::ProxyConfig::transport`] holds it. What can be
//! wrong with it is found when the proxy starts. No threads.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

/// Everything about connections that is not about caching.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Transport {
    /// Listeners besides [`crate::ProxyConfig::from`]. Default none.
    pub listeners: Vec<Listener>,
    /// Certificates of the TLS listeners; the first also serves clients that name no host or an
    /// unknown one. Read again when a file changes. Default none.
    pub certificates: Vec<CertificateFiles>,
    /// Networks whose connections must begin with a PROXY protocol header on listeners that ask
    /// for one; all others are turned away there. Default none.
    pub proxy_protocol_networks: Vec<IpNet>,
    /// Limits on clients.
    pub clients: ClientLimits,
    /// What the origin learns about the client.
    pub forwarded: ForwardedFields,
    /// How origins are reached.
    pub upstream: Upstream,
    /// Protocols that a client may leave HTTP for, if the origin agrees. Others, `h2c` above all,
    /// would let it speak to the origin past every check. Default `websocket`.
    pub upgrades: Vec<String>,
    /// Time after which a tunnel in which nothing moves is cut. Default 10 min.
    pub tunnel_idle_timeout: Duration,
}

impl Default for Transport {
    fn default() -> Transport {
        Transport {
            listeners: Vec::new(),
            certificates: Vec::new(),
            proxy_protocol_networks: Vec::new(),
            clients: ClientLimits::default(),
            forwarded: ForwardedFields::default(),
            upstream: Upstream::default(),
            upgrades: vec!["websocket".to_owned()],
            tunnel_idle_timeout: Duration::from_secs(600),
        }
    }
}

/// A place to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub address: ListenAddress,
    /// Whether clients speak TLS; needs [`Transport::certificates`].
    pub tls: bool,
    /// Whether connections begin with a PROXY protocol header, version 1 or 2, before any TLS.
    pub proxy_protocol: bool,
}

/// An address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket, made when the proxy starts and removed when it ends. Who may connect is up
    /// to the permissions of its directory; all peers are trusted to send a PROXY header.
    Unix(PathBuf),
}

/// A socket that listens already, handed down by a supervisor.
#[derive(Debug)]
pub enum Inherited {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, whose file is the supervisor's.
    Unix(UnixListener),
}

impl Inherited {
    /// Where it listens. A Unix socket without a file has an empty path.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Inherited::Tcp(socket) => socket.local_addr().map(ListenAddress::Tcp),
            Inherited::Unix(socket) => {
                let path = socket.local_addr()?.as_pathname().map(PathBuf::from);
                Ok(ListenAddress::Unix(path.unwrap_or_default()))
            }
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Listener {
    /// As [`FromStr`](std::str::FromStr) reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxy = if self.proxy_protocol { "proxy+" } else { "" };
        let tls = if self.tls { "tls+" } else { "" };
        match &self.address {
            ListenAddress::Tcp(address) => write!(f, "{proxy}{tls}tcp:{address}"),
            ListenAddress::Unix(_) => write!(f, "{proxy}{tls}{}", self.address),
        }
    }
}

/// A listener that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no listener: write tcp:ADDR:PORT or unix:PATH, with `tls+` or `proxy+` before it"
)]
pub struct ParseListenerError(String);

impl std::str::FromStr for Listener {
    type Err = ParseListenerError;

    /// `[proxy+][tls+]tcp:ADDR:PORT` or `[proxy+][tls+]unix:PATH`.
    fn from_str(text: &str) -> Result<Listener, ParseListenerError> {
        let error = || ParseListenerError(text.to_owned());
        let (mut tls, mut proxy_protocol, mut rest) = (false, false, text);
        loop {
            if let Some(after) = rest.strip_prefix("tls+").filter(|_| !tls) {
                (tls, rest) = (true, after);
            } else if let Some(after) = rest.strip_prefix("proxy+").filter(|_| !proxy_protocol) {
                (proxy_protocol, rest) = (true, after);
            } else {
                break;
            }
        }
        let address = match rest.split_once(':') {
            Some(("tcp", address)) => ListenAddress::Tcp(address.parse().map_err(|_| error())?),
            Some(("unix", path)) if !path.is_empty() => ListenAddress::Unix(path.into()),
            _ => return Err(error()),
        };
        Ok(Listener { address, tls, proxy_protocol })
    }
}

/// A certificate chain and its key, PEM files both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those it was signed with.
    pub chain: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// What a client may cost. Each limit that is passed has a status code or ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Connections at once from one address (IPv6: from one /64); further ones get 429. Clients
    /// on a loopback address or a Unix socket are not limited. Default 1,024; 0 is no limit.
    pub connections_per_client_max: usize,
    /// Time from the first byte of a request to the end of its headers, and for a TLS handshake
    /// or a PROXY header; then 408. Default 10 s.
    pub header_timeout: Duration,
    /// Time a connection may wait for its next request; then it is closed. Default 75 s.
    pub idle_timeout: Duration,
    /// Silence between requests after which an HTTP/1 connection keeps nothing but its socket until something
    /// comes. Default 2 s; not before `idle_timeout` is never.
    pub rest_after: Duration,
    /// Time a client may take nothing of its answer; then the connection is closed. Default 30 s.
    pub write_timeout: Duration,
    /// Bytes that each second must bring which the body of a request is waited for, beyond a grace of
    /// `body_idle_timeout` in all; then 408. Default 500; 0 is no limit.
    pub upload_second_bytes_min: u32,
    /// Answer a client of HTTP/1 that has closed its sending side. It looks like one that is gone, which by
    /// default has its request dropped. Default false.
    pub half_closed: bool,
    /// Lines in the headers of a request; more get 431. Default 100.
    pub header_lines_max: usize,
    /// Bytes of a request target; more get 414. Default 32 KiB.
    pub uri_bytes_max: usize,
    /// Requests at once on one HTTP/2 connection. Default 128.
    pub http2_streams_max: u32,
    /// Streams that an HTTP/2 client may open and reset before we have looked at them; one more
    /// ends the connection (CVE-2023-44487, "rapid reset"). Default 20.
    pub http2_resets_max: usize,
    /// Bytes of decoded header fields of one HTTP/2 request; more get 431. What arrives in
    /// CONTINUATION frames beyond it ends the connection. Default 64 KiB.
    pub http2_header_bytes_max: u32,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            connections_per_client_max: 1024,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            rest_after: Duration::from_secs(2),
            write_timeout: Duration::from_secs(30),
            upload_second_bytes_min: 500,
            half_closed: false,
            header_lines_max: 100,
            uri_bytes_max: 32 << 10,
            http2_streams_max: 128,
            http2_resets_max: 20,
            http2_header_bytes_max: 64 << 10,
        }
    }
}

/// Which fields tell the origin about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardedFields {
    /// `X-Forwarded-For`, `X-Forwarded-Host` and `X-Forwarded-Proto`. Default true.
    pub x_forwarded: bool,
    /// `Forwarded` (RFC 7239). Default false.
    pub forwarded: bool,
    /// Believe what the client sent in these fields, and add to it: the first `X-Forwarded-Host` and
    /// `X-Forwarded-Proto` then stand in keys. Right behind another proxy that sets them, and only there:
    /// anybody can write them. Default false: they, and their like, are dropped.
    pub trust_client: bool,
    /// `Via` in requests (RFC 9110 §7.6.3 demands it; also what finds loops). Default true.
    pub via: bool,
}

impl Default for ForwardedFields {
    fn default() -> ForwardedFields {
        ForwardedFields { x_forwarded: true, forwarded: false, trust_client: false, via: true }
    }
}

/// How origins are reached. What is not here is in [`crate::ProxyConfig`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Upstream {
    /// Origins besides [`crate::ProxyConfig::to`] that serve the same site; all are asked with the
    /// host of the first. Default none.
    pub more_origins: Vec<String>,
    /// Which of several is asked. Default [`OriginChoice::ConsistentHash`].
    pub origin_choice: OriginChoice,
    /// Offer HTTP/2 to https origins (ALPN). Default true.
    pub http2: bool,
    /// Speak HTTP/2 to http origins without asking. Default false.
    pub http2_clear_text: bool,
    /// Requests at once on one HTTP/2 connection to an origin; for more, or more than
    /// the origin allows there, there are further connections. Default 100.
    pub http2_streams_max: usize,
    /// An HTTP/2 connection to an origin that was silent for so long while an answer is owed is asked by a
    /// PING whether it is there, and closed if nothing comes for 20 s. Servers of gRPC close connections
    /// that ask more often than every 5 minutes. Default none.
    pub http2_ping: Option<Duration>,
    /// Certificate authorities that origins are checked against, a PEM file, instead of the
    /// system's. Default none.
    pub authorities: Option<PathBuf>,
    /// Lines in the headers of a response over HTTP/1.1; more make it a 502. Default 500.
    pub header_lines_max: usize,
    /// Longest time from sending a request to the end of its response. Default none.
    pub total_timeout: Option<Duration>,
    /// Requests at once to each origin, all workers together; further ones wait for a place as
    /// long as for a connection, and then get 503. Default 0, no limit.
    pub requests_per_origin_max: usize,
    /// Checks of each origin at intervals. Default none.
    pub check: Option<HealthChecks>,
    /// When requests that failed keep an origin from being asked. Counts where there are several.
    pub ejection: Ejection,
}

impl Default for Upstream {
    fn default() -> Upstream {
        Upstream {
            more_origins: Vec::new(),
            origin_choice: OriginChoice::ConsistentHash,
            http2: true,
            http2_clear_text: false,
            http2_streams_max: 100,
            http2_ping: None,
            authorities: None,
            header_lines_max: 500,
            total_timeout: None,
            requests_per_origin_max: 0,
            check: None,
            ejection: Ejection::default(),
        }
    }
}

/// How one of several origins is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginChoice {
    /// By host, path and query, so that each origin sees the same part of the site.
    ConsistentHash,
    /// The one with the fewest requests under way.
    LeastLoaded,
}

/// A choice that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no way to choose an origin: write hash or least-loaded")]
pub struct ParseOriginChoiceError(String);

impl std::str::FromStr for OriginChoice {
    type Err = ParseOriginChoiceError;

    fn from_str(text: &str) -> Result<OriginChoice, ParseOriginChoiceError> {
        match text {
            "hash" => Ok(OriginChoice::ConsistentHash),
            "least-loaded" => Ok(OriginChoice::LeastLoaded),
            _ => Err(ParseOriginChoiceError(text.to_owned())),
        }
    }
}

/// A GET at intervals that must bring a status of 2xx or 3xx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    /// What is asked for. Default `/`.
    pub path: String,
    /// Time from one check to the next, at least 10 ms. Default 5 s.
    pub interval: Duration,
    /// Time for a check, connecting included. Default 2 s.
    pub timeout: Duration,
    /// Failures in a row after which an origin is down. Default 3.
    pub fall: u32,
    /// Successes in a row after which it is up again. Default 2.
    pub rise: u32,
}

impl Default for HealthChecks {
    fn default() -> HealthChecks {
        HealthChecks {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            fall: 3,
            rise: 2,
        }
    }
}

/// When an origin that does not answer is left alone for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    /// Requests in a row without an answer; 0 never ejects. Default 5.
    pub failures: u32,
    /// How long. Default 10 s.
    pub period: Duration,
}

impl Default for Ejection {
    fn default() -> Ejection {
        Ejection { failures: 5, period: Duration::from_secs(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_and_written_alike() {
        for text in ["tcp:127.0.0.1:80", "tls+tcp:[::]:443", "unix:/run/x", "proxy+tls+unix:/x"] {
            assert_eq!(text.parse::<Listener>().unwrap().to_string(), text);
        }
        for text in ["127.0.0.1:80", "tcp:80", "unix:", "tls+tls+tcp:127.0.0.1:80", "udp:1"] {
            assert!(text.parse::<Listener>().is_err(), "{text}");
        }
    }
}
