//! Errors: start-up errors of a proxy, errors of one fetch or one body, and refusals of requests.
//!
//! Invariants: every error of a fetch has a status and a token of its own for `Cache-Status`; an
//! error names a configuration key only where the value of that one is at fault. Plain data, no
//! threads.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use damelo::ByteSize;
use http::{HeaderValue, StatusCode};

/// Why a proxy cannot start, or why it stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The origin's address cannot be used.
    #[error("`{url}` cannot be an origin: {reason}")]
    Origin {
        /// The URL as configured.
        url: String,
        /// The defect in the URL.
        reason: &'static str,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The key of the configuration file that names it.
        key: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on the Unix socket `{path}`")]
    ListenUnix {
        /// The socket's file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A supervisor handed down a socket that matches no configured listener.
    #[error(
        "a socket was handed down that listens on {address}, and no listener has that address or port"
    )]
    Inherited {
        /// The socket's address.
        address: String,
    },
    /// A TLS listener has no certificate.
    #[error(
        "a `tls+` listener needs a certificate: `tls.certificates` names the files of a chain and its key"
    )]
    NoCertificate,
    /// A certificate or key cannot be used.
    #[error("cannot use `{path}` for TLS: {reason}")]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// The defect in it.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] tokio_rustls::rustls::Error),
    /// A forward proxy would be open to hosts other than this one.
    #[error(
        "{address} is not a loopback address: a forward proxy listens there only with \
         `forward.remote = true`, and serves whom `forward.rules` allow"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// A forward proxy's rule names an origin or rewrites the path, although the client chooses
    /// both.
    #[error(
        "a rule has `to`, `strip_prefix` or `add_prefix`, but in a forward proxy the client says \
         where to go: leave it out"
    )]
    RuleInForward,
    /// A forward proxy would trust what its clients say about their identity.
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
        /// The defect in it.
        reason: String,
    },
    /// A list that an access rule names cannot be used.
    #[error("cannot take a list of access rules from `{path}`: {reason}")]
    AccessList {
        /// The file.
        path: PathBuf,
        /// The defect in it.
        reason: String,
    },
    /// A user name that the file of users cannot hold.
    #[error(
        "`{0}` cannot be a user's name: it must not be empty nor hold `:`, `#` or a line's end"
    )]
    UserName(String),
    /// The operating system provides no random numbers.
    #[error(
        "the system gives no random numbers for secrets: let this process call `getrandom`, or read \
         /dev/urandom"
    )]
    Randomness,
    /// A thread or its event loop could not be started.
    #[error("cannot start a worker")]
    Worker(#[source] io::Error),
    /// The system's certificate authorities, which origins are verified against, cannot be read.
    #[error("no certificate authorities found on this system to check an https origin with")]
    Certificates,
    /// The file of certificate authorities cannot be used.
    #[error("cannot take certificate authorities from `{path}`: {reason}")]
    AuthoritiesFile {
        /// The file.
        path: PathBuf,
        /// The defect in it.
        reason: String,
    },
    /// The page for errors cannot be used.
    #[error("cannot take the page for errors from `{path}`: {reason}")]
    ErrorPage {
        /// The file.
        path: PathBuf,
        /// The defect in it.
        reason: String,
    },
    /// The path of health checks is invalid.
    #[error("`{0}` cannot be the path of health checks: it must begin with a slash")]
    HealthPath(String),
    /// The cache's name is not a token.
    #[error("`{0}` cannot be a cache name: use letters, digits and `-`, beginning with a letter")]
    Name(String),
    /// Request targets may be longer than headers, in which they count.
    #[error(
        "`limits.uri_bytes_max`, {uri_bytes_max:#}, is larger than `limits.header_bytes_max`, \
         {header_bytes_max:#}, in which the target of a request counts"
    )]
    TargetsOverHeaders {
        /// Longest request target.
        uri_bytes_max: ByteSize,
        /// Longest headers.
        header_bytes_max: ByteSize,
        /// The key of the two that is not as by default.
        key: &'static str,
    },
    /// The access log cannot be opened.
    #[error("cannot write the access log to {target}")]
    Log {
        /// The configured target.
        target: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A worker thread panicked, which is a bug.
    #[error(
        "a worker thread died, which is a bug: please report what it wrote to standard error; what \
         is stored is there again after a restart"
    )]
    WorkerDied,
}

