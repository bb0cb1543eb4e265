//! Errors: those that keep a proxy from running, and those of one fetch.

use std::io;
use std::net::SocketAddr;

use http::StatusCode;

/// Why a proxy does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The origin's address cannot be used.
    #[error("`{url}` cannot be an origin: {reason}")]
    Origin {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A thread or its event loop could not be started.
    #[error("cannot start a worker")]
    Worker(#[source] io::Error),
    /// The certificates that origins are checked against cannot be read.
    #[error("no certificate authorities found on this system to check an https origin with")]
    Certificates,
    /// The name is not a token.
    #[error("`{0}` cannot be a cache name: use letters, digits and `-`, beginning with a letter")]
    Name(String),
    /// The access log cannot be opened.
    #[error("cannot write the access log to {target}")]
    Log {
        /// Where it was to go.
        target: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A worker ended by a panic: a bug.
    #[error("a worker thread died")]
    WorkerDied,
}

/// Why the origin gave no response. All of these are the origin's side; the client gets 502 or 504.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("the origin could not be reached")]
    Connect,
    #[error("the origin did not accept a connection in time")]
    ConnectTimeout,
    #[error("the origin's certificate or TLS handshake failed")]
    Tls,
    #[error("the origin did not answer in time")]
    HeaderTimeout,
    #[error("the origin closed the connection or did not speak HTTP")]
    Broken,
}

impl FetchError {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            FetchError::ConnectTimeout | FetchError::HeaderTimeout => StatusCode::GATEWAY_TIMEOUT,
            FetchError::Connect | FetchError::Tls | FetchError::Broken => StatusCode::BAD_GATEWAY,
        }
    }

    /// Token for `Cache-Status: detail=`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FetchError::Connect => "connect-failed",
            FetchError::ConnectTimeout => "connect-timeout",
            FetchError::Tls => "tls-failed",
            FetchError::HeaderTimeout => "origin-timeout",
            FetchError::Broken => "origin-broken",
        }
    }
}
