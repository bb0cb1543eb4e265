//! The load generator: threads with some connections each, every connection a closed loop. Threads
//! share only the catalogue and the workload; their results are summed at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::catalogue::{Catalogue, ObjectRef};
use super::connection::{Answer, BLOCK_BYTES, Connection, Destination, Wanted};
use super::demand::{Demand, Drawn, Draws};
use crate::bench::latency::Latencies;
use crate::failure::Failure;
use crate::progress;

/// Consecutive failures after which a thread gives up.
const FAILURES_MAX: u32 = 1000;
/// Silence on all connections of a thread after which it gives up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The clients of a load, and their destination.
pub(crate) struct Clients {
    /// The destination.
    pub(crate) to: Destination,
    /// The objects that can be requested.
    pub(crate) catalogue: Arc<Catalogue>,
    /// Length of the ranges to request; `None` to request whole objects.
    pub(crate) range_bytes: Option<u64>,
    /// Threads.
    pub(crate) threads: u16,
    /// Connections of each thread.
    pub(crate) connections: u16,
    /// The proxy may be killed: a client whose connection is refused ends, and the load ends with
    /// the last client.
    pub(crate) mortal: bool,
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// After this time; requests then in flight do not count.
    Elapsed(Duration),
    /// After this number of requests of each thread.
    RequestsPerThread(u64),
}

/// Results of the clients.
pub(crate) struct Seen {
    /// Complete answers with status 200, or 206 for a range.
    pub(crate) requests: u64,
    /// Bytes of their bodies.
    pub(crate) body_bytes: u64,
    /// Answers with another status, and connections that broke.
    pub(crate) failed: u64,
    /// Answers with wrong bytes.
    pub(crate) wrong: u64,
    /// Answers marked as a hit.
    pub(crate) hits: u64,
    /// Answers marked as a hit or a miss.
    pub(crate) told: u64,
    /// From sending a request to its last byte.
    pub(crate) latencies: Latencies,
    /// From start to end.
    pub(crate) took: Duration,
    /// The last failure.
    pub(crate) why: Option<String>,
}

impl Seen {
    /// Empty results.
    pub(crate) fn new() -> Seen {
        let (latencies, took) = (Latencies::new(), Duration::ZERO);
        let [requests, body_bytes, failed, wrong, hits, told] = [0; 6];
        Seen { requests, body_bytes, failed, wrong, hits, told, latencies, took, why: None }
    }

    fn count(&mut self, answer: Answer, took: Duration) {
        if !answer.good {
            self.failed += 1;
            self.why = Some("not 200, nor 206 with the range that was asked for".to_owned());
            return;
        }
        self.requests += 1;
        self.body_bytes += answer.body_bytes;
        self.wrong += u64::from(answer.wrong);
        self.hits += u64::from(answer.hit == Some(true));
        self.told += u64::from(answer.hit.is_some());
        self.latencies.record(took);
    }

    /// Adds other results to these.
    pub(crate) fn merge(&mut self, other: Seen) {
        self.requests += other.requests;
        self.body_bytes += other.body_bytes;
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.hits += other.hits;
        self.told += other.told;
        self.latencies.merge(&other.latencies);
        self.took = self.took.max(other.took);
        self.why = other.why.or(self.why.take());
    }
}

/// Source of a connection's requests.
enum Source {
    /// Drawn from the workload.
    Draws(Draws),
    /// Each once, from the end of the list.
    List(Vec<Wanted>),
}

impl Source {
    fn next(&mut self, clients: &Clients) -> Option<Wanted> {
        match self {
            Source::Draws(draws) => {
                let Drawn { object, document } = draws.draw()?;
                let length_bytes = clients.catalogue.length_bytes(object);
                let range = clients.range_bytes.map(|range| draws.range(range, length_bytes));
                Some(Wanted {
                    object,
                    document: document.or_else(|| clients.catalogue.document_of(object)),
                    range,
                })
            }
            Source::List(wanted) => wanted.pop(),
        }
    }
}

