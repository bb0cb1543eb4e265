//! The origin behind the probe page: what it serves is computed, so that every byte can be checked
//! at the other end. It counts what it is asked for, and hands on what the page reports.
//!
//! Threads: one that accepts, one for each connection.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::Value;

/// What `/coded` says, in two codings.
pub(crate) const CODED_TEXT: &str = "plain words, plain words, plain words, plain words.";
const CODED: [u8; 37] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 200, 73, 204, 204, 83, 40, 207, 47, 74, 41, 214, 81, 40,
    32, 134, 163, 7, 0, 138, 49, 131, 66, 51, 0, 0, 0,
];
const PAGE: &str = include_str!("probe.html");
/// A sound of 8 bits a sample, 8,000 samples a second.
pub(crate) const SOUND_BYTES: u32 = 10_000_000;
pub(crate) const STREAMED_BYTES: u32 = 3_000_000;
const LONG_BYTES: u32 = 20_000_000;
const WAV_HEAD_BYTES: usize = 44;
const IMAGE_EDGE: u32 = 32;

struct Request {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

/// What is sent, framed as the origin of such a thing would.
struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
    chunked: bool,
}

pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<HashMap<String, usize>>>,
    reports: mpsc::Receiver<Value>,
}

impl Origin {
    pub(crate) fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<HashMap<String, usize>>>::default();
        let (sender, reports) = mpsc::channel();
        let count = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (count, sender) = (count.clone(), sender.clone());
                std::thread::spawn(move || serve(stream, &count, &sender));
            }
        });
        Origin { address, asked, reports }
    }

    /// Requests for this path so far.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    pub(crate) fn asked_of_all(&self, paths: &[&str]) -> Vec<usize> {
        paths.iter().map(|path| self.asked(path)).collect()
    }

    /// What a page has reported, if it has.
    pub(crate) fn report(&self) -> Option<Value> {
        self.reports.try_recv().ok()
    }
}

fn serve(
    mut stream: TcpStream,
    count: &Mutex<HashMap<String, usize>>,
    reports: &mpsc::Sender<Value>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader) {
        *count.lock().unwrap().entry(request.path.clone()).or_default() += 1;
        if request.path == "/report" {
            // The test may have given up.
            let _ = reports.send(serde_json::from_slice(&request.body).unwrap_or_default());
        }
        if write(&mut stream, &answer(&request)).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { path, headers, body })
}

fn write(stream: &mut TcpStream, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\n{}", reply.status, reply.headers);
    if reply.chunked {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if reply.status != 304 {
        // Writing to a String cannot fail.
        let _ = write!(head, "Content-Length: {}\r\n", reply.body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if !reply.chunked {
        return stream.write_all(&reply.body);
    }
    for chunk in reply.body.chunks(50_000) {
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(chunk)?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"0\r\n\r\n")
}

fn answer(request: &Request) -> Reply {
    let reply = |headers: &str, body: Vec<u8>| Reply {
        status: 200,
        headers: headers.to_owned(),
        body,
        chunked: false,
    };
    let kept = "Cache-Control: max-age=600\r\nContent-Type: application/octet-stream\r\n";
    match request.path.as_str() {
        "/probe" => reply("Cache-Control: max-age=600\r\nContent-Type: text/html\r\n", PAGE.into()),
        "/validated" => validated(request, reply),
        "/streamed" => Reply { chunked: true, ..reply(kept, pattern(STREAMED_BYTES)) },
        "/long" => reply(kept, pattern(LONG_BYTES)),
        "/sound.wav" => ranged(request, &sound()),
        "/language" => {
            let language = request.headers.get("accept-language").cloned().unwrap_or_default();
            reply("Cache-Control: max-age=600\r\nVary: Accept-Language\r\n", language.into())
        }
        "/coded" => {
            let accepted = request.headers.get("accept-encoding").cloned().unwrap_or_default();
            let headers = "Cache-Control: max-age=600\r\nVary: Accept-Encoding\r\n";
            match accepted.contains("gzip") {
                true => reply(&format!("{headers}Content-Encoding: gzip\r\n"), CODED.to_vec()),
                false => reply(headers, CODED_TEXT.into()),
            }
        }
        "/echo" | "/report" => reply("", request.body.clone()),
        path if path.ends_with(".bmp") => {
            // Fresh by the age of its last change.
            let headers =
                "Content-Type: image/bmp\r\nLast-Modified: Sat, 01 Nov 2025 12:00:00 GMT\r\n";
            reply(headers, image())
        }
        _ => Reply { status: 404, ..reply("", Vec::new()) },
    }
}

/// Stale in the browser at once, fresh in caches that are shared.
fn validated(request: &Request, reply: impl Fn(&str, Vec<u8>) -> Reply) -> Reply {
    let headers = "Cache-Control: max-age=0, s-maxage=600\r\nETag: \"v\"\r\n";
    let is_known = request.headers.get("if-none-match").is_some_and(|tags| tags.contains("\"v\""));
    match is_known {
        true => Reply { status: 304, ..reply(headers, Vec::new()) },
        false => reply(headers, "v".repeat(5000).into()),
    }
}

/// All of it, or the one range that is wanted.
fn ranged(request: &Request, whole: &[u8]) -> Reply {
    let fixed = "Cache-Control: max-age=600\r\nContent-Type: audio/wav\r\nETag: \"s\"\r\n\
                 Accept-Ranges: bytes\r\n";
    let wanted = request.headers.get("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let last = last.parse().unwrap_or(whole.len() - 1).min(whole.len() - 1);
        Some((first.parse::<usize>().ok()?, last))
    });
    let Some((first, last)) = wanted.filter(|(first, last)| first <= last) else {
        let headers = fixed.to_owned();
        return Reply { status: 200, headers, body: whole.to_vec(), chunked: false };
    };
    let of = format!("Content-Range: bytes {first}-{last}/{}\r\n", whole.len());
    let body = whole[first..=last].to_vec();
    Reply { status: 206, headers: format!("{fixed}{of}"), body, chunked: false }
}

/// Bytes as the page expects them.
fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31).wrapping_add(index >> 8) & 255) as u8).collect()
}

/// The pattern as a sound, its first bytes replaced by what says so.
fn sound() -> Vec<u8> {
    let mut bytes = pattern(SOUND_BYTES);
    let mut head = Vec::new();
    head.extend_from_slice(b"RIFF");
    head.extend_from_slice(&(SOUND_BYTES - 8).to_le_bytes());
    head.extend_from_slice(b"WAVEfmt ");
    head.extend_from_slice(&16_u32.to_le_bytes());
    for half in [1_u16, 1] {
        head.extend_from_slice(&half.to_le_bytes());
    }
    for rate in [8000_u32, 8000] {
        head.extend_from_slice(&rate.to_le_bytes());
    }
    for half in [1_u16, 8] {
        head.extend_from_slice(&half.to_le_bytes());
    }
    head.extend_from_slice(b"data");
    head.extend_from_slice(&(SOUND_BYTES - 44).to_le_bytes());
    bytes[..WAV_HEAD_BYTES].copy_from_slice(&head);
    bytes
}

/// An image of which a decoder needs all bytes.
fn image() -> Vec<u8> {
    let pixels = pattern(IMAGE_EDGE * IMAGE_EDGE * 3);
    let mut bytes = b"BM".to_vec();
    for word in [54 + pixels.len() as u32, 0, 54, 40, IMAGE_EDGE, IMAGE_EDGE] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for half in [1_u16, 24] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    for word in [0, pixels.len() as u32, 2835, 2835, 0, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&pixels);
    bytes
}
