//! Tunnels: two byte streams joined after an upgrade or CONNECT.
//!
//! Invariants: each direction holds one buffer; the end of one direction is passed on, and the
//! other direction continues; a tunnel without traffic in either direction for its idle time is
//! cut. Threads: one task on the worker of the client's connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use crate::io::idle::IdleTimer;
use crate::metrics::{Counter, Counters};

/// Buffer of one direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies both ways until both sides have ended, one fails, or no bytes move for `idle`; true in
/// the last case. `sent` counts the bytes to the client as they go, for tunnels that are dropped.
pub(super) async fn join(
    client: impl AsyncRead + AsyncWrite,
    origin: impl AsyncRead + AsyncWrite,
    idle: Duration,
    counters: &Counters,
    sent: &Counter,
) -> bool {
    counters.tunnels.one();
    let silence = IdleTimer::new();
    let (from_client, to_client) = split(client);
    let (from_origin, to_origin) = split(origin);
    let (up_counts, down_counts) =
        (&[&counters.tunnel_client_bytes][..], &[&counters.tunnel_origin_bytes, sent][..]);
    let up = pump(from_client, to_origin, &silence, up_counts);
    let down = pump(from_origin, to_client, &silence, down_counts);
    // Counted before the streams are dropped: an observer who sees the tunnel end then already
    // finds the timeout in the counters.
    let cut = async {
        silence.expired(idle).await;
        counters.tunnel_timeouts.one();
    };
    tokio::select! {
        // An error on one side ends both. It is not reported: no response can carry it any more.
        _ = async { tokio::try_join!(up, down) } => false,
        () = cut => true,
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    silence: &IdleTimer,
    counts: &[&Counter],
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        silence.touch();
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        silence.touch();
        counts.iter().for_each(|bytes| bytes.add(length as u64));
        // A TLS stream buffers bytes that its connection had no room for. Without a flush they
        // could stay there while the peer waits for them before it sends more.
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
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
        let tunnel = join(near, far, Duration::from_secs(10), &counters, &sent);
        let (answer, asked, is_cut) = tokio::join!(script, answering, tunnel);
        assert_eq!((sent.get(), is_cut), (2000, false));
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
        let tunnel = join(near, holding_back, Duration::from_secs(10), &counters, &sent);
        let both = async { tokio::join!(script, tunnel) };
        tokio::time::timeout(Duration::from_secs(5), both).await.expect("all has arrived");
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
            join(near, far, Duration::from_secs(10), &counters, &Counter::default()).await;
        };
        let (received, ()) = tokio::join!(script, tunnel);
        assert_eq!(received, 5);
        assert_eq!(start.elapsed().as_secs(), 50);
    }
}
