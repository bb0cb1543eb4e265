//! The wait of a request's body for the origin's word that it wants it (`Expect: 100-continue`,
//! RFC 9110 §10.1.1).
//!
//! Invariants: the client is not told to go on before the origin has said so, or was waited for
//! long enough; once the origin has answered instead, no byte of the body is read. Threads: the
//! origin's connection says it, the one that sends the body asks; a lock between them.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::io::deadline::poll_deadline;
use crate::io::locks::lock;

/// What is known of the origin's wish, shared by those who hear of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expectation(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// Whom to wake when it is known.
    Waiting(Waker),
    /// The body is sent.
    Wanted,
    /// It was answered without the body, which nobody wants any more.
    Unwanted,
}

impl Expectation {
    /// The body may be sent.
    pub(crate) fn met(&self) {
        let mut state = lock(&self.0);
        if matches!(*state, State::Unwanted) {
            return;
        }
        if let State::Waiting(waker) = std::mem::replace(&mut *state, State::Wanted) {
            drop(state);
            waker.wake();
        }
    }

    /// The final answer is there. True if none of the body was asked for: none is any more.
    pub(crate) fn answered(&self) -> bool {
        let mut state = lock(&self.0);
        if !matches!(*state, State::Wanted) {
            *state = State::Unwanted;
        }
        matches!(*state, State::Unwanted)
    }

    /// Whether the origin has to be told that its word is waited for.
    pub(crate) fn is_open(&self) -> bool {
        matches!(*lock(&self.0), State::Unknown | State::Waiting(_))
    }

    /// Ready when the body is wanted; otherwise wakes this task when it is.
    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        match *state {
            State::Wanted => Poll::Ready(()),
            State::Unwanted => Poll::Pending,
            State::Unknown | State::Waiting(_) => {
                *state = State::Waiting(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A body that is held until it is wanted, or for some time.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) expectation: Expectation,
    limit: Duration,
    /// Since the request is on its way.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Held {
    pub(crate) fn new(limit: Duration) -> Held {
        Held { expectation: Expectation::default(), limit, until: None, timer: None }
    }

    /// Ready when the body is to be sent.
    pub(crate) fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.expectation.poll_wanted(cx).is_ready() {
            return Poll::Ready(());
        }
        if !self.expectation.is_open() {
            return Poll::Pending;
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.limit);
        if poll_deadline(&mut self.timer, until, cx).is_pending() {
            return Poll::Pending;
        }
        self.expectation.met();
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_is_held_until_it_is_wanted_or_long_enough() {
        let mut cx = Context::from_waker(Waker::noop());
        let limit = Duration::from_secs(1);
        let mut told = Held::new(limit);
        assert!(told.poll_wanted(&mut cx).is_pending() && told.expectation.is_open());
        told.expectation.met();
        assert!(told.poll_wanted(&mut cx).is_ready() && !told.expectation.answered());

        let mut silent = Held::new(limit);
        assert!(silent.poll_wanted(&mut cx).is_pending());
        tokio::time::advance(limit).await;
        assert!(silent.poll_wanted(&mut cx).is_ready() && !silent.expectation.answered());

        let mut refused = Held::new(limit);
        assert!(refused.poll_wanted(&mut cx).is_pending());
        assert!(refused.expectation.answered() && !refused.expectation.is_open());
        tokio::time::advance(limit).await;
        refused.expectation.met();
        assert!(refused.poll_wanted(&mut cx).is_pending(), "nobody wants it any more");
    }
}
