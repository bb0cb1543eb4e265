//! One keep-alive connection of the load generator: writes a request, parses the response, and
//! optionally checks its bytes. Non-blocking; owned by one thread of `load`.
//!
//! Invariant: at most one request is in flight, so a response belongs to `object`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as BlockingStream};
use std::ops::Range;
use std::time::Duration;

use mio::net::TcpStream;

use super::catalogue::{Catalogue, ObjectRef};

/// Bytes per read.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Most header lines of a response.
const HEADERS_MAX: usize = 64;
/// Longest wait for a connection to open.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Destination of requests, and how they are written.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    /// Address to connect to.
    pub(crate) address: SocketAddr,
    /// Sent as `Host`.
    pub(crate) host: String,
    /// Request targets in absolute form, as to a forward proxy (RFC 9112 §3.2.2).
    pub(crate) forward: bool,
    /// Check every byte.
    pub(crate) verify: bool,
}

/// Target of a request: an object, or a range of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) object: ObjectRef,
    /// The document that embeds the object.
    pub(crate) document: Option<ObjectRef>,
    /// A non-empty range; `None` for the whole object.
    pub(crate) range: Option<Range<u64>>,
}

/// Outcome of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// 200 for a whole object, or 206 with the requested range.
    pub(crate) good: bool,
    /// The bytes are not the object's.
    pub(crate) wrong: bool,
    /// Hit or miss according to Cache-Status or X-Cache, if present.
    pub(crate) hit: Option<bool>,
    /// Bytes of the body.
    pub(crate) body_bytes: u64,
}

struct Response {
    answer: Answer,
    length_bytes: u64,
    close: bool,
}

/// A connection with at most one request in flight.
pub(crate) struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    wanted: Wanted,
    response: Option<Response>,
    path: String,
    closing: bool,
}

impl Connection {
    /// Connects, waiting at most five seconds.
    pub(crate) fn open(to: &Destination) -> io::Result<Connection> {
        let stream = BlockingStream::connect_timeout(&to.address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream: TcpStream::from_std(stream),
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
            wanted: Wanted { object: ObjectRef { run: 0, number: 0 }, document: None, range: None },
            response: None,
            path: String::new(),
            closing: false,
        })
    }

    /// The socket, for registration with the poll.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request. `Referer` names an embedded object's document, as browsers do.
    pub(crate) fn ask(
        &mut self,
        to: &Destination,
        catalogue: &Catalogue,
        wanted: Wanted,
    ) -> io::Result<()> {
        self.path.clear();
        catalogue.push_path(wanted.object, &mut self.path);
        self.output.clear();
        self.written = 0;
        let (path, host) = (&self.path, &to.host);
        let prefix = if to.forward { format!("http://{host}") } else { String::new() };
        write!(self.output, "GET {prefix}{path} HTTP/1.1\r\nHost: {host}\r\n")?;
        if let Some(document) = wanted.document {
            self.path.clear();
            catalogue.push_path(document, &mut self.path);
            write!(self.output, "Referer: http://{host}{}\r\n", self.path)?;
        }
        if let Some(range) = &wanted.range {
            write!(self.output, "Range: bytes={}-{}\r\n", range.start, range.end - 1)?;
        }
        self.wanted = wanted;
        self.output.extend_from_slice(b"\r\n");
        self.flush()
    }

    /// Whether the last response ends the connection.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Writes the rest of the request, as far as the socket accepts it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads until the response is complete or the socket has no more data for now. After an error
    /// the connection must not be used.
    pub(crate) fn receive(
        &mut self,
        verify: bool,
        catalogue: &Catalogue,
        block: &mut [u8; BLOCK_BYTES],
    ) -> io::Result<Option<Answer>> {
        loop {
            let count = match self.stream.read(block) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if let Some(answer) = self.take(&block[..count], verify, catalogue)? {
                return Ok(Some(answer));
            }
        }
    }

    fn take(&mut self, bytes: &[u8], verify: bool, of: &Catalogue) -> io::Result<Option<Answer>> {
        if self.response.is_none() {
            self.input.extend_from_slice(bytes);
            let range = self.wanted.range.as_ref();
            let Some((head_bytes, response)) = parse(&self.input, range)? else { return Ok(None) };
            let input = std::mem::take(&mut self.input);
            self.response = Some(response);
            let answer = self.body(&input[head_bytes..], verify, of);
            self.input = input;
            self.input.clear();
            return answer;
        }
        self.body(bytes, verify, of)
    }

    fn body(&mut self, bytes: &[u8], verify: bool, of: &Catalogue) -> io::Result<Option<Answer>> {
        let Some(response) = &mut self.response else { return Ok(None) };
        let answer = &mut response.answer;
        if verify && answer.good && !answer.wrong {
            let object = self.wanted.object;
            let range = self.wanted.range.clone().unwrap_or(0..of.length_bytes(object));
            answer.wrong = response.length_bytes != range.end - range.start
                || !of.matches(object, range.start + answer.body_bytes, bytes);
        }
        answer.body_bytes += bytes.len() as u64;
        if answer.body_bytes > response.length_bytes {
            return Err(io::Error::other("more bytes than Content-Length announced"));
        }
        if answer.body_bytes < response.length_bytes {
            return Ok(None);
        }
        let answer = *answer;
        self.closing = response.close;
        self.response = None;
        Ok(Some(answer))
    }
}

