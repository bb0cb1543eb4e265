//! The origin of the changing world: validates, sends ranges, responds with and without a length,
//! and occasionally delays, so that changes and purges overlap responses in flight.
//!
//! Threads: one per connection; each ends with the proxy's connection.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use fastrand::Rng;

use super::world::{GROUPS, LIFE, World};
use crate::failure::Failure;

/// Largest request head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes per write.
const PIECE_BYTES: usize = 64 << 10;
/// Longest pause before or within an answer.
const PAUSE_MILLIS_MAX: u64 = 20;

/// Starts to serve on a free port.
pub(crate) fn start(world: Arc<World>) -> Result<SocketAddr, Failure> {
    let failed = |source| Failure::io("listen on 127.0.0.1 for the origin", source);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let accept = move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let world = Arc::clone(&world);
            let rng = Rng::with_seed(number as u64);
            // Errors are ignored here: the proxy reports broken connections.
            thread::spawn(move || serve(&world, stream, rng));
        }
    };
    thread::Builder::new().name("origin".to_owned()).spawn(accept).map_err(failed)?;
    Ok(address)
}

fn serve(world: &World, stream: TcpStream, mut rng: Rng) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut output = Vec::new();
    while let Some(asked) = read_request(&mut reader)? {
        output.clear();
        if rng.u8(..) < 16 {
            pause(&mut rng);
        }
        answer(world, &asked, &mut output);
        for piece in output.chunks(PIECE_BYTES) {
            reader.get_mut().write_all(piece)?;
            if piece.len() == PIECE_BYTES && rng.u8(..) < 32 {
                pause(&mut rng);
            }
        }
    }
    Ok(())
}

fn pause(rng: &mut Rng) {
    thread::sleep(Duration::from_millis(rng.u64(..=PAUSE_MILLIS_MAX)));
}

/// The parts of a request that determine the answer.
#[derive(Default)]
struct Asked {
    path: String,
    if_none_match: Option<String>,
    if_range: Option<String>,
    range: Option<String>,
}

/// The next request; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let mut asked = Asked { path: path.to_owned(), ..Asked::default() };
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let place = match name.to_ascii_lowercase().as_str() {
            "if-none-match" => &mut asked.if_none_match,
            "if-range" => &mut asked.if_range,
            "range" => &mut asked.range,
            _ => continue,
        };
        *place = Some(value.to_owned());
    }
    Ok(Some(asked))
}

fn answer(world: &World, asked: &Asked, output: &mut Vec<u8>) {
    let mut head = String::new();
    let Some(number) = world.find(&asked.path) else {
        output.extend_from_slice(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return;
    };
    // The whole answer is of one version, even if the object changes meanwhile.
    let version = world.current(number);
    let tag = World::tag(number, version);
    let described = format!(
        "Date: {}\r\nCache-Control: {}\r\nETag: {tag}\r\nSurrogate-Key: g{}\r\n",
        httpdate::fmt_http_date(SystemTime::now()),
        World::cache_control(number),
        number % GROUPS,
    );
    if asked.if_none_match.as_ref().is_some_and(|tags| tags.contains(&tag)) {
        output.extend_from_slice(format!("HTTP/1.1 304 X\r\n{described}\r\n").as_bytes());
        return;
    }
    let mut body = Vec::new();
    world.push_body(number, version, &mut body);
    let length = body.len();
    let applies = asked.if_range.as_ref().is_none_or(|named| *named == tag);
    let range = asked.range.as_deref().filter(|_| applies).and_then(|text| bounds(text, length));
    let status = if range.is_some() { 206 } else { 200 };
    head.push_str(&format!("HTTP/1.1 {status} X\r\n{described}{LIFE}: {}\r\n", world.life()));
    if let Some(Range { start, end }) = range {
        head.push_str(&format!("Content-Range: bytes {start}-{}/{length}\r\n", end - 1));
    }
    let sent = &body[range.unwrap_or(0..length)];
    // Every third object is sent without a length.
    if number.is_multiple_of(3) && status == 200 {
        head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        output.extend_from_slice(head.as_bytes());
        for piece in sent.chunks(PIECE_BYTES) {
            output.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            output.extend_from_slice(piece);
            output.extend_from_slice(b"\r\n");
        }
        output.extend_from_slice(b"0\r\n\r\n");
        return;
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", sent.len()));
    output.extend_from_slice(head.as_bytes());
    output.extend_from_slice(sent);
}

/// Parses `bytes=FIRST-LAST` or `bytes=FIRST-`. Other forms are ignored, as a server may do.
fn bounds(text: &str, length: usize) -> Option<Range<usize>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let last = if last.is_empty() { length } else { last.parse::<usize>().ok()?.saturating_add(1) };
    (first < length && first < last).then(|| first..last.min(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_within_the_body() {
        for (text, expected) in [
            ("bytes=0-9", Some(0..10)),
            ("bytes=5-", Some(5..100)),
            ("bytes=90-900", Some(90..100)),
            ("bytes=100-", None),
            ("bytes=7-3", None),
            ("bytes=-5", None),
            ("bytes=0-1,5-6", None),
        ] {
            assert_eq!(bounds(text, 100), expected, "{text}");
        }
    }
}
