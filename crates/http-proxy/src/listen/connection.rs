//! One client connection from its first byte: PROXY header, TLS, HTTP version, requests.
//!
//! Invariants: every wait for a client has a deadline; a connection that exceeds a limit is closed,
//! after being told why if it uses clear text. Threads: one task on the worker that serves it;
//! HTTP/2 streams are tasks of their own there.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};
use tokio_rustls::TlsAcceptor;

use crate::client::Peer;
use crate::client::activity::Activity;
use crate::client::place::Place;
use crate::config::tables::Timeouts;
use crate::listen::deadlines::{Deadlines, Protocol, REQUEST_TIMEOUT, Watched};
use crate::listen::proxy_protocol::{self, Parsed};
use crate::listen::stream::{ClientStream, Prefixed, Socket};
use crate::listen::{Gate, Kind, STOP_GRACE, http1, http2, stopped, trusts};
use crate::worker::Worker;

/// The client preface of HTTP/2 (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const TOO_MANY: &str = "Too many connections from your address.";
const PROXY_HEADER_WANTED: &str = "The connection must begin with a PROXY protocol header.";

/// How long to keep reading from a client that was told why its connection is closing.
const FAREWELL: Duration = Duration::from_secs(1);
/// At most this many bytes of that are read.
const FAREWELL_BYTES: u64 = 64 << 10;

/// Why a connection ends before its first request.
enum Refused {
    /// It broke, or sent nothing in time.
    Gone,
    /// It began something and did not finish it in time.
    TooSlow(Box<Prefixed<Socket>>),
    /// The client is sent this status and these words, if possible.
    With(StatusCode, &'static str, Box<Prefixed<Socket>>),
}

/// A connection as it was accepted.
pub(crate) struct Accepted {
    pub(crate) kind: Kind,
    pub(crate) socket: Socket,
    /// `None` for Unix sockets.
    pub(crate) from: Option<IpAddr>,
    pub(crate) place: Place,
}

/// A connection that is ready for HTTP.
struct Ready {
    stream: ClientStream,
    protocol: Protocol,
    client: IpAddr,
}

/// Serves a connection to its end.
pub(crate) async fn serve_connection(
    worker: Arc<ArcSwap<Worker>>,
    gate: Arc<Gate>,
    accepted: Accepted,
    stop: watch::Receiver<bool>,
) {
    let Accepted { kind, socket, from, place } = accepted;
    if let Socket::Tcp(stream) = &socket {
        // Without it small responses are delayed; a failure to set it only costs time.
        let _ = stream.set_nodelay(true);
    }
    let now = worker.load_full();
    let (counters, limit) = (now.counters.clone(), timeouts(&now).client_header);
    let activity = Activity::new(counters.clone(), Some(place));
    gate.seats.seat(&activity);
    let mut stopping = stop.clone();
    let mut preparing = Box::pin(prepare(&now, &gate, &activity, kind, socket, from));
    let prepared = tokio::select! {
        biased;
        prepared = preparing.as_mut() => Some(prepared),
        () = activity.told_to_leave() => None,
        // Nothing was asked yet, so there is nothing to drain but what is just coming.
        () = stopped(&mut stopping) => timeout(STOP_GRACE, preparing.as_mut()).await.ok(),
    };
    drop(preparing);
    let Some(prepared) = prepared else { return };
    // Dropped while the connection lives: it would keep replaced settings alive.
    drop(now);
    match prepared {
        Ok(Ready { stream, protocol, client }) => {
            activity.awaits_head();
            let pin = (protocol == Protocol::Http1).then(Arc::default);
            let peer = Peer {
                ip: client,
                secure: kind.tls,
                tls_version: stream.tls_version(),
                activity,
                interim: None,
                route: None,
                pin,
                notes: None,
            };
            speak(worker, stream, protocol, peer, stop).await;
        }
        Err(Refused::Gone) => {}
        Err(Refused::TooSlow(stream)) => {
            counters.client_timeouts.one();
            say_goodbye(REQUEST_TIMEOUT, *stream, kind, activity, &gate, limit).await;
        }
        Err(Refused::With(status, words, stream)) => {
            counters.connections_refused.one();
            let answer = refusal(status, words);
            say_goodbye(answer.as_bytes(), *stream, kind, activity, &gate, limit).await;
        }
    }
}

/// The last answer of a connection that brings no request.
fn refusal(status: StatusCode, words: &str) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    let body = format!("{} {words}\n", status.as_str());
    format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        status.as_str(),
        body.len()
    )
}

/// Tells a client why its connection ends, unless it expects TLS. It holds no place while what it
/// still sends is read.
async fn say_goodbye(
    words: &[u8],
    mut stream: Prefixed<Socket>,
    kind: Kind,
    activity: Arc<Activity>,
    gate: &Gate,
    limit: Duration,
) {
    let farewell = async {
        if !kind.tls {
            // All of them are 4xx, and the metric counts only the class.
            activity.refused(StatusCode::BAD_REQUEST);
            stream.write_all(words).await?;
        }
        stream.shutdown().await
    };
    // It may not be listening.
    let is_told = matches!(timeout(limit, farewell).await, Ok(Ok(())));
    drop(activity);
    if kind.tls || !is_told {
        return;
    }
    // What it sent unasked, and nobody reads, would turn the end into a reset, at which many
    // clients discard what they were told.
    let Ok(_farewell) = gate.farewells.try_acquire() else { return };
    let (mut rest, mut nobody) = (stream.take(FAREWELL_BYTES), tokio::io::sink());
    let _ = timeout(limit.min(FAREWELL), tokio::io::copy(&mut rest, &mut nobody)).await;
}

