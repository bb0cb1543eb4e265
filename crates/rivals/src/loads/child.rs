//! One contestant under one load, in a process of its own.
//!
//! Every value read is checked: whose it is, that it is no older than what was acknowledged before
//! the read began, and that it has not expired. Creates, removes and purges of an object take
//! turns, so that it is known which is the last.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::{consume_budget, unconstrained};

use super::caches::{Cache, Damelo, Found, Foyer, New};
use super::catalogue::{self, Clients, Op, Source};
use super::value;
use crate::contestant::Name;
use crate::counters::{self, Counters};
use crate::foyer_cache::{FoyerOptions, runtime};

/// Locks that writes of objects share.
const STRIPES: usize = 4096;

/// Everything a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Who runs.
    pub contestant: Name,
    /// Name of the load.
    pub load: String,
    /// Divides its operations.
    pub divide: u64,
    /// Longest time it is measured for, and as long for what comes before.
    pub seconds: u64,
    /// So many tasks as clients, in place of the load's own.
    pub tasks: Option<u32>,
    /// Seed of everything random.
    pub seed: u64,
    /// An empty directory of its own.
    pub directory: std::path::PathBuf,
    /// Choices for foyer.
    pub foyer: FoyerOptions,
}

/// What a child prints.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// Operations done, and time they took.
    pub operations: u64,
    /// Their time.
    pub seconds: f64,
    /// Reads tried.
    pub reads: u64,
    /// Reads that found their object.
    pub hits: u64,
    /// Of these, those memory answered (foyer: by a sample).
    pub memory_hits: u64,
    /// Reads that gave something wrong: another's bytes, an older version, expired.
    pub wrong: u64,
    /// Operations refused or failed.
    pub failed: u64,
    /// Creates tried, those of misses too, and their bytes.
    pub creates: u64,
    /// Bytes of these.
    pub create_bytes: u64,
    /// 50th and 99th percentile and maximum of reads, in microseconds.
    pub read_us: [f64; 3],
    /// The same of creates.
    pub create_us: [f64; 3],
    /// Operations of the client that did least, and most.
    pub fairness: (u64, u64),
    /// Counted by the kernel for this process alone.
    pub read_bytes: u64,
    /// The same for writes.
    pub written_bytes: u64,
    /// Processor time.
    pub cpu_us: u64,
    /// Largest resident size.
    pub rss_bytes: u64,
    /// The first fill: its seconds, and creates refused.
    pub fill_seconds: f64,
    /// What it counts itself.
    pub facts: Vec<(String, f64)>,
    /// Why there are no figures.
    pub error: Option<String>,
}

#[derive(Default)]
struct Tally {
    report: LoadReport,
    read_ns: Vec<u32>,
    create_ns: Vec<u32>,
}

struct Run<C> {
    cache: C,
    source: Source,
    length_max: usize,
    /// What the next version of an object must be above, and what a read must give at least.
    newest: Vec<AtomicU32>,
    acknowledged: Vec<AtomicU32>,
    stripes: Vec<Mutex<()>>,
}

/// What clients do together: each takes the next one until all are done or the time is up.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// Creates of so many objects, each once.
    Fill(u64),
    /// The load's operations from one number up to another.
    Drawn(u64, u64),
}

impl Order {
    fn op(self, source: &Source, at: u64) -> Option<Op> {
        match self {
            Order::Fill(objects) => (at < objects).then_some(Op::Put(at)),
            Order::Drawn(first, end) => (first + at < end).then(|| source.op(first + at)),
        }
    }
}

/// An order that is under way.
#[derive(Clone)]
struct UnderWay {
    order: Order,
    next: Arc<AtomicU64>,
    ends: Instant,
}

struct Client<C> {
    run: Arc<Run<C>>,
    key: Vec<u8>,
    /// Zeros that are never written to but for heads: they take no memory of the machine.
    value: Vec<u8>,
    tally: Tally,
}

