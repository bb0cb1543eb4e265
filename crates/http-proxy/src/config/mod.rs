//! Configuration that a proxy starts with: plain data, defaults that suit most, a name for every
//! limit. A key of the configuration file is the field of the same name: `limits.uri_bytes_max` is
//! [`ProxyConfig::limits`]`.uri_bytes_max`.

pub(crate) mod client_network;
pub(crate) mod name;
pub(crate) mod tables;
pub(crate) mod transport;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use damelo::{Clock, SystemClock};
use damelo_http_rules::{CachingConfig, SetCookie};
use http::HeaderName;

use crate::ruleset::Ruleset;

use crate::config::tables::{
    AdminConfig, ErrorsConfig, FillConfig, GroupsConfig, Limits, LogConfig, ProxyProtocolConfig,
    PurgeConfig, Timeouts, TlsConfig,
};
use crate::config::transport::{ForwardedFields, Inherited, Listener, Upstream};

/// The origin behind the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginTarget {
    /// The built-in demo origin, started with the proxy on a free port of 127.0.0.1.
    Demo,
    /// `http://host[:port]` or `https://host[:port]`.
    Url(String),
}

impl std::str::FromStr for OriginTarget {
    type Err = std::convert::Infallible;

    /// `demo` is the demo; everything else is checked as a URL when the proxy starts.
    fn from_str(text: &str) -> Result<OriginTarget, Self::Err> {
        Ok(if text == "demo" { OriginTarget::Demo } else { OriginTarget::Url(text.to_owned()) })
    }
}

/// Most that is written to the disks of the cache in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLimit {
    /// Bytes in each such time.
    pub bytes: u64,
    /// The time; as much as one of it allows may be written at once.
    pub window: Duration,
}

/// How responses are grouped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Grouping {
    /// What the origin names as a group, else as [`Grouping::Page`]. With any other grouping what
    /// the origin names does not count.
    #[default]
    Named,
    /// A page with what it embeds (by `Referer`), else host and first path segment.
    Page,
    /// All of a host.
    Host,
    /// Host and this many path segments.
    Path(usize),
    /// Host and the value of this response header; without it, host and first path segment.
    Header(HeaderName),
    /// No grouping: objects are stored in the order in which they arrive.
    None,
}

/// Text that names no grouping.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no way to group: write named, page, host, none, path:N (N from 1 on) or header:NAME"
)]
pub struct ParseGroupingError(String);

impl std::str::FromStr for Grouping {
    type Err = ParseGroupingError;

    fn from_str(text: &str) -> Result<Grouping, ParseGroupingError> {
        let grouping = match text.split_once(':') {
            None if text == "named" => Some(Grouping::Named),
            None if text == "page" => Some(Grouping::Page),
            None if text == "host" => Some(Grouping::Host),
            None if text == "none" => Some(Grouping::None),
            Some(("path", count)) => {
                count.parse().ok().filter(|count| *count > 0).map(Grouping::Path)
            }
            Some(("header", name)) => name.parse().ok().map(Grouping::Header),
            _ => None,
        };
        grouping.ok_or_else(|| ParseGroupingError(text.to_owned()))
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grouping::Named => f.write_str("named"),
            Grouping::Page => f.write_str("page"),
            Grouping::Host => f.write_str("host"),
            Grouping::Path(count) => write!(f, "path:{count}"),
            Grouping::Header(name) => write!(f, "header:{name}"),
            Grouping::None => f.write_str("none"),
        }
    }
}

/// Format of the lines of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// The combined format of Apache and nginx, followed by the cache's result, bytes and time.
    #[default]
    Combined,
    /// Squid's native format.
    Squid,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    const ALL: [LogFormat; 3] = [LogFormat::Combined, LogFormat::Squid, LogFormat::Json];

    pub(crate) fn of(name: &str) -> Option<LogFormat> {
        LogFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            LogFormat::Combined => "combined",
            LogFormat::Squid => "squid",
            LogFormat::Json => "json",
        }
    }
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogTarget {
    /// Nowhere.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// A file, appended to, and reopened on request.
    File(PathBuf),
}

