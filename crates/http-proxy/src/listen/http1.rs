//! Requests of one HTTP/1.1 connection.
//!
//! A client that has asked for nothing for a while costs no more than its socket: what the library keeps
//! for a connection (a buffer for each direction, parsed headers) is let go, and made anew when something
//! comes. Invariants: that happens between two requests only, when no byte is on its way in either
//! direction, and after a request without a body, so that nothing of the message before can be taken for
//! the next one; each request sees the settings of its own moment, from beginning to end. Threads: one
//! task on the worker that accepted.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use arc_swap::ArcSwap;
use http::header::UPGRADE;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;

use crate::client::Peer;
use crate::client::activity::Activity;
use crate::handler;
use crate::io::BUFFER_BYTES_MIN;
use crate::listen::body::ClientBody;
use crate::listen::deadlines::Watched;
use crate::listen::stopped;
use crate::worker::Worker;

/// Header lines that hyper has room for without asking the allocator.
const HEADER_LINES_INLINE: usize = 100;

/// Serves a connection to its end.
pub(super) async fn speak(
    worker: Arc<ArcSwap<Worker>>,
    mut stream: Watched,
    peer: Peer,
    mut stop: watch::Receiver<bool>,
) {
    let interim = stream.interim();
    let answer = |request: Request<Incoming>| {
        // Each request sees the settings of its own moment, from beginning to end.
        let (worker, active) = (worker.load_full(), peer.activity.begin());
        peer.activity.set_may_rest(leaves_nothing(&request));
        let version = request.version();
        // Older clients do not know of interim answers (RFC 9110 §15.2).
        let sender = (version == Version::HTTP_11).then(|| interim.begin());
        let peer = Peer { interim: sender.clone(), ..peer.clone() };
        async move {
            let response = handler::handle(&worker, request, peer).await;
            if let Some(sender) = sender {
                sender.end().await;
            }
            let mut response = response.map(|body| ClientBody::new(body, active, version));
            name_status(&mut response);
            Ok::<_, Infallible>(response)
        }
    };
    let refused = |status| {
        peer.activity.refused(status);
        handler::record::refused(&worker.load(), &peer, status);
    };
    loop {
        let now = worker.load_full();
        let connection = builder(&now).serve_connection(TokioIo::new(stream), service_fn(&answer));
        drop(now);
        // On the heap, so that a connection that rests does not hold the room for it.
        let serving = serve(connection, &peer.activity, refused, &mut stop);
        let Some(silent) = Box::pin(serving).await else { return };
        stream = silent;
        if !stream.wait_for_more(stopped(&mut stop)).await {
            return;
        }
    }
}

/// A status that the library knows no name of, and nobody gave one, has none: it would invent one.
fn name_status<B>(response: &mut Response<B>) {
    if response.status().canonical_reason().is_none() {
        response.extensions_mut().get_or_insert(ReasonPhrase::from_static(b""));
    }
}

fn builder(worker: &Worker) -> http1::Builder {
    let config = &worker.shared.config;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(config.header_bytes_max.max(BUFFER_BYTES_MIN))
        .half_close(config.transport.clients.half_closed);
    let lines_max = config.transport.clients.header_lines_max;
    if lines_max != HEADER_LINES_INLINE {
        builder.max_headers(lines_max);
    }
    builder
}

/// Whether all of a request is there with its headers: then nothing but the next one can follow it.
fn leaves_nothing(request: &Request<Incoming>) -> bool {
    request.body().is_end_stream()
        && request.method() != Method::CONNECT
        && !request.headers().contains_key(UPGRADE)
}

/// What the library answered to what it could not read. Beyond that a connection that breaks concerns
/// nobody but its client.
fn refusal(ended: &hyper::Result<()>) -> Option<StatusCode> {
    match ended {
        Err(error) if error.is_parse_too_large() => {
            Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        }
        // To HTTP/2 it says nothing.
        Err(error) if error.is_parse() && !error.is_parse_version_h2() => {
            Some(StatusCode::BAD_REQUEST)
        }
        _ => None,
    }
}

/// Serves requests until the connection ends, or until it should rest: then its stream is given back.
async fn serve<S>(
    connection: http1::Connection<TokioIo<Watched>, S>,
    activity: &Activity,
    refused: impl Fn(StatusCode),
    stop: &mut watch::Receiver<bool>,
) -> Option<Watched>
where
    S: HttpService<Incoming, ResBody = ClientBody, Error = Infallible>,
{
    let mut connection = connection.with_upgrades();
    let going = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(ended) => {
            refusal(&ended).into_iter().for_each(&refused);
            Poll::Ready(false)
        }
        Poll::Pending if activity.take_rest() => Poll::Ready(true),
        Poll::Pending => Poll::Pending,
    });
    let rests = tokio::select! {
        rests = going => rests,
        () = stopped(stop) => {
            Pin::new(&mut connection).graceful_shutdown();
            refusal(&connection.await).into_iter().for_each(&refused);
            return None;
        }
    };
    let parts = connection.into_parts().filter(|_| rests)?;
    let mut stream = parts.io.into_inner();
    if !parts.read_buf.is_empty() {
        stream.put_back(parts.read_buf);
    }
    Some(stream)
}
