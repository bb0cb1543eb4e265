//! Interim responses (1xx, above all 103 Early Hints) on their way from the origin to an HTTP/1.1
//! client (RFC 9110 §15.2, RFC 8297).
//!
//! The HTTP library's server cannot send them, so the connection's stream does. Invariants: interim
//! bytes are written only when the library flushes the stream, which it does with nothing of its
//! own left to write, and before it has received the final response's head; so never within a
//! message. A final response waits until the interim ones before it are written; later interim
//! responses are dropped. Threads: the origin's connection pushes, the client's connection polls
//! everything else.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use http::{HeaderMap, StatusCode};
use tokio::io::AsyncWrite;

use crate::io::locks::lock;
use crate::rules::storing;

/// Interim bytes that may wait for one client; more are dropped.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// The interim answers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    /// Requests so far.
    begun: AtomicU64,
    /// The request that may have interim responses now; 0 for none.
    open: AtomicU64,
    /// Whether bytes are waiting.
    waiting: AtomicBool,
    out: Mutex<Out>,
}

#[derive(Debug, Default)]
struct Out {
    bytes: Vec<u8>,
    written: usize,
    /// Wakes the connection.
    connection: Option<Waker>,
}

/// Accepts the interim responses to one request.
#[derive(Debug, Clone)]
pub(crate) struct InterimSender {
    interim: Arc<Interim>,
    request: u64,
}

impl Interim {
    fn out(&self) -> MutexGuard<'_, Out> {
        lock(&self.out)
    }

    /// Begins a request.
    pub(crate) fn begin(self: &Arc<Interim>) -> InterimSender {
        let request = self.begun.fetch_add(1, SeqCst) + 1;
        self.open.store(request, SeqCst);
        InterimSender { interim: self.clone(), request }
    }

    /// Sets the waker for later pushes.
    pub(crate) fn wake_by(&self, connection: &Waker) {
        self.out().connection = Some(connection.clone());
    }

    /// Writes the waiting bytes. The library calls this with nothing of its own to write.
    pub(crate) fn poll_write(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.waiting.load(SeqCst) {
            return Poll::Ready(Ok(()));
        }
        let mut out = self.out();
        while out.written < out.bytes.len() {
            let written = out.written;
            match ready!(Pin::new(&mut *stream).poll_write(cx, &out.bytes[written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => out.written += bytes,
            }
        }
        out.bytes.clear();
        out.written = 0;
        self.waiting.store(false, SeqCst);
        drop(out);
        // The final response may be waiting for this write.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }
}

impl InterimSender {
    /// Queues an interim response, unless the final one has begun.
    pub(crate) fn push(&self, status: StatusCode, headers: &HeaderMap, via: &[u8]) {
        // The proxy itself sends 100; 101 is a final response.
        if !(102..200).contains(&status.as_u16()) {
            return;
        }
        let message = message(status, headers, via);
        let mut out = self.interim.out();
        let fits = out.bytes.len() + message.len() <= WAITING_BYTES_MAX;
        if !fits || self.interim.open.load(SeqCst) != self.request {
            return;
        }
        out.bytes.extend_from_slice(&message);
        self.interim.waiting.store(true, SeqCst);
        let connection = out.connection.clone();
        drop(out);
        if let Some(connection) = connection {
            connection.wake();
        }
    }

    /// Called with the final response: waits until all queued interim ones are written.
    pub(crate) async fn end(self) {
        if self.interim.open.compare_exchange(self.request, 0, SeqCst, SeqCst).is_err() {
            return;
        }
        poll_fn(|cx| {
            // The write that wakes this runs in the same task.
            if !self.interim.waiting.load(SeqCst) {
                return Poll::Ready(());
            }
            self.interim.wake_by(cx.waker());
            Poll::Pending
        })
        .await;
    }
}

/// Encodes an interim response for HTTP/1.1.
fn message(status: StatusCode, headers: &HeaderMap, via: &[u8]) -> Vec<u8> {
    let mut headers = headers.clone();
    storing::remove_hop_by_hop(&mut headers);
    let reason = status.canonical_reason().unwrap_or("Interim");
    let mut message = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    let lines = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    for (name, value) in lines.chain([("via", via)]) {
        message.extend_from_slice(name.as_bytes());
        message.extend_from_slice(b": ");
        message.extend_from_slice(value);
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(b"\r\n");
    message
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;

    use super::*;

    fn written(interim: &Interim) -> String {
        let mut stream = io::Cursor::new(Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(interim.poll_write(&mut stream, &mut cx).is_ready());
        String::from_utf8(stream.into_inner()).unwrap()
    }

    #[test]
    fn only_the_request_under_way_gets_interim_answers() {
        let interim = Arc::new(Interim::default());
        let mut headers = HeaderMap::new();
        headers.insert("link", "</a.css>".parse().unwrap());
        headers.insert("connection", "close".parse().unwrap());
        let sender = interim.begin();
        for status in [100, 101, 200] {
            sender.push(StatusCode::from_u16(status).unwrap(), &headers, b"1.1 x");
        }
        assert_eq!(written(&interim), "");
        sender.push(StatusCode::EARLY_HINTS, &headers, b"1.1 x");
        let expected = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nvia: 1.1 x\r\n\r\n";
        let mut cx = Context::from_waker(Waker::noop());
        let late = sender.clone();
        let mut end = std::pin::pin!(sender.end());
        assert!(end.as_mut().poll(&mut cx).is_pending(), "the answer waits");
        assert_eq!(written(&interim), expected);
        assert!(end.as_mut().poll(&mut cx).is_ready());
        late.push(StatusCode::EARLY_HINTS, &headers, b"1.1 x");
        let next = interim.begin();
        late.push(StatusCode::EARLY_HINTS, &headers, b"1.1 x");
        assert_eq!(written(&interim), "", "too late");
        next.push(StatusCode::PROCESSING, &HeaderMap::new(), b"1.1 x");
        assert_eq!(written(&interim), "HTTP/1.1 102 Processing\r\nvia: 1.1 x\r\n\r\n");
        for _ in 0..WAITING_BYTES_MAX {
            next.push(StatusCode::PROCESSING, &HeaderMap::new(), b"1.1 x");
        }
        assert!(written(&interim).len() <= WAITING_BYTES_MAX);
    }
}
