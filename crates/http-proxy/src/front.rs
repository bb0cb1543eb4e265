//! The way of a request from the connection to the cache: screening, then what the mode demands.
//!
//! Invariant: nothing reaches the cache or an origin that `screen` has not passed. Threads: the
//! worker that read the request.

use std::sync::Arc;
use std::time::Instant;

use http::header::{HeaderValue, PROXY_AUTHENTICATE, UPGRADE};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;

use crate::ask::Ask;
use crate::error::Refusal;
use crate::forward;
use crate::listen::screen::screen;
use crate::observe;
use crate::peer::Peer;
use crate::rules::CacheStatus;
use crate::serve::{self, Answer};
use crate::upgrade::{self, Upgrade};
use crate::worker::Worker;

/// Answers a request that was read at `start`, whatever it is.
pub(crate) async fn answer(
    worker: &Arc<Worker>,
    mut request: Request<Incoming>,
    mut peer: Peer,
    start: Instant,
) -> Answer {
    let protocols = &worker.shared.config.transport.upgrades;
    upgrade::read_extended_connect(&mut request, protocols);
    if let Err(refusal) = screen(&mut request, &worker.shared.config.transport.clients) {
        return refuse(worker, refusal);
    }
    if let Some(forward) = &worker.shared.forward {
        match forward.admit(worker, &mut request, &peer).await {
            Err(refusal) => return refuse(worker, refusal),
            Ok(route) if request.method() == Method::CONNECT => {
                return Box::pin(forward::connect(worker, request, &peer, route)).await;
            }
            Ok(route) => peer.route = Some(route),
        }
    }
    let leaves =
        request.headers().contains_key(UPGRADE) || request.extensions().get::<Protocol>().is_some();
    let upgrade = if leaves { Upgrade::take(&mut request, protocols) } else { None };
    match Ask::new(request, peer, &worker.shared) {
        Ok((ask, body)) => {
            let (response, mut status) = match upgrade {
                None => serve::route(worker, &ask, body).await,
                Some(upgrade) => Box::pin(upgrade.pass(worker, &ask)).await,
            };
            observe::asked(worker, &ask, &status, start);
            if worker.shared.config.rules.show_key {
                let key = String::from_utf8_lossy(&ask.target.primary);
                status.key = Some(key.into_owned());
            }
            (response, status)
        }
        Err(bad) => serve::refuse(worker, bad),
    }
}

fn refuse(worker: &Worker, refusal: Refusal) -> Answer {
    let status = CacheStatus::own(refusal.detail);
    let (mut response, status) = serve::own_answer(worker, refusal.status, status, refusal.text);
    if refusal.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        let challenge = HeaderValue::from_static("Basic realm=\"damelo\", charset=\"UTF-8\"");
        response.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
    }
    (response, status)
}