impl LogTarget {
    pub(crate) fn of(text: &str) -> LogTarget {
        match text {
            "none" => LogTarget::None,
            "stdout" => LogTarget::Stdout,
            path => LogTarget::File(path.into()),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogTarget::None => f.write_str("none"),
            LogTarget::Stdout => f.write_str("stdout"),
            LogTarget::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Stands for the origin where the client names it: a host that cannot exist.
const NO_ORIGIN: &str = "http://forward.invalid";

/// The configuration of a proxy. Start from [`ProxyConfig::new`] and change fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// Address to listen on; port 0 takes a free one.
    pub from: SocketAddr,
    /// The origin.
    pub to: OriginTarget,
    /// Worker threads, each with its own event loop. Default: one per core.
    pub workers: usize,
    /// Name of this cache in `Cache-Status` and `Via`: a token. Default `damelo`.
    pub name: String,
    /// Send the client's `Host` to the origin and cache by it. Default false: the origin's own.
    pub preserve_host: bool,
    /// Listeners besides [`from`](ProxyConfig::from). Default none.
    pub listen: Vec<Listener>,
    /// Protocols that a client may upgrade to if the origin agrees. Others, above all `h2c`, would
    /// let the client speak to the origin past every check. Default `websocket`.
    pub upgrades: Vec<String>,
    /// The table `[tls]`.
    pub tls: TlsConfig,
    /// The table `[proxy_protocol]`.
    pub proxy_protocol: ProxyProtocolConfig,
    /// The tables `[caching]` and `[key]`, and the key `obey_request_directives`: choices that the
    /// caching RFCs leave open. Default: as the RFCs recommend.
    pub caching: CachingConfig,
    /// The key `caching.head_as_get`: a HEAD for what is not stored, or stale, asks the origin by a
    /// GET whose response is stored. Default false.
    pub head_as_get: bool,
    /// The operator's rules. Default none.
    pub ruleset: Arc<Ruleset>,
    /// Listening sockets handed down by a supervisor. Each serves the listener (`from`, or one of
    /// [`listen`](ProxyConfig::listen)) with its address or port; a TCP socket that matches none
    /// serves `from`.
    pub inherited: Vec<Arc<Inherited>>,
    /// The table `[limits]`.
    pub limits: Limits,
    /// The table `[timeouts]`, without `stop`, which is the process's.
    pub timeouts: Timeouts,
    /// The table `[fill]`.
    pub fill: FillConfig,
    /// The table `[groups]`.
    pub groups: GroupsConfig,
    /// The table `[log]`.
    pub log: LogConfig,
    /// The table `[errors]`.
    pub errors: ErrorsConfig,
    /// The table `[purge]`.
    pub purge: PurgeConfig,
    /// The table `[admin]`.
    pub admin: AdminConfig,
    /// The table `[upstream]`.
    pub upstream: Upstream,
    /// The table `[forwarded]`.
    pub forwarded: ForwardedFields,
    /// Source of the time of day.
    pub clock: Arc<dyn Clock>,
}

impl ProxyConfig {
    /// A proxy from `from` to `to` with the defaults for everything else.
    pub fn new(from: SocketAddr, to: OriginTarget) -> ProxyConfig {
        ProxyConfig {
            from,
            to,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            name: "damelo".to_owned(),
            preserve_host: false,
            listen: Vec::new(),
            upgrades: vec!["websocket".to_owned()],
            tls: TlsConfig::default(),
            proxy_protocol: ProxyProtocolConfig::default(),
            caching: CachingConfig::default(),
            head_as_get: false,
            ruleset: Arc::new(Ruleset::default()),
            inherited: Vec::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            fill: FillConfig::default(),
            groups: GroupsConfig::default(),
            log: LogConfig::default(),
            errors: ErrorsConfig::default(),
            purge: PurgeConfig::default(),
            admin: AdminConfig::default(),
            upstream: Upstream::default(),
            forwarded: ForwardedFields::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// A forward proxy on `from` with the defaults for everything else.
    pub fn for_forward(from: SocketAddr) -> ProxyConfig {
        let mut proxy = ProxyConfig::new(from, OriginTarget::Demo).without_origin();
        // A forward proxy does not tell origins its clients' addresses.
        proxy.forwarded.x_forwarded = false;
        // A forward proxy is no surrogate of any origin.
        proxy.caching.surrogate = false;
        // The operator does not know which cookies of foreign origins identify a user.
        proxy.caching.set_cookie = SetCookie::Strip;
        proxy
    }

    /// A copy for a forward proxy, with neither an origin nor a host of its own: the client names
    /// the origin, whose host is part of the key.
    pub(crate) fn without_origin(self) -> ProxyConfig {
        let to = OriginTarget::Url(NO_ORIGIN.to_owned());
        ProxyConfig { to, preserve_host: true, ..self }
    }

    /// Whether it is one of a forward proxy.
    pub(crate) fn is_without_origin(&self) -> bool {
        matches!(&self.to, OriginTarget::Url(url) if url == NO_ORIGIN)
    }
}

impl fmt::Debug for ProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfig")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("admin", &self.admin.from)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