impl Clients {
    /// Sends the workload's requests until `until`.
    pub(crate) fn run(
        &self,
        demand: &Arc<Demand>,
        until: Until,
        seed: u64,
    ) -> Result<Seen, Failure> {
        let source = |index: u64| Source::Draws(demand.draws(seed.wrapping_add(index << 20)));
        self.drive(source, until)
    }

    /// Requests each of these objects once, spread over the connections; with `range_bytes`, as
    /// consecutive ranges.
    pub(crate) fn run_each(&self, objects: &[ObjectRef]) -> Result<Seen, Failure> {
        let all = usize::from(self.threads) * usize::from(self.connections);
        let source = |index: u64| {
            let mine = objects.iter().skip(index as usize).step_by(all);
            let mut wanted: Vec<Wanted> = mine.flat_map(|&object| self.wholly(object)).collect();
            wanted.reverse();
            Source::List(wanted)
        };
        self.drive(source, Until::RequestsPerThread(u64::MAX))
    }

    /// The requests that together cover an object.
    fn wholly(&self, object: ObjectRef) -> Vec<Wanted> {
        let document = self.catalogue.document_of(object);
        let Some(range_bytes) = self.range_bytes else {
            return vec![Wanted { object, document, range: None }];
        };
        let length_bytes = self.catalogue.length_bytes(object);
        let starts = (0..length_bytes).step_by(usize::try_from(range_bytes).unwrap_or(usize::MAX));
        let range = |start: u64| start..start.saturating_add(range_bytes).min(length_bytes);
        starts.map(|start| Wanted { object, document, range: Some(range(start)) }).collect()
    }

    fn drive(&self, source: impl Fn(u64) -> Source, until: Until) -> Result<Seen, Failure> {
        let count = u64::from(self.connections);
        let sources = |thread: u64| (thread * count..(thread + 1) * count).map(&source).collect();
        let mut seen = Seen::new();
        let issued = AtomicU64::new(0);
        let all_threads = || {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..u64::from(self.threads))
                    .map(|thread| {
                        let (sources, issued) = (sources(thread), &issued);
                        scope.spawn(move || self.drive_thread(sources, until, issued))
                    })
                    .collect();
                let panicked = || Err(io::Error::other("a thread of the load generator panicked"));
                threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
            })
        };
        let how_far = || (issued.load(Ordering::Relaxed), self.requests_in_all(until));
        let ended: Vec<io::Result<Seen>> = match until {
            // A soak shows its own progress.
            _ if self.mortal => all_threads(),
            Until::Elapsed(time) => progress::timed("measuring", time, all_threads),
            Until::RequestsPerThread(_) => progress::watched("requests", how_far, all_threads),
        };
        for thread in ended {
            let failed = |error| Failure::io(format!("measure {}", self.to.address), error);
            seen.merge(thread.map_err(failed)?);
        }
        Ok(seen)
    }

    /// Requests of all threads; 0 if unknown.
    fn requests_in_all(&self, until: Until) -> u64 {
        match until {
            Until::RequestsPerThread(each) => each.checked_mul(self.threads.into()).unwrap_or(0),
            Until::Elapsed(_) => 0,
        }
    }

    fn drive_thread(
        &self,
        sources: Vec<Source>,
        until: Until,
        issued_by_all: &AtomicU64,
    ) -> io::Result<Seen> {
        let mut driver = Driver {
            clients: self,
            poll: Poll::new()?,
            lanes: Vec::with_capacity(sources.len()),
            seen: Seen::new(),
            issued: 0,
            issued_by_all,
            issued_max: if let Until::RequestsPerThread(count) = until { count } else { u64::MAX },
            failures: 0,
            block: Box::new([0; BLOCK_BYTES]),
        };
        let start = Instant::now();
        for source in sources {
            match driver.add(source) {
                Err(error) if self.mortal => {
                    driver.seen.why = Some(error.to_string());
                    break;
                }
                added => added?,
            }
        }
        let end = if let Until::Elapsed(time) = until { Some(start + time) } else { None };
        driver.run(end)?;
        driver.seen.took = start.elapsed();
        Ok(driver.seen)
    }
}

