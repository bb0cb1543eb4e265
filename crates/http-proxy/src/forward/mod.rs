//! The forward proxy: requests with absolute targets to any origin through the cache, and CONNECT
//! tunnels, for permitted clients.
//!
//! ```text
//! admit ─► credentials ─► rules by name ─► (rules by address) ─► cache, or tunnel
//!                                                                   └► rules by each address dialled
//! ```
//!
//! Invariants: nothing is looked up or dialled for a request that was not admitted; a connection
//! goes only to an address that the rules allowed, and a pooled connection is used only if the
//! rules allow its address to this client, too. Threads: the worker's.

// Who may go where.
pub(crate) mod access;
// Its rules as they are written.
pub(crate) mod access_rule;
// Who is who.
pub(crate) mod auth;
// Passwords that are being checked.
pub(crate) mod checks;
// IPv4 addresses within IPv6 ones.
mod embedded;
// What rules list, as sets.
mod lists;
// Addresses of names.
mod resolve;
// The file of users.
pub(crate) mod users;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, StatusCode, Uri};

use crate::config::ProxyConfig;
use crate::config::transport::ListenAddress;
use crate::error::{FetchError, ProxyError, Refusal, refusal};
use crate::forward::access::{Access, AccessRequest, ListFile, Verdict};
use crate::forward::access_rule::AccessRule;
use crate::forward::auth::Auth;
use crate::forward::checks::CheckLimits;
use crate::forward::resolve::Resolver;
use crate::metrics::Counters;
use crate::say::say;

/// Settings of a forward proxy besides a [`ProxyConfig`]. Start from the defaults and change
/// fields.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ForwardConfig {
    /// Access rules: the first that matches decides. Without a match, clients on a loopback address
    /// are allowed and others denied. Files that they name are read at the start, and with
    /// [`Control::reload_forward`](crate::Control::reload_forward). Default none.
    pub rules: Vec<AccessRule>,
    /// A file with a line `NAME:HASH` for each permitted user; see [`crate::hash_credentials`].
    /// Default none: no authentication.
    pub users: Option<PathBuf>,
    /// How many passwords may wait to be checked.
    pub password_checks: CheckLimits,
    /// Listen on addresses that are not loopback. Default false.
    pub remote: bool,
    /// Allow link-local addresses and cloud metadata services as destinations. Default false.
    pub to_link_local: bool,
    /// Let remote clients reach this host's loopback addresses. Default false.
    pub to_loopback: bool,
}

/// State that only a forward proxy has.
pub(crate) struct ForwardProxy {
    access: Access,
    auth: Option<Arc<Auth>>,
    resolver: Arc<Resolver>,
}

/// The destination of one request, with the rules that apply to it.
#[derive(Debug)]
pub(crate) struct Route {
    forward: Arc<ForwardProxy>,
    client: IpAddr,
    method: Method,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::fmt::Debug for ForwardProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardProxy").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Route {
    fn verdict(&self, address: Option<IpAddr>) -> Verdict {
        let asked = AccessRequest {
            client: self.client,
            method: &self.method,
            host: &self.host,
            port: self.port,
        };
        self.forward.access.decide(&asked, address)
    }
}

/// Decides whether an address may be connected to.
pub(crate) trait Permit: Send + Sync {
    fn permits(&self, address: IpAddr) -> bool;
}

impl Permit for Route {
    fn permits(&self, address: IpAddr) -> bool {
        self.verdict(Some(address)) == Verdict::Allow
    }
}

const BAD_TARGET: Refusal = refusal(
    StatusCode::BAD_REQUEST,
    "bad-target",
    "This is a forward proxy: the request target must be an absolute http URL, or HOST:PORT for CONNECT.",
);
const HTTPS_TARGET: Refusal =
    refusal(StatusCode::NOT_IMPLEMENTED, "https-target", "https is reached through CONNECT.");
const DENIED: Refusal =
    refusal(StatusCode::FORBIDDEN, "denied", "The rules of this proxy forbid it.");

/// Why a request is not admitted.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    /// It is malformed or not permitted.
    Refused(Refusal),
    /// Its host could not be resolved for the rules.
    Unreached(FetchError),
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> NotAdmitted {
        NotAdmitted::Refused(refusal)
    }
}

impl From<FetchError> for NotAdmitted {
    fn from(error: FetchError) -> NotAdmitted {
        NotAdmitted::Unreached(error)
    }
}

impl ForwardProxy {
    /// Whether clients have to say who they are.
    pub(crate) fn asks_for_users(&self) -> bool {
        self.auth.is_some()
    }

    pub(crate) fn new(
        proxy: &ProxyConfig,
        config: &ForwardConfig,
    ) -> Result<ForwardProxy, ProxyError> {
        let here = proxy.listen.iter().map(|listener| listener.address.clone());
        // A socket handed down may be on more addresses than the listener that it serves.
        let inherited = proxy.inherited.iter().filter_map(|socket| socket.address().ok());
        let tcp = here.chain(inherited).filter_map(|address| match address {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        });
        let remote = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
        if let Some(address) = tcp.chain([proxy.from]).find(remote)
            && !config.remote
        {
            return Err(ProxyError::NotLoopback { address });
        }
        check_shared(proxy)?;
        let rules = &proxy.ruleset;
        if !rules.sites().is_empty() || rules.changes_prefixes() {
            return Err(ProxyError::RuleInForward);
        }
        let mut access = Access::default().with_rules(&config.rules)?;
        (access.to_link_local, access.to_loopback) = (config.to_link_local, config.to_loopback);
        let load = |path| Auth::load(path, config.password_checks).map(Arc::new);
        let auth = config.users.clone().map(load).transpose()?;
        Ok(ForwardProxy { access, auth, resolver: Arc::default() })
    }

