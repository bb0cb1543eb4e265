//! `damelo bench http`: measures a caching proxy under load over real sockets, and other proxies in
//! turn with it. Origin and load generator run in this process, so that every byte can be checked
//! and every request that a cache forwards is counted.
//!
//! Threads: the origin's, the clients', and the main thread, which starts them and sums the
//! results.

mod args;
mod catalogue;
mod changing;
mod connection;
mod demand;
mod load;
mod origin;
mod probes;
mod replay;
mod report;
mod restart;
mod soak;
mod target;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use args::Http;

use self::catalogue::Catalogue;
use self::connection::Destination;
use self::demand::{Demand, Kind};
use self::load::{Clients, Seen, Until};
use self::origin::Origin;
use self::probes::{Probe, cpu_seconds};
use self::replay::Replay;
use self::report::Measurement;
use self::target::{OwnProxy, Running, cache_spec, resolve};
use crate::descriptors;
use crate::failure::Failure;
use crate::leftovers::Leftover;
use crate::output::Out;

/// Name of our own proxy in reports.
const OWN: &str = "damelo";

/// A proxy that is measured.
struct Target {
    name: String,
    clients: Clients,
    pid: Option<u32>,
    metrics: Option<String>,
}

/// State shared by all measurements of a run.
struct Bench<'a> {
    args: &'a Http,
    catalogue: Arc<Catalogue>,
    replay: Option<Arc<Replay>>,
    origin: Origin,
    /// Separates this run's objects from those that other proxies still hold.
    run: u64,
}

/// Measures, prints, and fails if any byte was wrong.
pub(crate) fn run(args: &Http) -> Result<(), Failure> {
    args.check()?;
    // Connections that cannot be opened are reported as failed.
    let _ = descriptors::raise_limit();
    let read = |trace: &String| Replay::read(trace, &args.reading).map(Arc::new);
    let replay = args.trace.as_ref().map(read).transpose()?;
    let catalogue = Arc::new(match &replay {
        Some(replay) => Catalogue::of_trace(Arc::clone(replay), args.seed),
        None => Catalogue::new(args.size_bytes(), args.tail, args.embedded(), args.seed),
    });
    let origin = Origin::start(&args.origin_listen, Arc::clone(&catalogue))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let new = since.as_secs() << 20 | u64::from(since.subsec_micros());
    let run = args.again.unwrap_or(new);
    let bench = Bench { args, catalogue, replay, origin, run };
    let own = args.url.is_none();
    let dir = tempfile::Builder::new()
        .prefix("damelo-bench-")
        .tempdir_in(&args.dir)
        .map_err(|source| Failure::io(format!("write below `{}`", args.dir.display()), source))?;
    let _leftover = Leftover::new(dir.path());
    let proxy = OwnProxy {
        cache: cache_spec(dir.path(), &args.cache.bytes().to_string()),
        memory: args.memory.bytes().to_string(),
        workers: args.workers,
        origin: bench.origin.address(),
        set: Vec::new(),
    };
    if let Some(every) = args.kill_every.filter(|_| args.changing) {
        return changing::run(args, &proxy, Duration::from_secs_f64(every));
    }
    if let Some(every) = args.kill_every {
        return soak::run(&bench, &proxy, Duration::from_secs_f64(every));
    }
    if args.restart {
        return restart::run(&bench, &proxy);
    }
    let child = if own { Some(proxy.start()?) } else { None };
    let targets = bench.targets(child.as_ref())?;
    bench.compare(&targets)
}