impl ProxyError {
    /// The configuration key whose value is at fault, if a single key is.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            ProxyError::Listen { key, .. } | ProxyError::TargetsOverHeaders { key, .. } => {
                Some(key)
            }
            ProxyError::NoCertificate => Some("listen"),
            ProxyError::CertificateFile { .. } => Some("tls.certificates"),
            ProxyError::AuthoritiesFile { .. } => Some("upstream.authorities"),
            ProxyError::UsersFile { .. } => Some("forward.users"),
            ProxyError::ErrorPage { .. } => Some("errors.page"),
            ProxyError::AccessList { .. } => Some("forward.rules"),
            _ => None,
        }
    }
}

/// Why there is no response from the origin. The last four variants are answered with 4xx: the
/// origin must not be asked, or the client did not send the body. All others are the origin's fault
/// (5xx, or what it said itself).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// With what the system says of the attempt that failed last; none if none was made.
    #[error("the origin could not be reached{}", because(.0.as_ref()))]
    Connect(Option<io::ErrorKind>),
    #[error("the name {0} could not be resolved")]
    Unresolved(Arc<str>),
    #[error("the name {0} was not resolved in time")]
    ResolveTimeout(Arc<str>),
    #[error("the name {0} was not looked up: too many others are, whose servers do not answer")]
    NamesBusy(Arc<str>),
    #[error("the origin did not accept a connection in time")]
    ConnectTimeout,
    #[error("the origin's certificate or TLS handshake failed: {0}")]
    Tls(Arc<str>),
    #[error("the origin did not answer in time")]
    HeaderTimeout,
    #[error("the origin closed the connection or did not speak HTTP")]
    Broken,
    /// Of a stream of HTTP/2, by the origin or by the library: the connection goes on.
    #[error(
        "the origin broke off its answer, or its headers are malformed or longer than \
         limits.header_bytes_max"
    )]
    Reset,
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
    /// It was told to others, with this `Retry-After`; this request was not sent.
    #[error("the origin answered {0} to each of the requests that this one waited for")]
    Status(StatusCode, Option<Arc<HeaderValue>>),
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
    #[error("the request's body is longer than upload_bytes_max")]
    UploadTooLarge,
}

impl FetchError {
    /// Every [`FetchError::name`], but that of what others were told.
    pub(crate) const NAMES: [&'static str; 18] = [
        "connect-failed",
        "unresolved",
        "resolve-timeout",
        "resolver-busy",
        "connect-timeout",
        "tls-failed",
        "origin-timeout",
        "origin-broken",
        "origin-refused",
        "origin-headers-too-large",
        "origin-framing",
        "origin-unasked",
        "origin-busy",
        "origin-down",
        "forbidden-address",
        "client-timeout",
        "client-broken",
        "upload-too-large",
    ];

