//! Plays a design's requests on a machine: clients that take requests in turn, wait for their disk
//! reads and synchronous writes, and leave the rest to the queues.
//!
//! Owns virtual time. Invariants: a request begins when a client is free (and, at the trace's pace,
//! when it arrived); its response counts from then, at the trace's pace from its arrival; a design
//! sees requests in the order they begin; events are handled in time order, disks before clients;
//! what is measured begins when the warm-up's last client was served and the disks are idle, so
//! that counts and times are of the same requests. Threads: one user.

use super::report::MAP_PARTS;
use super::{Machine, MachineError, Plan, Report, Step};
use crate::design::{Design, Outcome};
use crate::disk::{Direction, DiskCounts, DiskIo, SECTOR_BYTES};
use crate::machine::Action;
use crate::request::{Catalogue, Op, Request};
use crate::requests::{Pass, Requests};

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Each as soon as a client is free.
    #[default]
    AsFastAsPossible,
    /// Not before its time in the trace; a response counts from then, waiting for a free client
    /// included.
    Trace,
}

/// How a run is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// Clients that each have one request at a time.
    pub clients: u32,
    /// When requests arrive.
    pub pace: Pace,
    /// Time a request takes besides the disks, in microseconds.
    pub compute_us: u32,
    /// Requests before counting begins, which it does when they are served and the disks are idle.
    /// At the trace's pace those that follow come later by as much as that takes.
    pub warmup: usize,
    /// Caches are emptied when counting begins.
    pub cold_start: bool,
    /// Requests in each point of the series of means; 0 for no series.
    pub series_every: usize,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            clients: 1,
            pace: Pace::AsFastAsPossible,
            compute_us: 0,
            warmup: 0,
            cold_start: false,
            series_every: 0,
        }
    }
}

/// Background writes that may wait for a disk before clients wait too.
const BACKLOG_MAX: usize = 4_096;
const BACKGROUND: u32 = u32::MAX;
/// Latest time at which a request may come, in microseconds: 146 years, a quarter of what
/// nanoseconds in 64 bits count, so that nothing that is done then goes beyond it.
const TIME_US_MAX: u64 = u64::MAX / 4 / 1_000;

#[derive(Debug)]
struct Client {
    plan: Plan,
    next_step: usize,
    /// When it goes on; `None` while it waits for a disk or has no more requests.
    ready_ns: Option<u64>,
    /// From when on the response counts.
    asked_ns: u64,
    request: Option<(Request, Outcome)>,
    waited_read: bool,
    counted: bool,
}

struct Run<'a> {
    machine: &'a mut Machine,
    design: &'a mut dyn Design,
    requests: Pass<'a>,
    names: &'a Catalogue,
    options: RunOptions,
    clients: Vec<Client>,
    next_request: usize,
    /// Requests that are played before clients stop.
    end_request: usize,
    actions: Vec<Action>,
    report: Report,
    disks_before: [DiskCounts; 3],
    /// What times of requests count from.
    arrivals_from_ns: u64,
    measured_from_ns: u64,
    last_ns: u64,
    /// Responses of the block of the series that is being counted: their sum and how many.
    series: (u64, usize),
    /// When that block began.
    series_from_ns: u64,
}

/// Runs `requests` through a design on a machine and counts. Runs on one machine follow each other
/// in time; the design's [`Design::prepare`] belongs to the first.
///
/// # Errors
/// See [`MachineError`].
///
/// # Panics
/// If there are no clients.
pub fn run<'a>(
    design: &mut dyn Design,
    machine: &mut Machine,
    requests: impl Into<Requests<'a>>,
    names: &Catalogue,
    options: RunOptions,
) -> Result<Report, MachineError> {
    run_all(design, machine, requests.into(), names, options)
}

