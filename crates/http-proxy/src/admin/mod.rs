//! The admin listener: health, metrics, purging, `explain` and `top`. Not for the public.
//!
//! Only clients of the allowed networks are answered; all others are told so, in places of their
//! own, so that they cannot keep anybody out. `/healthz`, `/readyz` and `/metrics` can be read
//! without a token; everything else requires the admin token if one is set. State-changing requests
//! are POSTs with a declared JSON body, which a page of another site cannot make a browser send
//! without a preflight. A page whose own name was made to lead here (DNS rebinding) can; where
//! there is no token its `Origin`, which only browsers send, gives it away, or that name. Threads:
//! one, with its own event loop.

pub(crate) mod client;
pub(crate) mod explain;

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::handler::purge::{self, PurgeFailure};
use crate::io::names;
use crate::listen::Gate;
use crate::metrics::Counters;
use crate::metrics::exposition::{self, Moment, families};
use crate::metrics::process::Process;
use crate::purge::ledger::Loading;
use crate::worker::Shared;
use crate::worker::control::{Control, Stage};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const END: &str = "# EOF\n";
/// Time a client has to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at once; more wait in the accept queue. Their descriptors are none of those
/// that clients of the proxy may have.
const CONNECTIONS_MAX: usize = 32;
/// Most connections at once of who is not answered; more are closed without a word.
const REFUSED_MAX: usize = 8;
/// Age at which a connection takes no further request, and the time that it then has for the answer
/// under way: a client that reads nothing does not keep its place.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// Largest body of a request.
const BODY_BYTES_MAX: usize = 1 << 20;
const PATHS: &str = "/healthz, /readyz, /metrics, /top or, with POST, /purge and /explain";

/// State that answers are made from.
#[derive(Clone)]
struct Admin {
    control: Control,
    gate: Arc<Gate>,
    counters: Arc<[Arc<Counters>]>,
}

type Answer = (StatusCode, &'static str, String);

/// Serves until the event loop ends.
pub(crate) async fn serve(
    listener: StdListener,
    control: Control,
    gate: Arc<Gate>,
    counters: Vec<Arc<Counters>>,
) {
    // The code that bound the listener made it non-blocking.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let admin = Admin { control, gate, counters: counters.into() };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let refused = Arc::new(Semaphore::new(REFUSED_MAX));
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let is_refused = !admin.answers(peer.ip());
        let place = if is_refused { refused.clone().try_acquire_owned().ok() } else { Some(place) };
        let Some(place) = place else { continue };
        let admin = admin.clone();
        tokio::spawn(async move {
            admin.speak(stream, peer.ip(), !is_refused).await;
            drop(place);
        });
    }
}

impl Admin {
    /// Whether an address is of the allowed networks.
    fn answers(&self, peer: IpAddr) -> bool {
        purge::is_within(peer, &self.control.shared().config.admin.networks)
    }

    /// Serves a connection to its end, of many requests or of one. That it breaks concerns only its
    /// client.
    async fn speak(&self, stream: TcpStream, peer: IpAddr, keeps_alive: bool) {
        let service = service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(self.respond(request, peer).await)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(keeps_alive)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        if timeout(CONNECTION_TIME, connection.as_mut()).await.is_err() {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(CONNECTION_TIME, connection).await;
        }
    }