    /// Classifies a failed exchange. A request body that ended early is not the origin's fault.
    pub(crate) fn of(error: &hyper::Error) -> FetchError {
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            if error.downcast_ref().is_some_and(is_unprocessed) {
                return FetchError::Refused;
            }
            if error.downcast_ref().is_some_and(h2::Error::is_reset) {
                return FetchError::Reset;
            }
            match error.downcast_ref::<BodyError>() {
                Some(error) => return FetchError::of_upload(*error),
                None => cause = error.source(),
            }
        }
        if error.is_parse_too_large() { FetchError::HeadersTooLarge } else { FetchError::Broken }
    }

    /// The failure of a request whose body ended early.
    pub(crate) fn of_upload(error: BodyError) -> FetchError {
        match error {
            BodyError::Idle => FetchError::ClientTimeout,
            BodyError::TooLarge => FetchError::UploadTooLarge,
            _ => FetchError::ClientBroken,
        }
    }

    /// Whether no connection to the origin could be opened.
    pub(crate) fn is_unreachable(&self) -> bool {
        use FetchError::{Connect, ConnectTimeout, ResolveTimeout, Tls, Unresolved};
        matches!(self, Connect(_) | Unresolved(_) | ResolveTimeout(_) | ConnectTimeout | Tls(_))
    }

    /// Whether the connection, or the stream, ended before there was an answer on it.
    pub(crate) fn is_broken_off(&self) -> bool {
        matches!(self, FetchError::Broken | FetchError::Reset)
    }

    /// Whether the origin may have got the request, and done what it asks for.
    pub(crate) fn may_have_acted(&self) -> bool {
        match self {
            FetchError::HeaderTimeout
            | FetchError::Broken
            | FetchError::Reset
            | FetchError::HeadersTooLarge
            | FetchError::Framing
            | FetchError::Unasked
            | FetchError::ClientTimeout
            | FetchError::ClientBroken
            | FetchError::UploadTooLarge => true,
            FetchError::Connect(_)
            | FetchError::Unresolved(_)
            | FetchError::ResolveTimeout(_)
            | FetchError::NamesBusy(_)
            | FetchError::ConnectTimeout
            | FetchError::Tls(_)
            | FetchError::Refused
            | FetchError::Status(..)
            | FetchError::Busy
            | FetchError::Down
            | FetchError::Forbidden => false,
        }
    }

    /// Whether the error counts against the origin's health.
    pub(crate) fn is_origins_fault(&self) -> bool {
        use FetchError::{Broken, Framing, HeaderTimeout, Refused, Reset, Unasked};
        self.is_unreachable()
            || matches!(self, HeaderTimeout | Broken | Reset | Refused | Framing | Unasked)
    }

    /// Whether it may be the doing of the very request: an origin may break off for what one client
    /// sends.
    pub(crate) fn may_be_ones_own(&self) -> bool {
        use FetchError::{Broken, Framing, HeadersTooLarge, Reset};
        matches!(self, Broken | Reset | Framing | HeadersTooLarge)
    }

    /// Whether another client's request would have met with it, too.
    pub(crate) fn is_for_all(&self) -> bool {
        use FetchError::{Busy, Down, NamesBusy};
        self.is_origins_fault() || matches!(self, Busy | Down | NamesBusy(_))
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            FetchError::ResolveTimeout(_)
            | FetchError::ConnectTimeout
            | FetchError::HeaderTimeout => StatusCode::GATEWAY_TIMEOUT,
            FetchError::Status(status, _) => *status,
            FetchError::Forbidden => StatusCode::FORBIDDEN,
            FetchError::Busy | FetchError::Down | FetchError::NamesBusy(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            FetchError::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            FetchError::ClientBroken => StatusCode::BAD_REQUEST,
            FetchError::UploadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FetchError::Connect(_)
            | FetchError::Unresolved(_)
            | FetchError::Tls(_)
            | FetchError::Broken
            | FetchError::Reset
            | FetchError::Refused
            | FetchError::HeadersTooLarge
            | FetchError::Framing
            | FetchError::Unasked => StatusCode::BAD_GATEWAY,
        }
    }

    /// Token for `Cache-Status: detail=`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FetchError::Connect(_) => "connect-failed",
            FetchError::Unresolved(_) => "unresolved",
            FetchError::ResolveTimeout(_) => "resolve-timeout",
            FetchError::NamesBusy(_) => "resolver-busy",
            FetchError::ConnectTimeout => "connect-timeout",
            FetchError::Tls(_) => "tls-failed",
            FetchError::HeaderTimeout => "origin-timeout",
            FetchError::Broken | FetchError::Reset => "origin-broken",
            FetchError::Refused => "origin-refused",
            FetchError::HeadersTooLarge => "origin-headers-too-large",
            FetchError::Framing => "origin-framing",
            FetchError::Unasked => "origin-unasked",
            FetchError::Status(..) => "origin-error",
            FetchError::Busy => "origin-busy",
            FetchError::Down => "origin-down",
            FetchError::Forbidden => "forbidden-address",
            FetchError::ClientTimeout => "client-timeout",
            FetchError::ClientBroken => "client-broken",
            FetchError::UploadTooLarge => "upload-too-large",
        }
    }
}

/// Ends a message with its cause, if one is known.
fn because(cause: Option<&io::ErrorKind>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

/// Whether an HTTP/2 origin reports that it did not process a request: it refused the stream, or
/// its GOAWAY does not cover the stream (RFC 9113 §6.8, §8.7). The library reports a GOAWAY as an
/// error only to streams that it does not cover.
fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (refused || error.is_go_away())
}

/// Why a body was cut off before its end.
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
    /// Of a request.
    #[error("it is longer than it may be")]
    TooLarge,
}

/// A refusal: the status, a token for `Cache-Status`, and an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
    pub(crate) text: &'static str,
    /// The end of the request cannot be determined safely, so the connection must be closed.
    pub(crate) last: bool,
}

pub(crate) const fn refusal(
    status: StatusCode,
    detail: &'static str,
    text: &'static str,
) -> Refusal {
    Refusal { status, detail, text, last: false }
}

/// A refusal after which nothing more is read from the connection.
pub(crate) const fn last_refusal(
    status: StatusCode,
    detail: &'static str,
    text: &'static str,
) -> Refusal {
    Refusal { last: true, ..refusal(status, detail, text) }
}