fn nanoseconds(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

impl<C: Cache> Run<C> {
    fn new(cache: C, source: Source) -> Run<C> {
        let zeros = || (0..source.load.objects).map(|_| AtomicU32::new(0)).collect();
        let (newest, acknowledged) = (zeros(), zeros());
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        let length_max = source.length_max();
        Run { cache, source, length_max, newest, acknowledged, stripes }
    }

    async fn turn(&self, object: u64) -> MutexGuard<'_, ()> {
        self.stripes[object as usize % STRIPES].lock().await
    }

    fn next_version(&self, object: u64) -> u32 {
        self.newest[object as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    fn acknowledge(&self, object: u64, version: u32) {
        self.acknowledged[object as usize].store(version, Ordering::Release);
    }
}

impl<C: Cache> Client<C> {
    fn new(run: Arc<Run<C>>) -> Client<C> {
        let value = vec![0; run.length_max];
        Client { run, key: Vec::new(), value, tally: Tally::default() }
    }

    async fn create(&mut self, object: u64) {
        let (run, source) = (&*self.run, &self.run.source);
        let lasts_s = source.lasts_s(object);
        let length = source.length(object);
        let turn = run.turn(object).await;
        let version = run.next_version(object);
        let expires_s = if lasts_s > 0 { value::now_s() + lasts_s } else { 0 };
        source.key(object, &mut self.key);
        value::write(&mut self.value[..length], object, version, expires_s);
        let new = New { value: &self.value[..length], group: source.group(object), expires_s };
        let begun = Instant::now();
        let stored = run.cache.create(&self.key, new).await;
        self.tally.create_ns.push(nanoseconds(begun));
        run.acknowledge(object, version);
        drop(turn);
        let report = &mut self.tally.report;
        report.failed += u64::from(!stored);
        report.creates += 1;
        report.create_bytes += (length + self.key.len()) as u64;
    }

    async fn read(&mut self, object: u64, aside: bool) {
        let (run, source) = (&*self.run, &self.run.source);
        let at_least = run.acknowledged[object as usize].load(Ordering::Acquire);
        let length = source.length(object);
        source.key(object, &mut self.key);
        let mut right = true;
        let look = |bytes: &[u8]| right = value::is_right(bytes, object, length, at_least);
        let begun = Instant::now();
        let found = run.cache.read(&self.key, look).await;
        self.tally.read_ns.push(nanoseconds(begun));
        let report = &mut self.tally.report;
        report.reads += 1;
        report.wrong += u64::from(!right);
        match found {
            Found::Missing if aside => self.create(object).await,
            Found::Missing => {}
            Found::Failed => report.failed += 1,
            Found::Somewhere => report.hits += 1,
            Found::Memory(reads) => {
                report.hits += 1;
                report.memory_hits += reads;
            }
        }
    }

    async fn remove(&mut self, object: u64) {
        let run = &*self.run;
        let turn = run.turn(object).await;
        let version = run.next_version(object);
        run.source.key(object, &mut self.key);
        let removed = run.cache.remove(&self.key).await;
        run.acknowledge(object, version);
        drop(turn);
        self.tally.report.failed += u64::from(!removed);
    }

    /// What is created meanwhile may or may not survive, so that only older versions are wrong
    /// afterwards.
    async fn purge(&mut self, group: u64) {
        let run = &*self.run;
        let members = run.source.members(group);
        let newest: Vec<u32> = members
            .iter()
            .map(|object| run.acknowledged[*object as usize].load(Ordering::Acquire))
            .collect();
        if run.cache.purge(group).await {
            for (object, seen) in members.iter().zip(newest) {
                let acknowledged = &run.acknowledged[*object as usize];
                // One that was acknowledged before the purge is dead: a read must give a newer one.
                acknowledged.fetch_max(seen + 1, Ordering::AcqRel);
                run.newest[*object as usize].fetch_max(seen + 1, Ordering::AcqRel);
            }
        } else {
            for object in members {
                self.remove(object).await;
            }
        }
    }

    async fn operate(&mut self, op: Op) {
        self.tally.report.operations += 1;
        match op {
            Op::Read(object) => self.read(object, self.run.source.load.mix.aside).await,
            Op::Put(object) => self.create(object).await,
            Op::Remove(object) => self.remove(object).await,
            Op::Purge(group) => self.purge(group).await,
        }
    }

    async fn work(mut self, under_way: UnderWay) -> Tally {
        let UnderWay { order, next, ends } = under_way;
        while Instant::now() < ends
            && let Some(op) = order.op(&self.run.source, next.fetch_add(1, Ordering::Relaxed))
        {
            self.operate(op).await;
            // A server's task waits for its client now and then; one that does not keeps the others
            // from their turn.
            consume_budget().await;
        }
        self.tally
    }
}

impl<C: Cache> Run<C> {
    /// Clients do what is to be done, until it is or `most` is over.
    fn clients(self: &Arc<Self>, runtime: &Runtime, most: Duration, order: Order) -> Vec<Tally> {
        let next = Arc::default();
        let under_way = UnderWay { order, next, ends: Instant::now() + most };
        let client = || Client::new(self.clone()).work(under_way.clone());
        match self.source.load.clients {
            Clients::Threads(count) => std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count)
                    .map(|_| scope.spawn(|| runtime.block_on(unconstrained(client()))))
                    .collect();
                threads.into_iter().map(|c| c.join().expect("a client panicked")).collect()
            }),
            Clients::Tasks(count) => {
                let tasks: Vec<_> = (0..count).map(|_| runtime.spawn(client())).collect();
                tasks
                    .into_iter()
                    .map(|task| runtime.block_on(task).expect("a client panicked"))
                    .collect()
            }
        }
    }
}

