//! Listeners, and the tables `[forwarded]` and `[upstream]`: what origins learn about clients, and
//! how origins are reached.
//!
//! Plain data with defaults that suit most. Invalid values are reported when the proxy starts. No
//! threads.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use ipnet::IpNet;

/// A configured listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address to listen on.
    pub address: ListenAddress,
    /// Whether clients speak TLS; needs [`crate::TlsConfig::certificates`].
    pub tls: bool,
    /// Whether connections begin with a PROXY protocol header, version 1 or 2, before any TLS.
    pub proxy_protocol: bool,
}

/// An address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket, created when the proxy starts and removed when it ends. The permissions of
    /// its directory decide who may connect; all peers are trusted to send a PROXY header.
    Unix(PathBuf),
}

/// A listening socket handed down by a supervisor.
#[derive(Debug)]
pub enum Inherited {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, whose file belongs to the supervisor.
    Unix(UnixListener),
}

impl Inherited {
    /// The address that the socket listens on. A Unix socket without a file has an empty path.
    ///
    /// # Errors
    /// The operating system does not report the address.
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
    /// Writes the form that [`FromStr`](std::str::FromStr) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxy = if self.proxy_protocol { "proxy+" } else { "" };
        let tls = if self.tls { "tls+" } else { "" };
        match &self.address {
            ListenAddress::Tcp(address) => write!(f, "{proxy}{tls}tcp:{address}"),
            ListenAddress::Unix(_) => write!(f, "{proxy}{tls}{}", self.address),
        }
    }
}

/// Text that names no listener.
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

/// A certificate chain and its private key, both PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by its issuers.
    pub chain: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// `[forwarded]`: which fields tell the origin about the client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardedFields {
    /// `X-Forwarded-For`, `X-Forwarded-Host` and `X-Forwarded-Proto`. Default true.
    pub x_forwarded: bool,
    /// `Forwarded` (RFC 7239). Default false.
    pub forwarded: bool,
    /// Trust the client's values of these fields, and append to them; `X-Forwarded-Host`, if it is
    /// one host, and the first `X-Forwarded-Proto` then become part of keys. Only safe directly
    /// behind another proxy that sets them, since any client can write them. Default false: these
    /// and similar fields are dropped.
    pub trust_client: bool,
    /// With `trust_client`: only connections from these networks are trusted, and of the addresses
    /// that they name the client is the last one outside. Default none: all connections are
    /// trusted, and the client is the last address.
    pub trust_networks: Vec<IpNet>,
    /// Send `Via` in requests (required by RFC 9110 §7.6.3; also detects loops). Default true.
    pub via: bool,
}

impl Default for ForwardedFields {
    fn default() -> ForwardedFields {
        ForwardedFields {
            x_forwarded: true,
            forwarded: false,
            trust_client: false,
            trust_networks: Vec::new(),
            via: true,
        }
    }
}

impl ForwardedFields {
    /// Whether a connection from this address may say who its client is, and what that asked for.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        let is_in = |network: &IpNet| network.contains(&peer.to_canonical());
        let networks = &self.trust_networks;
        self.trust_client && (networks.is_empty() || networks.iter().any(is_in))
    }

    /// Whether this is the address of a proxy before this one, by a list of such: its connections
    /// are those of many clients. Where none are listed anybody may be one.
    pub(crate) fn lists(&self, peer: IpAddr) -> bool {
        !self.trust_networks.is_empty() && self.trusts(peer)
    }
}

/// `[upstream]`: how origins are reached. The keys `eject_failures` and `eject_period` are the
/// fields of `ejection`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Upstream {
    /// Further origins of the same site besides [`crate::ProxyConfig::to`]; all receive the host of
    /// the first. Default none.
    pub more_origins: Vec<String>,
    /// Origins of the same site that are asked only while none of the others is healthy, or once
    /// none of them could be reached for a request. Default none.
    pub backup_origins: Vec<String>,
    /// How one of several origins is chosen. Default [`OriginChoice::ConsistentHash`].
    pub origin_choice: OriginChoice,
    /// Offer HTTP/2 to https origins (ALPN). Default true.
    pub http2: bool,
    /// Speak HTTP/2 to http origins without negotiation (prior knowledge). Default false.
    pub http2_clear_text: bool,
    /// Concurrent requests on one HTTP/2 connection to an origin; beyond this limit or the origin's
    /// own, further connections are opened. Default 100.
    pub http2_streams_max: usize,
    /// Silence after which an HTTP/2 connection to an origin that owes a response is probed with a
    /// PING; it is closed if nothing arrives within 20 s. gRPC servers close connections that are
    /// probed more often than every 5 minutes. Default none.
    pub http2_ping: Option<Duration>,
    /// Certificate authorities that origins are checked against, a PEM file, instead of the
    /// system's. Default none.
    pub authorities: Option<PathBuf>,
    /// Name that certificates of the proxy's own https origins must be for, and that they are told
    /// in the handshake, instead of the host in each one's URL. Not for origins that rules name.
    /// Default none.
    pub tls_name: Option<String>,
    /// Concurrent requests to each origin, summed over all workers; further ones wait for a place
    /// as long as for a connection, and then get 503. Default 0, no limit.
    pub requests_per_origin_max: usize,
    /// Periodic health checks of each origin. Default none.
    pub check: Option<HealthChecks>,
    /// When failed requests eject an origin. Applies only where there are several.
    pub ejection: Ejection,
    /// Statuses (429, and from 500 on) by which one of several origins fails a request: one with a
    /// safe method and no body goes to another one, once, and it counts towards `ejection`. Default
    /// none.
    pub retry_statuses: Vec<StatusCode>,
}

impl Default for Upstream {
    fn default() -> Upstream {
        Upstream {
            more_origins: Vec::new(),
            backup_origins: Vec::new(),
            origin_choice: OriginChoice::ConsistentHash,
            http2: true,
            http2_clear_text: false,
            http2_streams_max: 100,
            http2_ping: None,
            authorities: None,
            tls_name: None,
            requests_per_origin_max: 0,
            check: None,
            ejection: Ejection::default(),
            retry_statuses: Vec::new(),
        }
    }
}

/// How one of several origins is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginChoice {
    /// By host, path and query, so that each origin sees the same part of the site.
    ConsistentHash,
    /// The origin with the fewest requests in flight.
    LeastLoaded,
}

/// Text that names no choice.
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

/// A periodic GET that must be answered with a good status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    /// The requested path. Default `/`.
    pub path: String,
    /// The `Host` that is asked for. Default none: that of the site, of the first one for an origin
    /// of several.
    pub host: Option<String>,
    /// Good statuses. Default 200 to 399.
    pub expect: RangeInclusive<u16>,
    /// Time from one check to the next, at least 10 ms. Default 5 s.
    pub interval: Duration,
    /// Time for a check, connecting included. Default 2 s.
    pub timeout: Duration,
    /// Consecutive failures after which an origin is down. Default 3.
    pub fall: u32,
    /// Consecutive successes after which it is up again. Default 2.
    pub rise: u32,
}

impl Default for HealthChecks {
    fn default() -> HealthChecks {
        HealthChecks {
            path: "/".to_owned(),
            host: None,
            expect: 200..=399,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            fall: 3,
            rise: 2,
        }
    }
}

/// When an origin that does not answer is ejected for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    /// Consecutive requests without an answer, or with one of
    /// [`retry_statuses`](Upstream::retry_statuses); 0 never ejects. Default 5.
    pub failures: u32,
    /// How long an ejection lasts. Default 10 s.
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
