//! Upgrade requests (RFC 9110 §7.8), mostly WebSocket: they bypass the cache, and if the origin
//! agrees, both connections become one tunnel. An HTTP/2 client sends an extended CONNECT (RFC
//! 8441), and only its stream becomes the tunnel. The origin is always asked with an HTTP/1.1
//! upgrade, so for HTTP/2 clients this file makes and checks the handshake of RFC 6455.
//!
//! Invariants: only protocols on the configured list are passed on, because a proxy that passes on
//! any protocol (`h2c`) lets a client reach the origin without its checks. An HTTP/2 client sees a
//! success only if the origin agreed: any 2xx would open a tunnel. Threads: the worker's; the
//! tunnel is a separate task, which a stopping proxy does not wait for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::answer::body::ProxyBody;
use crate::answer::{self, Answer};
use crate::client::cut::Cut;
use crate::error::FetchError;
use crate::fetch::pass::send_upgrade;
use crate::handler::record::TunnelRecord;
use crate::handler::tunnel;
use crate::request::{Ask, announces_body};
use crate::rules::{CacheStatus, ForwardReason, list_members};
use crate::upstream::{Hold, OriginBody, Timed};
use crate::worker::Worker;

/// The only protocol offered to HTTP/2 clients.
const WEBSOCKET: &str = "websocket";
/// Hashed together with the key of a handshake (RFC 6455 §1.3).
const HANDSHAKE_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An upgrade taken from a request: the protocol and the client's end of the tunnel.
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
    /// Breaks off the tunnel of an HTTP/2 client.
    cut: Option<Cut>,
    /// Key of the handshake that this proxy makes for an HTTP/2 client, which sends none.
    key: Option<HeaderValue>,
}

/// Whether HTTP/2 clients are told that extended CONNECT is supported.
pub(crate) fn is_offered_by_http2(protocols: &[String]) -> bool {
    protocols.iter().any(|one| one.eq_ignore_ascii_case(WEBSOCKET))
}

/// Turns an extended CONNECT for WebSocket into the GET that it stands for (RFC 8441 §5), so that
/// later steps see the method that the origin will see. Any other CONNECT stays one.
pub(crate) fn read_extended_connect<B>(request: &mut Request<B>, protocols: &[String]) {
    let protocol = request.extensions().get::<Protocol>();
    let known = protocol.is_some_and(|it| it.as_str().eq_ignore_ascii_case(WEBSOCKET));
    let whole = request.uri().scheme().is_some() && request.uri().path_and_query().is_some();
    if request.method() == Method::CONNECT && known && whole && is_offered_by_http2(protocols) {
        *request.method_mut() = Method::GET;
    } else {
        request.extensions_mut().remove::<Protocol>();
    }
}

/// Whether the origin is told of the upgrade that a request of HTTP/1 asks for.
pub(crate) fn is_passed_on<B>(request: &Request<B>, protocols: &[String]) -> bool {
    let headers = request.headers();
    let Some(protocol) = headers.get(UPGRADE) else { return false };
    let known =
        protocols.iter().any(|one| protocol.as_bytes().eq_ignore_ascii_case(one.as_bytes()));
    let one = headers.get_all(UPGRADE).iter().count() == 1;
    let plain = request.version() == Version::HTTP_11 && !announces_body(headers);
    known && one && plain && names_upgrade(headers)
}

