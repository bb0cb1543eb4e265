//! A byte stream to an origin, in clear text or TLS, and how much of it is read at a time.
//! Invariant: the wire carries nothing but this stream. Threads: each stream lives on one worker.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

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

/// A stream of which little is read at a time while much is in transit.
pub(crate) struct SparingStream {
    stream: Stream,
    transit: Arc<Transit>,
}

impl SparingStream {
    pub(crate) fn new(stream: Stream, transit: &Arc<Transit>) -> SparingStream {
        SparingStream { stream, transit: Arc::clone(transit) }
    }

    fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> PolledRead {
        let bytes_max = if self.transit.is_full() { READ_BYTES_FEW } else { u64::MAX };
        let mut some = (&mut self.stream).take(bytes_max);
        Pin::new(&mut some).poll_read(cx, buffer)
    }
}

reads!([] SparingStream);

impl AsyncWrite for SparingStream {
    forward_write!(SparingStream { stream, .. } => stream);
}

streams!(Wire: Tcp, Unix);
streams!(Stream: Plain, Tls);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

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
