//! A byte stream to an origin, in clear text or TLS, and how much of it is read at a time.
//!
//! An origin may answer before it has read all of a request, and close at once: the rest of the
//! request then meets with a reset, while the answer is there to be read. hyper gives up at a
//! failed write, so writes to an origin that takes no more seem to succeed, until what it had sent
//! has been read. Invariants: the wire carries nothing but this stream; a stream that was reset
//! never seems to end in order. Threads: each stream lives on one worker.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::io::idle::IdleTimer;
use crate::io::stream::{PolledRead, forward_write, reads, streams};
use crate::io::transit::Transit;

/// The socket below TLS.
pub(crate) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A stream to an origin, with or without TLS.
pub(crate) enum Stream {
    Plain(Wire),
    Tls(Box<TlsStream<Wire>>),
}

impl Stream {
    /// Whether both sides agreed on HTTP/2 by ALPN.
    pub(crate) fn agreed_http2(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

/// Most that is read at a time while much is in transit. A little less than the 32 KiB that hyper
/// then makes room for: what fills its buffer makes it take a larger one.
const READ_BYTES_FEW: u64 = 31 << 10;

/// A stream of which little is read at a time while much is in transit, and which can be read to
/// its end after a write has failed.
pub(crate) struct SparingStream {
    stream: Stream,
    transit: Arc<Transit>,
    /// How a write failed because the origin takes no more.
    refused: Option<io::ErrorKind>,
    /// All that the origin sent has been read: writes fail as they do.
    ended: bool,
    /// When bytes last came, if somebody wants to know.
    heard: Option<Arc<IdleTimer>>,
}

impl SparingStream {
    pub(crate) fn new(stream: Stream, transit: &Arc<Transit>) -> SparingStream {
        let transit = Arc::clone(transit);
        SparingStream { stream, transit, refused: None, ended: false, heard: None }
    }

    /// Touches the timer whenever bytes come.
    pub(crate) fn heard_by(self, timer: &Arc<IdleTimer>) -> SparingStream {
        SparingStream { heard: Some(Arc::clone(timer)), ..self }
    }

    fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> PolledRead {
        let bytes_max = if self.transit.is_full() { READ_BYTES_FEW } else { u64::MAX };
        let mut some = (&mut self.stream).take(bytes_max);
        let filled = buffer.filled().len();
        let read = Pin::new(&mut some).poll_read(cx, buffer);
        // The failed write has taken the error from the socket, which reads as ended now. After
        // `BrokenPipe` it did end: the origin closed it in order before it refused anything.
        let is_end = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == filled && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        self.ended |= is_end;
        if let Some(heard) = &self.heard
            && buffer.filled().len() > filled
        {
            heard.touch();
        }
        if is_end && self.refused == Some(io::ErrorKind::ConnectionReset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        read
    }

    /// The result of a write of so many bytes: that of `write`, unless the origin takes no more.
    fn written(&mut self, bytes: usize, write: PolledWrite) -> PolledWrite {
        match write {
            Poll::Ready(Err(error)) if !self.ended && takes_no_more(error.kind()) => {
                self.refused.get_or_insert(error.kind());
                Poll::Ready(Ok(bytes))
            }
            result => result,
        }
    }
}

type PolledWrite = Poll<io::Result<usize>>;

fn takes_no_more(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

reads!([] SparingStream);

impl AsyncWrite for SparingStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(bytes.len(), write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A request without a body is one piece.
        if let [only] = slices {
            return self.poll_write(cx, only);
        }
        let this = self.get_mut();
        let write = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.written(slices.iter().map(|slice| slice.len()).sum(), write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flush = Pin::new(&mut this.stream).poll_flush(cx);
        this.written(0, flush.map_ok(|()| 0)).map_ok(|_| ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

streams!(Wire: Tcp, Unix);
streams!(Stream: Plain, Tls);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// A stream to an origin that answers without reading the request, and takes no more.
    async fn refused(ends_in_order: bool) -> SparingStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut origin, _) = listener.accept().await.unwrap();
        let transit = Arc::new(Transit::new(1000));
        let mut stream = SparingStream::new(Stream::Plain(Wire::Tcp(ours)), &transit);
        stream.write_all(b"request").await.unwrap();
        origin.readable().await.unwrap();
        origin.write_all(b"answer").await.unwrap();
        if ends_in_order {
            origin.shutdown().await.unwrap();
        }
        drop(origin);
        while stream.refused.is_none() {
            stream.write_all(&[7; 64 << 10]).await.unwrap();
        }
        stream
    }

    #[tokio::test]
    async fn what_came_before_a_reset_is_read_and_seen_to_break_off() {
        let mut stream = refused(false).await;
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        stream.write_all(b"more").await.unwrap();
        let end = stream.read(&mut answer).await.map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
        // Or a tunnel would take what nobody gets for as long as its client sends.
        let write = stream.write_all(b"more").await.map_err(|error| error.kind());
        assert_eq!(write, Err(io::ErrorKind::BrokenPipe));
    }

    #[tokio::test]
    async fn what_ended_in_order_before_a_reset_has_ended() {
        let mut answer = Vec::new();
        refused(true).await.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn while_much_is_in_transit_little_is_read_at_a_time() {
        let (ours, mut origin) = UnixStream::pair().unwrap();
        origin.write_all(&[7; 96 << 10]).await.unwrap();
        let transit = Arc::new(Transit::new(1000));
        let mut stream = SparingStream::new(Stream::Plain(Wire::Unix(ours)), &transit);
        let mut buffer = [0; 32 << 10];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), buffer.len());
        let held = transit.counted(vec![1; 1000].into());
        assert_eq!(stream.read(&mut buffer).await.unwrap() as u64, READ_BYTES_FEW);
        drop(held);
        assert!(stream.read(&mut buffer).await.unwrap() as u64 > READ_BYTES_FEW);
    }
}