impl Upgrade {
    /// Takes the upgrade out of a request. `None` if there is none or it may not be passed on: the
    /// request is then handled as an ordinary one, as RFC 9110 §7.8 allows.
    pub(crate) fn take<B>(request: &mut Request<B>, protocols: &[String]) -> Option<Upgrade> {
        if request.extensions_mut().remove::<Protocol>().is_some() {
            let client = request.extensions_mut().remove::<OnUpgrade>()?;
            let key = HeaderValue::try_from(BASE64.encode(fastrand::u128(..).to_le_bytes())).ok();
            let cut = request.extensions_mut().remove::<Cut>();
            let protocol = HeaderValue::from_static(WEBSOCKET);
            return Some(Upgrade { protocol, client, cut, key });
        }
        if !is_passed_on(request, protocols) {
            return None;
        }
        let protocol = request.headers().get(UPGRADE)?.clone();
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Upgrade { protocol, client, cut: None, key: None })
    }

    /// Asks the origin, and joins the connections if it agrees.
    pub(crate) async fn pass(self, worker: &Worker, ask: &Ask) -> Answer {
        let mut status = CacheStatus::forwarded(ForwardReason::Bypass);
        status.detail = Some("upgrade");
        let request = self.request(worker, ask);
        let mut response = match send_upgrade(worker, ask, request).await {
            Ok(response) => response,
            Err(error) => return answer::origin_failed(worker, error, status),
        };
        status.forward_status = Some(response.status());
        let origin = hyper::upgrade::on(&mut response);
        let (mut parts, mut body) = response.into_parts();
        let answer = (parts.status, &parts.headers);
        if !may_be_told(answer, &self.protocol, self.key.as_ref()) {
            let text = "The origin did not answer the wish for another protocol as it must.";
            status.detail = Some("bad-handshake");
            return answer::own_answer(worker, StatusCode::BAD_GATEWAY, status, text);
        }
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            let mut body =
                Timed::of_response(body, ask.body_idle(&worker.shared.config), parts.version);
            if body.begins_broken().await {
                // Nothing was sent yet: the client need not see it break.
                return answer::origin_failed(worker, FetchError::Broken, status);
            }
            return (answer::pass_on(ask, parts, body), status);
        }
        let agreed = parts.headers.get(UPGRADE).cloned();
        let record = TunnelRecord::default();
        let streams = (self.client, self.cut, origin);
        tunnel_between(worker, ask, streams, body.take_hold(), record.clone());
        if self.key.is_some() {
            parts.status = StatusCode::OK;
            parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
            // Without meaning in a 101. In this 200 it would contradict the tunnel's bytes.
            parts.headers.remove(CONTENT_LENGTH);
        }
        let body = Timed::of_response(body, ask.body_idle(&worker.shared.config), parts.version);
        let mut response = answer::pass_on(ask, parts, body).map(|_| ProxyBody::empty());
        response.extensions_mut().insert(record);
        if self.key.is_some() {
            return (response, status);
        }
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(agreed) = agreed {
            headers.insert(UPGRADE, agreed);
        }
        (response, status)
    }

    /// The request to the origin.
    fn request(&self, worker: &Worker, ask: &Ask) -> Request<OriginBody> {
        let mut request = ask.to_origin_request(&worker.shared, OriginBody::Empty);
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
        if let Some(key) = &self.key {
            headers.insert(SEC_WEBSOCKET_KEY, key.clone());
            headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        }
        request
    }
}

/// Whether a client that asked for this protocol may get this answer: a refusal, or a 101 for the
/// protocol. If this proxy made the handshake, with this key, the 101 must also prove the key (RFC
/// 9110 §7.8, RFC 6455 §4.1).
pub(crate) fn may_be_told(
    (status, headers): (StatusCode, &HeaderMap),
    protocol: &HeaderValue,
    key: Option<&HeaderValue>,
) -> bool {
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return key.is_none() || !(status.is_success() || status.is_informational());
    }
    let same = |agreed: &HeaderValue| agreed.as_bytes().eq_ignore_ascii_case(protocol.as_bytes());
    headers.get(UPGRADE).is_some_and(same) && key.is_none_or(|key| knows(headers, key))
}

/// Whether `Sec-WebSocket-Accept` matches the key of the handshake.
fn knows(answer: &HeaderMap, key: &HeaderValue) -> bool {
    let hashed = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), HANDSHAKE_GUID].concat());
    let wanted = BASE64.encode(hashed);
    answer.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|value| value == wanted.as_str())
}

/// Joins the connections of client and origin. The request's slot at the origin stays taken until
/// the tunnel ends, as its connection does.
fn tunnel_between(
    worker: &Worker,
    ask: &Ask,
    (client, cut, origin): (OnUpgrade, Option<Cut>, OnUpgrade),
    hold: Option<Hold>,
    record: TunnelRecord,
) {
    let timeouts = &worker.shared.config.timeouts;
    let (idle, patience) = (timeouts.tunnel_idle, timeouts.client_write);
    let counters = worker.counters.clone();
    let active = ask.peer().activity.begin_tunnel();
    tokio::spawn(async move {
        // An error means that one side has disconnected: no tunnel is needed.
        if let Ok((client, origin)) = tokio::try_join!(client, origin) {
            active.joins();
            let (client, origin) = (TokioIo::new(client), TokioIo::new(origin));
            let sent = record.client_bytes();
            let break_off = |by| active.break_off(by, cut, patience);
            record.end(tunnel::join(client, origin, idle, (&counters, sent), break_off).await);
        }
        drop((active, hold));
    });
}

fn names_upgrade(headers: &HeaderMap) -> bool {
    list_members(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case(b"upgrade"))
}
