//! Records of every request: its access log line, the status class of its answer, its latency, and
//! the URL that was requested.
//!
//! Invariant: each request writes one log line, when its answer or tunnel ends. Threads: the
//! worker's; only this worker writes its counters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};

use crate::answer::body::ProxyBody;
use crate::client::{Peer, TlsVersion};
use crate::config::LogTarget;
use crate::error::FetchError;
use crate::forward::auth::credentials;
use crate::io::locks::lock;
use crate::log::LogRecord;
use crate::metrics::{BodySource, BrokenBy, Counter, Counters};
use crate::purge::url_of_key;
use crate::request::naming::Naming;
use crate::request::{Ask, forwarded};
use crate::rules::CacheStatus;
use crate::ruleset::SiteId;
use crate::worker::Worker;

/// Counts the requested URL, with the time from `start` until now, and a client that nobody knows.
pub(super) fn asked(worker: &Worker, ask: &Ask, status: &CacheStatus, start: Instant) {
    if ask.client().is_none() {
        worker.counters.clients_disputed.one();
    }
    let (url, now) = (url_of_key(&ask.target.primary), Instant::now());
    let mut hot = lock(&worker.counters.hot);
    hot.record(url, status.hit, now.saturating_duration_since(start), now);
}

/// Counts an answer whose headers are ready, `took` after the request's headers. Returns the source
/// of its body.
pub(super) fn answered(
    worker: &Worker,
    code: StatusCode,
    status: &CacheStatus,
    took: Duration,
) -> BodySource {
    worker.counters.answered(code);
    if status.hit {
        worker.counters.hits.one();
        worker.counters.hit_latency.record(took);
        return BodySource::Store;
    }
    if status.forward.is_none() {
        return BodySource::Own;
    }
    worker.counters.miss_latency.record(took);
    BodySource::Origin
}

/// Begins the access log line of this request, if there is a log.
pub(super) fn begin<B>(
    worker: &Worker,
    request: &Request<B>,
    peer: &Peer,
    start: Instant,
) -> Option<Box<LogRecord>> {
    if worker.shared.config.log.to == LogTarget::None {
        return None;
    }
    let log = worker.shared.log.clone();
    let (uri, headers) = (request.uri(), request.headers());
    // Behind a trusted proxy every connection has that proxy's address: log the forwarded one.
    let fields = &worker.shared.config.forwarded;
    let client = forwarded::client_given(fields, peer.ip, headers);
    let is_forward = worker.shared.forward.is_some();
    // Where nobody checks them, names are what clients claim.
    let asks_for_users = worker.shared.forward.as_ref().is_some_and(|f| f.asks_for_users());
    Some(Box::new(LogRecord {
        log,
        format: worker.shared.config.log.format,
        counters: worker.counters.clone(),
        start,
        start_unix_ms: worker.shared.config.clock.unix_millis(),
        client: client.address(peer.ip),
        user: credentials(headers).map(|(name, _)| name).filter(|_| asks_for_users),
        method: request.method().clone(),
        version: request.version(),
        // Clients ask a forward proxy for `http` URLs, whatever protocol they reach it by.
        scheme: match is_forward {
            true => "http",
            false => Naming::of(&worker.shared).scheme_asked(peer, headers),
        },
        is_forward,
        host: host_asked(uri, headers),
        target: target(uri, is_forward),
        referer: headers.get(REFERER).cloned(),
        user_agent: headers.get(USER_AGENT).cloned(),
        status: None,
        media_type: None,
        origin: match uri.authority() {
            Some(asked) if is_forward => asked.host().trim_matches(['[', ']']).to_owned(),
            _ => worker.shared.sites.main().authority.clone(),
        },
        notes: Arc::default(),
        first_byte: None,
        detail: None,
        tls_version: peer.tls_version.map(TlsVersion::name),
        result: "none",
        body_bytes: 0,
        broken_by: Some(BrokenBy::Client),
        request_id: None,
    }))
}

/// Logs a message that was refused with this status before it could be parsed as a request.
pub(crate) fn refused(worker: &Worker, peer: &Peer, status: StatusCode) {
    // The method and target are unknown: these are Squid's words for that case.
    let Ok(method) = Method::from_bytes(b"NONE") else { return };
    let (mut request, path) = (Request::new(()), "error:invalid-request");
    *request.method_mut() = method;
    let record = begin(worker, &request, peer, Instant::now());
    if let Some(mut record) = record {
        path.clone_into(&mut record.target);
        (record.status, record.broken_by) = (Some(status), None);
    }
}

