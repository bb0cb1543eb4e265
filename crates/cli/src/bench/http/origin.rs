//! The origin behind the proxies that are measured: serves the catalogue over HTTP/1.1 and counts.
//!
//! Threads: one accepts, one for each connection, at most [`CONNECTIONS_MAX`]; they end with the
//! process. Counters are relaxed: they are read between measurements.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use super::catalogue::{Catalogue, ObjectRef};
use crate::failure::Failure;

/// Connections served at once; one more is closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Largest request head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;

struct Shared {
    catalogue: Arc<Catalogue>,
    requests: AtomicU64,
    connections: AtomicUsize,
}

/// A running origin.
pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Origin {
    /// Listens on `address` and serves from now on.
    pub(crate) fn start(address: &str, catalogue: Arc<Catalogue>) -> Result<Origin, Failure> {
        let failed = |source| Failure::io(format!("listen on {address} (--origin-listen)"), source);
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (requests, connections) = (AtomicU64::new(0), AtomicUsize::new(0));
        let shared = Arc::new(Shared { catalogue, requests, connections });
        let accepting = Arc::clone(&shared);
        let builder = thread::Builder::new().name("origin".to_owned());
        builder.spawn(move || accept(&listener, &accepting)).map_err(failed)?;
        Ok(Origin { address, shared })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered since the start.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        let shared = Arc::clone(shared);
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let builder = thread::Builder::new().name("origin".to_owned()).stack_size(128 << 10);
        // Without a thread the connection is closed: the proxy sees it and so does the report.
        let _ = builder.spawn(move || {
            // A connection that breaks is the proxy's to report.
            let _ = serve(stream, &shared);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// What a request wants.
struct Asked {
    head_bytes: usize,
    head_only: bool,
    object: Option<ObjectRef>,
    if_none_match: Option<String>,
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut block = [0; 4096];
    loop {
        while let Some(asked) = parse(&input, &shared.catalogue)? {
            input.drain(..asked.head_bytes);
            shared.requests.fetch_add(1, Ordering::Relaxed);
            output.clear();
            answer(&asked, &shared.catalogue, &mut output)?;
            stream.write_all(&output)?;
        }
        if input.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match stream.read(&mut block)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&block[..count]),
        }
    }
}

/// The next request, if it is there as a whole.
fn parse(input: &[u8], catalogue: &Catalogue) -> io::Result<Option<Asked>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    let httparse::Status::Complete(head_bytes) = request.parse(input).map_err(invalid)? else {
        return Ok(None);
    };
    let target = request.path.unwrap_or_default();
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let tag = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case("if-none-match"));
    let method = request.method.unwrap_or_default();
    Ok(Some(Asked {
        head_bytes,
        head_only: method == "HEAD",
        object: catalogue.find(path).filter(|_| matches!(method, "GET" | "HEAD")),
        if_none_match: tag.map(|header| String::from_utf8_lossy(header.value).into_owned()),
    }))
}

fn answer(asked: &Asked, catalogue: &Catalogue, output: &mut Vec<u8>) -> io::Result<()> {
    let Some(object) = asked.object else {
        return write!(output, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let tag = format!("\"{}-{}\"", object.run, object.number);
    // Squid counts max-age from Date, and takes an answer without one for stale.
    let date = httpdate::fmt_http_date(SystemTime::now());
    let fresh = format!("Date: {date}\r\nCache-Control: public, max-age=86400\r\nETag: {tag}\r\n");
    if asked.if_none_match.as_deref().is_some_and(|tags| tags.contains(&tag)) {
        return write!(output, "HTTP/1.1 304 Not Modified\r\n{fresh}\r\n");
    }
    let length = catalogue.length_bytes(object);
    write!(
        output,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n{fresh}\r\n"
    )?;
    if !asked.head_only {
        catalogue.push_body(object, output);
    }
    Ok(())
}