fn run_all(
    design: &mut dyn Design,
    machine: &mut Machine,
    requests: Requests<'_>,
    names: &Catalogue,
    options: RunOptions,
) -> Result<Report, MachineError> {
    assert!(options.clients > 0, "somebody asks");
    if options.pace == Pace::Trace {
        check_times(requests)?;
    }
    let start_ns = machine.now_ns;
    let client = || Client {
        plan: Plan::default(),
        next_step: 0,
        ready_ns: Some(start_ns),
        asked_ns: 0,
        request: None,
        waited_read: false,
        counted: false,
    };
    let clients = (0..options.clients).map(|_| client()).collect();
    let mut run = Run {
        machine,
        design,
        requests: requests.iter(),
        names,
        options,
        clients,
        next_request: 0,
        end_request: 0,
        actions: Vec::new(),
        report: Report { map: [vec![0; MAP_PARTS], vec![0; MAP_PARTS]], ..Report::default() },
        disks_before: [DiskCounts::default(); 3],
        arrivals_from_ns: start_ns,
        measured_from_ns: start_ns,
        last_ns: start_ns,
        series: (0, 0),
        series_from_ns: start_ns,
    };
    run.prepare()?;
    if options.warmup > 0 {
        run.play_until(options.warmup)?;
    }
    run.start_counting();
    run.play_until(usize::MAX)?;
    run.finish()
}

/// That every request comes within virtual time.
fn check_times(requests: Requests<'_>) -> Result<(), MachineError> {
    requests.first_after(TIME_US_MAX).map_or(Ok(()), |(number, us)| {
        Err(MachineError::TooLate { number, seconds: us / 1_000_000 })
    })
}

