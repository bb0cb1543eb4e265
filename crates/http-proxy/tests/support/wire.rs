//! Clients that need more than one plain request: raw bytes, TLS with a certificate authority made
//! for the test, and HTTP/2. Each call runs an event loop of its own on the test's thread.

use std::convert::Infallible;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper::server::conn::http2 as server_http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncWrite};
pub(crate) use tokio_rustls::rustls::HandshakeKind;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Message, PATIENCE, read_message};

/// Writes bytes as they are and reads until the other side closes.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    // The proxy may have refused and closed before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Writes bytes as they are and reads one answer.
pub(crate) fn raw_answer(address: SocketAddr, bytes: &[u8]) -> Message {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.write_all(bytes).expect("write");
    read_message(&mut BufReader::new(stream), false).expect("an answer")
}

/// Connects a client whose system takes little before the client reads it.
pub(crate) fn connect_with_little_room(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.set_recv_buffer_size(16 << 10).expect("a buffer");
    socket.connect(&address.into()).expect("connect");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("key");
        let root = params.self_signed(&key).expect("root");
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("root");
        Authority { pem: root.pem(), issuer: Issuer::new(params, key), roots }
    }

    /// Writes a certificate for `name` and its key as files.
    pub(crate) fn issue(&self, name: &str, chain: &Path, key: &Path) {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("name");
        let pair = KeyPair::generate().expect("key");
        let certificate = params.signed_by(&pair, &self.issuer).expect("certificate");
        std::fs::write(key, pair.serialize_pem()).expect("write");
        std::fs::write(chain, certificate.pem()).expect("write");
    }

    pub(crate) fn connector(&self, alpn: &[&[u8]]) -> TlsConnector {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

/// An answer as an HTTP library saw it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    /// The protocol that ALPN agreed on.
    pub(crate) protocol: String,
}

