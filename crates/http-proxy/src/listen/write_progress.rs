//! Whether a client takes what was written to it.
//!
//! A socket that was full is writable again only when a good part of its buffer is free, and that holds
//! megabytes: a client that reads slowly can leave a write waiting for longer than it may, though it
//! takes something all the time. So the wait is not what counts, but how much the socket still holds.
//! Threads: polled by the connection's task only.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Duration, Instant, Sleep};

use crate::io::deadline::poll_deadline;
use crate::listen::stream::ClientStream;

/// Looks at a full socket in the time in which its client must take something.
const LOOKS: u32 = 4;

/// What a client did of late with what was written to it.
pub(super) struct WriteProgress {
    /// Time in which it must take something.
    limit: Duration,
    /// When it was last seen to take something.
    moved: Instant,
    /// The socket is full.
    blocked: bool,
    last_look: Option<Look>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A look at the socket.
struct Look {
    at: Instant,
    /// What it held then, where the system tells.
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

    /// Something could be written.
    pub(super) fn wrote(&mut self) {
        if self.blocked {
            self.blocked = false;
            self.moved = Instant::now();
        }
    }

    /// Lets go of what is not needed while nothing is written.
    pub(super) fn rest(&mut self) {
        self.timer = None;
    }

    /// Nothing can be written: ready once the client has taken nothing for as long as it may.
    pub(super) fn poll_full(&mut self, stream: &ClientStream, cx: &mut Context<'_>) -> Poll<()> {
        if !self.blocked {
            (self.blocked, self.last_look) = (true, None);
            self.moved = Instant::now();
        }
        self.poll_stalled(self.moved, stream, cx)
    }

    /// The client has asked for nothing more since `since`, though there is more: ready once it has not
    /// taken anything of what it has asked for either for as long as it may.
    pub(super) fn poll_stalled(
        &mut self,
        since: Instant,
        stream: &ClientStream,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let last = self.last_look.get_or_insert_with(|| Look::now(stream));
        loop {
            ready!(poll_deadline(&mut self.timer, last.at + self.limit / LOOKS, cx));
            let look = Look::now(stream);
            if look.held_bytes != last.held_bytes {
                self.moved = look.at;
            }
            *last = look;
            if self.moved.max(since) + self.limit <= last.at {
                return Poll::Ready(());
            }
        }
    }
}