/// Median, 99th percentile, maximum, in microseconds.
fn percentiles(mut ns: Vec<u32>) -> [f64; 3] {
    ns.sort_unstable();
    let at = |share: f64| {
        let index = ((ns.len() as f64 * share) as usize).min(ns.len().saturating_sub(1));
        f64::from(ns.get(index).copied().unwrap_or(0)) / 1e3
    };
    [at(0.5), at(0.99), at(1.0)]
}

fn sum(tallies: Vec<Tally>) -> LoadReport {
    let mut total = LoadReport { fairness: (u64::MAX, 0), ..LoadReport::default() };
    let (mut reads, mut creates) = (Vec::new(), Vec::new());
    for tally in tallies {
        let report = tally.report;
        total.operations += report.operations;
        total.reads += report.reads;
        total.hits += report.hits;
        total.memory_hits += report.memory_hits;
        total.wrong += report.wrong;
        total.failed += report.failed;
        total.creates += report.creates;
        total.create_bytes += report.create_bytes;
        let (least, most) = total.fairness;
        total.fairness = (least.min(report.operations), most.max(report.operations));
        reads.extend(tally.read_ns);
        creates.extend(tally.create_ns);
    }
    total.read_us = percentiles(reads);
    total.create_us = percentiles(creates);
    total
}

/// Runs the load as told.
///
/// # Errors
/// If there is no such load or the contestant cannot be opened.
pub fn run(spec: &LoadSpec) -> Result<LoadReport, Box<dyn Error>> {
    let load = catalogue::all().into_iter().find(|load| load.name == spec.load);
    let mut load = load.ok_or("no such load")?;
    load.operations.0 /= spec.divide;
    load.operations.1 /= spec.divide;
    if let Some(tasks) = spec.tasks {
        load.clients = Clients::Tasks(tasks as usize);
    }
    let source = Source::new(load, spec.seed);
    let (memory, disk) = (load.mib.0 << 20, load.mib.1 << 20);
    let file = spec.directory.join("cache");
    let clients = runtime(spec.foyer.workers)?;
    let foyer = |paced| Foyer::open(&file, memory, disk, (spec.foyer, paced), &clients);
    let report = match spec.contestant {
        Name::Damelo => {
            let blocking = matches!(load.clients, Clients::Threads(_));
            let cache = Damelo::open(&file, memory, disk, spec.seed, blocking)?;
            measure(Run::new(cache, source), &clients, spec)
        }
        Name::Foyer => measure(Run::new(foyer(false)?, source), &clients, spec),
        Name::FoyerPaced => measure(Run::new(foyer(true)?, source), &clients, spec),
        Name::FoyerLoved | Name::Files => return Err("takes no part in these loads".into()),
    };
    Ok(report)
}

fn measure<C: Cache>(run: Run<C>, runtime: &Runtime, spec: &LoadSpec) -> LoadReport {
    let run = Arc::new(run);
    let load = run.source.load;
    let most = Duration::from_secs(spec.seconds);
    let begun = Instant::now();
    let fill = if load.filled { load.objects } else { 0 };
    let filled = sum(run.clients(runtime, most, Order::Fill(fill)));
    let fill_seconds = begun.elapsed().as_secs_f64();
    let (before, measured) = load.operations;
    run.clients(runtime, most, Order::Drawn(0, before));
    runtime.block_on(run.cache.settle());
    let counted = Counters::now(None);
    let begun = Instant::now();
    let tallies = run.clients(runtime, most, Order::Drawn(before, before + measured));
    let seconds = begun.elapsed().as_secs_f64();
    runtime.block_on(run.cache.settle());
    let counters = Counters::now(None).since(counted);
    let mut report = LoadReport {
        seconds,
        fill_seconds,
        read_bytes: counters.process_read_bytes,
        written_bytes: counters.process_written_bytes,
        cpu_us: counters.cpu_us,
        rss_bytes: counters::peak_rss_bytes(),
        facts: run.cache.facts(),
        ..sum(tallies)
    };
    report.failed += filled.failed;
    if measured == 0 || load.mix.puts + load.mix.removes == 0 && !load.mix.aside {
        report.creates = filled.creates;
        report.create_us = filled.create_us;
    }
    report
}

/// Entry point of `rivals load-child`: prints one line of JSON, whatever happens.
pub fn main(spec: &str) {
    let report = serde_json::from_str::<LoadSpec>(spec)
        .map_err(|e| Box::new(e) as Box<dyn Error>)
        .and_then(|spec| run(&spec))
        .unwrap_or_else(|e| LoadReport { error: Some(e.to_string()), ..LoadReport::default() });
    match serde_json::to_string(&report) {
        Ok(line) => println!("{line}"),
        Err(e) => eprintln!("rivals load-child: {e}"),
    }
}
