//! The origin behind the measured proxies: serves the catalogue over HTTP/1.1 and counts requests.
//!
//! Threads: one for all connections, at most [`CONNECTIONS_MAX`], so that it costs little beside
//! the load on the same core; it ends with the process. Counters are relaxed: they are read between
//! measurements. Invariant: a connection's next response is made after the last one is written.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::catalogue::{Catalogue, ObjectRef};
use crate::failure::Failure;
use crate::output::say;

/// Most connections at once; further ones are closed on accept.
const CONNECTIONS_MAX: usize = 4096;
/// Largest request head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most header lines of a request.
const HEADERS_MAX: usize = 64;
/// Bytes per read.
const BLOCK_BYTES: usize = 16 << 10;
/// Token of the listening socket; a connection's token is its index in the list.
const LISTENER: Token = Token(usize::MAX - 1);

struct Shared {
    catalogue: Arc<Catalogue>,
    requests: AtomicU64,
}

/// A running origin.
pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Origin {
    /// Listens on `address` and serves until the process ends.
    pub(crate) fn start(address: &str, catalogue: Arc<Catalogue>) -> Result<Origin, Failure> {
        let failed = |source| Failure::io(format!("listen on {address} (--origin-listen)"), source);
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared { catalogue, requests: AtomicU64::new(0) });
        let listener = TcpListener::from_std(listener);
        let server = Server::new(listener, Arc::clone(&shared)).map_err(failed)?;
        let builder = thread::Builder::new().name("origin".to_owned());
        let run = move || {
            if let Err(error) = server.run() {
                say(format_args!("damelo: the origin of the benchmark has ended: {error}"));
            }
        };
        builder.spawn(run).map_err(failed)?;
        Ok(Origin { address, shared })
    }

    /// Its listening address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered since the start.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

/// The serving thread: its sockets and the state of each.
struct Server {
    poll: Poll,
    listener: TcpListener,
    /// Connections by token; a new connection reuses the place of one that ended.
    places: Vec<Option<Served>>,
    shared: Arc<Shared>,
    block: Box<[u8; BLOCK_BYTES]>,
    date: Date,
}

/// One connection.
struct Served {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
}

impl Server {
    fn new(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Server> {
        let (poll, mut listener) = (Poll::new()?, listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let (places, date) = (Vec::new(), Date { unix_s: 0, text: String::new() });
        let block = Box::new([0; BLOCK_BYTES]);
        Ok(Server { poll, listener, places, shared, block, date })
    }

    /// Serves until the process ends or the poll fails.
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.date.renew();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    Token(index) => self.handle(index),
                }
            }
        }
    }

    /// Accepts all waiting connections. Closes those above the limit and those that cannot be
    /// registered: the proxy sees that as a failure, and the report shows it.
    fn accept(&mut self) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                // No connection waits, or no descriptor is left: that connection is accepted with
                // the next.
                Err(_) => return,
            };
            let index = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            let ready = index < CONNECTIONS_MAX
                && stream.set_nodelay(true).is_ok()
                && self.poll.registry().register(&mut stream, Token(index), both).is_ok();
            if !ready {
                continue;
            }
            let served = Served { stream, input: Vec::new(), output: Vec::new(), written: 0 };
            match self.places.get_mut(index) {
                Some(place) => *place = Some(served),
                None => self.places.push(Some(served)),
            }
        }
    }

    /// Continues one connection. Errors are ignored here: the proxy reports broken connections.
    fn handle(&mut self, index: usize) {
        let Some(Some(served)) = self.places.get_mut(index) else { return };
        if !matches!(served.go_on(&self.shared, &mut self.block, &self.date), Ok(true)) {
            self.places[index] = None;
        }
    }
}