impl Bench<'_> {
    fn targets(&self, own: Option<&Running>) -> Result<Vec<Target>, Failure> {
        let mut targets = Vec::new();
        if let Some(own) = own {
            targets.push(self.own_target(own));
        }
        for url in self.args.url.iter().chain(&self.args.against) {
            let metrics = if targets.is_empty() { self.args.metrics.clone() } else { None };
            let pid = self.args.pid.get(targets.len()).copied().filter(|&pid| pid > 0);
            if let Some(pid) = pid
                && cpu_seconds(pid).is_none()
            {
                return Err(Failure::Usage(format!("--pid: there is no process {pid}")));
            }
            let clients = self.clients(resolve(url)?);
            targets.push(Target { name: url.clone(), clients, pid, metrics });
        }
        Ok(targets)
    }

    fn own_target(&self, own: &Running) -> Target {
        let clients = self.clients(own.address);
        let (name, pid) = (OWN.to_owned(), Some(own.pid()));
        Target { name, clients, pid, metrics: own.metrics.clone() }
    }

    fn clients(&self, address: std::net::SocketAddr) -> Clients {
        let args = self.args;
        // A forward proxy needs the origin's name. Reverse proxies get the same `Host`, so that all
        // targets receive equal requests.
        let host = self.origin.address().to_string();
        let to = Destination { address, host, forward: args.forward, verify: args.verify };
        let catalogue = Arc::clone(&self.catalogue);
        let (threads, connections) = (args.threads, args.connections);
        let range_bytes = (args.workload == Kind::Ranges).then(|| args.range_bytes());
        Clients { to, catalogue, range_bytes, threads, connections, mortal: false }
    }

    /// The workload; `fill` and `trace` get objects that were never requested before.
    fn demand(&self, fresh: u64) -> Result<Arc<Demand>, Failure> {
        let (args, kind) = (self.args, self.args.workload);
        let run = if kind.is_cold() { self.run.wrapping_add(fresh) } else { self.run };
        if let Some(replay) = &self.replay {
            return Ok(Arc::new(Demand::of_trace(run, Arc::clone(replay))?));
        }
        let (count, page_objects) = (args.drawn_from(), self.catalogue.page_objects());
        let popularity = (args.alpha(), args.seed);
        Ok(Arc::new(Demand::new(kind, run, page_objects, count, popularity)?))
    }

    fn warm(&self, target: &Target, demand: &Arc<Demand>, first: bool) -> Result<(), Failure> {
        if first {
            target.clients.run_each(&demand.each_once())?;
        }
        if self.args.warmup_s() > 0 && !self.args.workload.is_cold() {
            let time = Duration::from_secs(self.args.warmup_s().into());
            target.clients.run(demand, Until::Elapsed(time), self.args.seed ^ u64::MAX)?;
        }
        Ok(())
    }

    fn measure(
        &self,
        target: &Target,
        demand: &Arc<Demand>,
        until: Until,
        round: u32,
    ) -> Result<Measurement, Failure> {
        let probe = || Probe::take(target.pid, Some(&self.args.dir), target.metrics.as_deref());
        let (before, asked) = (probe(), self.origin.requests());
        let own_cpu = || cpu_seconds(std::process::id()).unwrap_or_default();
        let load_before = own_cpu();
        let seed = self.args.seed.wrapping_add(u64::from(round) << 40);
        let seen: Seen = target.clients.run(demand, until, seed)?;
        let probed = probe().since(before);
        let asked = self.origin.requests() - asked;
        let load_cpu = own_cpu() - load_before - child_cpu(target, probed);
        let workload = self.args.workload.name();
        let name = (target.name.as_str(), workload, demand.run(), round);
        let m = Measurement::new(name, &seen, probed, (asked, Some(load_cpu.max(0.0))));
        if m.requests == 0 {
            let why = m.last_failure.unwrap_or_else(|| "none came".to_owned());
            let text = std::io::Error::other(format!("no good answer: {why}"));
            return Err(Failure::io(format!("measure {}", target.name), text));
        }
        Ok(m)
    }

    /// Measures all targets in each round, starting each round with a different one.
    fn compare(&self, targets: &[Target]) -> Result<(), Failure> {
        let mut out = Out::new();
        if !self.args.json {
            report::print_header(&mut out)?;
        }
        let mut all: Vec<Measurement> = Vec::new();
        let first_round = self.args.first_round;
        for round in first_round..first_round + self.args.rounds {
            for turn in 0..targets.len() {
                let index = (turn + round as usize - 1) % targets.len();
                let demand = self.demand(u64::from(round) << 10 | index as u64)?;
                let first = round == first_round && self.args.again.is_none();
                self.warm(&targets[index], &demand, first)?;
                let m = self.measure(&targets[index], &demand, self.until(), round)?;
                if self.args.json {
                    out.json(&m)?
                } else {
                    m.print(&mut out)?
                }
                out.flush()?;
                all.push(m);
            }
        }
        let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
        if self.args.rounds > 1 || names.len() > 1 {
            let summaries = report::summaries(&all, &names);
            if self.args.json {
                summaries.iter().try_for_each(|summary| out.json(summary))?;
            } else {
                report::print_summaries(&mut out, &summaries)?;
            }
        }
        out.finish()?;
        fail_if_wrong(all.iter().map(|m| m.wrong).sum())
    }

    fn until(&self) -> Until {
        match self.args.requests {
            Some(requests) => {
                Until::RequestsPerThread(requests.div_ceil(u64::from(self.args.threads)))
            }
            None if self.replay.is_some() && self.args.seconds.is_none() => {
                Until::RequestsPerThread(u64::MAX)
            }
            None => Until::Elapsed(self.args.length()),
        }
    }
}

/// CPU time of a proxy that is our child: it must not count as the load generator's.
fn child_cpu(target: &Target, probed: Probe) -> f64 {
    if target.name == OWN { probed.cpu_seconds.unwrap_or_default() } else { 0.0 }
}

fn fail_if_wrong(wrong: u64) -> Result<(), Failure> {
    if wrong > 0 { Err(Failure::WrongBytes { wrong }) } else { Ok(()) }
}