impl Answer {
    pub(crate) fn cache(&self) -> &str {
        self.headers.get("cache-status").and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Runs a client.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let limited = async { tokio::time::timeout(PATIENCE, future).await.expect("in time") };
    runtime.expect("event loop").block_on(limited)
}

pub(crate) type Sender = http2::SendRequest<Full<Bytes>>;

/// Speaks HTTP/2 on any stream.
pub(crate) async fn http2_on(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Sender {
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

/// Speaks HTTP/2 in clear text, by prior knowledge.
pub(crate) async fn http2_to(address: SocketAddr) -> Sender {
    http2_on(tokio::net::TcpStream::connect(address).await.expect("connect")).await
}

/// Speaks HTTP/2 over TLS.
pub(crate) async fn http2_over_tls(authority: &Authority, at: SocketAddr, name: &str) -> Sender {
    let tcp = tokio::net::TcpStream::connect(at).await.expect("connect");
    let server = ServerName::try_from(name.to_owned()).expect("name");
    http2_on(authority.connector(&[b"h2"]).connect(server, tcp).await.expect("TLS")).await
}

/// Sends one request.
pub(crate) async fn ask_http2(sender: &mut Sender, request: Request<Full<Bytes>>) -> Answer {
    let response = sender.send_request(request).await.expect("an answer");
    finish(response, String::new()).await
}

async fn finish(response: http::Response<hyper::body::Incoming>, protocol: String) -> Answer {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let body = body.to_bytes();
    Answer { status: parts.status, headers: parts.headers, body, trailers, protocol }
}

/// A GET over TLS with what ALPN agrees on; an error if the certificate is not good for `name`.
pub(crate) async fn get_tls(
    authority: &Authority,
    address: SocketAddr,
    name: &str,
    alpn: &[&[u8]],
    path: &str,
) -> std::io::Result<Answer> {
    let tcp = tokio::net::TcpStream::connect(address).await?;
    get_tls_on(authority, tcp, name, alpn, path).await
}

/// Asks for something over TLS, so that tickets have come, and tells how the session began.
pub(crate) async fn handshake(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &str,
) -> HandshakeKind {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let tcp = tokio::net::TcpStream::connect(address).await.expect("connect");
    let server = ServerName::try_from(name.to_owned()).expect("name");
    let mut stream = connector.connect(server, tcp).await.expect("TLS");
    let head = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("write");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
    stream.get_ref().1.handshake_kind().expect("a session")
}

/// Asks a proxy on `stream` for a tunnel.
pub(crate) async fn tunnel_through(stream: &mut tokio::net::TcpStream, target: &str) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("write");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
}

/// [`get_tls`] on an open connection.
pub(crate) async fn get_tls_on(
    authority: &Authority,
    tcp: tokio::net::TcpStream,
    name: &str,
    alpn: &[&[u8]],
    path: &str,
) -> std::io::Result<Answer> {
    let server = ServerName::try_from(name.to_owned()).expect("name");
    let stream = authority.connector(alpn).connect(server, tcp).await?;
    let agreed = stream.get_ref().1.alpn_protocol().unwrap_or_default();
    let protocol = String::from_utf8_lossy(agreed).into_owned();
    if protocol == "h2" {
        let mut sender = http2_on(stream).await;
        let request = Request::get(format!("https://{name}{path}")).body(Full::default());
        let response = sender.send_request(request.expect("request")).await.expect("an answer");
        return Ok(finish(response, protocol).await);
    }
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    let request = Request::get(path).header("host", name).body(Full::<Bytes>::default());
    let response = sender.send_request(request.expect("request")).await.expect("an answer");
    Ok(finish(response, protocol).await)
}

/// More than the buffers of sockets hold.
pub(crate) const LARGE_BYTES: usize = 24 << 20;

/// An origin that speaks HTTP/2 only. A response has the request's URL, whether it had a `Host`
/// field, and its body; the request's `Via` is in `seen-via`, its `Trailer` in `seen-trailer` and
/// the trailer `X-Req` in `seen-x-req`, and trailers follow. The response at `/kept` may be stored,
/// that at `/large` is [`LARGE_BYTES`] longer.
pub(crate) struct Http2Origin {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
}

/// How an origin treats its connections.
#[derive(Clone, Copy, Default)]
struct Manners {
    streams_max: Option<u32>,
    silences: usize,
}

impl Http2Origin {
    /// In clear text, or over TLS with a certificate for `name`.
    pub(crate) fn start(tls: Option<(&Authority, &str)>) -> Http2Origin {
        Http2Origin::allowing(tls, None)
    }

    /// The same; it lets at most `streams_max` requests run at once on a connection.
    pub(crate) fn allowing(
        tls: Option<(&Authority, &str)>,
        streams_max: impl Into<Option<u32>>,
    ) -> Http2Origin {
        Http2Origin::with(tls, Manners { streams_max: streams_max.into(), silences: 0 })
    }

    /// The same as [`start`](Self::start), but it reads from its first `silences` connections and
    /// never writes to them, apart from the TLS handshake.
    pub(crate) fn silent(tls: Option<(&Authority, &str)>, silences: usize) -> Http2Origin {
        Http2Origin::with(tls, Manners { streams_max: None, silences })
    }

    fn with(tls: Option<(&Authority, &str)>, manners: Manners) -> Http2Origin {
        let acceptor = tls.map(|(authority, name)| acceptor(authority, name, &[b"h2"]));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        listener.set_nonblocking(true).expect("non-blocking");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let serving = serve_http2(listener, acceptor, manners, count);
            runtime.expect("event loop").block_on(serving);
        });
        Http2Origin { address, connections }
    }
}

/// The head of an HTTP/2 frame.
pub(crate) struct FrameHead {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    /// Whether the frame ends a request.
    pub(crate) fn ends_request(&self) -> bool {
        matches!(self.kind, 0 | 1) && self.flags & 1 != 0
    }
}

