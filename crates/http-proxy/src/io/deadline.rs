//! Deadlines that move with every byte, on timers that do not: a timer that fires early checks the
//! current deadline and is armed again. Arming one costs a lock and may wake the event loop, so no
//! timer is armed for an operation that need not wait. Threads: each timer lives in one task.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Ready once `deadline` has passed.
pub(crate) fn poll_deadline(
    timer: &mut Option<Pin<Box<Sleep>>>,
    deadline: Instant,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    loop {
        ready!(timer.as_mut().poll(cx));
        // Is it armed for an earlier deadline that no longer holds?
        if timer.deadline() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline);
    }
}
