//! Requests of one HTTP/2 connection.
//!
//! Invariant: a stream's request uses the settings current at its start until its end. Threads: the
//! connection is one task, each of its streams another, on one worker.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use crate::client::Peer;
use crate::handler::{self, upgrade};
use crate::listen::body::ClientBody;
use crate::listen::deadlines::Watched;
use crate::listen::{STOP_GRACE, stopped};
use crate::worker::Worker;

/// Response bytes buffered for one HTTP/2 stream whose client has no window.
const HTTP2_SEND_BYTES_MAX: usize = 256 << 10;
/// Silence of an HTTP/2 client after which it is sent a PING.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time to answer the PING. A slow reader sees the PING behind all that the sockets buffer, which
/// is megabytes.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(180);

/// Serves a connection to its end.
pub(super) async fn speak(
    worker: Arc<ArcSwap<Worker>>,
    stream: Watched,
    peer: Peer,
    mut stop: watch::Receiver<bool>,
) {
    let now = worker.load_full();
    let limits = &now.shared.config.limits;
    let activity = peer.activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (worker, active) = (worker.load_full(), peer.activity.begin());
        let peer = peer.clone();
        async move {
            let response = handler::handle(&worker, request, peer).await;
            Ok::<_, Infallible>(response.map(|body| ClientBody::new(body, active, Version::HTTP_2)))
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams_max)
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        .max_header_list_size(limits.http2_header_bytes_max)
        .max_send_buf_size(HTTP2_SEND_BYTES_MAX)
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT);
    // A forward proxy's CONNECT is for tunnels only.
    let upgrades = &now.shared.config.upgrades;
    if now.shared.forward.is_none() && upgrade::is_offered_by_http2(upgrades) {
        builder.enable_connect_protocol();
    }
    drop(now);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    // A client that has asked for nothing has no answer under way, and may never confirm the end.
    let may_end = activity.begun() == 0;
    if may_end && (timeout(STOP_GRACE, connection.as_mut()).await.is_ok() || activity.begun() == 0)
    {
        return;
    }
    let _ = connection.await;
}
