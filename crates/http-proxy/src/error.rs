//! Errors: those that keep a proxy from running, those of one fetch and of one body, and refusals of
//! requests.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

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
        /// The key of the configuration file that names it.
        key: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on the Unix socket `{path}`")]
    ListenUnix {
        /// The socket's file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A socket was handed down that is none of ours.
    #[error(
        "a socket was handed down that listens on {address}, and no listener has that address or port"
    )]
    Inherited {
        /// Where it listens.
        address: String,
    },
    /// A TLS listener without certificate.
    #[error(
        "a `tls+` listener needs a certificate: `tls.certificates` names the files of a chain and its key"
    )]
    NoCertificate,
    /// A certificate or key cannot be used.
    #[error("cannot use `{path}` for TLS: {reason}")]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] tokio_rustls::rustls::Error),
    /// A forward proxy would be open to others than this host.
    #[error(
        "{address} is not a loopback address: a forward proxy listens there only with \
         `forward.remote = true`, and serves whom `forward.rules` allow"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// A rule of a forward proxy names an origin, or changes what it is asked for.
    #[error(
        "a rule has `to`, `strip_prefix` or `add_prefix`, but in a forward proxy the client says \
         where to go: leave it out"
    )]
    RuleInForward,
    /// A forward proxy would believe its clients who they are.
    #[error(
        "forwarded.trust_client (--forwarded-trust-client) is not for a forward proxy: its rules go \
         by the client's address, which anybody could write there; behind a load balancer use a \
         `proxy+` listener and `proxy_protocol.networks`"
    )]
    TrustInForward,
    /// The file of users cannot be used.
    #[error("cannot take users from `{path}`: {reason}")]
    UsersFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that cannot stand in the file of users.
    #[error(
        "`{0}` cannot be a user's name: it must not be empty nor hold `:`, `#` or a line's end"
    )]
    UserName(String),
    /// The system gives no random numbers.
    #[error(
        "the system gives no random numbers for secrets: let this process call `getrandom`, or read \
         /dev/urandom"
    )]
    Randomness,
    /// A thread or its event loop could not be started.
    #[error("cannot start a worker")]
    Worker(#[source] io::Error),
    /// The certificates that origins are checked against cannot be read.
    #[error("no certificate authorities found on this system to check an https origin with")]
    Certificates,
    /// The file of certificate authorities cannot be used.
    #[error("cannot take certificate authorities from `{path}`: {reason}")]
    AuthoritiesFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The path of health checks is none.
    #[error("`{0}` cannot be the path of health checks: it must begin with a slash")]
    HealthPath(String),
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
    #[error(
        "a worker thread died, which is a bug: please report what it wrote to standard error; what \
         is stored is there again after a restart"
    )]
    WorkerDied,
}

impl ProxyError {
    /// The key of the configuration file whose value cannot be used, where it is one alone.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            ProxyError::Listen { key, .. } => Some(key),
            ProxyError::NoCertificate => Some("listen"),
            ProxyError::CertificateFile { .. } => Some("tls.certificates"),
            ProxyError::AuthoritiesFile { .. } => Some("upstream.authorities"),
            ProxyError::UsersFile { .. } => Some("forward.users"),
            _ => None,
        }
    }
}

/// Why there is no response of the origin. The last three are answered 4xx: an origin that must not
/// be asked, and a body that the client did not send; all others are the origin's doing (5xx).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("the origin could not be reached")]
    Connect,
    #[error("the name {0} could not be resolved")]
    Unresolved(Arc<str>),
    #[error("the origin did not accept a connection in time")]
    ConnectTimeout,
    #[error("the origin's certificate or TLS handshake failed")]
    Tls,
    #[error("the origin did not answer in time")]
    HeaderTimeout,
    #[error("the origin closed the connection or did not speak HTTP")]
    Broken,
    #[error("the origin refused the request before it did anything with it")]
    Refused,
    #[error(
        "the origin's headers are longer than limits.header_bytes_max, or have more lines than \
         limits.origin_header_lines_max"
    )]
    HeadersTooLarge,
    #[error("the origin did not say plainly how long its answer is, or in which coding")]
    Framing,
    #[error("the origin answered with a status that only another request can have")]
    Unasked,
    #[error("the origin has as many requests as it may have")]
    Busy,
    #[error("no origin passes its health checks, and this is not the request that tries it anyway")]
    Down,
    #[error("the origin has an address that must not be asked")]
    Forbidden,
    #[error("the request's body did not arrive in time")]
    ClientTimeout,
    #[error("the request's body broke off")]
    ClientBroken,
}

