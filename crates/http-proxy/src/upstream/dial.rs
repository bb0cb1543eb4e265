//! TCP connections to a host, to the address that answers first (RFC 8305, "Happy Eyeballs").
//!
//! A host with several addresses must stay reachable if one of them drops packets. So the next
//! address is tried when the last one was silent for [`ATTEMPT_DELAY`], or at once when an attempt
//! failed; the first connection wins and the other attempts are dropped. Connections to one origin
//! begin at its addresses in turn, or the first would get all of them. Invariants: the name is
//! resolved once, and the proxy connects to the very address that it checked against the rules; an
//! address that is not permitted is never tried. Threads: the caller's.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::FetchError;
use crate::forward::Permit;
use crate::io::names;

/// Time without an answer after which the next address is tried as well (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Limit on the addresses of one host that are tried; a name may have any number.
const ADDRESSES_MAX: usize = 16;

/// Connects to a permitted address of a host before `due`. `turn` says which is tried first among
/// those of a family.
pub(crate) async fn dial_tcp(
    host: &str,
    port: u16,
    permit: Option<&dyn Permit>,
    due: Instant,
    turn: usize,
) -> Result<TcpStream, FetchError> {
    let resolved = timeout_at(due, names::addresses(host)).await;
    let resolved = resolved.map_err(|_| FetchError::ResolveTimeout(host.into()))??;
    if resolved.is_empty() {
        return Err(FetchError::Unresolved(host.into()));
    }
    let with_port = |address: &SocketAddr| {
        let mut address = *address;
        address.set_port(port);
        address
    };
    let addresses = resolved.iter().map(with_port);
    let connecting = connect_among(addresses, permit, turn, TcpStream::connect);
    timeout_at(due, connecting).await.unwrap_or(Err(FetchError::ConnectTimeout))
}

