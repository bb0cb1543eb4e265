//! Origins: parsing of their URLs, and opening of byte streams to them (TCP, Unix, TLS).
//!
//! Invariants: an https origin is checked against the certificate authorities of the system
//! (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured) or of a configured file; there is no way to
//! switch the check off. Threads: shared by all workers.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use http::uri::Scheme;
use http::{HeaderValue, Uri};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::transport::Upstream;
use crate::error::{FetchError, ProxyError};
use crate::forward::Permit;
use crate::io::locks::lock;
use crate::ruleset::{HostHeader, Site};
use crate::upstream::balance;
use crate::upstream::dial::{dial_tcp, unreached};
use crate::upstream::health::Health;
use crate::upstream::stream::{Stream, Wire};

/// A site, and the endpoints that serve it.
pub(crate) struct Origin {
    /// `http` or `https`; part of every cache key.
    pub(crate) scheme: &'static str,
    /// Host and port as in the URL, in lower case: part of cache keys.
    pub(crate) authority: String,
    /// The `Host` of requests: `authority` without a zone, or what a rule says.
    pub(crate) host_header: HeaderValue,
    /// Whether requests have the client's `Host` instead; `None`: as `preserve_host` has it.
    preserve_host: Option<bool>,
    /// At least one; the backups behind the others.
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// The place of the first backup.
    pub(crate) backups_from: usize,
}

/// One address to connect to: a host and port, or a Unix socket.
pub(crate) struct Endpoint {
    identity: Identity,
    /// Host and port, or the socket, as the log names it.
    pub(crate) authority: Arc<str>,
    pub(crate) name_hash: u64,
    pub(crate) load: Arc<AtomicUsize>,
    /// Permits for requests in flight; `None`: no limit.
    pub(crate) places: Option<Arc<Semaphore>>,
    /// The endpoint may speak HTTP/2; cleared when a connection negotiates HTTP/1.1.
    pub(crate) may_http2: AtomicBool,
    /// It was said that its clock seems to be slow.
    pub(crate) told_of_clock: AtomicBool,
    /// Requests use HTTP/2 without TLS, by prior knowledge.
    http2_clear_text: bool,
    dial: Dial,
    tls: Option<Tls>,
    /// Shared with the endpoint that a reload makes of this one with another limit.
    health: Arc<Mutex<Health>>,
}

/// What an endpoint is made from: whatever is alike in it is one endpoint, with one load, one limit
/// and one health, however many sites it is of.
struct Identity {
    /// The configured URL; empty for an endpoint that a forward proxy's client named.
    url: String,
    /// Most requests in flight; 0: no limit.
    requests_max: usize,
    may_http2: bool,
    /// Name and authorities of a certificate.
    tls: Option<(ServerName<'static>, Arc<RootCertStore>)>,
}

impl Identity {
    fn is(&self, other: &Identity) -> bool {
        self.is_server_of(other)
            && self.requests_max == other.requests_max
            && self.may_http2 == other.may_http2
    }

    /// Whether both are the same server, in whatever way it is asked.
    fn is_server_of(&self, other: &Identity) -> bool {
        let tls = match (&self.tls, &other.tls) {
            (None, None) => true,
            (Some((name, roots)), Some((other_name, other_roots))) => {
                name == other_name
                    && (Arc::ptr_eq(roots, other_roots) || roots.roots == other_roots.roots)
            }
            _ => false,
        };
        tls && self.url == other.url
    }
}

/// Makes the endpoints of all sites, or takes over those that were there before.
pub(crate) struct Endpoints<'a> {
    upstream: &'a Upstream,
    known: Vec<Arc<Endpoint>>,
    /// Read once, when the first https origin needs them.
    roots: Option<Arc<RootCertStore>>,
}

