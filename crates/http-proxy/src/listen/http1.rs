//! Requests of one HTTP/1.1 connection.
//!
//! An idle connection costs no more than its socket: hyper's state for it (a buffer for each
//! direction, parsed headers) is dropped, and rebuilt when the client sends again. Invariants: the
//! state is dropped only between two requests, when no byte is in flight in either direction, and
//! only after a request without a body, so that no rest of one message can be read as the next;
//! each request uses the settings in force when it began, to its end. Threads: one task on the
//! worker that accepted the connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use arc_swap::ArcSwap;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::Peer;
use crate::client::activity::Activity;
use crate::config::tables::HEADER_LINES_MAX;
use crate::handler::{self, upgrade};
use crate::io::BUFFER_BYTES_MIN;
use crate::listen::body::ClientBody;
use crate::listen::deadlines::Watched;
use crate::listen::{STOP_GRACE, stopped};
use crate::worker::Worker;

/// Header lines that hyper parses without a heap allocation.
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
        // The request keeps these settings to its end, even if they are reloaded meanwhile.
        let (worker, active) = (worker.load_full(), peer.activity.begin());
        let may_switch = switches(&request, &worker.shared.config.upgrades);
        peer.activity.set_may_switch(may_switch);
        // Whether the request ends with its headers, so that only the next request can follow it.
        let has_body = !request.body().is_end_stream();
        peer.activity.set_may_rest(!may_switch && !has_body);
        peer.activity.set_may_linger(!may_switch && has_body);
        let version = request.version();
        // HTTP/1.0 clients do not know interim responses (RFC 9110 §15.2).
        let sender = (version == Version::HTTP_11).then(|| interim.begin());
        let peer = Peer { interim: sender.clone(), ..peer.clone() };
        async move {
            let response = handler::handle(&worker, request, peer).await;
            if let Some(sender) = sender {
                sender.end().await;
            }
            let mut response = ClientBody::of_http1(response, active, version);
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
        let kept = now.shared.config.limits.half_closed_clients;
        let half_close = stream.notice_leaving(!kept) || kept;
        let connection = builder(&now)
            .half_close(half_close)
            .serve_connection(TokioIo::new(stream), service_fn(&answer));
        drop(now);
        // Boxed, so that a resting connection does not keep the space for it.
        let serving = serve(connection, &peer.activity, refused, &mut stop);
        let Some(silent) = Box::pin(serving).await else { return };
        stream = silent;
        let end = async {
            tokio::select! {
                () = stopped(&mut stop) => {}
                () = peer.activity.told_to_leave() => {}
            }
        };
        if !stream.wait_for_more(end).await {
            return;
        }
    }
}

/// Gives a status without a known reason phrase an empty one; hyper would invent one.
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
        .max_buf_size(config.limits.header_bytes_max.max(BUFFER_BYTES_MIN));
    let lines_max = config.limits.header_lines_max.min(HEADER_LINES_MAX);
    if lines_max != HEADER_LINES_INLINE {
        builder.max_headers(lines_max);
    }
    builder
}

/// Whether a request may turn its connection into a tunnel. Not if it merely offers a protocol that
/// is left out, as some clients do with `h2c` in every request.
fn switches(request: &Request<Incoming>, protocols: &[String]) -> bool {
    request.method() == Method::CONNECT || upgrade::is_passed_on(request, protocols)
}

/// The status that hyper answered to an unreadable request. Other connection errors concern only
/// the client and are ignored.
fn refusal(ended: &hyper::Result<()>) -> Option<StatusCode> {
    match ended {
        // hyper tells which of the two it was only in words; a test compares.
        Err(error) if error.is_parse_too_large() => Some(match error.to_string().as_str() {
            "URI too long" => StatusCode::URI_TOO_LONG,
            _ => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }),
        // hyper closes without an answer when it reads an HTTP/2 preface.
        Err(error) if error.is_parse() && !error.is_parse_version_h2() => {
            Some(StatusCode::BAD_REQUEST)
        }
        _ => None,
    }
}

/// Serves requests until the connection ends, or until it should rest; then returns its stream.
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
        // A request that is there already is read first: a connection that has read nothing is
        // closed at once.
        biased;
        rests = going => rests,
        () = stopped(stop) => {
            let begins = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
                Poll::Pending if activity.begun() == 0 => Poll::Pending,
                polled => Poll::Ready(polled),
            });
            // Over TLS it has had no time for its first bytes. Otherwise it would be closed at once
            // if it has read nothing.
            if let Ok(Poll::Ready(ended)) = timeout(STOP_GRACE, begins).await {
                refusal(&ended).into_iter().for_each(&refused);
                return None;
            }
            finish(connection, activity, refused).await;
            return None;
        }
        () = activity.told_to_leave() => {
            finish(connection, activity, refused).await;
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

/// Ends a connection after the request that is under way, if any.
async fn finish<S>(
    mut connection: http1::UpgradeableConnection<TokioIo<Watched>, S>,
    activity: &Activity,
    refused: impl Fn(StatusCode),
) where
    S: HttpService<Incoming, ResBody = ClientBody, Error = Infallible>,
{
    // A client that is asleep would hold up the end.
    activity.set_may_linger(false);
    Pin::new(&mut connection).graceful_shutdown();
    refusal(&connection.await).into_iter().for_each(&refused);
}
