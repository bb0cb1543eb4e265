//! Runs caches over a trace. The reader fills batches; with one thread it runs every cache on each
//! batch itself, with more it hands batches to workers that own a share of the caches each. Results
//! do not depend on the number of threads.
//!
//! Threads: the caller's, which reads, and `SimOptions::threads - 1` workers that end with the
//! call.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use serde::Serialize;

use super::feed::{BATCH_READ, Feed, First, Scan, scan};
use super::future::Future;
use super::size::SizeSpec;
use crate::error::{SimError, TraceError};
use crate::ids::IdTable;
use crate::policy::{Policy, PolicySpec, Step, Tally};
use crate::trace::{RecordSource, Skipped, Trace};

/// Steps handed on at once: enough that a hand-over costs nothing, and that what one cache fetched
/// from memory is of use to it before the next one's turn; few enough for the third-level cache.
const BATCH_STEPS: usize = 1 << 14;
/// With one cache, which takes no turns: a run over few objects should not take more for this than
/// for them.
const BATCH_STEPS_ALONE: usize = 1 << 12;
/// Batches that may wait for a worker: readers and workers take turns in bursts.
const BATCHES_WAITING: usize = 4;
const US_PER_S: u64 = 1_000_000;

/// Requests that fill the caches before counting starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Warmup {
    /// Counting starts at once.
    #[default]
    None,
    /// The first so many requests.
    Requests(u64),
    /// What comes up to so many seconds after the first request, that moment included; 0 is none.
    Seconds(u64),
}

/// What to simulate.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Policies; each runs at each size.
    pub policies: Vec<PolicySpec>,
    /// Sizes.
    pub sizes: Vec<SizeSpec>,
    /// Every object counts as one byte, so that sizes are numbers of objects.
    pub ignores_sizes: bool,
    /// What is not counted.
    pub warmup: Warmup,
    /// Also count for each so many seconds of the trace.
    pub interval_s: Option<u64>,
    /// Threads to use, at least 1.
    pub threads: usize,
}

impl SimOptions {
    /// True if it is one policy at one size.
    #[must_use]
    pub fn is_one_cache(&self) -> bool {
        self.policies.len() == 1
            && matches!(self.sizes.as_slice(), [size] if *size != SizeSpec::Auto)
    }
}

/// Counts within one interval of the trace's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Its end, in seconds since the first request.
    pub end_s: u64,
    /// What was counted in it.
    pub tally: Tally,
}

/// What one cache did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheResult {
    /// Label of the policy.
    pub policy: String,
    /// Its size in bytes, or objects.
    pub size_bytes: u64,
    /// The size as a share of the working set, if that is known.
    pub size_share: Option<f64>,
    /// All counted requests.
    pub tally: Tally,
    /// Objects in it at the end.
    pub objects: u64,
    /// Bytes in it at the end.
    pub used_bytes: u64,
    /// Counts by interval, if asked for.
    pub intervals: Vec<Interval>,
}

/// What a simulation found.
#[derive(Debug, Clone)]
pub struct SimReport {
    /// Policy by policy, each from the smallest size on as given.
    pub caches: Vec<CacheResult>,
    /// Requests that were simulated, warm-up included.
    pub requests: u64,
    /// Those of the warm-up.
    pub warmup_requests: u64,
    /// Those that delete and are not of the warm-up, which no cache counts.
    pub delete_requests: u64,
    /// Requests without a body of their own (304, HEAD, no bytes, deletes that were refused), which
    /// were left out.
    pub empty_requests: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Working set in bytes (or objects), if a first pass was needed.
    pub working_set: Option<u64>,
    /// Whether the requests have times that differ. Known only where warm-up or intervals go by
    /// time; else false.
    pub has_times: bool,
    /// Malformed lines, and those that are no requests.
    pub skipped: Skipped,
}

/// Where a simulation stands: which of how many passes, the trace, requests so far.
pub type Progress<'a> = &'a mut dyn FnMut(u32, &Trace, u64);