impl<'a> Endpoints<'a> {
    /// With the endpoints that are there already.
    pub(crate) fn new(upstream: &'a Upstream, known: Vec<Arc<Endpoint>>) -> Endpoints<'a> {
        Endpoints { upstream, known, roots: None }
    }

    /// The endpoint of this URL, whose certificate must be for `tls_name`, or else for the URL's
    /// host.
    fn get(
        &mut self,
        url: &str,
        parsed: Parsed,
        tls_name: Option<&str>,
    ) -> Result<Arc<Endpoint>, ProxyError> {
        let identity = self.identity(url, &parsed, tls_name)?;
        if let Some(known) = self.known.iter().find(|known| known.identity.is(&identity)) {
            return Ok(known.clone());
        }
        let mut made = Endpoint::new(identity, parsed.dial)?;
        // A server that is down is not up by another limit.
        let same = self.known.iter().rev().find(|k| k.identity.is_server_of(&made.identity));
        if let Some(same) = same {
            (made.health, made.load) = (same.health.clone(), same.load.clone());
        }
        let made = Arc::new(made);
        self.known.push(made.clone());
        Ok(made)
    }

    fn identity(
        &mut self,
        url: &str,
        parsed: &Parsed,
        tls_name: Option<&str>,
    ) -> Result<Identity, ProxyError> {
        let tls = match &parsed.dial {
            Dial::Tcp { host, .. } if parsed.scheme == "https" => {
                // Certificates know no zones.
                let own = host.split_once('%').map_or(&**host, |(address, _)| address);
                let name = ServerName::try_from(tls_name.unwrap_or(own).to_owned());
                let reason = "bad host name";
                let bad = |_| ProxyError::Origin { url: url.to_owned(), reason };
                Some((name.map_err(bad)?, self.roots()?))
            }
            _ => None,
        };
        let upstream = self.upstream;
        Ok(Identity {
            url: url.to_owned(),
            requests_max: upstream.requests_per_origin_max,
            may_http2: if tls.is_some() { upstream.http2 } else { upstream.http2_clear_text },
            tls,
        })
    }

    fn roots(&mut self) -> Result<Arc<RootCertStore>, ProxyError> {
        if let Some(roots) = &self.roots {
            return Ok(roots.clone());
        }
        let roots = Arc::new(authorities(self.upstream.authorities.as_deref())?);
        self.roots = Some(roots.clone());
        Ok(roots)
    }
}

enum Dial {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

struct Tls {
    any: TlsConnector,
    http1: TlsConnector,
    name: ServerName<'static>,
}

/// The intended use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Requests,
    /// The connection must be HTTP/1.1 where there is a choice: for an `Upgrade`, or for one client
    /// alone.
    Upgrade,
}

/// A parsed URL.
struct Parsed {
    scheme: &'static str,
    authority: String,
    dial: Dial,
}

impl Origin {
    /// The site named by `url`, served by that endpoint, by `upstream.more_origins` and by
    /// `upstream.backup_origins`.
    pub(crate) fn new(url: &str, endpoints: &mut Endpoints<'_>) -> Result<Origin, ProxyError> {
        let upstream = endpoints.upstream;
        let lists = [&upstream.more_origins[..], &upstream.backup_origins];
        Origin::of(url, lists, upstream.tls_name.as_deref(), endpoints)
    }

    /// A site that rules name, of which there is at least one URL.
    pub(crate) fn of_site(
        site: &Site,
        endpoints: &mut Endpoints<'_>,
    ) -> Result<Origin, ProxyError> {
        let (first, more) = site.to.split_first().expect("a rule that names a site has a URL");
        let mut origin = Origin::of(first, [more, &site.backup], None, endpoints)?;
        origin.preserve_host = site.host_header.as_ref().map(|told| *told == HostHeader::Client);
        if let Some(HostHeader::Name(name)) = &site.host_header {
            origin.host_header = HeaderValue::try_from(name)
                .map_err(|_| ProxyError::Origin { url: first.clone(), reason: "bad host" })?;
        }
        Ok(origin)
    }

    fn of(
        url: &str,
        [more, backup]: [&[String]; 2],
        tls_name: Option<&str>,
        all: &mut Endpoints<'_>,
    ) -> Result<Origin, ProxyError> {
        let first = Parsed::new(url)?;
        let host_header = HeaderValue::try_from(&*without_zone(&first.authority))
            .map_err(|_| ProxyError::Origin { url: url.to_owned(), reason: "bad host" })?;
        let (scheme, authority) = (first.scheme, first.authority.clone());
        let mut endpoints = vec![all.get(url, first, tls_name)?];
        let mut backups_from = 0;
        for (place, url) in more.iter().chain(backup).enumerate() {
            if place == more.len() {
                backups_from = endpoints.len();
            }
            let endpoint = all.get(url, Parsed::new(url)?, tls_name)?;
            // Named twice it is still one, which nothing else can stand in for.
            if !endpoints.iter().any(|known| Arc::ptr_eq(known, &endpoint)) {
                endpoints.push(endpoint);
            }
        }
        if backup.is_empty() {
            backups_from = endpoints.len();
        }
        Ok(Origin { scheme, authority, host_header, preserve_host: None, endpoints, backups_from })
    }

