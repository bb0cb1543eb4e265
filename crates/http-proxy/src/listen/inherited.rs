//! Assigns sockets handed down by a supervisor to the configured listeners.
//!
//! A socket belongs to the listener with its address, else to the one with its port, since a
//! supervisor configured with only a port listens on all addresses. A TCP socket that matches none
//! serves `from` if that has none yet. A Unix socket never serves `from`, which is a TCP address
//! wherever it is told. Threads: none; a pure function except for asking the system for a socket's
//! address.

use std::sync::Arc;

use crate::config::transport::{Inherited, ListenAddress, Listener};
use crate::error::ProxyError;

/// The socket of each listener, if one was handed down. `from` is the first listener.
pub(crate) fn assign<'a>(
    listeners: &[Listener],
    inherited: &'a [Arc<Inherited>],
) -> Result<Vec<Option<&'a Inherited>>, ProxyError> {
    let mut assigned: Vec<Option<&Inherited>> = vec![None; listeners.len()];
    let mut left: Vec<(&Inherited, ListenAddress)> = Vec::new();
    for socket in inherited {
        left.push((socket, socket.address().map_err(ProxyError::Worker)?));
    }
    let fits: [fn(&ListenAddress, &ListenAddress) -> bool; 2] = [ListenAddress::eq, same_port];
    for fits in fits {
        left.retain(|(socket, address)| {
            let free =
                |at: &usize| assigned[*at].is_none() && fits(&listeners[*at].address, address);
            let place = (0..listeners.len()).find(free);
            place.inspect(|at| assigned[*at] = Some(socket)).is_none()
        });
    }
    for (socket, address) in left {
        match (socket, assigned.first_mut()) {
            (Inherited::Tcp(_), Some(first @ None)) => *first = Some(socket),
            _ => return Err(ProxyError::Inherited { address: address.to_string() }),
        }
    }
    Ok(assigned)
}

fn same_port(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) => one.port() == other.port(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn tcp() -> (Arc<Inherited>, SocketAddr) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        (Arc::new(Inherited::Tcp(socket)), address)
    }

    fn listener(address: ListenAddress) -> Listener {
        Listener { address, tls: false, proxy_protocol: false }
    }

    fn on(port: u16) -> Listener {
        listener(ListenAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], port))))
    }

    fn order(listeners: &[Listener], sockets: &[Arc<Inherited>]) -> Vec<Option<usize>> {
        let place = |socket: Option<&Inherited>| {
            socket.and_then(|socket| sockets.iter().position(|s| std::ptr::eq(&**s, socket)))
        };
        assign(listeners, sockets).unwrap().into_iter().map(place).collect()
    }

    #[test]
    fn sockets_serve_the_listeners_of_their_ports_and_paths() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let unix = Arc::new(Inherited::Unix(UnixListener::bind(&path).unwrap()));
        let ((a, at_a), (b, at_b)) = (tcp(), tcp());
        let sockets = [unix, b, a];
        let listeners = [on(at_a.port()), on(at_b.port()), listener(ListenAddress::Unix(path))];
        assert_eq!(order(&listeners, &sockets), [Some(2), Some(1), Some(0)]);
        // An equal address takes precedence over an equal port.
        let both = [on(at_a.port()), listener(ListenAddress::Tcp(at_a))];
        assert_eq!(order(&both, &sockets[2..]), [None, Some(0)]);
    }

    #[test]
    fn a_unix_socket_that_fits_no_listener_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let unix = Arc::new(Inherited::Unix(UnixListener::bind(&path).unwrap()));
        let refused = assign(&[on(1), on(2)], std::slice::from_ref(&unix)).unwrap_err();
        assert!(refused.to_string().contains("socket, and no listener has that"), "{refused}");
    }

    #[test]
    fn a_socket_that_fits_no_listener_serves_from_and_a_second_one_is_refused() {
        let ((a, _), (b, _)) = (tcp(), tcp());
        let listeners = [on(1), on(2)];
        let sockets = [a, b];
        assert_eq!(order(&listeners, &sockets[..1]), [Some(0), None]);
        assert!(matches!(assign(&listeners, &sockets), Err(ProxyError::Inherited { .. })));
        assert_eq!(order(&listeners, &[]), [None, None]);
    }
}