fn timeouts(worker: &Worker) -> &Timeouts {
    &worker.shared.config.timeouts
}

async fn prepare(
    worker: &Worker,
    gate: &Gate,
    activity: &Arc<Activity>,
    kind: Kind,
    socket: Socket,
    from: Option<IpAddr>,
) -> Result<Ready, Refused> {
    let limit = timeouts(worker).client_header;
    let mut stream = Prefixed::new(Bytes::new(), socket);
    let mut client = from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if kind.proxy_protocol {
        let networks = &worker.shared.config.proxy_protocol.networks;
        let trusted = from.is_none_or(|from| trusts(networks, from));
        let header = match trusted {
            true => timeout(limit, proxied(&mut stream)).await.unwrap_or(ProxyHeader::TooSlow),
            false => ProxyHeader::Missing,
        };
        match header {
            ProxyHeader::For(told) => client = told,
            ProxyHeader::Anonymous => {}
            ProxyHeader::TooSlow => return Err(Refused::TooSlow(Box::new(stream))),
            ProxyHeader::Missing => {
                let status = StatusCode::BAD_REQUEST;
                return Err(Refused::With(status, PROXY_HEADER_WANTED, Box::new(stream)));
            }
        }
    }
    if !worker.shared.config.forwarded.lists(client) {
        let Some(counted) = gate.clients.admit(client, activity).await else {
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Refused::With(status, TOO_MANY, Box::new(stream)));
        };
        activity.count(counted);
    }
    let client = client.to_canonical();
    if kind.tls {
        let (stream, protocol) = shake_hands(worker, gate, stream).await?;
        return Ok(Ready { stream, protocol, client });
    }
    let protocol = match version(&mut stream, activity, timeouts(worker)).await {
        Ok(protocol) => protocol,
        Err(NoRequest::TooSlow) => {
            return Err(Refused::TooSlow(Box::new(stream)));
        }
        Err(NoRequest::Gone) => return Err(Refused::Gone),
    };
    Ok(Ready { stream: ClientStream::Plain(stream), protocol, client })
}

/// The start of a connection that requires a PROXY header.
enum ProxyHeader {
    /// No trusted and valid header.
    Missing,
    /// Not all of one in time.
    TooSlow,
    /// A header without an address: the proxy before this one speaks for itself.
    Anonymous,
    /// A header with this client address.
    For(IpAddr),
}

/// Reads the PROXY header.
async fn proxied(stream: &mut Prefixed<Socket>) -> ProxyHeader {
    let mut parsed = Parsed::Incomplete;
    let enough = |seen: &[u8]| {
        parsed = proxy_protocol::parse(seen);
        parsed != Parsed::Incomplete
    };
    if stream.peek(proxy_protocol::HEADER_BYTES_MAX, enough).await.is_err() {
        return ProxyHeader::Missing;
    }
    let Parsed::Header { length, client } = parsed else { return ProxyHeader::Missing };
    stream.skip(length);
    client.map_or(ProxyHeader::Anonymous, |client| ProxyHeader::For(client.ip()))
}

async fn shake_hands(
    worker: &Worker,
    gate: &Gate,
    stream: Prefixed<Socket>,
) -> Result<(ClientStream, Protocol), Refused> {
    // A TLS listener without certificates is refused, at start and at a reload.
    let certificates = gate.certificates.load_full().ok_or(Refused::Gone)?;
    let shaking = TlsAcceptor::from(certificates.config()).accept(stream);
    let Ok(Ok(stream)) = timeout(timeouts(worker).client_header, shaking).await else {
        worker.counters.tls_failures.one();
        return Err(Refused::Gone);
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
    Ok((ClientStream::Tls(Box::new(Prefixed::new(Bytes::new(), stream))), protocol))
}

/// Why a connection brings no request.
enum NoRequest {
    /// The client began a request and did not finish it in time.
    TooSlow,
    /// The client sent nothing, or closed the connection.
    Gone,
}

/// Detects the HTTP version by the first bytes.
async fn version(
    stream: &mut Prefixed<Socket>,
    activity: &Activity,
    timeouts: &Timeouts,
) -> Result<Protocol, NoRequest> {
    let length = HTTP2_PREFACE.len();
    activity.awaits_head();
    let first = timeout(timeouts.client_idle, stream.peek(length, |seen| !seen.is_empty())).await;
    activity.begin_head();
    match first {
        Ok(Ok(seen)) if !seen.is_empty() => {}
        _ => return Err(NoRequest::Gone),
    }
    let told = stream.peek(length, |seen| !HTTP2_PREFACE.starts_with(seen));
    let seen = timeout(timeouts.client_header, told).await.map_err(|_| NoRequest::TooSlow)?;
    let http2 = seen.map_err(|_| NoRequest::Gone)? == HTTP2_PREFACE;
    Ok(if http2 { Protocol::Http2 } else { Protocol::Http1 })
}

async fn speak(
    worker: Arc<ArcSwap<Worker>>,
    stream: ClientStream,
    protocol: Protocol,
    peer: Peer,
    stop: watch::Receiver<bool>,
) {
    let now = worker.load_full();
    let timeouts = timeouts(&now);
    let deadlines = Deadlines {
        header: timeouts.client_header,
        idle: timeouts.client_idle,
        rest: timeouts.client_rest,
        write: timeouts.client_write,
    };
    let counters = now.counters.clone();
    drop(now);
    let stream = Watched::new(stream, protocol, deadlines, peer.activity.clone(), counters);
    match protocol {
        Protocol::Http1 => http1::speak(worker, stream, peer, stop).await,
        Protocol::Http2 => http2::speak(worker, stream, peer, stop).await,
    }
}