/// A connection, the source of its requests, and when the last one was sent.
struct Lane {
    connection: Connection,
    source: Source,
    asked: Instant,
    done: bool,
}

/// One thread's loop.
struct Driver<'a> {
    clients: &'a Clients,
    poll: Poll,
    lanes: Vec<Lane>,
    seen: Seen,
    issued: u64,
    /// Requests sent by all threads, for progress.
    issued_by_all: &'a AtomicU64,
    issued_max: u64,
    failures: u32,
    block: Box<[u8; BLOCK_BYTES]>,
}

impl Driver<'_> {
    fn add(&mut self, source: Source) -> io::Result<()> {
        let connection = Connection::open(&self.clients.to)?;
        let index = self.lanes.len();
        self.lanes.push(Lane { connection, source, asked: Instant::now(), done: false });
        self.register(index)?;
        self.next(index, Instant::now())
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let stream = self.lanes[index].connection.stream();
        self.poll.registry().register(stream, Token(index), Interest::READABLE | Interest::WRITABLE)
    }

    fn run(&mut self, end: Option<Instant>) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut heard = Instant::now();
        while self.lanes.iter().any(|lane| !lane.done) {
            let now = Instant::now();
            let left = end.map_or(SILENCE_MAX, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return Ok(());
            }
            match self.poll.poll(&mut events, Some(left.min(SILENCE_MAX))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if !events.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() >= SILENCE_MAX {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer for 30 s"));
            }
            for event in &events {
                self.handle(event.token().0)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, index: usize) -> io::Result<()> {
        let lane = &mut self.lanes[index];
        if lane.done {
            return Ok(());
        }
        let verify = self.clients.to.verify;
        let received = lane.connection.flush().and_then(|()| {
            lane.connection.receive(verify, &self.clients.catalogue, &mut self.block)
        });
        match received {
            Ok(None) => Ok(()),
            Ok(Some(answer)) => {
                let now = Instant::now();
                self.seen.count(answer, now - lane.asked);
                self.failures = if answer.good { 0 } else { self.failures + 1 };
                self.give_up_after_many()?;
                if self.lanes[index].connection.is_closing() {
                    self.reconnect(index)?;
                }
                self.next(index, now)
            }
            Err(error) => self.broken(index, &error),
        }
    }

    /// Sends the connection's next request, if any.
    fn next(&mut self, index: usize, now: Instant) -> io::Result<()> {
        let lane = &mut self.lanes[index];
        if lane.done {
            return Ok(());
        }
        let wanted =
            if self.issued < self.issued_max { lane.source.next(self.clients) } else { None };
        let Some(wanted) = wanted else {
            lane.done = true;
            return Ok(());
        };
        self.issued += 1;
        self.issued_by_all.fetch_add(1, Ordering::Relaxed);
        lane.asked = now;
        match lane.connection.ask(&self.clients.to, &self.clients.catalogue, wanted) {
            Ok(()) => Ok(()),
            Err(error) => self.broken(index, &error),
        }
    }

    fn broken(&mut self, index: usize, error: &io::Error) -> io::Result<()> {
        self.seen.failed += 1;
        self.seen.why = Some(error.to_string());
        if !self.clients.mortal {
            self.failures += 1;
            self.give_up_after_many()?;
        }
        self.reconnect(index)?;
        self.next(index, Instant::now())
    }

    /// Replaces a connection that has ended. If the proxy may have been killed and refuses the new
    /// connection, the lane is done.
    fn reconnect(&mut self, index: usize) -> io::Result<()> {
        match Connection::open(&self.clients.to) {
            Ok(connection) => self.lanes[index].connection = connection,
            Err(_) if self.clients.mortal => {
                self.lanes[index].done = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.register(index)
    }

    fn give_up_after_many(&self) -> io::Result<()> {
        if self.failures < FAILURES_MAX {
            return Ok(());
        }
        let why = self.seen.why.as_deref().unwrap_or("unknown");
        Err(io::Error::other(format!("{FAILURES_MAX} failures in a row, the last: {why}")))
    }
}