    /// Whether requests have the client's `Host`, if that is so where nothing else is said.
    pub(crate) fn keeps_host(&self, preserve_host: bool) -> bool {
        self.preserve_host.unwrap_or(preserve_host)
    }

    /// Scheme and authority, by which the origin refers to itself.
    pub(crate) fn name(&self) -> (&str, &str) {
        (self.scheme, self.host_header.to_str().unwrap_or(&self.authority))
    }
}

/// Checks that a URL is valid for an origin.
pub(crate) fn check_url(url: &str) -> Result<(), ProxyError> {
    Parsed::new(url).map(drop)
}

impl Parsed {
    fn new(url: &str) -> Result<Parsed, ProxyError> {
        let error = |reason| ProxyError::Origin { url: url.to_owned(), reason };
        if let Some(path) = url.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(error("the path of the socket must begin with a slash"));
            }
            let dial = Dial::Unix(PathBuf::from(path));
            return Ok(Parsed { scheme: "http", authority: "localhost".to_owned(), dial });
        }
        let uri: Uri = url.parse().map_err(|_| error("it is not a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => "http",
            Some("https") => "https",
            _ => return Err(error("it must begin with http://, https:// or unix:/")),
        };
        let authority = uri.authority().ok_or_else(|| error("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(error("user names in it are not supported"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(error("a path in it is not supported"));
        }
        let host = reached_at(authority.host())
            .ok_or_else(|| error("its brackets hold no IPv6 address, with or without %ZONE"))?;
        if host.is_empty() {
            return Err(error("it has no host"));
        }
        let port = port_of(authority.as_str())
            .map_err(|()| error("its port is not a number from 1 to 65535"))?
            .unwrap_or(if scheme == "https" { 443 } else { 80 });
        let authority = authority.as_str().to_ascii_lowercase();
        Ok(Parsed { scheme, authority, dial: Dial::Tcp { host, port } })
    }
}

/// The host of a URL as this system looks it up: without brackets, a zone behind a plain `%`
/// (RFC 6874 escapes it as `%25`). `None` if brackets hold no address.
fn reached_at(host: &str) -> Option<String> {
    let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Some(host.to_ascii_lowercase());
    };
    let (address, zone) = inner.split_once('%').map_or((inner, None), |(a, z)| (a, Some(z)));
    let address = address.parse::<Ipv6Addr>().ok()?;
    let Some(zone) = zone else { return Some(address.to_string()) };
    // A number is that of an interface.
    let escaped = zone.strip_prefix("25").filter(|rest| !rest.bytes().all(|b| b.is_ascii_digit()));
    let zone = escaped.unwrap_or(zone);
    (!zone.is_empty()).then(|| format!("{address}%{zone}"))
}

/// An authority as its origin is told of it: a zone means something on this host alone.
fn without_zone(authority: &str) -> Cow<'_, str> {
    match authority.split_once('%').map(|(address, rest)| (address, rest.split_once(']'))) {
        Some((address, Some((_, port)))) => Cow::Owned(format!("{address}]{port}")),
        _ => Cow::Borrowed(authority),
    }
}

/// Host and port of an origin's URL, in lower case; all of one of a socket.
fn authority_of(url: &str) -> String {
    if url.starts_with("unix:") {
        return url.to_owned();
    }
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    authority.trim_end_matches('/').to_ascii_lowercase()
}

/// The port that follows the host, if there is one. An invalid port is an error, not ignored.
fn port_of(authority: &str) -> Result<Option<u16>, ()> {
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
    let Some((_, port)) = after_host.split_once(':') else { return Ok(None) };
    let number = port.parse().ok().filter(|number| *number > 0);
    // `parse` accepts `+80`.
    number.filter(|_| port.bytes().all(|byte| byte.is_ascii_digit())).map(Some).ok_or(())
}

