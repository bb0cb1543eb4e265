//! A connection to an origin that lets the others of its worker have their turn before it writes.
//!
//! A write to a peer that is idle wakes it, which costs more than the write itself where the peer is on
//! the same machine. So all that is ready to be read is read and worked on first, and the requests that
//! come of it follow each other: the first one wakes the origin, the rest find it awake. A connection
//! that is alone writes in the next turn of the event loop, some hundred nanoseconds later. Answers to
//! clients do not wait: with many connections each was gone from the processor's cache by its turn,
//! which cost hits as much as misses gained.
//!
//! Invariant: a write is put off once and then passed on, so it is never lost. Threads: polled by the
//! connection's task only.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::streams::{PolledRead, reads};

/// See the top of the file.
pub(crate) struct Batched<S> {
    inner: S,
    /// The others had their turn.
    has_waited: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Batched<S> {
    pub(crate) fn new(inner: S) -> Batched<S> {
        Batched { inner, has_waited: false }
    }

    fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> PolledRead {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }

    /// Ready every other time; in between the task is put at the end of the run queue.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.has_waited = !self.has_waited;
        if self.has_waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

reads!([S: AsyncRead + AsyncWrite + Unpin] Batched<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Batched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx));
        Pin::new(&mut this.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx));
        Pin::new(&mut this.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::io::AsyncWriteExt as _;
    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn all_that_is_ready_is_worked_on_before_the_first_write() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let tasks = LocalSet::new();
        for name in ["first", "second"] {
            let seen = seen.clone();
            tasks.spawn_local(async move {
                let (ours, theirs) = tokio::io::duplex(16);
                seen.borrow_mut().push(("worked", name));
                Batched::new(ours).write_all(b"answer").await.unwrap();
                seen.borrow_mut().push(("wrote", name));
                drop(theirs);
            });
        }
        tasks.await;
        let expected =
            [("worked", "first"), ("worked", "second"), ("wrote", "first"), ("wrote", "second")];
        assert_eq!(*seen.borrow(), expected);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn every_byte_arrives_however_little_the_stream_takes_at_once() {
        use tokio::io::AsyncReadExt as _;
        let (ours, mut theirs) = tokio::io::duplex(3);
        let bytes: Vec<u8> = (0..=255).collect();
        let sent = bytes.clone();
        let sending = tokio::spawn(async move { Batched::new(ours).write_all(&sent).await });
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.unwrap();
        sending.await.unwrap().unwrap();
        assert_eq!(received, bytes);
    }
}
