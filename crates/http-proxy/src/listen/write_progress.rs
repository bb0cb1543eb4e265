//! Detects clients that have stopped reading.
//!
//! A full socket becomes writable again only when a good part of its buffer, which may be
//! megabytes, is free. So a slow but steady reader can block a write for longer than
//! `timeouts.client_write`. The duration of the blocked write is therefore no criterion; the
//! socket's remaining bytes are. Threads: polled by the connection's task only.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Duration, Instant, Sleep};

use crate::io::deadline::poll_deadline;
use crate::listen::stream::ClientStream;

/// Checks of a full socket within the time in which its client must read something.
const LOOKS: u32 = 4;

/// How the client has recently read from the socket.
pub(super) struct WriteProgress {
    /// Time within which the client must read something.
    limit: Duration,
    /// When the client was last seen to read.
    moved: Instant,
    /// Whether the socket is full.
    blocked: bool,
    last_look: Option<Look>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// One check of the socket.
struct Look {
    at: Instant,
    /// Bytes that it held then, where the system reports them.
    held_bytes: Option<u64>,
}

impl Look {
    fn now(stream: &ClientStream) -> Look {
        Look { at: Instant::now(), held_bytes: stream.held_bytes() }
    }
}

impl WriteProgress {
    pub(super) fn new(limit: Duration) -> WriteProgress {
        WriteProgress { limit, moved: Instant::now(), blocked: false, last_look: None, timer: None }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Records a successful write.
    pub(super) fn wrote(&mut self) {
        if self.blocked {
            self.blocked = false;
            self.moved = Instant::now();
        }
    }

    /// Frees the timer, which is needed only while a write is blocked.
    pub(super) fn rest(&mut self) {
        self.timer = None;
    }

    /// Called while the socket is full: ready once the client has read nothing for the limit.
    pub(super) fn poll_full(&mut self, stream: &ClientStream, cx: &mut Context<'_>) -> Poll<()> {
        if !self.blocked {
            (self.blocked, self.last_look) = (true, None);
            self.moved = Instant::now();
        }
        let last = self.last_look.get_or_insert_with(|| Look::now(stream));
        loop {
            ready!(poll_deadline(&mut self.timer, last.at + self.limit / LOOKS, cx));
            let look = Look::now(stream);
            if look.held_bytes != last.held_bytes {
                self.moved = look.at;
            }
            *last = look;
            if self.moved + self.limit <= last.at {
                return Poll::Ready(());
            }
        }
    }
}
