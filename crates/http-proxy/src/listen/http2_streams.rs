//! Ends single streams of an HTTP/2 connection whose client has stopped taking their answers.
//!
//! hyper asks a body for more only once its stream has had window for the last piece, and waits
//! for that as long as the client likes. Dropping the task of a stream resets it; so each task here
//! runs beside a watch.
//! Invariant: hyper starts the task of a stream right after it has called the service for it, so
//! that the progress left by one call is of the next task. Threads: the connection's worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use hyper::rt::Executor;
use tokio::time::{Duration, Instant, sleep};

use crate::client::activity::Activity;
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
}

impl Progress {
    fn new() -> Progress {
        Progress { begun: Instant::now(), stalled_ms: AtomicU64::new(NOT_STALLED) }
    }

    /// Records that the client took something, and whether more may be waiting.
    pub(super) fn moved(&self, may_stall: bool) {
        let now_ms = || u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(NOT_STALLED - 1);
        self.stalled_ms.store(if may_stall { now_ms() } else { NOT_STALLED }, Relaxed);
    }

    fn stalled_since(&self) -> Option<Instant> {
        let stalled_ms = self.stalled_ms.load(Relaxed);
        (stalled_ms != NOT_STALLED).then(|| self.begun + Duration::from_millis(stalled_ms))
    }
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(super) struct Streams {
    activity: Arc<Activity>,
    counters: Arc<Counters>,
    limit: Duration,
    next: Arc<Mutex<Option<Arc<Progress>>>>,
}

impl Streams {
    /// `limit` is how long a client may take nothing of an answer.
    pub(super) fn new(
        activity: Arc<Activity>,
        counters: Arc<Counters>,
        limit: Duration,
    ) -> Streams {
        Streams { activity, counters, limit, next: Arc::default() }
    }

    /// Called by the service: the progress of the stream whose task starts next.
    pub(super) fn begin(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress::new());
        *lock(&self.next) = Some(Arc::clone(&progress));
        progress
    }

    /// Ready once the client of a stream has taken nothing for the limit. A full socket holds every
    /// stream up, and has a limit of its own.
    async fn stalls(&self, progress: &Progress) {
        loop {
            sleep(self.limit / LOOKS).await;
            let Some(stalled) = progress.stalled_since() else { continue };
            let since = self.activity.writable_since().map(|writable| writable.max(stalled));
            if since.is_some_and(|since| since.elapsed() >= self.limit) {
                return;
            }
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let Some(progress) = lock(&self.next).take() else {
            tokio::spawn(stream);
            return;
        };
        let streams = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stream => {}
                () = streams.stalls(&progress) => streams.counters.client_timeouts.one(),
            }
        });
    }
}
