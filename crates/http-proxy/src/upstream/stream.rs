//! A byte stream to an origin, in clear text or TLS. Invariant: the wire carries nothing but this
//! stream. Threads: each stream lives on one worker.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::io::stream::{PolledRead, forward_write, reads, streams};

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

streams!(Wire: Tcp, Unix);
streams!(Stream: Plain, Tls);
