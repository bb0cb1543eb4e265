//! The admin listener: `/metrics` in OpenMetrics text, `/healthz`, `/readyz`. Not for the public.
//!
//! Threads: one, its own event loop; it only reads counters.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::control::Control;
use crate::metrics::{self, Counters};
use crate::worker::Shared;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const END: &str = "# EOF\n";
/// Time a client has to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until the event loop ends.
pub(crate) async fn serve(listener: StdListener, control: Control, counters: Vec<Arc<Counters>>) {
    // The listener was made non-blocking by whoever bound it.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let counters: Arc<[Arc<Counters>]> = counters.into();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (control, counters) = (control.clone(), counters.clone());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(request.uri().path(), &control.shared(), &counters);
                std::future::ready(Ok::<_, Infallible>(response))
            });
            // A connection that breaks concerns nobody but its client.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(path: &str, shared: &Shared, counters: &[Arc<Counters>]) -> Response<Full<Bytes>> {
    let (status, content_type, text) = match path {
        "/healthz" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/readyz" => ready(shared),
        "/metrics" => (StatusCode::OK, OPENMETRICS, metrics_text(shared, counters)),
        _ => (StatusCode::NOT_FOUND, PLAIN, "Try /metrics, /healthz or /readyz.\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Ready once everything that a former life left is served again.
fn ready(shared: &Shared) -> (StatusCode, &'static str, String) {
    let recovery = shared.vault.store().recovery();
    if recovery.done {
        return (StatusCode::OK, PLAIN, "ready\n".to_owned());
    }
    let text = format!(
        "recovering: {} of {} segments; what is known already is served\n",
        recovery.segments_loaded, recovery.segments_total
    );
    (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
}

/// The store's metrics and ours as one exposition with one end mark.
fn metrics_text(shared: &Shared, counters: &[Arc<Counters>]) -> String {
    let store = shared.vault.store().stats().to_openmetrics();
    let mut text = store.strip_suffix(END).unwrap_or(&store).to_owned();
    let log_write_errors = shared.log.as_ref().map_or(0, |log| log.write_errors.get());
    text.push_str(&metrics::render(counters, [log_write_errors]));
    text.push_str(END);
    text
}