impl Endpoint {
    fn new(identity: Identity, dial: Dial) -> Result<Endpoint, ProxyError> {
        let may_http2 = identity.may_http2;
        let tls = match &identity.tls {
            Some((name, roots)) => Some(Tls::new(name.clone(), roots.clone(), may_http2)?),
            None => None,
        };
        let places_max = identity.requests_max.min(Semaphore::MAX_PERMITS);
        Ok(Endpoint {
            authority: authority_of(&identity.url).into(),
            name_hash: balance::name_hash(&identity.url),
            load: Arc::default(),
            places: (places_max > 0).then(|| Arc::new(Semaphore::new(places_max))),
            may_http2: AtomicBool::new(may_http2),
            told_of_clock: AtomicBool::new(false),
            http2_clear_text: tls.is_none() && may_http2,
            dial,
            tls,
            health: Arc::default(),
            identity,
        })
    }

    /// An endpoint without TLS that speaks HTTP/1.1.
    pub(crate) fn plain(host: String, port: u16) -> Endpoint {
        let identity =
            Identity { url: String::new(), requests_max: 0, may_http2: false, tls: None };
        let authority = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Endpoint {
            identity,
            authority: authority.into(),
            name_hash: 0,
            load: Arc::default(),
            places: None,
            may_http2: AtomicBool::new(false),
            told_of_clock: AtomicBool::new(false),
            http2_clear_text: false,
            dial: Dial::Tcp { host, port },
            tls: None,
            health: Arc::default(),
        }
    }

    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        lock(&self.health)
    }

    pub(crate) fn url(&self) -> &str {
        &self.identity.url
    }

    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Whether a stream to this endpoint carries HTTP/2.
    pub(crate) fn is_http2(&self, stream: &Stream) -> bool {
        self.http2_clear_text || stream.agreed_http2()
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Opens a stream, only to an address that `permit` allows; returns it with its address, which
    /// a Unix socket has none of. The caller limits the time: what is not there when it is `due`
    /// comes too late. Of several addresses `turn` says which is tried first.
    pub(crate) async fn connect(
        &self,
        purpose: Purpose,
        permit: Option<&dyn Permit>,
        due: Instant,
        turn: usize,
    ) -> Result<(Stream, Option<IpAddr>), FetchError> {
        let (wire, address) = self.dial(permit, due, turn).await?;
        let Some(tls) = &self.tls else { return Ok((Stream::Plain(wire), address)) };
        let connector = if purpose == Purpose::Upgrade { &tls.http1 } else { &tls.any };
        let shaken = connector.connect(tls.name.clone(), wire).await;
        let stream = shaken.map_err(|error| FetchError::Tls(defect_of(&error.to_string())))?;
        Ok((Stream::Tls(Box::new(stream)), address))
    }

    async fn dial(
        &self,
        permit: Option<&dyn Permit>,
        due: Instant,
        turn: usize,
    ) -> Result<(Wire, Option<IpAddr>), FetchError> {
        match &self.dial {
            Dial::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreached)?;
                Ok((Wire::Unix(stream), None))
            }
            Dial::Tcp { host, port } => {
                let stream = dial_tcp(host, *port, permit, due, turn).await?;
                // Nagle's algorithm would delay small requests; a failure here only costs time.
                let _ = stream.set_nodelay(true);
                let address = stream.peer_addr().map_err(unreached)?.ip();
                Ok((Wire::Tcp(stream), Some(address)))
            }
        }
    }
}

/// What is wrong with a handshake, in the words of the library, unless only its authors understand
/// them.
fn defect_of(error: &str) -> Arc<str> {
    if error.contains("CaUsedAsEndEntity") {
        "invalid peer certificate: it is marked as an authority's (CA:TRUE), a server needs one with \
         CA:FALSE"
            .into()
    } else {
        error.into()
    }
}

