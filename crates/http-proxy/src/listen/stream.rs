//! A client's byte stream over any transport, with put-back of bytes that were read ahead.
//!
//! One enum rather than a type parameter, so that hyper's state machines are compiled once.
//! Threads: each stream lives on one worker.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::ProtocolVersion;
use tokio_rustls::server::TlsStream;

use crate::client::TlsVersion;
use crate::io::held_bytes::HeldBytes;
use crate::io::stream::{PolledRead, forward_write, reads, streams};

/// A connection as it was accepted.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The same on no event loop.
#[derive(Debug)]
pub(super) enum DetachedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Takes it off its event loop.
    pub(super) fn detach(self) -> io::Result<DetachedSocket> {
        Ok(match self {
            Socket::Tcp(stream) => DetachedSocket::Tcp(stream.into_std()?),
            Socket::Unix(stream) => DetachedSocket::Unix(stream.into_std()?),
        })
    }
}

impl DetachedSocket {
    /// Puts it on the event loop of this thread.
    pub(super) fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            DetachedSocket::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            DetachedSocket::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// A socket with bytes that were read ahead.
pub(crate) struct Prefixed<S> {
    prefix: Bytes,
    inner: S,
}

/// A byte stream that carries HTTP.
pub(crate) enum ClientStream {
    Plain(Prefixed<Socket>),
    Tls(Box<Prefixed<TlsStream<Prefixed<Socket>>>>),
}

impl<S> Prefixed<S> {
    pub(crate) fn new(prefix: Bytes, inner: S) -> Prefixed<S> {
        Prefixed { prefix, inner }
    }
}

impl<S: AsyncRead + Unpin> Prefixed<S> {
    /// Reads ahead, without consuming, until `enough` returns true or the stream ends. Calls
    /// `enough` whenever more bytes have arrived, up to `bytes_max`.
    pub(crate) async fn peek(
        &mut self,
        bytes_max: usize,
        mut enough: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<&[u8]> {
        let mut seen = Vec::from(std::mem::take(&mut self.prefix));
        let mut result = Ok(());
        while !enough(&seen) && seen.len() < bytes_max {
            let mut room = (&mut self.inner).take((bytes_max - seen.len()) as u64);
            match room.read_buf(&mut seen).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.prefix = Bytes::from(seen);
        result.map(|()| &self.prefix[..])
    }

    /// Consumes bytes that [`Prefixed::peek`] has shown.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.prefix.advance(bytes.min(self.prefix.len()));
    }

    /// Puts bytes back in front of all others.
    fn put_back(&mut self, bytes: Bytes) {
        self.prefix = if self.prefix.is_empty() {
            bytes
        } else {
            [bytes, std::mem::take(&mut self.prefix)].concat().into()
        };
    }

    fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> PolledRead {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl ClientStream {
    fn socket(&self) -> &Socket {
        match self {
            ClientStream::Plain(stream) => &stream.inner,
            ClientStream::Tls(stream) => &stream.inner.get_ref().0.inner,
        }
    }

    /// Puts back bytes that were read but not used.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        match self {
            ClientStream::Plain(stream) => stream.put_back(bytes),
            ClientStream::Tls(stream) => stream.put_back(bytes),
        }
    }

    /// Waits until the client has sent something or closed; returns at once if bytes were put back.
    pub(crate) async fn readable(&self) {
        let put_back = match self {
            ClientStream::Plain(stream) => !stream.prefix.is_empty(),
            ClientStream::Tls(stream) => !stream.prefix.is_empty(),
        };
        if put_back {
            return;
        }
        // The error of a socket that cannot be waited for shows when it is read.
        let _ = match self.socket() {
            Socket::Tcp(stream) => stream.readable().await,
            Socket::Unix(stream) => stream.readable().await,
        };
    }

    /// The version of TLS that was agreed on.
    pub(crate) fn tls_version(&self) -> Option<TlsVersion> {
        let ClientStream::Tls(stream) = self else { return None };
        match stream.inner.get_ref().1.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some(TlsVersion::V1_2),
            ProtocolVersion::TLSv1_3 => Some(TlsVersion::V1_3),
            _ => None,
        }
    }

    /// True where bytes of the socket are bytes of HTTP, so that it tells when the client is done.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, ClientStream::Plain(_))
    }

    /// Ready once the client has ended its side, or the connection is broken, and nothing is left
    /// to be read before that. Consumes nothing.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // The wait is left to the system's notice; where that fails, the connection is broken.
            let seen = match self.socket() {
                Socket::Tcp(stream) => ready!(stream.poll_read_ready(cx))
                    .and_then(|()| stream.try_io(Interest::READABLE, || peeked(stream))),
                Socket::Unix(stream) => ready!(stream.poll_read_ready(cx))
                    .and_then(|()| stream.try_io(Interest::READABLE, || peeked(stream))),
            };
            match seen {
                Ok(0) => return Poll::Ready(()),
                // What follows it shows once it has been read.
                Ok(_) => return Poll::Pending,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// What its socket holds.
    pub(crate) fn held(&self) -> HeldBytes {
        match self.socket() {
            Socket::Tcp(stream) => HeldBytes::of(stream),
            Socket::Unix(stream) => HeldBytes::of(stream),
        }
    }

    /// Bytes written that the client has not acknowledged. Where the system does not tell, the
    /// duration of a blocked write counts.
    pub(crate) fn held_bytes(&self) -> Option<u64> {
        self.held().now()
    }

    /// Makes the connection end in a reset when dropped. Unix sockets have no reset.
    pub(crate) fn reset_at_close(&self) {
        if let Socket::Tcp(stream) = self.socket() {
            // If this fails, the connection is already gone.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// How much of one byte is there to be read; 0 at the end.
fn peeked(socket: &impl AsFd) -> io::Result<usize> {
    SockRef::from(socket).peek(&mut [MaybeUninit::uninit()])
}

reads!([S: AsyncRead + Unpin] Prefixed<S>);

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    forward_write!(Prefixed { inner, .. } => inner);
}

streams!(Socket: Tcp, Unix);
streams!(ClientStream: Plain, Tls);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_peeked_is_read_again_less_what_was_skipped() {
        let mut stream = Prefixed::new(Bytes::from_static(b"ab"), &b"cdef"[..]);
        let seen = stream.peek(5, |seen| seen.len() >= 4).await.unwrap();
        assert!(seen.starts_with(b"abcd") && seen.len() <= 5, "{seen:?}");
        stream.skip(3);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "def");
    }
}
