//! Ends single streams of an HTTP/2 connection whose client has stopped taking their answers.
//!
//! hyper asks a body for more only once its stream has had window for the last piece, and waits
//! for that as long as the client likes. Dropping the task of a stream resets it; so each task here
//! runs beside a watch. A stream that becomes a tunnel has a second task, which sends what comes
//! through it, and which is dropped when the tunnel is broken off.
//!
//! Invariants: hyper starts the task of a stream right after it has called the service for it, so
//! that the progress left by one call is of the next task; it starts the one that sends for a
//! tunnel while it polls that of the stream. Threads: the connection's worker.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use hyper::rt::Executor;
use tokio::time::{Duration, Instant, sleep};

use crate::client::activity::Activity;
use crate::client::cut::Cut;
use crate::io::locks::lock;
use crate::metrics::Counters;

/// Looks at a stream within the time in which its client must take something.
const LOOKS: u32 = 4;
const NOT_STALLED: u64 = u64::MAX;

/// Since when the client of one stream takes nothing, though there is more.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    stalled_ms: AtomicU64,
    /// The stream is being reset for that.
    given_up: AtomicBool,
}

impl Progress {
    fn new() -> Progress {
        let (stalled_ms, given_up) = (AtomicU64::new(NOT_STALLED), AtomicBool::new(false));
        Progress { begun: Instant::now(), stalled_ms, given_up }
    }

    /// Records that the client took something, and whether more may be waiting.
    pub(super) fn moved(&self, may_stall: bool) {
        let now_ms = || u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(NOT_STALLED - 1);
        self.stalled_ms.store(if may_stall { now_ms() } else { NOT_STALLED }, Relaxed);
    }

    /// Whether the stream is reset because its client took nothing, also if the body has given away
    /// all that it has.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Relaxed)
    }

    fn stalled_since(&self) -> Option<Instant> {
        let stalled_ms = self.stalled_ms.load(Relaxed);
        (stalled_ms != NOT_STALLED).then(|| self.begun + Duration::from_millis(stalled_ms))
    }
}

/// What the task of a stream that starts next runs with.
struct Next {
    progress: Arc<Progress>,
    /// Of a stream that may become a tunnel.
    cut: Option<Cut>,
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(super) struct Streams {
    activity: Arc<Activity>,
    counters: Arc<Counters>,
    limit: Duration,
    next: Arc<Mutex<Option<Next>>>,
    /// That of the stream whose task is being polled.
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Streams {
    /// `limit` is how long a client may take nothing of an answer.
    pub(super) fn new(
        activity: Arc<Activity>,
        counters: Arc<Counters>,
        limit: Duration,
    ) -> Streams {
        Streams { activity, counters, limit, next: Arc::default(), cut: Arc::default() }
    }

    /// Called by the service: the progress of the stream whose task starts next.
    pub(super) fn begin(&self, cut: Option<Cut>) -> Arc<Progress> {
        let progress = Arc::new(Progress::new());
        *lock(&self.next) = Some(Next { progress: Arc::clone(&progress), cut });
        progress
    }

    /// Runs the task of a stream, so that the one that sends for its tunnel finds its cut.
    async fn lending(&self, cut: Option<Cut>, stream: impl Future<Output = ()>) {
        let Some(cut) = cut else { return stream.await };
        let mut stream = pin!(stream);
        poll_fn(|cx| {
            *lock(&self.cut) = Some(cut.clone());
            let polled = stream.as_mut().poll(cx);
            *lock(&self.cut) = None;
            polled
        })
        .await;
    }

    /// Ready once the client of a stream has taken nothing for the limit. A full socket holds every
    /// stream up, and has a limit of its own.
    async fn stalls(&self, progress: &Progress) {
        loop {
            sleep(self.limit / LOOKS).await;
            let Some(stalled) = progress.stalled_since() else { continue };
            let since = self.activity.writable_since().map(|writable| writable.max(stalled));
            if since.is_some_and(|since| since.elapsed() >= self.limit) {
                // Here, as the task is dropped as soon as this returns.
                progress.given_up.store(true, Relaxed);
                return;
            }
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let Some(Next { progress, cut }) = lock(&self.next).take() else {
            match lock(&self.cut).take() {
                Some(cut) => tokio::spawn(send_until(cut, stream)),
                None => tokio::spawn(stream),
            };
            return;
        };
        let streams = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = streams.lending(cut, stream) => {}
                () = streams.stalls(&progress) => streams.counters.client_timeouts.one(),
            }
        });
    }
}

/// Sends what comes through a tunnel. Once that is cut, dropping the task resets the stream.
async fn send_until(cut: Cut, sending: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = cut.made() => {}
        () = sending => {}
    }
}
