//! Requests that leave HTTP (RFC 9110 §7.8), WebSocket above all: passed to the origin past the
//! cache, and if it agrees, both connections become one tunnel.
//!
//! Invariant: only protocols on the configured list are passed on. A proxy that passes on any
//! (`h2c`) lets a client speak to the origin past everything it checks. Threads: the worker's; the
//! tunnel is a task of its own, which a stopping proxy does not wait for.

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::ask::{Ask, announces_body};
use crate::body::{OriginBody, ProxyBody};
use crate::passing;
use crate::rules::{CacheStatus, Forward, list_members};
use crate::serve::{self, Answer};
use crate::tunnel;
use crate::worker::Worker;

/// What a request wants to become.
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    /// Takes the wish out of a request; `None` if there is none that may be passed on. The request
    /// is then an ordinary one, as RFC 9110 §7.8 allows.
    pub(crate) fn take<B>(request: &mut Request<B>, protocols: &[String]) -> Option<Upgrade> {
        let headers = request.headers();
        let protocol = headers.get(UPGRADE)?.clone();
        let known =
            protocols.iter().any(|one| protocol.as_bytes().eq_ignore_ascii_case(one.as_bytes()));
        let one = headers.get_all(UPGRADE).iter().count() == 1;
        let plain = request.version() == Version::HTTP_11 && !announces_body(headers);
        if !known || !one || !plain || !names_upgrade(headers) {
            return None;
        }
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Upgrade { protocol, client })
    }

    /// Asks the origin, and joins the connections if it agrees.
    pub(crate) async fn pass(self, worker: &Worker, ask: &Ask) -> Answer {
        let mut status = CacheStatus::forwarded(Forward::Bypass);
        status.detail = Some("upgrade");
        let mut request = ask.forward(&worker.shared, OriginBody::Empty);
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol);
        let mut response = match worker.fetcher.send_upgrade(request).await {
            Ok(response) => response,
            Err(error) => return serve::origin_failed(worker, error, status),
        };
        status.forward_status = Some(response.status());
        let origin = hyper::upgrade::on(&mut response);
        let (parts, body) = response.into_parts();
        let agreed = parts.headers.get(UPGRADE).cloned();
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            return (passing::pass_on(worker, parts, body), status);
        }
        tunnel_between(worker, ask, self.client, origin);
        let mut response = passing::pass_on(worker, parts, body).map(|_| ProxyBody::empty());
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(agreed) = agreed {
            headers.insert(UPGRADE, agreed);
        }
        (response, status)
    }
}

fn tunnel_between(worker: &Worker, ask: &Ask, client: OnUpgrade, origin: OnUpgrade) {
    let idle = worker.shared.config.transport.tunnel_idle_timeout;
    let counters = worker.counters.clone();
    // The connection counts until the tunnel ends.
    let active = ask.peer().activity.begin();
    tokio::spawn(async move {
        // One that is gone by now needs no tunnel.
        if let Ok((client, origin)) = tokio::try_join!(client, origin) {
            tunnel::join(TokioIo::new(client), TokioIo::new(origin), idle, &counters).await;
        }
        drop(active);
    });
}

fn names_upgrade(headers: &HeaderMap) -> bool {
    list_members(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case(b"upgrade"))
}
