//! The way of a request from the connection to the cache: screening, then what the mode demands.
//!
//! Invariant: nothing reaches the cache or an origin that `screen` has not passed. Threads: the
//! worker that read the request.

use http::Request;
use http::header::UPGRADE;
use hyper::body::Incoming;

use crate::ask::Ask;
use crate::listen::screen::{Refusal, screen};
use crate::peer::Peer;
use crate::rules::cache_status::CacheStatus;
use crate::serve::{self, Answer};
use crate::upgrade::Upgrade;
use crate::worker::Worker;

/// Answers a request, whatever it is.
pub(crate) async fn answer(worker: &Worker, mut request: Request<Incoming>, peer: Peer) -> Answer {
    if let Err(refusal) = screen(&mut request, &worker.shared.config.transport.clients) {
        return refuse(worker, refusal);
    }
    let upgrade = match request.headers().contains_key(UPGRADE) {
        true => Upgrade::take(&mut request, &worker.shared.config.transport.upgrades),
        false => None,
    };
    match Ask::new(request, peer, &worker.shared) {
        Ok((ask, body)) => match upgrade {
            None => serve::route(worker, &ask, body).await,
            Some(upgrade) => upgrade.pass(worker, &ask).await,
        },
        Err(bad) => serve::refuse(worker, bad),
    }
}

fn refuse(worker: &Worker, refusal: Refusal) -> Answer {
    let status = CacheStatus::own(refusal.detail);
    serve::own_answer(worker, refusal.status, status, refusal.text)
}