    /// The same with other rules, for requests from now on.
    ///
    /// # Errors
    /// A file that the rules name cannot be used.
    pub(crate) fn with_rules(&self, rules: &[AccessRule]) -> Result<ForwardProxy, ProxyError> {
        Ok(ForwardProxy {
            access: self.access.with_rules(rules)?,
            auth: self.auth.clone(),
            resolver: self.resolver.clone(),
        })
    }

    /// Says what was read, since a list that is shorter than its operator believes lets through
    /// what it should not.
    pub(crate) fn tell_of_lists(&self) {
        for ListFile { path, entries } in &self.access.files {
            say(format_args!("damelo: forward.rules: entries in {}: {entries}", path.display()));
        }
    }

    /// Denies all clients access to our own admin listener at this address.
    pub(crate) fn keep_from(&self, admin: SocketAddr) {
        // The admin listener starts once.
        let _ = self.access.admin.set(admin);
    }

    /// Admits a request or not, and brings its target into the form that keys are made from.
    pub(crate) async fn admit<B>(
        self: &Arc<ForwardProxy>,
        counters: &Counters,
        request: &mut Request<B>,
        client: IpAddr,
        resolve_timeout: Duration,
    ) -> Result<Arc<Route>, NotAdmitted> {
        if let Some(auth) = &self.auth {
            auth.admits(request.headers(), client, counters).await?;
        }
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let (host, port) = target(request)?;
        let route = Route {
            forward: self.clone(),
            client: client.to_canonical(),
            method: request.method().clone(),
            host,
            port,
        };
        if self.allows(&route, resolve_timeout).await? {
            return Ok(Arc::new(route));
        }
        counters.forward_denied.one();
        Err(DENIED.into())
    }

    /// The decision of the rules, without dialling; dialled addresses are checked again in any
    /// case.
    async fn allows(&self, route: &Route, resolve_timeout: Duration) -> Result<bool, FetchError> {
        let verdict = route.verdict(None);
        // Clients on this host may see anything fetched from it. For others, a cached response may
        // come from this host's loopback, which they must not see.
        let known = route.client.is_loopback() || route.method == Method::CONNECT;
        match verdict {
            Verdict::Deny => return Ok(false),
            Verdict::Allow if known => return Ok(true),
            Verdict::Allow | Verdict::AskWithAddress => {}
        }
        let addresses = self.resolver.addresses(&route.host, resolve_timeout).await?;
        Ok(addresses.iter().any(|address| route.permits(*address)))
    }
}

/// Rejects shared settings that a forward proxy cannot honour.
pub(crate) fn check_shared(config: &ProxyConfig) -> Result<(), ProxyError> {
    // The rules depend on the client's address, which any client could forge in these fields.
    if config.forwarded.trust_client {
        return Err(ProxyError::TrustInForward);
    }
    Ok(())
}

/// Extracts host and port of a request that was screened, and makes its target and `Host` agree on
/// them.
fn target<B>(request: &mut Request<B>) -> Result<(String, u16), Refusal> {
    let connect = request.method() == Method::CONNECT;
    let uri = request.uri();
    let authority = uri.authority().ok_or(BAD_TARGET)?;
    let host = authority.host().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let host = host.parse().map_or(host, |address: Ipv6Addr| address.to_string());
    let port = authority.port_u16();
    if host.is_empty() {
        return Err(BAD_TARGET);
    }
    if connect {
        if uri.scheme().is_some() {
            return Err(BAD_TARGET);
        }
        return Ok((host, port.ok_or(BAD_TARGET)?));
    }
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(HTTPS_TARGET),
        _ => return Err(BAD_TARGET),
    }
    let port = port.unwrap_or(80);
    // One spelling per origin, since each spelling would be cached separately.
    let name = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let name = if port == 80 { name } else { format!("{name}:{port}") };
    let authority = Authority::try_from(name.as_str()).map_err(|_| BAD_TARGET)?;
    let value = HeaderValue::try_from(name).map_err(|_| BAD_TARGET)?;
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| BAD_TARGET)?;
    request.headers_mut().insert(HOST, value);
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_one_spelling() {
        for (method, uri, host, port, name) in [
            ("GET", "http://A.test:80", "a.test", 80, "a.test"),
            ("GET", "http://a.test.:81/x", "a.test", 81, "a.test:81"),
            ("GET", "http://[::1]:80/", "::1", 80, "[::1]"),
            ("GET", "http://a.test:/", "a.test", 80, "a.test"),
            ("GET", "http://a.test:65535/", "a.test", 65535, "a.test:65535"),
            ("GET", "http://[::1]/", "::1", 80, "[::1]"),
            ("GET", "http://[0:0::1]:81/", "::1", 81, "[::1]:81"),
            ("CONNECT", "a.test:443", "a.test", 443, ""),
        ] {
            let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
            assert_eq!(target(&mut request).unwrap(), (host.to_owned(), port), "{uri}");
            if method == "GET" {
                assert_eq!(request.headers()[HOST], name);
                assert_eq!(request.uri().authority().unwrap(), name);
            }
        }
        for (method, uri, status) in [
            ("GET", "/", 400),
            ("GET", "https://a.test/", 501),
            ("GET", "ftp://a.test/", 400),
            ("CONNECT", "a.test", 400),
            ("CONNECT", "http://a.test:443/", 400),
        ] {
            let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
            assert_eq!(target(&mut request).unwrap_err().status, status, "{method} {uri}");
        }
    }
}