impl Run<'_> {
    /// What a design needs before the first request is made in no time: it is not part of the run.
    fn prepare(&mut self) -> Result<(), MachineError> {
        if std::mem::replace(&mut self.machine.prepared, true) {
            return Ok(());
        }
        self.design.prepare(&mut self.actions);
        let mut plan = Plan::default();
        self.machine.lower(&self.actions, &mut plan)?;
        self.machine.sync(&mut plan);
        Ok(())
    }

    /// Plays requests up to one, until all clients are served.
    fn play_until(&mut self, end_request: usize) -> Result<(), MachineError> {
        self.end_request = end_request;
        loop {
            let disk = self.next_disk_event();
            let ready = |(i, c): (usize, &Client)| c.ready_ns.map(|at_ns| (at_ns, i));
            let client = self.clients.iter().enumerate().filter_map(ready).min();
            match (disk, client) {
                (Some((disk_ns, index)), Some((client_ns, _))) if disk_ns <= client_ns => {
                    self.poll(index, disk_ns);
                }
                (_, Some((client_ns, index))) => self.step(index, client_ns)?,
                (Some((disk_ns, index)), None) if self.waiting() => self.poll(index, disk_ns),
                _ => return Ok(()),
            }
        }
    }

    fn waiting(&self) -> bool {
        self.clients.iter().any(|c| c.request.is_some())
    }

    fn next_disk_event(&self) -> Option<(u64, usize)> {
        let event = |(i, d): (usize, &crate::disk::Disk)| d.next_event_ns().map(|at_ns| (at_ns, i));
        self.machine.disks.iter().enumerate().filter_map(event).min()
    }

    fn poll(&mut self, disk: usize, now_ns: u64) {
        while let Some((done_ns, tag)) = self.machine.disks[disk].poll(now_ns) {
            if tag != BACKGROUND {
                self.clients[tag as usize].ready_ns = Some(done_ns);
            }
        }
    }

    /// Lets a client go on until it waits, ends its request or finds none.
    fn step(&mut self, index: usize, now_ns: u64) -> Result<(), MachineError> {
        if self.clients[index].request.is_none() && !self.begin(index, now_ns)? {
            return Ok(());
        }
        while let Some(&step) = self.clients[index].plan.steps.get(self.clients[index].next_step) {
            let disk = &mut self.machine.disks[step.disk as usize];
            if !step.wait && disk.waiting() >= BACKLOG_MAX {
                let later_ns = disk.next_event_ns().map_or(now_ns + 1, |at| at.max(now_ns + 1));
                self.clients[index].ready_ns = Some(later_ns);
                return Ok(());
            }
            let tag = if step.wait { index as u32 } else { BACKGROUND };
            self.submit(step, tag, now_ns);
            self.clients[index].next_step += 1;
            if self.clients[index].counted {
                let bytes = u64::from(step.sectors) * SECTOR_BYTES;
                self.report.io.add(step.direction, step.kind, bytes);
                self.note_place(step, bytes);
            }
            if step.wait {
                let client = &mut self.clients[index];
                client.waited_read |= step.direction == Direction::Read;
                client.ready_ns = None;
                return Ok(());
            }
        }
        let client = &mut self.clients[index];
        if client.plan.pause_ns > 0 {
            client.ready_ns = Some(now_ns + std::mem::take(&mut client.plan.pause_ns));
            return Ok(());
        }
        self.end(index, now_ns);
        Ok(())
    }

    /// Adds to the map of the drives.
    fn note_place(&mut self, step: Step, bytes: u64) {
        let sectors = self.machine.disks[step.disk as usize].sectors();
        let part = step.sector * MAP_PARTS as u64 / sectors;
        self.report.map[step.direction as usize][part as usize] += bytes;
    }

    /// Hands a step to its disk.
    fn submit(&mut self, step: Step, tag: u32, now_ns: u64) {
        let Step { direction, sector, sectors, .. } = step;
        let io = DiskIo { direction, sector, sectors, tag };
        self.machine.disks[step.disk as usize].submit(now_ns, io);
    }

    /// Gives a client the next request; false if there is none or it is not time yet.
    fn begin(&mut self, index: usize, now_ns: u64) -> Result<bool, MachineError> {
        let is_left = self.next_request < self.end_request;
        let Some(request) = is_left.then(|| self.requests.peek()).flatten() else {
            self.clients[index].ready_ns = None;
            return Ok(false);
        };
        let asked_ns = match self.options.pace {
            Pace::AsFastAsPossible => now_ns,
            Pace::Trace => self.arrival_ns(&request),
        };
        if asked_ns > now_ns {
            self.clients[index].ready_ns = Some(asked_ns);
            return Ok(false);
        }
        let mut plan = std::mem::take(&mut self.clients[index].plan);
        plan.clear();
        self.machine.tick(&mut plan, now_ns);
        self.actions.clear();
        let outcome = self.design.request(&request, self.names, &mut self.actions);
        self.machine.lower(&self.actions, &mut plan)?;
        plan.pause_ns += u64::from(self.options.compute_us) * 1_000;
        let client = &mut self.clients[index];
        client.plan = plan;
        client.next_step = 0;
        client.asked_ns = asked_ns;
        client.waited_read = false;
        client.counted = self.next_request >= self.options.warmup;
        client.request = Some((request, outcome));
        self.requests.next();
        self.next_request += 1;
        Ok(true)
    }

    /// When a request comes at the trace's pace.
    fn arrival_ns(&self, request: &Request) -> u64 {
        self.arrivals_from_ns + request.time_us * 1_000
    }

    /// Neither what the warm-up left to the queues nor emptying the caches is part of what is
    /// measured.
    fn start_counting(&mut self) {
        let mut now_ns = self.last_ns;
        if self.options.cold_start {
            let mut plan = Plan::default();
            self.machine.drop_caches(&mut plan);
            for step in plan.steps {
                self.submit(step, BACKGROUND, now_ns);
            }
        }
        now_ns = self.drain(now_ns);
        if self.options.pace == Pace::Trace
            && let Some(request) = self.requests.peek()
        {
            let arrival_ns = self.arrival_ns(&request);
            self.arrivals_from_ns += now_ns.saturating_sub(arrival_ns);
            now_ns = now_ns.max(arrival_ns);
        }
        self.design.counting_begins();
        self.disks_before = self.machine.disks.each_ref().map(|d| d.counts());
        self.report.facts_before = self.design.facts();
        self.measured_from_ns = now_ns;
        self.series_from_ns = now_ns;
        self.clients.iter_mut().for_each(|client| client.ready_ns = Some(now_ns));
    }

    /// Lets the disks do what waits for them: when they are idle, at the earliest `now_ns`.
    fn drain(&mut self, mut now_ns: u64) -> u64 {
        while let Some((disk_ns, index)) = self.next_disk_event() {
            now_ns = now_ns.max(disk_ns);
            self.poll(index, disk_ns);
        }
        now_ns
    }

    fn end(&mut self, index: usize, now_ns: u64) {
        let client = &mut self.clients[index];
        client.ready_ns = Some(now_ns);
        let Some((request, outcome)) = client.request.take() else { return };
        self.last_ns = now_ns;
        if !client.counted {
            return;
        }
        if outcome == Outcome::LeftOut {
            self.report.bodiless_requests += 1;
            return;
        }
        let (response_ns, from_memory) = (now_ns - client.asked_ns, !client.waited_read);
        let report = &mut self.report;
        report.requests += 1;
        report.responses.add(response_ns);
        if request.op == Op::Read {
            report.reads += 1;
            report.read_bytes = report.read_bytes.saturating_add(request.size_bytes);
        }
        match outcome {
            Outcome::Hit => {
                report.hits += 1;
                report.hit_bytes = report.hit_bytes.saturating_add(request.size_bytes);
                report.memory_hits += u64::from(from_memory);
                report.hit_responses.add(response_ns);
            }
            Outcome::Stored => report.store_responses.add(response_ns),
            Outcome::Refused => report.refused += 1,
            Outcome::Done | Outcome::LeftOut => {}
        }
        self.add_to_series(response_ns);
    }

    fn add_to_series(&mut self, response_ns: u64) {
        if self.options.series_every == 0 {
            return;
        }
        self.series.0 += response_ns;
        self.series.1 += 1;
        if self.series.1 == self.options.series_every {
            let count = self.series.1 as f64;
            self.report.series_ms.push(self.series.0 as f64 / count / 1e6);
            let block_ns = self.last_ns - self.series_from_ns;
            self.report.series_operation_ms.push(block_ns as f64 / count / 1e6);
            self.series = (0, 0);
            self.series_from_ns = self.last_ns;
        }
    }

    /// Writes what is dirty and waits until the disks are idle.
    fn finish(mut self) -> Result<Report, MachineError> {
        let mut plan = Plan::default();
        self.actions.clear();
        self.design.finish(&mut self.actions);
        self.machine.lower(&self.actions, &mut plan)?;
        self.machine.sync(&mut plan);
        let mut now_ns = self.last_ns;
        for step in &plan.steps {
            let bytes = u64::from(step.sectors) * SECTOR_BYTES;
            self.report.io.add(step.direction, step.kind, bytes);
            self.note_place(*step, bytes);
            self.submit(*step, BACKGROUND, now_ns);
        }
        now_ns = self.drain(now_ns);
        self.machine.now_ns = now_ns;
        let report = &mut self.report;
        report.elapsed_ns = self.last_ns - self.measured_from_ns.min(self.last_ns);
        report.drained_ns = now_ns - self.measured_from_ns.min(now_ns);
        for (index, disk) in self.machine.disks.iter().enumerate() {
            report.disks[index] = since(disk.counts(), self.disks_before[index]);
        }
        report.facts = self.design.facts();
        Ok(self.report)
    }
}

fn since(now: DiskCounts, then: DiskCounts) -> DiskCounts {
    DiskCounts {
        reads: now.reads - then.reads,
        writes: now.writes - then.writes,
        read_bytes: now.read_bytes - then.read_bytes,
        write_bytes: now.write_bytes - then.write_bytes,
        read_ns: now.read_ns - then.read_ns,
        write_ns: now.write_ns - then.write_ns,
        from_memory: now.from_memory - then.from_memory,
        absorbed: now.absorbed - then.absorbed,
    }
}
