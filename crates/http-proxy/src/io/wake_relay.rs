//! Batches wakes from other threads for an event loop.
//!
//! Each wake from another thread costs a system call, and disk reads submitted together complete
//! together, on the thread that drives the disk. So a request that waits for the disk leaves a wake
//! at its loop's relay. The first of several wakes the relay's task, which wakes the others from
//! within the loop, where a wake is only a queue entry. Invariant: every pushed wake is delivered
//! by the next turn of the delivering task. Threads: one relay per event loop; any thread pushes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use crate::io::locks::lock;

/// Wakes on their way to one event loop.
#[derive(Debug, Default)]
pub(crate) struct WakeRelay {
    post: Mutex<Post>,
}

#[derive(Debug, Default)]
struct Post {
    letters: Vec<Waker>,
    /// The waker of the delivering task, while it waits for letters.
    carrier: Option<Waker>,
}

/// The waker passed to other threads in place of `to`.
#[derive(Debug)]
struct Letter {
    relay: Arc<WakeRelay>,
    to: Waker,
}

impl Wake for Letter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.relay.push(self.to.clone());
    }
}

impl WakeRelay {
    fn post(&self) -> MutexGuard<'_, Post> {
        lock(&self.post)
    }

    fn push(&self, letter: Waker) {
        let mut post = self.post();
        post.letters.push(letter);
        let carrier = post.carrier.take();
        drop(post);
        if let Some(carrier) = carrier {
            carrier.wake();
        }
    }

    /// Delivers wakes as long as it is polled: a task of the event loop.
    pub(crate) async fn deliver(self: Arc<WakeRelay>) {
        let mut letters = Vec::new();
        poll_fn(|cx| {
            let mut post = self.post();
            post.carrier = Some(cx.waker().clone());
            std::mem::swap(&mut post.letters, &mut letters);
            drop(post);
            letters.drain(..).for_each(Waker::wake);
            Poll::Pending
        })
        .await
    }

    /// Awaits `future`, woken through this relay. A future that is ready at once costs nothing
    /// extra.
    pub(crate) async fn wait<T>(
        self: &Arc<WakeRelay>,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let mut letter: Option<(Waker, Waker)> = None;
        poll_fn(|cx| {
            let known = letter.as_ref().filter(|(to, _)| to.will_wake(cx.waker()));
            if known.is_none() {
                // Only now is it known that the future has to wait. The second poll, which passes
                // the letter's waker instead, happens for disk reads only.
                if let Poll::Ready(done) = future.as_mut().poll(cx) {
                    return Poll::Ready(done);
                }
            }
            let (_, by_relay) = match known {
                Some(letter) => letter,
                None => letter.insert(self.letter_to(cx.waker())),
            };
            future.as_mut().poll(&mut Context::from_waker(by_relay))
        })
        .await
    }

    fn letter_to(self: &Arc<WakeRelay>, to: &Waker) -> (Waker, Waker) {
        let letter = Letter { relay: self.clone(), to: to.clone() };
        (to.clone(), Arc::new(letter).into())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn several_wakes_cost_the_loop_one() {
        let relay = Arc::new(WakeRelay::default());
        let (carrier, requests) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let (at_carrier, at_requests) = (carrier.clone().into(), requests.clone().into());
        let mut at_carrier = Context::from_waker(&at_carrier);
        let mut at_requests = Context::from_waker(&at_requests);
        let mut delivering = pin!(relay.clone().deliver());
        assert!(delivering.as_mut().poll(&mut at_carrier).is_pending());
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let wait = |receiver| Box::pin(relay.wait(Pin::new(receiver)));
        let mut waiting: Vec<_> = receivers.iter_mut().map(wait).collect();
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut at_requests).is_pending());
        }
        for (number, sender) in senders.into_iter().enumerate() {
            sender.send(number).unwrap();
        }
        let counts = || (carrier.0.load(Ordering::Relaxed), requests.0.load(Ordering::Relaxed));
        assert_eq!(counts(), (1, 0));
        assert!(delivering.as_mut().poll(&mut at_carrier).is_pending());
        assert_eq!(counts(), (1, 3));
        for (number, one) in waiting.iter_mut().enumerate() {
            assert_eq!(one.as_mut().poll(&mut at_requests), Poll::Ready(Ok(number)));
        }
    }

    #[test]
    fn what_is_ready_is_answered_at_once() {
        let relay = Arc::new(WakeRelay::default());
        let seven = pin!(std::future::ready(7));
        let mut waiting = pin!(relay.wait(seven));
        let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(7));
        assert_eq!(Arc::strong_count(&relay), 1);
    }
}
