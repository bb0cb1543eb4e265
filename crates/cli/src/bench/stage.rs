//! Runs the three stages of a microbenchmark on either side: all threads start together, each
//! does its part of the operations, all finish before the next stage. Latencies cover the side's
//! call and the content check. Generating contents is outside the latencies but inside the rate, on
//! both sides.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::disk::DiskCounters;
use crate::bench::latency::Latencies;
use crate::bench::report::Measurement;
use crate::bench::workload::{Stage, Workload, part};
use crate::failure::Failure;
use crate::output::say;
use crate::progress;

/// Operations between two progress updates of a thread: enough that the shared counter causes no
/// contention.
const TELL_EVERY: usize = 64;

/// Outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The object, with the right content.
    Right,
    /// Other content under the object's name.
    Wrong,
    /// No object.
    Missing,
}

/// One of the two compared systems. Called from all threads of a stage concurrently.
pub(crate) trait Side: Sync {
    /// Stores an object.
    fn create(&self, object: u32, bytes: &[u8]) -> Result<(), Failure>;
    /// Reads an object and checks it; `scratch` has room for the largest.
    fn read(&self, object: u32, scratch: &mut [u8]) -> Result<Seen, Failure>;
    /// Deletes an object; `Missing` if it was not there.
    fn delete(&self, object: u32) -> Result<Seen, Failure>;
    /// Brings everything to disk.
    fn settle(&self) -> Result<(), Failure>;
    /// Created objects that are missing; `None` if only reading them would tell.
    fn lost(&self) -> Option<u64>;
    /// Drops cached data from memory, so that reads start cold.
    fn forget(&self) -> Result<(), Failure>;
    /// Disk traffic so far.
    fn counters(&self) -> DiskCounters;
}

/// Results of one thread.
struct Tally {
    latencies: Latencies,
    wrong: u64,
    missing: u64,
    failed: u64,
    failure: Option<Failure>,
}

impl Tally {
    fn new() -> Tally {
        Tally { latencies: Latencies::new(), wrong: 0, missing: 0, failed: 0, failure: None }
    }

    fn count(&mut self, took: Duration, outcome: Result<Seen, Failure>) {
        self.latencies.record(took);
        match outcome {
            Ok(Seen::Right) => {}
            Ok(Seen::Wrong) => self.wrong += 1,
            Ok(Seen::Missing) => self.missing += 1,
            Err(failure) => {
                self.failed += 1;
                self.failure.get_or_insert(failure);
            }
        }
    }

    fn merge(&mut self, other: Tally) {
        self.latencies.merge(&other.latencies);
        self.wrong += other.wrong;
        self.missing += other.missing;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }
}

/// Runs one stage, waits until its data is on disk, and measures it. After create the caches are
/// emptied, as in thesis §5.1; between read and delete memory stays as it is.
pub(crate) fn run(work: &Workload, side: &dyn Side, stage: Stage) -> Result<Measurement, Failure> {
    let operations = work.operations(stage);
    let before = side.counters();
    let done = AtomicU64::new(0);
    let label = format!("{} {}", stage.name(), work.order().name());
    let how_far = || (done.load(Ordering::Relaxed), operations.len() as u64);
    let (tally, took, settled) = progress::watched(label, how_far, || {
        let (tally, took) = run_threads(work, side, stage, (&operations, &done));
        let settle_start = Instant::now();
        side.settle().map(|()| (tally, took, settle_start.elapsed()))
    })?;
    let disk = side.counters().since(before);
    if let Some(failure) = &tally.failure {
        let (order, name) = (work.order().name(), stage.name());
        say(format_args!(
            "damelo: {name} {order}: {} operations failed, first: {failure:?}",
            tally.failed
        ));
    }
    let mut lost = None;
    if stage == Stage::Create {
        lost = side.lost();
        side.forget()?;
    }
    let mut measurement =
        Measurement::new(operations.len() as u64, took, tally.latencies.summary());
    measurement.settle_seconds = settled.as_secs_f64();
    (measurement.wrong, measurement.missing, measurement.failed) =
        (tally.wrong, tally.missing, tally.failed);
    measurement.lost = lost;
    measurement.disk = disk;
    if stage == Stage::Read {
        measurement.derive_hit_rate(work.size_mean());
    }
    Ok(measurement)
}

fn run_threads(
    work: &Workload,
    side: &dyn Side,
    stage: Stage,
    (operations, done): (&[u32], &AtomicU64),
) -> (Tally, Duration) {
    let threads = work.settings().threads;
    let barrier = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (mine, barrier) = (part(operations, thread, threads), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    run_part(work, side, stage, (mine, done))
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let mut total = Tally::new();
        let tallies: Vec<_> = handles.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let took = start.elapsed();
        for tally in tallies {
            match tally {
                Ok(tally) => total.merge(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (total, took)
    })
}

fn run_part(
    work: &Workload,
    side: &dyn Side,
    stage: Stage,
    (operations, done): (&[u32], &AtomicU64),
) -> Tally {
    let mut tally = Tally::new();
    let mut bytes = Vec::with_capacity(work.settings().size_bytes_max as usize);
    let mut scratch = vec![0; work.settings().size_bytes_max as usize + 1];
    for (number, &object) in operations.iter().enumerate() {
        if number % TELL_EVERY == TELL_EVERY - 1 {
            done.fetch_add(TELL_EVERY as u64, Ordering::Relaxed);
        }
        if stage == Stage::Create {
            work.fill(object, &mut bytes);
        }
        let start = Instant::now();
        let outcome = match stage {
            Stage::Create => side.create(object, &bytes).map(|()| Seen::Right),
            Stage::Read => side.read(object, &mut scratch),
            Stage::Delete => side.delete(object),
        };
        tally.count(start.elapsed(), outcome);
    }
    tally
}
