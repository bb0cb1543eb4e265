//! A listening socket on an event loop. Owns the socket. Threads: its event loop.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::listen::stream::Socket;

/// Most connections that are accepted from a socket as it is closed.
const WAITING_MAX: usize = 4096;

/// A connection, and whose it is: `None` for Unix sockets.
pub(super) type Connection = (Socket, Option<IpAddr>);

pub(super) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Bound {
    /// Waits for a connection.
    pub(super) async fn accept(&self) -> io::Result<Connection> {
        match self {
            Bound::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                Ok((Socket::Tcp(stream), Some(client.ip())))
            }
            Bound::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::Unix(stream), None))
            }
        }
    }

    /// The connections that wait to be accepted; closes the socket, which would reset them. They
    /// came before the proxy was told to stop, and may have asked for something.
    pub(super) fn accept_waiting(self) -> Vec<Connection> {
        match self {
            Bound::Tcp(listener) => waiting(listener.into_std(), |listener| {
                let (stream, client) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Socket::Tcp(TcpStream::from_std(stream)?), Some(client.ip())))
            }),
            Bound::Unix(listener) => waiting(listener.into_std(), |listener| {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Socket::Unix(UnixStream::from_std(stream)?), None))
            }),
        }
    }
}

/// Asks the socket itself: the event loop may not have been told of the last ones yet. Who gave up
/// meanwhile does not keep the others from being accepted; any other error means that there are no
/// more, or no descriptors for them.
fn waiting<L, C>(listener: io::Result<L>, accept: impl Fn(&L) -> io::Result<C>) -> Vec<C> {
    let Ok(listener) = listener else { return Vec::new() };
    let gave_up = |error: &io::Error| {
        matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
    };
    (0..WAITING_MAX)
        .map(|_| accept(&listener))
        .take_while(|next| next.as_ref().err().is_none_or(gave_up))
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::net::UnixListener as StdUnixListener;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// On one thread: the event loop does nothing between the connects and the end.
    #[tokio::test]
    async fn who_waits_as_a_socket_is_closed_is_accepted_and_can_be_talked_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = StdUnixListener::bind(&path).unwrap();
        tcp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        let address = tcp.local_addr().unwrap();
        let tcp = Bound::Tcp(TcpListener::from_std(tcp).unwrap());
        let unix = Bound::Unix(UnixListener::from_std(unix).unwrap());
        let mut by_tcp = Vec::new();
        let mut by_unix = Vec::new();
        for _ in 0..5 {
            by_tcp.push(std::net::TcpStream::connect(address).unwrap());
            by_unix.push(std::os::unix::net::UnixStream::connect(&path).unwrap());
        }
        for (bound, from) in [(tcp, Some(address.ip())), (unix, None)] {
            let accepted = bound.accept_waiting();
            assert_eq!(accepted.len(), 5);
            for (mut socket, whose) in accepted {
                assert_eq!(whose, from);
                socket.write_all(b"x").await.unwrap();
            }
        }
        for stream in by_tcp {
            stream.set_nonblocking(true).unwrap();
            let mut byte = [0];
            TcpStream::from_std(stream).unwrap().read_exact(&mut byte).await.unwrap();
        }
    }

    #[test]
    fn who_gives_up_does_not_keep_others_from_being_accepted() {
        let left: RefCell<Vec<Result<u32, ErrorKind>>> = RefCell::new(vec![
            Ok(1),
            Err(ErrorKind::ConnectionAborted),
            Ok(2),
            Err(ErrorKind::Interrupted),
            Ok(3),
            Err(ErrorKind::WouldBlock),
            Ok(4),
        ]);
        let accept = |left: &RefCell<Vec<Result<u32, ErrorKind>>>| {
            left.borrow_mut().remove(0).map_err(io::Error::from)
        };
        assert_eq!(waiting(Ok(left), accept), [1, 2, 3]);
    }

    #[tokio::test]
    async fn of_a_socket_that_nobody_waits_at_nothing_is_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(Bound::Tcp(listener).accept_waiting().is_empty());
    }
}
