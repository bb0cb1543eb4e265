//! Frames of HTTP/2 by hand (RFC 9113 §4.1), for what no library's client or server does.
//! No threads.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `:method GET`, `:scheme http`, `:path /`, `:authority a` (RFC 7541, static table).
pub(crate) const GET_BLOCK: &[u8] = b"\x82\x86\x84\x41\x01a";
/// The same of `/other`, a literal path without indexing.
pub(crate) const GET_OTHER_BLOCK: &[u8] = b"\x82\x86\x04\x06/other\x41\x01a";

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request without a body, of these fields.
pub(crate) fn request(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// Room for so many bytes more on a stream, or on the connection as stream 0.
pub(crate) fn window(stream: u32, bytes: usize) -> Vec<u8> {
    let bytes = u32::try_from(bytes).expect("a window");
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A connection whose client has begun to speak, with the windows of 64 KiB that are the default.
pub(crate) fn http2_raw(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("write");
    stream.write_all(&frame(SETTINGS, 0, 0, b"")).expect("write");
    stream
}

/// A frame that was read.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Whether the frame ends its stream as it should.
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// The next frame; `None` at the end of the connection.
pub(crate) fn next_frame(stream: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, d, e, f, g] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some(Frame { kind, flags, stream: u32::from_be_bytes([d, e, f, g]), payload })
}