impl FetchError {
    /// What a failed exchange means: a request body that ended early is not the origin's fault.
    pub(crate) fn of(error: &hyper::Error) -> FetchError {
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            if error.downcast_ref().is_some_and(is_unprocessed) {
                return FetchError::Refused;
            }
            match error.downcast_ref::<BodyError>() {
                Some(BodyError::Idle) => return FetchError::ClientTimeout,
                Some(_) => return FetchError::ClientBroken,
                None => cause = error.source(),
            }
        }
        if error.is_parse_too_large() { FetchError::HeadersTooLarge } else { FetchError::Broken }
    }

    /// Whether no connection could be opened.
    pub(crate) fn is_unreachable(&self) -> bool {
        use FetchError::{Connect, ConnectTimeout, Tls, Unresolved};
        matches!(self, Connect | Unresolved(_) | ConnectTimeout | Tls)
    }

    /// Whether it says something about the origin's health.
    pub(crate) fn is_origins_fault(&self) -> bool {
        use FetchError::{Broken, Framing, HeaderTimeout, Refused, Unasked};
        self.is_unreachable()
            || matches!(self, HeaderTimeout | Broken | Refused | Framing | Unasked)
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            FetchError::ConnectTimeout | FetchError::HeaderTimeout => StatusCode::GATEWAY_TIMEOUT,
            FetchError::Forbidden => StatusCode::FORBIDDEN,
            FetchError::Busy | FetchError::Down => StatusCode::SERVICE_UNAVAILABLE,
            FetchError::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            FetchError::ClientBroken => StatusCode::BAD_REQUEST,
            FetchError::Connect
            | FetchError::Unresolved(_)
            | FetchError::Tls
            | FetchError::Broken
            | FetchError::Refused
            | FetchError::HeadersTooLarge
            | FetchError::Framing
            | FetchError::Unasked => StatusCode::BAD_GATEWAY,
        }
    }

    /// Token for `Cache-Status: detail=`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FetchError::Connect => "connect-failed",
            FetchError::Unresolved(_) => "unresolved",
            FetchError::ConnectTimeout => "connect-timeout",
            FetchError::Tls => "tls-failed",
            FetchError::HeaderTimeout => "origin-timeout",
            FetchError::Broken => "origin-broken",
            FetchError::Refused => "origin-refused",
            FetchError::HeadersTooLarge => "origin-headers-too-large",
            FetchError::Framing => "origin-framing",
            FetchError::Unasked => "origin-unasked",
            FetchError::Busy => "origin-busy",
            FetchError::Down => "origin-down",
            FetchError::Forbidden => "forbidden-address",
            FetchError::ClientTimeout => "client-timeout",
            FetchError::ClientBroken => "client-broken",
        }
    }
}

/// Whether an HTTP/2 origin says that it did nothing with a request: it was refused, or is not among
/// those that a GOAWAY covers (RFC 9113 §6.8, §8.7). The library gives no others this GOAWAY for an error.
fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (refused || error.is_go_away())
}

/// Why a body broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the sender broke off")]
    Broken,
    #[error("the sender was silent for too long")]
    Idle,
    #[error("the exchange took longer than it may")]
    Deadline,
    #[error("the stored body could not be read to its end")]
    Store,
    #[error("the resource has changed on the way")]
    Changed,
}

/// A refusal: the status, a token for `Cache-Status`, and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
    pub(crate) text: &'static str,
    /// Where the request ends cannot be known for sure: the connection must.
    pub(crate) last: bool,
}

pub(crate) const fn refusal(
    status: StatusCode,
    detail: &'static str,
    text: &'static str,
) -> Refusal {
    Refusal { status, detail, text, last: false }
}

/// One after which nothing more is read from the connection.
pub(crate) const fn last_refusal(
    status: StatusCode,
    detail: &'static str,
    text: &'static str,
) -> Refusal {
    Refusal { last: true, ..refusal(status, detail, text) }
}
