//! CONNECT through the forward proxy: opens a tunnel to the origin that the admitted route names.
//!
//! Invariant: the route limits which addresses are dialled. Threads: the worker's; each tunnel is a
//! separate task, which a stopping proxy does not wait for.

use std::sync::Arc;

use http::Request;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::answer::body::ProxyBody;
use crate::answer::{Answer, own_answer};
use crate::client::Peer;
use crate::client::cut::Cut;
use crate::error::FetchError;
use crate::forward::Route;
use crate::handler::record::TunnelRecord;
use crate::handler::tunnel;
use crate::rules::{CacheStatus, ForwardReason};
use crate::upstream::dial_tcp;
use crate::worker::Worker;

/// Opens a tunnel (RFC 9110 §9.3.6).
pub(crate) async fn open<B>(
    worker: &Worker,
    mut request: Request<B>,
    peer: &Peer,
    route: Arc<Route>,
) -> Answer {
    let mut status = CacheStatus::forwarded(ForwardReason::Method);
    let due = Instant::now() + worker.shared.config.timeouts.connect;
    worker.counters.forwarded.one();
    if let (Some(notes), Some(asked)) = (&peer.notes, request.uri().authority()) {
        notes.asks(&asked.as_str().into());
    }
    let origin = match dial_tcp(&route.host, route.port, Some(&*route), due, 0).await {
        Ok(origin) => origin,
        Err(error) => return failed(worker, error, status),
    };
    let client = hyper::upgrade::on(&mut request);
    let cut = request.extensions_mut().remove::<Cut>();
    let timeouts = &worker.shared.config.timeouts;
    let (idle, patience) = (timeouts.tunnel_idle, timeouts.client_write);
    let (counters, active) = (worker.counters.clone(), peer.activity.begin_tunnel());
    let record = TunnelRecord::default();
    let mut response = http::Response::new(ProxyBody::empty());
    response.extensions_mut().insert(record.clone());
    tokio::spawn(async move {
        // An error means that the client has disconnected: no tunnel is needed.
        if let Ok(client) = client.await {
            active.joins();
            let _ = origin.set_nodelay(true);
            let (client, sent) = (TokioIo::new(client), record.client_bytes());
            let break_off = |by| active.break_off(by, cut, patience);
            record.end(tunnel::join(client, origin, idle, (&counters, sent), break_off).await);
        }
        drop(active);
    });
    status.detail = Some("tunnel");
    (response, status)
}

fn failed(worker: &Worker, error: FetchError, mut status: CacheStatus) -> Answer {
    if error.is_origins_fault() {
        worker.counters.origin_failed(&error);
    }
    status.detail = Some(error.name());
    let text = format!("{error}.");
    own_answer(worker, error.status(), status, &text)
}