impl Tls {
    fn new(
        name: ServerName<'static>,
        roots: Arc<RootCertStore>,
        may_http2: bool,
    ) -> Result<Tls, ProxyError> {
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let http1 = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ProxyError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut any = http1.clone();
        if may_http2 {
            any.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        let connector = |config| TlsConnector::from(Arc::new(config));
        Ok(Tls { any: connector(any), http1: connector(http1), name })
    }
}

/// Checks that certificates can be for this name.
pub(crate) fn check_tls_name(name: &str) -> Result<(), String> {
    let wrong =
        |_| format!("{name:?} is no name that a certificate is for, such as app.example.org");
    ServerName::try_from(name).map(drop).map_err(wrong)
}

/// Checks that certificate authorities can be read from this file.
pub(crate) fn check_authorities(file: &Path) -> Result<(), ProxyError> {
    authorities(Some(file)).map(drop)
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, ProxyError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(ProxyError::Certificates) } else { Ok(roots) };
    };
    let unusable = |reason: String| ProxyError::AuthoritiesFile { path: path.to_owned(), reason };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    for certificate in certificates {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() { Err(unusable("it holds no certificate".to_owned())) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::transport::HealthChecks;

    fn origin_of(url: &str) -> Result<Origin, ProxyError> {
        Origin::new(url, &mut Endpoints::new(&Upstream::default(), Vec::new()))
    }

    #[test]
    fn another_limit_makes_no_server_well() {
        let with_limit = |requests_per_origin_max, known| {
            let upstream = Upstream { requests_per_origin_max, ..Upstream::default() };
            let origin = Origin::new("http://a.test", &mut Endpoints::new(&upstream, known));
            origin.unwrap().endpoints
        };
        let first = with_limit(1, Vec::new());
        let checks = HealthChecks::default();
        for _ in 0..checks.fall {
            first[0].health().checked(false, &checks);
        }
        assert!(first[0].health().is_known_down());
        first[0].load.fetch_add(1, Ordering::Relaxed);
        let second = with_limit(2, first.clone());
        assert!(!Arc::ptr_eq(&first[0], &second[0]), "it has places of its own");
        assert!(second[0].health().is_known_down());
        assert_eq!(second[0].load.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_server_that_shows_the_certificate_of_an_authority_is_told_apart() {
        // As `openssl req -x509` makes it: trusted itself, for this name, and not for servers.
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), certificate.pem()).unwrap();
        let roots = Arc::new(authorities(Some(file.path())).unwrap());
        let name = ServerName::try_from("a.test").unwrap();
        let tls = Tls::new(name.clone(), roots, true).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let server = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        let (near, far) = tokio::io::duplex(16 << 10);
        let accepting = tokio_rustls::TlsAcceptor::from(Arc::new(server)).accept(far);
        let (shaken, _) = tokio::join!(tls.http1.connect(name, near), accepting);
        let defect = defect_of(&shaken.unwrap_err().to_string());
        assert!(defect.contains("CA:TRUE"), "{defect}");
    }

    #[test]
    fn urls() {
        for (url, authority) in [
            ("http://Example.org", Some("example.org")),
            ("http://127.0.0.1:8080/", Some("127.0.0.1:8080")),
            ("http://[::1]:81", Some("[::1]:81")),
            ("http://[FE80::1%Eth0]:81", Some("[fe80::1%eth0]:81")),
            ("https://[fe80::1%25eth0]", Some("[fe80::1%25eth0]")),
            ("http://[fe80::1%]", None),
            ("http://[v1.a]", None),
            ("https://[a.test]", None),
            ("http://[127.0.0.1]", None),
            ("unix:/run/app.sock", Some("localhost")),
            ("unix:app.sock", None),
            ("ftp://example.org", None),
            ("example.org", None),
            ("http://user@example.org", None),
            ("http://example.org/path", None),
            ("http://", None),
            ("http://127.0.0.1:80800", None),
            ("http://127.0.0.1:17001x", None),
            ("http://example.org:", None),
            ("http://example.org:0", None),
            ("http://example.org:+80", None),
            ("http://[::1]:65536", None),
            ("http://[::1]:65535", Some("[::1]:65535")),
            ("https://[::1]", Some("[::1]")),
        ] {
            let parsed = origin_of(url).ok().map(|origin| origin.authority);
            assert_eq!(parsed.as_deref(), authority, "{url}");
        }
    }

    #[test]
    fn a_zone_is_for_this_host_alone() {
        for (host, reached) in [
            ("[fe80::1%Eth0]", Some("fe80::1%Eth0")),
            ("[fe80::1%25Eth0]", Some("fe80::1%Eth0")),
            ("[fe80::1%25]", Some("fe80::1%25")),
            ("[fe80::1%252]", Some("fe80::1%252")),
            ("[FE80::1]", Some("fe80::1")),
            ("[fe80::1%]", None),
            ("[a.test]", None),
            ("A.test", Some("a.test")),
        ] {
            assert_eq!(reached_at(host).as_deref(), reached, "{host}");
        }
        for url in ["http://[fe80::1%eth0]:81", "http://[fe80::1%25eth0]:81", "http://[fe80::1]:81"]
        {
            let origin = origin_of(url).unwrap();
            assert_eq!(origin.host_header, "[fe80::1]:81", "{url}");
            assert_eq!(origin.name().1, "[fe80::1]:81", "{url}");
        }
    }
}