/// The stream that `connect` opens first to one of these addresses that is permitted.
async fn connect_among<S, F>(
    addresses: impl Iterator<Item = SocketAddr>,
    permit: Option<&dyn Permit>,
    turn: usize,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<S, FetchError>
where
    F: Future<Output = io::Result<S>>,
{
    let may = |address: &SocketAddr| {
        permit.is_none_or(|permit| permit.permits(address.ip().to_canonical()))
    };
    let (permitted, forbidden): (Vec<_>, Vec<_>) = addresses.partition(may);
    let connected = first_to_connect(by_turns(permitted, turn), connect).await;
    connected.map_err(|error| match error {
        // The rules are the reason only if they left no address to try.
        Some(error) => unreached(error),
        None if !forbidden.is_empty() => FetchError::Forbidden,
        None => FetchError::Connect(None),
    })
}

/// What a connection that could not be opened is to the request that needed it.
pub(crate) fn unreached(error: io::Error) -> FetchError {
    FetchError::Connect(Some(error.kind()))
}

/// Interleaves the address families, beginning with that of the first address (RFC 8305 §4) and, of
/// each, with the address whose turn it is; else they keep their order.
fn by_turns(addresses: Vec<SocketAddr>, turn: usize) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().copied() else { return addresses };
    let (mut same, mut other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    for family in [&mut same, &mut other] {
        let begin = turn % family.len().max(1);
        family.rotate_left(begin);
        // Reversed, because `pop` takes from the end.
        family.reverse();
    }
    let mut turns = Vec::with_capacity(same.len() + other.len());
    while !same.is_empty() || !other.is_empty() {
        turns.extend(same.pop());
        turns.extend(other.pop());
    }
    turns
}

/// The first stream that `connect` opens to any of these addresses; if all attempts fail, why the
/// last one did.
async fn first_to_connect<S, E, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<S, Option<E>>
where
    F: Future<Output = Result<S, E>>,
{
    let mut rest = addresses.into_iter().take(ADDRESSES_MAX).peekable();
    let mut attempts: Vec<Pin<Box<F>>> = Vec::new();
    let mut failure = None;
    loop {
        match rest.next() {
            Some(address) => attempts.push(Box::pin(connect(address))),
            None if attempts.is_empty() => return Err(failure),
            None => {}
        }
        let ended = any_of(&mut attempts);
        let ended = match rest.peek() {
            Some(_) => timeout(ATTEMPT_DELAY, ended).await.ok(),
            None => Some(ended.await),
        };
        // After a failure or a timeout the next address is tried.
        match ended {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => failure = Some(error),
            None => {}
        }
    }
}

/// Waits for the first attempt that ends, and removes it.
async fn any_of<F: Future>(attempts: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|cx| {
        for index in 0..attempts.len() {
            if let Poll::Ready(output) = attempts[index].as_mut().poll(cx) {
                drop(attempts.remove(index));
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::net::IpAddr;
    use tokio::time::sleep;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns() {
        let (a, b, c) = ("[::1]:1", "[::2]:1", "[::3]:1");
        let (x, y) = ("192.0.2.1:1", "192.0.2.2:1");
        for (given, turn, expected) in [
            (vec![a, b, c, x, y], 0, vec![a, x, b, y, c]),
            (vec![a, b, c, x, y], 1, vec![b, y, c, x, a]),
            (vec![a, b, c, x, y], 2, vec![c, x, a, y, b]),
            (vec![x, y, a], 0, vec![x, a, y]),
            (vec![x, y, a], usize::MAX, vec![y, a, x]),
            (vec![a, b], 0, vec![a, b]),
            (vec![a, b], 2, vec![a, b]),
            (vec![], 1, vec![]),
        ] {
            assert_eq!(by_turns(addresses(&given), turn), addresses(&expected), "{given:?}");
        }
    }

    /// Simulates addresses by their ports: silent below 100, refusing below 200, otherwise
    /// connecting after as many milliseconds as the port number. Returns the winner, the time of
    /// each attempt, and the total time, in milliseconds.
    async fn race(ports: &[u16]) -> (Option<u16>, Vec<u128>, u128) {
        let (start, tried) = (Instant::now(), RefCell::new(Vec::new()));
        let connect = async |address: SocketAddr| {
            tried.borrow_mut().push(start.elapsed().as_millis());
            match address.port() {
                0..100 => std::future::pending().await,
                100..200 => Err(()),
                port => {
                    sleep(Duration::from_millis(port.into())).await;
                    Ok(port)
                }
            }
        };
        let address = |port: &u16| SocketAddr::from(([192, 0, 2, 1], *port));
        let racing = first_to_connect(ports.iter().map(address).collect(), connect);
        let won = timeout(Duration::from_secs(5), racing).await.ok().and_then(Result::ok);
        let took = start.elapsed().as_millis();
        (won, tried.take(), took)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_does_not_keep_the_others_from_being_tried() {
        assert_eq!(race(&[1, 200]).await, (Some(200), vec![0, 250], 450));
        assert_eq!(race(&[1, 2, 200]).await, (Some(200), vec![0, 250, 500], 700));
        // A failure starts the next attempt at once; a slow attempt may still win.
        assert_eq!(race(&[100, 101, 200]).await, (Some(200), vec![0, 0, 0], 200));
        assert_eq!(race(&[300, 400]).await, (Some(300), vec![0, 250], 300));
        assert_eq!(race(&[600, 200]).await, (Some(200), vec![0, 250], 450));
        assert_eq!(race(&[200, 300]).await, (Some(200), vec![0], 200));
    }

    #[tokio::test]
    async fn a_name_that_is_none_is_named() {
        let due = Instant::now() + Duration::from_secs(60);
        let error = dial_tcp("nobody.invalid", 80, None, due, 0).await.unwrap_err();
        assert!(error.is_unreachable() && error.status() == 502);
        assert_eq!(error.to_string(), "the name nobody.invalid could not be resolved");
    }

    struct Ipv4Only;

    impl Permit for Ipv4Only {
        fn permits(&self, address: IpAddr) -> bool {
            address.is_ipv4()
        }
    }

    #[tokio::test]
    async fn what_is_forbidden_is_the_reason_only_where_nothing_else_is() {
        let refuse = |_| async { Err::<(), _>(io::ErrorKind::ConnectionRefused.into()) };
        let refused = FetchError::Connect(Some(io::ErrorKind::ConnectionRefused));
        let cases: [(&[&str], _); 3] = [
            (&["[::1]:80", "192.0.2.1:80"], refused.clone()),
            (&["192.0.2.1:80"], refused),
            (&["[::1]:80"], FetchError::Forbidden),
        ];
        for (given, expected) in cases {
            let given = addresses(given).into_iter();
            let failed = connect_among(given, Some(&Ipv4Only), 0, refuse).await.unwrap_err();
            assert_eq!(failed, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_none_is_left_and_tries_a_few_only() {
        assert_eq!(race(&[]).await, (None, vec![], 0));
        assert_eq!(race(&[100, 101]).await, (None, vec![0, 0], 0));
        let many = vec![1; 50];
        let (won, tried, took) = race(&many).await;
        assert_eq!((won, tried.len(), took), (None, ADDRESSES_MAX, 5000));
    }
}