/// Extension of an answer to a request that was refused before anybody checked who its user is.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserUnchecked;

/// Guard for a request without an answer yet. Dropping it before `end` counts a client that went
/// away.
pub(super) struct Unanswered<'a>(Option<&'a Counters>);

impl<'a> Unanswered<'a> {
    pub(super) fn new(counters: &'a Counters) -> Unanswered<'a> {
        Unanswered(Some(counters))
    }

    /// Disarms the guard: the answer is ready.
    pub(super) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.0 {
            counters.broke_off(BrokenBy::Client);
        }
    }
}

/// Holds the log line of an answer that opens a tunnel, until the tunnel ends or is dropped, as by
/// a stop.
#[derive(Debug, Clone, Default)]
pub(super) struct TunnelRecord(Arc<TunnelLine>);

#[derive(Debug, Default)]
struct TunnelLine {
    record: Mutex<Option<Box<LogRecord>>>,
    client_bytes: Counter,
}

impl TunnelRecord {
    fn put(&self, record: Box<LogRecord>) {
        *lock(&self.0.record) = Some(record);
    }

    /// Counts the bytes to the client.
    pub(super) fn client_bytes(&self) -> &Counter {
        &self.0.client_bytes
    }

    /// Notes that the tunnel has ended, and what broke it off if not both sides ended it.
    pub(super) fn end(&self, broken_by: Option<BrokenBy>) {
        if let Some(record) = lock(&self.0.record).as_mut() {
            record.broken_by = broken_by;
        }
    }
}

impl Drop for TunnelLine {
    fn drop(&mut self) {
        if let Some(record) = lock(&self.record).as_mut() {
            record.body_bytes = self.client_bytes.get();
        }
    }
}

/// Attaches the log line, if there is a log, to the answer's body or its tunnel: it is written when
/// that ends.
pub(super) fn follow(
    worker: &Worker,
    record: Option<Box<LogRecord>>,
    status: &CacheStatus,
    mut response: Response<ProxyBody>,
) -> Response<ProxyBody> {
    let (parts, body) = response.into_parts();
    let body = body.with_length(&parts.headers);
    response = Response::from_parts(parts, body);
    let tunnel = response.extensions_mut().remove::<TunnelRecord>();
    if worker.shared.forward.is_some() && status.detail == Some(FetchError::Forbidden.name()) {
        // Found when the name was resolved; what the rules forbid at once is counted there.
        worker.counters.forward_denied.one();
    }
    let Some(mut record) = record else { return response };
    let code = response.status();
    record.status = Some(code);
    // A copy: the value may lie in the memory of a stored object, which the line would pin.
    let media_type = response.headers().get(CONTENT_TYPE);
    record.media_type = media_type.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
    (record.result, record.detail) = (status.word(), status.detail);
    record.first_byte = Some(record.start.elapsed());
    if let Some(site) = response.extensions().get::<SiteId>() {
        worker.shared.sites.get(*site).authority.clone_into(&mut record.origin);
    }
    if worker.shared.forward.is_some() {
        let is_refused = matches!(status.detail, Some("unauthorized" | "password-checks"));
        if is_refused || response.extensions().get::<UserUnchecked>().is_some() {
            record.user = None;
        }
        if matches!(status.detail, Some("unauthorized" | "denied" | "forbidden-address")) {
            record.result = "denied";
        }
    }
    match tunnel {
        None => response.map(|body| body.with_record(record)),
        Some(tunnel) => {
            record.result = "tunnel";
            tunnel.put(record);
            response
        }
    }
}

/// The host and port that a client asks for: from the URI (HTTP/2, absolute form), else from
/// `Host`.
fn host_asked(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let named = || headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
    let asked = uri.authority().map(|authority| authority.as_str().into()).or_else(named)?;
    Some(without_user(&asked).to_owned())
}

/// An authority without `user:password@`. Such requests are refused, but a log is no place for
/// passwords (RFC 9110 §4.2.4).
fn without_user(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// The request target as logged, the same for every HTTP version: a URL for a forward proxy, a path
/// for a reverse proxy.
fn target(uri: &Uri, is_forward: bool) -> String {
    match (uri.path_and_query(), uri.authority()) {
        (Some(path), _) if !is_forward => path.to_string(),
        (_, Some(asked)) => {
            uri.to_string().replacen(asked.as_str(), without_user(asked.as_str()), 1)
        }
        _ => uri.to_string(),
    }
}
