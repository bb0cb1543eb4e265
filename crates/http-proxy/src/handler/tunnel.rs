//! Tunnels: two byte streams joined after an upgrade or CONNECT.
//!
//! Invariants: each direction holds one buffer, a larger one once it was full, and none while
//! nothing comes; the end of one direction is passed on, and the other direction continues, also if
//! the end is that nothing can be written any more; a tunnel without traffic in either direction
//! for its idle time is cut. Threads: one task on the worker of the client's connection.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use crate::io::idle::IdleTimer;
use crate::metrics::{BrokenBy, Counter, Counters};

/// Buffer of one direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Buffer of a direction in which much comes at once. It takes half the system calls for the same
/// bytes. A larger one would save little more, but every tunnel of that kind holds it.
const BULK_BUFFER_BYTES: usize = 32 << 10;

/// Copies both ways until both sides have ended, one fails, or no bytes move for `idle`. Returns
/// who broke it off, if not both ended it, after `break_off`, which sees to it that the client
/// notices when the streams are dropped, unless it has been told the end already. `sent` counts the
/// bytes to the client as they go, for tunnels that are dropped.
pub(super) async fn join<B: Future<Output = ()>>(
    client: impl AsyncRead + AsyncWrite,
    origin: impl AsyncRead + AsyncWrite,
    idle: Duration,
    (counters, sent): (&Counters, &Counter),
    break_off: impl FnOnce(BrokenBy) -> B,
) -> Option<BrokenBy> {
    counters.tunnels.one();
    let (silence, is_end_told) = (IdleTimer::new(), AtomicBool::new(false));
    let (mut from_client, mut to_client) = split(client);
    let (mut from_origin, mut to_origin) = split(origin);
    let (up_counts, down_counts) =
        (&[&counters.tunnel_client_bytes][..], &[&counters.tunnel_origin_bytes, sent][..]);
    let up = async {
        let end = pump(&mut from_client, &mut to_origin, &silence, up_counts).await;
        end.map_err(|stopped| stopped.blame(BrokenBy::Client, BrokenBy::Origin))
    };
    let down = async {
        let end = pump(&mut from_origin, &mut to_client, &silence, down_counts).await;
        is_end_told.store(end.is_ok(), Relaxed);
        end.map_err(|stopped| stopped.blame(BrokenBy::Origin, BrokenBy::Client))
    };
    // Counted before the streams are dropped: an observer who sees the tunnel end then already
    // finds the timeout in the counters.
    let silent = async {
        silence.expired(idle).await;
        counters.tunnel_timeouts.one();
    };
    let broken_by = tokio::select! {
        broken_by = both(up, down) => broken_by,
        () = silent => Some(BrokenBy::Timeout),
    };
    // What the origin had to say is complete then, and a reset would throw the rest of it away.
    if let Some(by) = broken_by.filter(|_| !is_end_told.load(Relaxed)) {
        break_off(by).await;
    }
    broken_by
}

/// How a direction stopped before its end.
#[derive(Debug, Clone, Copy)]
enum Stopped {
    /// Nothing comes any more.
    Reading,
    /// Nothing is taken any more.
    Writing,
    /// Nothing was taken for too long: nothing is to come any more either.
    Late,
}

/// A failure: who caused it, and in what.
type Failure = (BrokenBy, Stopped);

impl Stopped {
    fn blame(self, source: BrokenBy, sink: BrokenBy) -> Failure {
        match self {
            Stopped::Reading => (source, self),
            Stopped::Writing | Stopped::Late => (sink, self),
        }
    }

    fn of_write(error: io::Error) -> Stopped {
        if error.kind() == ErrorKind::TimedOut { Stopped::Late } else { Stopped::Writing }
    }
}

/// Runs both directions. A side that takes nothing any more may have sent bytes before, which still
/// go to the other; a side from which nothing comes has gone. Once one direction has come to its
/// end, the failure of the other one is the close that follows.
async fn both(
    up: impl Future<Output = Result<(), Failure>>,
    down: impl Future<Output = Result<(), Failure>>,
) -> Option<BrokenBy> {
    let (mut up, mut down) = (pin!(up), pin!(down));
    let (first, is_up) = tokio::select! {
        end = &mut up => (end, true),
        end = &mut down => (end, false),
    };
    if let Err((by, Stopped::Reading | Stopped::Late)) = first {
        return Some(by);
    }
    let second = if is_up { down.await } else { up.await };
    second.err().and(first.err()).map(|(by, _)| by)
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    silence: &IdleTimer,
    counts: &[&Counter],
) -> Result<(), Stopped> {
    let (mut buffer, mut most) = (Vec::new(), BUFFER_BYTES);
    loop {
        let length =
            next_bytes(&mut from, &mut buffer, most).await.map_err(|_| Stopped::Reading)?;
        silence.touch();
        if length == 0 {
            return to.shutdown().await.map_err(Stopped::of_write);
        }
        to.write_all(&buffer).await.map_err(Stopped::of_write)?;
        silence.touch();
        counts.iter().for_each(|bytes| bytes.add(length as u64));
        // A TLS stream buffers bytes that its connection had no room for. Without a flush they
        // could stay there while the peer waits for them before it sends more.
        to.flush().await.map_err(Stopped::of_write)?;
        if length == BUFFER_BYTES {
            most = BULK_BUFFER_BYTES;
        }
    }
}

