//! Two byte streams joined after HTTP has done its part: upgrades and CONNECT.
//!
//! Invariants: each direction holds one buffer; the end of one side is passed on to the other,
//! whose own direction goes on; a tunnel in which nothing moves for its idle time is cut. Threads:
//! one task on the worker of the client's connection.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::{Instant, sleep_until};

use crate::metrics::{Counter, Counters};

/// Buffer of one direction.
const BUFFER_BYTES: usize = 16 << 10;

/// When something moved last.
struct Moved {
    begun: Instant,
    last_ms: AtomicU64,
}

impl Moved {
    fn now(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Relaxed);
    }

    /// Waits until nothing has moved for `limit`.
    async fn ceased(&self, limit: Duration) {
        loop {
            let deadline = self.begun + Duration::from_millis(self.last_ms.load(Relaxed)) + limit;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

/// Copies both ways until both sides have ended, one breaks, or nothing moves for `idle`.
pub(crate) async fn join(
    client: impl AsyncRead + AsyncWrite,
    origin: impl AsyncRead + AsyncWrite,
    idle: Duration,
    counters: &Counters,
) {
    counters.tunnels.one();
    let moved = Moved { begun: Instant::now(), last_ms: AtomicU64::new(0) };
    let (from_client, to_client) = split(client);
    let (from_origin, to_origin) = split(origin);
    let up = pump(from_client, to_origin, &moved, &counters.tunnel_client_bytes);
    let down = pump(from_origin, to_client, &moved, &counters.tunnel_origin_bytes);
    // Counted before the streams are dropped: whoever sees the end finds the reason.
    let cut = async {
        moved.ceased(idle).await;
        counters.tunnel_timeouts.one();
    };
    tokio::select! {
        // That one side broke is the end for both, and nobody is left to be told.
        _ = async { tokio::try_join!(up, down) } => {}
        () = cut => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
    bytes: &Counter,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        moved.now();
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        moved.now();
        bytes.add(length as u64);
        if length < BUFFER_BYTES {
            to.flush().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test]
    async fn bytes_and_ends_pass_both_ways() {
        let counters = Counters::default();
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
        let tunnel = join(near, far, Duration::from_secs(10), &counters);
        let (answer, asked, ()) = tokio::join!(script, answering, tunnel);
        assert_eq!((asked, answer), (vec![1; 1000], vec![2; 2000]));
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
        let tunnel = async {
            join(near, far, Duration::from_secs(10), &counters).await;
        };
        let (received, ()) = tokio::join!(script, tunnel);
        assert_eq!(received, 5);
        assert_eq!(start.elapsed().as_secs(), 50);
    }
}
