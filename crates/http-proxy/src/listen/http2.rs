//! Requests of one HTTP/2 connection.
//!
//! Invariants: a stream's request uses the settings current at its start until its end; a
//! connection is ended only after it was told so, and not before its answers have been delivered,
//! unless its client cancels too many requests.
//! Threads: the connection is one task, each of its streams another, on one worker.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use arc_swap::ArcSwap;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::client::Peer;
use crate::client::activity::Activity;
use crate::client::cut::Cut;
use crate::config::tables::Timeouts;
use crate::handler::{self, upgrade};
use crate::io::held_bytes::Delivery;
use crate::listen::body::ClientBody;
use crate::listen::deadlines::Watched;
use crate::listen::http2_cancels::Cancels;
use crate::listen::http2_streams::Streams;
use crate::listen::{STOP_GRACE, stopped};
use crate::worker::Worker;

/// Response bytes buffered for one HTTP/2 stream whose client has no window.
const HTTP2_SEND_BYTES_MAX: usize = 256 << 10;
/// Flow-control window of each upload: the most that waits in memory for an origin that takes none.
const HTTP2_WINDOW_BYTES: u32 = 256 << 10;
/// Flow-control window of a connection: the largest possible, because what a slow origin does not
/// take of one upload would fill a smaller one and stall all others. Memory is bounded by
/// [`HTTP2_WINDOW_BYTES`] times the streams that a connection may have.
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Silence of an HTTP/2 client after which it is sent a PING.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time to answer the PING. A slow reader sees the PING behind all that the sockets buffer, which
/// is megabytes.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(180);

/// A connection that may write and had no request for so long has delivered all of its answers.
const QUIET: Duration = Duration::from_secs(1);
/// Time for the requests of a client that was not told yet that its unused connection ends: longer
/// than bytes are on their way to any client and back.
const UNUSED_GRACE: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub(super) async fn speak(
    worker: Arc<ArcSwap<Worker>>,
    stream: Watched,
    peer: Peer,
    stop: watch::Receiver<bool>,
) {
    let now = worker.load_full();
    let config = &now.shared.config;
    let (timeouts, counters) = (config.timeouts.clone(), now.counters.clone());
    let activity = peer.activity.clone();
    let streams = Streams::new(activity.clone(), counters.clone(), timeouts.client_write);
    let cancels = Cancels::new(&config.limits, !config.forwarded.lists(peer.ip));
    let builder = builder(&now, streams.clone());
    drop(now);
    let cancelled = cancels.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (worker, active) = (worker.load_full(), peer.activity.begin());
        let cut = (request.method() == Method::CONNECT).then(Cut::default);
        if let Some(cut) = &cut {
            request.extensions_mut().insert(cut.clone());
        }
        let (peer, progress) = (peer.clone(), streams.begin(cut));
        let unanswered = cancelled.begin();
        async move {
            let response = handler::handle(&worker, request, peer).await;
            unanswered.answered();
            let body = |body| ClientBody::of_http2(body, active, progress);
            Ok::<_, Infallible>(response.map(body))
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        () = serve(connection.as_mut(), &activity, &timeouts, stop) => return,
        () = cancels.exceeded() => {}
    }
    counters.http2_cancels_exceeded.one();
    // Told to end, as far as its socket takes that at once: what it still sends is not heard.
    connection.as_mut().graceful_shutdown();
    poll_fn(|context| {
        let _ = connection.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

/// Serves it until it ends by itself, or is ended when its time has come.
async fn serve<S>(
    mut connection: Pin<&mut http2::Connection<TokioIo<Watched>, S, Streams>>,
    activity: &Activity,
    timeouts: &Timeouts,
    mut stop: watch::Receiver<bool>,
) where
    S: HttpService<Incoming, ResBody = ClientBody, Error = Infallible>,
    S::Future: Send + 'static,
{
    let (grace, awaited) = tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => (STOP_GRACE, Awaited::Answers),
        () = unused(activity, Awaited::Tunnels, timeouts.client_idle) => {
            (UNUSED_GRACE, Awaited::Tunnels)
        }
        () = activity.told_to_leave() => (UNUSED_GRACE, Awaited::Tunnels),
    };
    connection.as_mut().graceful_shutdown();
    // What the socket holds is lost once the client's next frame meets a closed one.
    let mut delivery = Delivery::begin(Instant::now(), timeouts.client_header);
    // A client that waits for nothing may never confirm the end.
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = unused(activity, awaited, quiet_after(activity)) => {}
        }
        if timeout(grace, connection.as_mut()).await.is_ok() {
            return;
        }
        let is_unused = unused_for(activity, awaited) >= quiet_after(activity);
        if is_unused && delivery.is_over(activity.held_bytes(), Instant::now()) {
            return;
        }
    }
}

/// The time without a request after which nothing is left to deliver.
fn quiet_after(activity: &Activity) -> Duration {
    if activity.begun() == 0 { Duration::ZERO } else { QUIET }
}

fn builder(worker: &Worker, streams: Streams) -> http2::Builder<Streams> {
    let config = &worker.shared.config;
    let limits = &config.limits;
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams_max)
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        .max_header_list_size(limits.http2_header_bytes_max)
        .max_send_buf_size(HTTP2_SEND_BYTES_MAX)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT);
    // A forward proxy's CONNECT is for tunnels only.
    if worker.shared.forward.is_none() && upgrade::is_offered_by_http2(&config.upgrades) {
        builder.enable_connect_protocol();
    }
    builder
}

/// What keeps a connection: a proxy that stops does not wait for tunnels.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Answers,
    /// Tunnels as well.
    Tunnels,
}

/// How long there was nothing to wait for, and room for what is left of the last answers.
fn unused_for(activity: &Activity, awaited: Awaited) -> Duration {
    let nothing_left = match awaited {
        Awaited::Answers => activity.has_only_tunnels(),
        Awaited::Tunnels => activity.is_idle(),
    };
    match activity.writable_since() {
        Some(writable) if nothing_left => writable.max(activity.idle_since()).elapsed(),
        _ => Duration::ZERO,
    }
}

/// Ready once there was nothing to wait for this long.
async fn unused(activity: &Activity, awaited: Awaited, limit: Duration) {
    loop {
        let left = limit.saturating_sub(unused_for(activity, awaited));
        if left.is_zero() {
            return;
        }
        sleep(left).await;
    }
}