/// The bytes of a frame without flags.
pub(crate) fn http2_frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
}

impl Http2Origin {
    /// An origin in clear text. On its first connection each frame is answered by the bytes that
    /// `answer` returns; on later connections requests are answered as by [`start`](Self::start).
    pub(crate) fn by_hand(
        answer: impl Fn(&FrameHead) -> Vec<u8> + Send + Sync + 'static,
    ) -> Http2Origin {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        std::thread::spawn(move || {
            let (first, _) = listener.accept().expect("accept");
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || answer_frames(first, answer));
            listener.set_nonblocking(true).expect("non-blocking");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("event loop").block_on(serve_http2(
                listener,
                None,
                Manners::default(),
                count,
            ));
        });
        Http2Origin { address, connections }
    }
}

/// Answers frames until the other side ends the connection.
fn answer_frames(mut stream: TcpStream, answer: impl Fn(&FrameHead) -> Vec<u8>) {
    const SETTINGS: u8 = 4;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).expect("a preface");
    stream.write_all(&http2_frame(SETTINGS, 0, &[])).expect("write");
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let [a, b, c, kind, flags, d, e, f, g] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).expect("a payload");
        let frame = FrameHead { kind, flags, stream: u32::from_be_bytes([d, e, f, g]) };
        if stream.write_all(&answer(&frame)).is_err() {
            return;
        }
    }
}

/// Accepts TLS with a certificate for `name`, and speaks HTTP/2 on it if `alpn` says so.
pub(crate) fn acceptor(authority: &Authority, name: &str, alpn: &[&[u8]]) -> TlsAcceptor {
    let home = tempfile::tempdir().expect("tempdir");
    let (chain, key) = (home.path().join("chain"), home.path().join("key"));
    authority.issue(name, &chain, &key);
    let chain = CertificateDer::from_pem_file(chain).expect("certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("configuration");
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve_http2(
    listener: std::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
    manners: Manners,
    count: Arc<AtomicUsize>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        let acceptor = acceptor.clone();
        let count = count.clone();
        tokio::spawn(async move {
            match acceptor {
                None => speak_http2(stream, manners, count).await,
                Some(acceptor) => {
                    // A client that does not trust the certificate ends the handshake.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    speak_http2(stream, manners, count).await;
                }
            }
        });
    }
}

async fn speak_http2(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    manners: Manners,
    count: Arc<AtomicUsize>,
) {
    if count.fetch_add(1, Ordering::SeqCst) < manners.silences {
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        return;
    }
    let service = service_fn(async |request: Request<hyper::body::Incoming>| {
        let seen = format!("{} {}", request.uri(), request.headers().contains_key("host"));
        let via = request.headers().get("via").cloned();
        let announced = request.headers().get("trailer").cloned();
        let kept = request.uri().path() == "/kept";
        let large = request.uri().path() == "/large";
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        // If it breaks off, nobody waits for an answer.
        let sent = request.into_body().collect().await.unwrap_or_default();
        let behind = sent.trailers().and_then(|trailers| trailers.get("x-req").cloned());
        let echo = sent.to_bytes();
        let mut body = [seen.as_bytes(), &echo].concat();
        if large {
            body.resize(body.len() + LARGE_BYTES, 0);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("1"));
        trailers.insert("vary", http::HeaderValue::from_static("*"));
        let body = Full::new(Bytes::from(body));
        let body = body.with_trailers(std::future::ready(Some(Ok::<_, Infallible>(trailers))));
        let mut response = http::Response::new(body);
        for (name, value) in
            [("seen-via", via), ("seen-trailer", announced), ("seen-x-req", behind)]
        {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
        if kept {
            let fresh = http::HeaderValue::from_static("max-age=60");
            response.headers_mut().insert("cache-control", fresh);
        }
        Ok::<_, Infallible>(response)
    });
    let _ = server_http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(manners.streams_max)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
