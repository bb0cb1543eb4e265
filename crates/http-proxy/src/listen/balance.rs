//! Deals connections out among workers. The kernel chooses the socket that a connection comes to by
//! a hash, so that of few connections all may come to one worker while others idle; so a worker
//! that has more than another gives the next one away.
//!
//! Invariants: a connection is served by one worker, and counted there until its [`Place`] is
//! dropped; one that is given to a worker that accepts no more comes back. Connections under way
//! are at most as many as there are places. Threads: shared by all workers; a [`Desk`] belongs to
//! one.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::place::Place;
use crate::listen::Kind;
use crate::listen::stream::{DetachedSocket, Socket};

/// By this part of what the other has a worker may have more. To give one away costs system calls,
/// and where connections are short their numbers waver.
const SLACK_SHARE: usize = 8;

/// How many connections each worker has, and the ways to them.
#[derive(Debug)]
pub(crate) struct Balance {
    workers: Box<[Counter]>,
}

#[derive(Debug)]
struct Counter {
    open: Arc<AtomicUsize>,
    given: UnboundedSender<Given>,
}

/// Where one worker finds what others give it.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) worker: usize,
    given: UnboundedReceiver<Given>,
}

/// A connection between two workers.
#[derive(Debug)]
pub(super) struct Given {
    kind: Kind,
    socket: DetachedSocket,
    from: Option<IpAddr>,
    place: Place,
}

impl Balance {
    /// Of this number of workers, with the desk of each.
    pub(crate) fn new(workers: usize) -> (Balance, Vec<Desk>) {
        let one = |worker| {
            let (given, desk) = unbounded_channel();
            (Counter { open: Arc::default(), given }, Desk { worker, given: desk })
        };
        let (workers, desks): (Vec<_>, Vec<_>) = (0..workers).map(one).unzip();
        (Balance { workers: workers.into() }, desks)
    }

    /// Which worker is to serve a connection that this one has accepted.
    pub(super) fn choose(&self, accepted_by: usize) -> usize {
        let open = |worker: &Counter| worker.open.load(Relaxed);
        let least = self.workers.iter().enumerate().min_by_key(|(_, worker)| open(worker));
        let Some((least, counter)) = least else { return accepted_by };
        let few = open(counter);
        match open(&self.workers[accepted_by]) > few + few / SLACK_SHARE {
            true => least,
            false => accepted_by,
        }
    }

    /// Counts a connection among those of a worker.
    pub(super) fn place(&self, worker: usize, permit: OwnedSemaphorePermit) -> Place {
        Place::new(permit, Arc::clone(&self.workers[worker].open))
    }

    /// Gives a connection to a worker. One that accepts no more has it returned.
    ///
    /// # Errors
    /// The event loop of now cannot let go of the connection, or not take it back: it is lost.
    pub(super) fn give(
        &self,
        worker: usize,
        kind: Kind,
        (socket, from): (Socket, Option<IpAddr>),
        permit: OwnedSemaphorePermit,
    ) -> io::Result<Option<(Socket, Place)>> {
        let (socket, place) = (socket.detach()?, self.place(worker, permit));
        let sent = self.workers[worker].given.send(Given { kind, socket, from, place });
        let back =
            |given: SendError<Given>| given.0.taken().map(|(_, socket, _, place)| (socket, place));
        sent.map_or_else(|given| back(given).map(Some), |()| Ok(None))
    }
}

impl Given {
    /// The connection on the event loop of this thread.
    pub(super) fn taken(self) -> io::Result<(Kind, Socket, Option<IpAddr>, Place)> {
        Ok((self.kind, self.socket.attach()?, self.from, self.place))
    }
}

impl Desk {
    /// The next connection; `None` once the desk is closed and empty.
    pub(super) async fn next(&mut self) -> Option<Given> {
        self.given.recv().await
    }

    /// From now on nothing more is given. What was is still there.
    pub(super) fn close(&mut self) {
        self.given.close();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;

    use super::*;

    const KIND: Kind = Kind { tls: false, proxy_protocol: false };

    fn permit() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    #[test]
    fn whoever_accepts_all_workers_have_about_as_many() {
        let mut random = fastrand::Rng::with_seed(1);
        for workers in [1, 2, 3, 8] {
            let (balance, _desks) = Balance::new(workers);
            let mut places: Vec<(usize, Place)> = Vec::new();
            for step in 0..2000 {
                if step > 1000 && random.bool() {
                    places.swap_remove(random.usize(..places.len()));
                    continue;
                }
                // One of them is the hash's favourite.
                let accepted_by = if random.bool() { 0 } else { random.usize(..workers) };
                let worker = balance.choose(accepted_by);
                places.push((worker, balance.place(worker, permit())));
                let of = |worker| places.iter().filter(|(of, _)| *of == worker).count();
                let least = (0..workers).map(of).min().unwrap();
                if step < 1000 {
                    let most = (0..workers).map(of).max().unwrap();
                    assert!(most <= least + least / SLACK_SHARE + 1, "{workers} {step}");
                }
                let gave = worker != accepted_by;
                assert!(!gave || of(worker) == least || of(worker) == least + 1);
            }
            let counted: usize = balance.workers.iter().map(|one| one.open.load(Relaxed)).sum();
            assert_eq!(counted, places.len());
        }
    }

    #[tokio::test]
    async fn what_is_given_can_be_talked_to_there_and_comes_back_from_a_closed_desk() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (balance, mut desks) = Balance::new(2);
        let two = async || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, from) = listener.accept().await.unwrap();
            (client, (Socket::Tcp(stream), Some(from.ip())))
        };
        let (mut client, connection) = two().await;
        assert!(balance.give(1, KIND, connection, permit()).unwrap().is_none());
        desks[1].close();
        let (mut other, connection) = two().await;
        let back = balance.give(1, KIND, connection, permit()).unwrap();
        let (mut socket, place) = back.expect("the desk is closed");
        socket.write_all(b"x").await.unwrap();
        assert_eq!(other.read_u8().await.unwrap(), b'x');
        drop(place);
        let given = desks[1].next().await.expect("it was given before");
        let (kind, mut socket, from, _place) = given.taken().unwrap();
        socket.write_all(b"y").await.unwrap();
        assert_eq!((kind, client.read_u8().await.unwrap()), (KIND, b'y'));
        assert!(from.is_some_and(|from| from.is_loopback()));
        assert!(desks[1].next().await.is_none());
    }
}