    async fn respond(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        // Again: other networks may have been allowed since it was accepted.
        let (status, content_type, text) = if self.answers(peer) {
            self.answer(request).await
        } else {
            failed(StatusCode::FORBIDDEN, "this address is in none of `admin.networks`")
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, purge::TOKEN_WANTED);
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
        }
        response
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let shared = self.control.shared();
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        match request.uri().path() {
            "/healthz" if reads => return (StatusCode::OK, PLAIN, "ok\n".to_owned()),
            "/readyz" if reads => return self.ready(&shared),
            "/metrics" if reads => return (StatusCode::OK, OPENMETRICS, self.metrics(&shared)),
            _ => {}
        }
        if !purge::shows_token(request.headers(), shared.config.admin.token.as_deref()) {
            let text = match request.headers().contains_key(AUTHORIZATION) {
                true => "that is not the admin token: `Authorization: Bearer TOKEN`",
                false => "the admin token is wanted: `Authorization: Bearer TOKEN`",
            };
            return failed(StatusCode::UNAUTHORIZED, text);
        }
        if shared.config.admin.token.is_none() && request.headers().contains_key(ORIGIN) {
            let text = "pages in browsers may ask for this only with an `admin.token`";
            return failed(StatusCode::FORBIDDEN, text);
        }
        match request.uri().path() {
            "/purge" | "/explain" | "/top"
                if shared.config.admin.token.is_none() && is_by_name(&request) =>
            {
                let text = "without an `admin.token` this is for who asks by address, or by \
                            `localhost`: a page in a browser could have another name lead here";
                failed(StatusCode::FORBIDDEN, text)
            }
            "/purge" | "/explain" if request.method() == Method::POST => {
                self.ordered(&shared, request).await
            }
            "/top" if reads => {
                let top = explain::top(&shared, &self.counters);
                (StatusCode::OK, JSON, format!("{top}\n"))
            }
            "/healthz" | "/readyz" | "/metrics" | "/purge" | "/explain" | "/top" => {
                let text = format!("{} is not for this", request.method());
                failed(StatusCode::METHOD_NOT_ALLOWED, text)
            }
            _ => failed(StatusCode::NOT_FOUND, format!("try {PATHS}")),
        }
    }

    fn ready(&self, shared: &Shared) -> Answer {
        let text = match self.control.stage() {
            Stage::Serving => return ready(shared),
            Stage::Leaving => {
                "leaving: send new connections elsewhere, they will be refused soon\n"
            }
            Stage::Draining => "draining: no new connections are taken\n",
        };
        (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text.to_owned())
    }

    /// Handles a request with a body.
    async fn ordered(&self, shared: &Arc<Shared>, request: Request<Incoming>) -> Answer {
        let explains = request.uri().path() == "/explain";
        let declared = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if declared.is_none_or(|text| !text.starts_with(JSON.as_bytes())) {
            let text = "send JSON, and say so with `Content-Type: application/json`";
            return failed(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
        let Ok(Ok(body)) = timeout(HEADER_TIMEOUT, body).await else {
            return failed(StatusCode::BAD_REQUEST, "the body is too large or did not come whole");
        };
        let body = body.to_bytes();
        let done = if explains {
            explain::explain(shared, &self.counters, &body).await
        } else {
            self.purge(shared, &body).await
        };
        match done {
            Ok(done) => (StatusCode::OK, JSON, format!("{done}\n")),
            Err(failure) => failed(failure.status(), failure),
        }
    }

    async fn purge(&self, shared: &Arc<Shared>, order: &[u8]) -> Result<Value, PurgeFailure> {
        let (what, kind) = purge::order_of_json(order)?;
        let done = purge::carry_out(shared, what, kind).await?;
        self.counters[0].purges.one();
        Ok(done)
    }

    /// The store's metrics and the proxy's as one exposition with one end mark.
    fn metrics(&self, shared: &Shared) -> String {
        let store = shared.vault.store().stats().to_openmetrics();
        let mut text = store.strip_suffix(END).unwrap_or(&store).to_owned();
        text.push_str(&exposition::render(&families(&self.counters, &self.moment(shared))));
        text.push_str(END);
        text
    }

    fn moment(&self, shared: &Shared) -> Moment {
        let reloads = self.control.reloads();
        let (connections_open, connections_max) = self.gate.connections();
        Moment {
            log_write_errors: shared.log.write_errors.get(),
            names_refused: names::refused(),
            reloads: reloads.done.get(),
            reload_errors: reloads.failed.get(),
            reload_failed: reloads.last_failed.load(Ordering::Relaxed),
            restart_pending: reloads.restart_pending.load(Ordering::Relaxed) as u64,
            purge_marks: shared.vault.ledger().with_marks(|marks| marks.len() as u64),
            collapsed_waiting: shared.collapse.waiting(),
            connections_open: connections_open as u64,
            connections_max: connections_max as u64,
            transit_bytes: shared.transit.held_bytes(),
            origins: shared.sites.origins(Instant::now()),
            certificate_ends: self.gate.certificate_ends(),
            process: Process::now(),
        }
    }
}

/// Whether who asks took us for a host with a name of its own, as a page in a browser must to read
/// our answer. `localhost` is nobody else's.
fn is_by_name<B>(request: &Request<B>) -> bool {
    let Some(host) = request.headers().get(HOST) else { return false };
    let host = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
    host.is_none_or(|authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        !host.eq_ignore_ascii_case("localhost") && address.parse::<IpAddr>().is_err()
    })
}

fn failed(status: StatusCode, problem: impl std::fmt::Display) -> Answer {
    let body: Value = json!({ "error": problem.to_string() });
    (status, JSON, format!("{body}\n"))
}

/// Ready once everything that an earlier process stored can be served again. An unwritable store,
/// or volumes that fail or are silent, degrade the cache, but do not keep clients from the origin,
/// so they do not count, and are told of.
fn ready(shared: &Shared) -> Answer {
    let ledger = shared.vault.ledger();
    let recovery = shared.vault.store().recovery();
    let ailing = || ledger.volumes_ailing();
    let (is_ready, but) = match ledger.loading() {
        Loading::Done if recovery.done => {
            let nothing = ledger.all_volumes_out().map(|why| format!("nothing is stored: {why}"));
            (true, nothing.or_else(ailing))
        }
        Loading::Failed(error) if recovery.done => {
            (true, Some(format!("nothing is stored: {error}")))
        }
        Loading::Done | Loading::Failed(_) | Loading::Waiting => (false, ailing()),
    };
    let but = but.map(|why| format!(", but {why}")).unwrap_or_default();
    if is_ready {
        return (StatusCode::OK, PLAIN, format!("ready{but}\n"));
    }
    let text = format!(
        "recovering: {} of {} segments; what is known already is served{but}\n",
        recovery.segments_loaded, recovery.segments_wanted
    );
    (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
}