struct Cache {
    policy: Box<dyn Policy>,
    result: CacheResult,
    counted: Tally,
    at_interval: Tally,
}

impl Cache {
    fn run(&mut self, batch: &Batch) {
        if batch.is_warmup {
            self.policy.run(&batch.steps, &mut Tally::default());
        } else {
            self.policy.run(&batch.steps, &mut self.counted);
        }
        if let Some(end_s) = batch.interval_end_s {
            self.end_interval(end_s);
        }
    }

    fn end_interval(&mut self, end_s: u64) {
        let tally = self.counted.since(&self.at_interval);
        self.result.intervals.push(Interval { end_s, tally });
        self.at_interval = self.counted;
    }

    fn finish(mut self) -> CacheResult {
        self.result.tally = self.counted;
        self.result.objects = self.policy.objects();
        self.result.used_bytes = self.policy.used_bytes();
        self.result
    }
}

#[derive(Default)]
struct Batch {
    steps: Vec<Step>,
    is_warmup: bool,
    /// An interval ends with the last step.
    interval_end_s: Option<u64>,
}

/// Runs every policy at every size over the trace that `open` opens; it is opened a second time if
/// the working set or the future must be known first.
///
/// # Errors
/// When the trace cannot be read, or there is nothing in it to simulate.
pub fn simulate(
    open: &dyn Fn() -> Result<Trace, TraceError>,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<SimReport, SimError> {
    let knows_future = options.policies.iter().any(PolicySpec::knows_future);
    let keeps_much = options.policies.iter().any(PolicySpec::keeps_much);
    let ids = if keeps_much { IdTable::tight() } else { IdTable::new() };
    let (first, future, ids) = if knows_future || options.sizes.iter().any(SizeSpec::is_relative) {
        let mut report = |trace: &Trace, steps| progress(1, trace, steps);
        let First { scan, future, ids } =
            scan(open()?, ids, options.ignores_sizes, knows_future, &mut report)?;
        (Some(scan), future, ids)
    } else {
        (None, None, ids)
    };
    let mut feed = Feed::new(open()?, ids, options.ignores_sizes);
    let caches = caches(options, first.as_ref())?;
    if let Some(&Scan { objects: objects @ 1.., .. }) = first.as_ref()
        && caches.is_empty()
    {
        let reason = format!(
            "the trace has {objects} objects, and no share holds enough of them: write sizes, such as 0.1,0.5"
        );
        return Err(SimError::Size { given: "auto".to_owned(), reason });
    }
    let mut cutter = Cutter::new(options, first.unwrap_or_default(), future);
    let caches = run_all(&mut feed, caches, options.threads.max(1), &mut cutter, progress)?;
    if cutter.steps == 0 || caches.is_empty() {
        return Err(SimError::NoRequests { path: feed.trace().name().to_owned() });
    }
    Ok(SimReport {
        caches: caches.into_iter().map(Cache::finish).collect(),
        requests: cutter.steps,
        warmup_requests: cutter.warmup_steps,
        delete_requests: feed.deletes() - cutter.warmup_deletes,
        empty_requests: feed.empty(),
        objects: feed.objects() as u64,
        working_set: cutter.working_set(options.ignores_sizes),
        has_times: cutter.has_times,
        skipped: feed.trace().skipped(),
    })
}

fn caches(options: &SimOptions, first: Option<&Scan>) -> Result<Vec<Cache>, SimError> {
    let none = Scan::default();
    let working_set = first.unwrap_or(&none);
    let sizes = options.sizes.iter().map(|size| size.resolve(working_set, options.ignores_sizes));
    let sizes: Vec<u64> = sizes.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let whole = if options.ignores_sizes { working_set.objects } else { working_set.bytes };
    let cache = |policy: &PolicySpec, size_bytes: u64| Cache {
        policy: match options.ignores_sizes {
            true => policy.build_for_objects(size_bytes),
            false => policy.build(size_bytes),
        },
        result: CacheResult {
            policy: policy.label().to_owned(),
            size_bytes,
            size_share: (whole > 0).then(|| size_bytes as f64 / whole as f64),
            tally: Tally::default(),
            objects: 0,
            used_bytes: 0,
            intervals: Vec::new(),
        },
        counted: Tally::default(),
        at_interval: Tally::default(),
    };
    let policies = options.policies.iter();
    Ok(policies
        .flat_map(|policy| sizes.iter().map(|size| cache(policy, *size)).collect::<Vec<_>>())
        .collect())
}

/// Cuts what the feed brings into batches that end where the warm-up or an interval does.
struct Cutter {
    scan: Scan,
    future: Option<Future>,
    warmup: Warmup,
    interval_us: Option<u64>,
    steps: u64,
    warmup_steps: u64,
    warmup_deletes: u64,
    first_us: Option<u64>,
    interval_end_us: u64,
    is_warm: bool,
    has_times: bool,
}

impl Cutter {
    fn new(options: &SimOptions, scan: Scan, future: Option<Future>) -> Cutter {
        Cutter {
            scan,
            future,
            warmup: options.warmup,
            interval_us: options.interval_s.map(|s| s.max(1).saturating_mul(US_PER_S)),
            steps: 0,
            warmup_steps: 0,
            warmup_deletes: 0,
            first_us: None,
            interval_end_us: 0,
            is_warm: false,
            has_times: false,
        }
    }

    fn working_set(&self, ignores_sizes: bool) -> Option<u64> {
        let whole = if ignores_sizes { self.scan.objects } else { self.scan.bytes };
        (whole > 0).then_some(whole)
    }

    /// True while a step belongs to the warm-up; it never does again after the first that does not.
    fn in_warmup(&mut self, number: u64, since_first_us: u64) -> bool {
        if !self.is_warm {
            self.is_warm = match self.warmup {
                Warmup::None => true,
                Warmup::Requests(requests) => number >= requests,
                Warmup::Seconds(0) => true,
                Warmup::Seconds(s) => since_first_us > s.saturating_mul(US_PER_S),
            };
        }
        !self.is_warm
    }

    /// Hands on steps in batches, in order.
    fn cut(
        &mut self,
        steps: &mut Vec<Step>,
        times_us: &[u64],
        mut emit: impl FnMut(Batch),
    ) -> Result<(), TraceError> {
        if let Some(future) = &mut self.future {
            future.set_next_uses(steps, self.steps)?;
        }
        // Mostly there is nothing to cut, and no step has to be looked at.
        if self.interval_us.is_none() && (self.is_warm || self.warmup == Warmup::None) {
            self.steps += steps.len() as u64;
            emit(Batch { steps: std::mem::take(steps), ..Batch::default() });
            return Ok(());
        }
        let mut batch = Batch::default();
        for (step, time_us) in steps.iter().zip(times_us) {
            let first_us = *self.first_us.get_or_insert(*time_us);
            self.has_times |= *time_us != first_us;
            let since_us = time_us.saturating_sub(first_us);
            let is_warmup = self.in_warmup(self.steps, since_us);
            let ended = self.interval_ended(since_us);
            if ended.is_some() || is_warmup != batch.is_warmup {
                let next = Batch { is_warmup, ..Batch::default() };
                let mut whole = std::mem::replace(&mut batch, next);
                whole.interval_end_s = ended;
                emit(whole);
            }
            batch.steps.push(*step);
            self.steps += 1;
            self.warmup_steps += u64::from(is_warmup);
            self.warmup_deletes += u64::from(is_warmup && step.is_delete());
        }
        emit(batch);
        Ok(())
    }

    /// The end of the interval that is over by this time, if one is.
    fn interval_ended(&mut self, since_us: u64) -> Option<u64> {
        let interval_us = self.interval_us?;
        if self.interval_end_us == 0 {
            self.interval_end_us = interval_us;
        }
        if since_us < self.interval_end_us {
            return None;
        }
        let ended_s = self.interval_end_us / US_PER_S;
        self.interval_end_us = (since_us / interval_us + 1).saturating_mul(interval_us);
        Some(ended_s)
    }
}

fn run_all(
    feed: &mut Feed,
    caches: Vec<Cache>,
    threads: usize,
    cutter: &mut Cutter,
    progress: Progress<'_>,
) -> Result<Vec<Cache>, TraceError> {
    let workers = (threads - 1).min(caches.len().saturating_sub(1));
    let mut caches = if workers == 0 {
        let mut caches = caches;
        let batch_steps = if caches.len() > 1 { BATCH_STEPS } else { BATCH_STEPS_ALONE };
        read_all(feed, cutter, batch_steps, progress, |batch| {
            caches.iter_mut().for_each(|cache| cache.run(&batch));
        })?;
        caches
    } else {
        run_threads(feed, caches, workers, cutter, progress)?
    };
    if cutter.interval_us.is_some() {
        let end_s = cutter.interval_end_us / US_PER_S;
        caches.iter_mut().for_each(|cache| cache.end_interval(end_s));
    }
    Ok(caches)
}

fn read_all(
    feed: &mut Feed,
    cutter: &mut Cutter,
    batch_steps: usize,
    progress: Progress<'_>,
    mut emit: impl FnMut(Batch),
) -> Result<(), TraceError> {
    let (mut steps, mut times_us) = (Vec::new(), Vec::new());
    loop {
        steps.clear();
        steps.reserve(batch_steps);
        times_us.clear();
        while steps.len() + BATCH_READ <= batch_steps {
            let before = steps.len();
            feed.fill(&mut steps, &mut times_us)?;
            if steps.len() == before {
                break;
            }
        }
        if steps.is_empty() {
            return Ok(());
        }
        cutter.cut(&mut steps, &times_us, &mut emit)?;
        progress(2, feed.trace(), cutter.steps);
    }
}

/// The reader keeps the first share of the caches for itself only if there is no worker: reading
/// and numbering is about the work of one cache.
fn run_threads(
    feed: &mut Feed,
    caches: Vec<Cache>,
    workers: usize,
    cutter: &mut Cutter,
    progress: Progress<'_>,
) -> Result<Vec<Cache>, TraceError> {
    let mut shares: Vec<Vec<(usize, Cache)>> = (0..=workers).map(|_| Vec::new()).collect();
    for (at, cache) in caches.into_iter().enumerate() {
        shares[at % (workers + 1)].push((at, cache));
    }
    let mut own = shares.pop().unwrap_or_default();
    let (read, mut done) = thread::scope(|scope| {
        let mut senders: Vec<SyncSender<Arc<Batch>>> = Vec::new();
        let mut handles = Vec::new();
        for share in shares {
            let (sender, receiver) = sync_channel(BATCHES_WAITING);
            senders.push(sender);
            handles.push(scope.spawn(move || work(share, &receiver)));
        }
        let read = read_all(feed, cutter, BATCH_STEPS, progress, |batch| {
            let batch = Arc::new(batch);
            for sender in &senders {
                // A worker ends early only by a panic, which the join below passes on.
                let _ = sender.send(Arc::clone(&batch));
            }
            own.iter_mut().for_each(|(_, cache)| cache.run(&batch));
        });
        drop(senders);
        let done: Vec<(usize, Cache)> = handles
            .into_iter()
            .flat_map(|worker| worker.join().expect("no policy panics"))
            .collect();
        (read, done)
    });
    read?;
    done.append(&mut own);
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, cache)| cache).collect())
}

fn work(mut share: Vec<(usize, Cache)>, batches: &Receiver<Arc<Batch>>) -> Vec<(usize, Cache)> {
    for batch in batches {
        share.iter_mut().for_each(|(_, cache)| cache.run(&batch));
    }
    share
}