/// Reads what comes next in place of what is in the buffer, which is given back while nothing
/// comes: most tunnels are silent most of the time.
async fn next_bytes(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    most: usize,
) -> io::Result<usize> {
    poll_fn(|cx| {
        buffer.clear();
        buffer.reserve_exact(most);
        let polled = pin!(from.read_buf(buffer)).poll(cx);
        if polled.is_pending() {
            *buffer = Vec::new();
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{ReadBuf, duplex};
    use tokio::time::Instant;

    #[tokio::test]
    async fn bytes_and_ends_pass_both_ways() {
        let (counters, sent) = (Counters::default(), Counter::default());
        let ((mut client, near), (far, mut origin)) = (duplex(64), duplex(64));
        let script = async {
            client.write_all(&[1; 1000]).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let answering = async {
            let mut asked = Vec::new();
            origin.read_to_end(&mut asked).await.unwrap();
            origin.write_all(&[2; 2000]).await.unwrap();
            drop(origin);
            asked
        };
        let tunnel = join(near, far, Duration::from_secs(10), (&counters, &sent), no_cut);
        let (answer, asked, broken_by) = tokio::join!(script, answering, tunnel);
        assert_eq!((sent.get(), broken_by), (2000, None));
        assert_eq!((asked, answer), (vec![1; 1000], vec![2; 2000]));
    }

    #[tokio::test]
    async fn what_fills_the_buffer_does_not_wait_for_more() {
        let counters = Counters::default();
        let ((mut client, near), (far, mut origin)) = (duplex(1 << 20), duplex(1 << 20));
        // Buffers without flushing, as a TLS stream does when its connection is full.
        let holding_back = tokio::io::BufWriter::with_capacity(1 << 20, far);
        let script = async {
            client.write_all(&[1; BUFFER_BYTES]).await.unwrap();
            origin.read_exact(&mut [0; BUFFER_BYTES]).await.unwrap();
            drop((client, origin));
        };
        let sent = Counter::default();
        let tunnel = join(near, holding_back, Duration::from_secs(10), (&counters, &sent), no_cut);
        let both = async { tokio::join!(script, tunnel) };
        tokio::time::timeout(Duration::from_secs(5), both).await.expect("all has arrived");
    }

    #[tokio::test]
    async fn a_direction_whose_buffer_was_full_gets_a_larger_one() {
        let silence = IdleTimer::new();
        for (come, offered) in [
            (&[100, BUFFER_BYTES - 1, 100][..], [BUFFER_BYTES; 4]),
            (
                &[100, BUFFER_BYTES, 100],
                [BUFFER_BYTES, BUFFER_BYTES, BULK_BUFFER_BYTES, BULK_BUFFER_BYTES],
            ),
        ] {
            let mut source = Arriving { come: come.to_vec(), offered: Vec::new() };
            let mut arrived = Vec::new();
            pump(&mut source, &mut arrived, &silence, &[]).await.unwrap();
            assert_eq!(source.offered, offered);
            assert_eq!(arrived.len(), come.iter().sum::<usize>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_cuts_but_traffic_one_way_does_not() {
        let counters = Counters::default();
        let ((mut client, near), (far, mut origin)) = (duplex(64), duplex(64));
        let start = Instant::now();
        let script = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                client.write_all(b"x").await.unwrap();
            }
            let mut buffer = Vec::new();
            origin.read_to_end(&mut buffer).await.unwrap();
            buffer.len()
        };
        let sent = Counter::default();
        let tunnel = join(near, far, Duration::from_secs(10), (&counters, &sent), no_cut);
        let (received, broken_by) = tokio::join!(script, tunnel);
        assert_eq!((received, broken_by), (5, Some(BrokenBy::Timeout)));
        assert_eq!(start.elapsed().as_secs(), 50);
    }

    #[tokio::test]
    async fn what_an_origin_sent_before_it_took_no_more_arrives() {
        let (counters, sent) = (Counters::default(), Counter::default());
        let (mut client, near) = duplex(64);
        let answer = vec![2; 5 * BUFFER_BYTES];
        let origin = tokio::io::join(&answer[..], RESET);
        let script = async {
            client.write_all(b"more than it wants").await.unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            received
        };
        let tunnel = join(near, origin, Duration::from_secs(10), (&counters, &sent), no_cut);
        let (received, broken_by) = tokio::join!(script, tunnel);
        assert_eq!(received.len(), answer.len());
        assert_eq!(broken_by, None, "it closed its connection when it had sent everything");
    }

    /// The system gave up a connection whose other end is not there any more.
    #[tokio::test]
    async fn a_side_that_took_nothing_for_too_long_is_not_waited_for() {
        let (counters, sent) = (Counters::default(), Counter::default());
        let ((_silent, reads), (far, mut origin)) = (duplex(64), duplex(64));
        origin.write_all(b"for a client that has gone").await.unwrap();
        let client = tokio::io::join(reads, Refusing(ErrorKind::TimedOut));
        let broken_by =
            join(client, far, Duration::from_secs(3600), (&counters, &sent), no_cut).await;
        assert_eq!(broken_by, Some(BrokenBy::Client));
    }

    #[tokio::test]
    async fn who_breaks_a_tunnel_off_is_told() {
        let counters = Counters::default();
        for (is_client, wanted) in [(true, BrokenBy::Client), (false, BrokenBy::Origin)] {
            let ((_peer, whole), sent) = (duplex(64), Counter::default());
            let broken = tokio::io::join(RESET, RESET);
            let idle = Duration::from_secs(10);
            let broken_by = match is_client {
                true => join(broken, whole, idle, (&counters, &sent), no_cut).await,
                false => join(whole, broken, idle, (&counters, &sent), no_cut).await,
            };
            assert_eq!(broken_by, Some(wanted));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_is_broken_off_unless_its_client_has_all() {
        for has_all in [true, false] {
            let (counters, sent) = (Counters::default(), Counter::default());
            let ((mut client, near), (far, mut origin)) = (duplex(64), duplex(64));
            origin.write_all(b"all").await.unwrap();
            if has_all {
                origin.shutdown().await.unwrap();
            }
            let is_broken_off = AtomicBool::new(false);
            let break_off = |_| {
                is_broken_off.store(true, Relaxed);
                std::future::ready(())
            };
            let idle = Duration::from_secs(10);
            let by = join(near, far, idle, (&counters, &sent), break_off).await;
            assert_eq!(by, Some(BrokenBy::Timeout));
            assert_eq!(is_broken_off.load(Relaxed), !has_all);
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"all");
        }
    }

    fn no_cut(_: BrokenBy) -> std::future::Ready<()> {
        std::future::ready(())
    }

    #[tokio::test]
    async fn a_direction_without_traffic_holds_no_buffer() {
        let ((mut near, mut far), mut buffer) = (duplex(64), Vec::new());
        for come in [b"a", b"b"] {
            {
                let mut reading = pin!(next_bytes(&mut far, &mut buffer, BUFFER_BYTES));
                let mut context = Context::from_waker(std::task::Waker::noop());
                assert!(reading.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(buffer.capacity(), 0);
            near.write_all(come).await.unwrap();
            assert_eq!(next_bytes(&mut far, &mut buffer, BUFFER_BYTES).await.unwrap(), 1);
            assert_eq!(&buffer[..], come);
        }
    }

    /// Gives so many bytes at each read, then its end, and notes what room each read offered.
    struct Arriving {
        come: Vec<usize>,
        offered: Vec<usize>,
    }

    impl AsyncRead for Arriving {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.offered.push(buffer.remaining());
            if !self.come.is_empty() {
                buffer.put_slice(&vec![3; self.come.remove(0)]);
            }
            Poll::Ready(Ok(()))
        }
    }

    /// A connection that has failed so.
    struct Refusing(ErrorKind);

    const RESET: Refusing = Refusing(ErrorKind::ConnectionReset);

    impl Refusing {
        fn fails<T>(&self) -> Poll<io::Result<T>> {
            Poll::Ready(Err(self.0.into()))
        }
    }

    impl AsyncRead for Refusing {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.fails()
        }
    }

    impl AsyncWrite for Refusing {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.fails()
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.fails()
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.fails()
        }
    }
}
