//! Runs one stage: t clients take operations off one shared order until it is used up.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};

use crate::contestant::{Contestant, Outcome};
use crate::counters::Counters;
use crate::workload::{OBJECT_BYTES_MAX, Stage, Workload};

/// What one stage of one child measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Operations tried.
    pub operations: u64,
    /// Wall time of the stage, without settling.
    pub seconds: f64,
    /// Wall time until everything was on disk as well (creates only; else the same).
    pub settled_seconds: f64,
    /// Operations a second, failed and missing ones included.
    pub ops_per_s: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// Largest latency.
    pub max_us: f64,
    /// Reads that found nothing.
    pub missing: u64,
    /// Reads that returned wrong bytes.
    pub wrong: u64,
    /// Operations that were refused or failed.
    pub failed: u64,
    /// What the device and the process counted during the stage, settling included.
    pub counters: Counters,
}

/// The shared state of a stage's clients.
struct Work<C> {
    contestant: Arc<C>,
    workload: Workload,
    stage: Stage,
    order: Vec<u32>,
    next: AtomicUsize,
}

/// What one client brings back.
#[derive(Default)]
struct Tally {
    latencies_ns: Vec<u32>,
    missing: u64,
    wrong: u64,
    failed: u64,
}

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            Outcome::Missing => self.missing += 1,
            Outcome::Wrong => self.wrong += 1,
            Outcome::Failed => self.failed += 1,
        }
    }

    fn absorb(&mut self, other: Tally) {
        self.latencies_ns.extend(other.latencies_ns);
        self.missing += other.missing;
        self.wrong += other.wrong;
        self.failed += other.failed;
    }
}

/// One client: takes the next operation until there is none.
async fn client<C: Contestant>(work: Arc<Work<C>>) -> Tally {
    let mut tally = Tally::default();
    let mut buffer = vec![0x5a; OBJECT_BYTES_MAX.max(work.workload.fixed_bytes.unwrap_or(0))];
    loop {
        let at = work.next.fetch_add(1, Ordering::Relaxed);
        let Some(object) = work.order.get(at).copied().map(u64::from) else { return tally };
        let start = Instant::now();
        let outcome = match work.stage {
            Stage::Create => {
                let value = work.workload.fill(object, &mut buffer);
                work.contestant.create(object, value).await
            }
            Stage::Read => work.contestant.read(object).await,
            Stage::Delete => work.contestant.delete(object).await,
            Stage::Warm | Stage::Cache => read_or_create(&work, object, &mut buffer).await,
        };
        // Four seconds and more count as four seconds.
        let nanoseconds = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
        tally.latencies_ns.push(nanoseconds);
        tally.count(outcome);
    }
}

/// What a cache is for; a miss counts as missing, whether or not its object could be created.
async fn read_or_create<C: Contestant>(work: &Work<C>, object: u64, buffer: &mut [u8]) -> Outcome {
    let outcome = work.contestant.read(object).await;
    if outcome == Outcome::Missing {
        let value = work.workload.fill(object, buffer);
        if work.contestant.create(object, value).await != Outcome::Done {
            return Outcome::Failed;
        }
    }
    outcome
}

/// Runs `threads` clients as tasks of the contestant's runtime, or as threads that block.
fn run_clients<C: Contestant>(work: &Arc<Work<C>>, threads: usize, tasks: bool) -> Tally {
    let mut total = Tally::default();
    let runtime = work.contestant.runtime();
    if let (Some(runtime), true) = (runtime, tasks) {
        let clients: Vec<_> = (0..threads).map(|_| runtime.spawn(client(work.clone()))).collect();
        for client in clients {
            total.absorb(runtime.block_on(client).expect("a client panicked"));
        }
        return total;
    }
    std::thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| match runtime {
                Some(runtime) => runtime.block_on(client(work.clone())),
                None => client(work.clone()).now_or_never().expect("operations block"),
            })
        };
        let clients: Vec<_> = (0..threads).map(spawn).collect();
        for client in clients {
            total.absorb(client.join().expect("a client panicked"));
        }
    });
    total
}

/// How a stage is run.
#[derive(Debug, Clone, Copy)]
pub struct StageRun {
    /// Which stage.
    pub stage: Stage,
    /// Clients at once.
    pub threads: usize,
    /// Clients are tasks where the contestant has a runtime.
    pub tasks: bool,
    /// Only so many operations of the order; `None` for all.
    pub operations: Option<usize>,
}

/// Runs one stage on a contestant and measures it.
pub fn run_stage<C: Contestant>(
    contestant: &Arc<C>,
    workload: Workload,
    run: StageRun,
    device: Option<&str>,
) -> Measured {
    let mut order = workload.order(run.stage);
    order.truncate(run.operations.unwrap_or(usize::MAX));
    let operations = order.len() as u64;
    let next = AtomicUsize::new(0);
    let work =
        Arc::new(Work { contestant: contestant.clone(), workload, stage: run.stage, order, next });
    let before = Counters::now(device);
    let start = Instant::now();
    let tally = run_clients(&work, run.threads, run.tasks);
    let seconds = start.elapsed().as_secs_f64();
    if matches!(run.stage, Stage::Create | Stage::Warm | Stage::Cache) {
        contestant.settle();
    }
    let settled_seconds = start.elapsed().as_secs_f64();
    let counters = Counters::now(device).since(before);
    let mut measured =
        Measured { operations, seconds, settled_seconds, counters, ..Measured::default() };
    measured.take(tally);
    measured
}

impl Measured {
    fn take(&mut self, mut tally: Tally) {
        let latencies = &mut tally.latencies_ns;
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = ((latencies.len() as f64 * share) as usize).min(latencies.len() - 1);
            f64::from(latencies[index]) / 1e3
        };
        if !latencies.is_empty() {
            self.p50_us = at(0.5);
            self.p99_us = at(0.99);
            self.max_us = at(1.0);
            let sum: f64 = latencies.iter().map(|ns| f64::from(*ns)).sum();
            self.mean_us = sum / latencies.len() as f64 / 1e3;
        }
        self.ops_per_s = self.operations as f64 / self.seconds;
        self.missing = tally.missing;
        self.wrong = tally.wrong;
        self.failed = tally.failed;
    }
}

/// Writes everything dirty in the page cache.
pub fn sync_file_systems() {
    // SAFETY: sync takes no arguments and always succeeds.
    unsafe { libc::sync() }
}

/// Empties the kernel's caches of pages, directory entries and inodes. False if not permitted.
pub fn drop_kernel_caches() -> bool {
    sync_file_systems();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