/// Parses the head of a response and returns its length; `None` if it is incomplete.
fn parse(input: &[u8], range: Option<&Range<u64>>) -> io::Result<Option<(usize, Response)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let invalid = |error| io::Error::other(format!("not an HTTP/1.1 response: {error}"));
    let httparse::Status::Complete(head_bytes) = head.parse(input).map_err(invalid)? else {
        return Ok(None);
    };
    let (mut length_bytes, mut close, mut hit) = (None, head.version == Some(0), None);
    let mut good = head.code == Some(if range.is_some() { 206 } else { 200 });
    for header in head.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        match header.name {
            name if name.eq_ignore_ascii_case("content-length") => {
                length_bytes = value.trim().parse::<u64>().ok();
            }
            name if name.eq_ignore_ascii_case("connection") => {
                close = value.eq_ignore_ascii_case("close");
            }
            name if name.eq_ignore_ascii_case("content-range") => {
                good &= range.is_none_or(|range| is_range(&value, range));
            }
            name if name.eq_ignore_ascii_case("cache-status") => hit = Some(is_hit(&value)),
            name if name.eq_ignore_ascii_case("x-cache") && hit.is_none() => {
                hit = Some(value.to_ascii_lowercase().contains("hit"));
            }
            _ => {}
        }
    }
    let no_length = || io::Error::other("a response without Content-Length cannot be measured");
    let length_bytes = length_bytes.ok_or_else(no_length)?;
    let answer = Answer { good, wrong: false, hit, body_bytes: 0 };
    Ok(Some((head_bytes, Response { answer, length_bytes, close })))
}

/// Whether `Content-Range` names this range.
fn is_range(content_range: &str, range: &Range<u64>) -> bool {
    let said = content_range.trim().strip_prefix("bytes ").and_then(|said| said.split_once('/'));
    said.is_some_and(|(said, _)| said == format!("{}-{}", range.start, range.end - 1))
}

/// Whether the cache nearest to the client, the last list member, had a hit (RFC 9211 §2.1).
fn is_hit(cache_status: &str) -> bool {
    let nearest = cache_status.rsplit(',').next().unwrap_or_default();
    nearest.split(';').any(|parameter| matches!(parameter.trim(), "hit" | "hit=?1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_understood_once_they_are_whole() {
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nCache-Status: a; fwd=miss, b; hit\r\n\r\n";
        assert!(parse(&head[..40], None).unwrap().is_none());
        let (head_bytes, response) = parse(head, None).unwrap().unwrap();
        assert_eq!((head_bytes, response.length_bytes, response.close), (head.len(), 12, false));
        assert_eq!((response.answer.good, response.answer.hit), (true, Some(true)));
        let (_, old) =
            parse(b"HTTP/1.0 500 No\r\nContent-Length: 0\r\n\r\n", None).unwrap().unwrap();
        assert_eq!((old.close, old.answer.good, old.answer.hit), (true, false, None));
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n", None).is_err());
        assert!(parse(b"SSH-2.0\r\n\r\n", None).is_err());
        assert!(!is_hit("a; hit, b; fwd=uri-miss; detail=hit-for-miss"));
    }

    #[test]
    fn only_the_range_that_was_asked_for_is_good() {
        let good = |code: u16, range: &str, wanted: Option<Range<u64>>| {
            let head =
                format!("HTTP/1.1 {code} X\r\nContent-Length: 5\r\nContent-Range: {range}\r\n\r\n");
            parse(head.as_bytes(), wanted.as_ref()).unwrap().unwrap().1.answer.good
        };
        assert!(good(206, "bytes 5-9/20", Some(5..10)));
        assert!(!good(206, "bytes 5-10/20", Some(5..10)) && !good(206, "bytes */20", Some(5..10)));
        assert!(!good(200, "bytes 5-9/20", Some(5..10)) && !good(206, "bytes 5-9/20", None));
    }
}
