//! A server with nothing behind it: every request is answered with the same head and body, on the
//! library, the runtime and the options that the proxy uses for clients. What the proxy costs
//! beyond this is its own work; `benchmarks/http/rivals.py hyper` compares the two.
//!
//! Usage: `bare_hyper ADDR:PORT HEAD_FILE BODY_BYTES`; the file holds header lines as on the wire.
//!
//! One thread, one event loop.

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

const USAGE: &str = "usage: bare_hyper ADDR:PORT HEAD_FILE BODY_BYTES";

/// What every request gets.
#[derive(Clone)]
struct Answer {
    headers: HeaderMap,
    body: Bytes,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, head, length] = arguments.as_slice() else { return Err(USAGE.into()) };
    let headers = parse(&std::fs::read_to_string(head)?)?;
    let body = Bytes::from(vec![b'x'; length.parse()?]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(address, &Answer { headers, body }))
}

fn parse(head: &str) -> Result<HeaderMap, Box<dyn Error>> {
    let mut headers = HeaderMap::new();
    for line in head.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or("a header line has a colon")?;
        headers.append(name.parse::<HeaderName>()?, HeaderValue::from_str(value.trim())?);
    }
    Ok(headers)
}

async fn serve(address: &str, answer: &Answer) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(speak(stream, answer.clone()));
    }
}

async fn speak(stream: TcpStream, answer: Answer) {
    let service = service_fn(|_: Request<Incoming>| {
        let mut response = Response::new(Full::new(answer.body.clone()));
        *response.headers_mut() = answer.headers.clone();
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).half_close(true);
    // A connection that breaks concerns nobody but its client.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