impl Served {
    /// Reads, answers and writes until the socket would block; false at the connection's end.
    fn go_on(
        &mut self,
        shared: &Shared,
        block: &mut [u8; BLOCK_BYTES],
        date: &Date,
    ) -> io::Result<bool> {
        loop {
            if !self.flush()? {
                return Ok(true);
            }
            // The last answer is written: the next one may be made.
            if let Some(asked) = parse(&self.input, &shared.catalogue)? {
                self.input.drain(..asked.head_bytes);
                shared.requests.fetch_add(1, Ordering::Relaxed);
                answer(&asked, &shared.catalogue, &date.text, &mut self.output)?;
                continue;
            }
            if self.input.len() > HEAD_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.stream.read(block) {
                Ok(0) => return Ok(false),
                Ok(count) => self.input.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes as much as possible; true if the answer is completely written.
    fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }
}

/// The value of `Date`, updated once a second.
struct Date {
    unix_s: u64,
    text: String,
}

impl Date {
    fn renew(&mut self) {
        let now = SystemTime::now();
        let unix_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if unix_s != self.unix_s || self.text.is_empty() {
            *self = Date { unix_s, text: httpdate::fmt_http_date(now) };
        }
    }
}

/// A parsed request.
struct Asked {
    head_bytes: usize,
    head_only: bool,
    object: Option<ObjectRef>,
    if_none_match: Option<String>,
    /// First and last byte, if the request has a single range with a first byte.
    range: Option<(u64, Option<u64>)>,
    if_range: Option<String>,
}

/// Parses the next request; `None` if it is incomplete.
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
    let value = |name: &str| {
        let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.map(|header| String::from_utf8_lossy(header.value).into_owned())
    };
    let method = request.method.unwrap_or_default();
    Ok(Some(Asked {
        head_bytes,
        head_only: method == "HEAD",
        object: catalogue.find(path).filter(|_| matches!(method, "GET" | "HEAD")),
        if_none_match: value("if-none-match"),
        range: value("range").and_then(|range| range_of(&range)),
        if_range: value("if-range"),
    }))
}

fn range_of(range: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = range.trim().strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    Some((first.parse().ok()?, last))
}

fn answer(
    asked: &Asked,
    catalogue: &Catalogue,
    date: &str,
    output: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(object) = asked.object else {
        return write!(output, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let tag = format!("\"{}-{}\"", object.run, object.number);
    // Squid counts max-age from `Date` and treats an answer without one as stale.
    let fresh = format!("Date: {date}\r\nCache-Control: public, max-age=86400\r\nETag: {tag}\r\n");
    if asked.if_none_match.as_deref().is_some_and(|tags| tags.contains(&tag)) {
        return write!(output, "HTTP/1.1 304 Not Modified\r\n{fresh}\r\n");
    }
    let length = catalogue.length_bytes(object);
    let same = asked.if_range.as_ref().is_none_or(|named| *named == tag);
    let range = asked.range.filter(|_| same && !asked.head_only).map(|(first, last)| {
        let end = last.map_or(length, |last| last.saturating_add(1)).min(length);
        first..end
    });
    let of = if catalogue.is_document(object) { "text/html" } else { "application/octet-stream" };
    let kind = format!("Content-Type: {of}\r\nAccept-Ranges: bytes\r\n");
    let Some(range) = range else {
        write!(output, "HTTP/1.1 200 OK\r\n{kind}Content-Length: {length}\r\n{fresh}\r\n")?;
        if !asked.head_only {
            catalogue.push_body(object, output);
        }
        return Ok(());
    };
    if range.is_empty() {
        let of = format!("Content-Range: bytes */{length}\r\nContent-Length: 0\r\n");
        return write!(output, "HTTP/1.1 416 Range Not Satisfiable\r\n{of}\r\n");
    }
    let of = format!("Content-Range: bytes {}-{}/{length}\r\n", range.start, range.end - 1);
    let bytes = range.end - range.start;
    let lengths = format!("{of}Content-Length: {bytes}\r\n");
    write!(output, "HTTP/1.1 206 Partial Content\r\n{kind}{lengths}{fresh}\r\n")?;
    catalogue.push_range(object, range, output);
    Ok(())
}
