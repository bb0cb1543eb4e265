//! Disks in virtual time: a queue, a scheduler and a model of the drive behind it.
//!
//! Invariants: virtual time given to a disk never goes back; every request submitted completes
//! exactly once; counts and bytes of what was served equal those submitted. Threads: one user.

mod flash;
mod geometry;
mod mechanical;
mod params;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub use geometry::{Geometry, Place, SeekCurve};
pub use params::{
    Drive, DriveCache, DriveError, FlashParams, MechanicalParams, SeekPoints, Zone, drive_names,
};

use flash::Flash;
use mechanical::Mechanical;

/// Smallest unit of a disk.
pub const SECTOR_BYTES: u64 = 512;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// Order in which waiting requests are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Upwards only, then back to the lowest (C-LOOK).
    OneWayElevator,
    /// Up and down (LOOK).
    TwoWayElevator,
}

/// One request to a disk. `tag` comes back with its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskIo {
    /// Read or write.
    pub direction: Direction,
    /// First sector.
    pub sector: u64,
    /// How many; more than none.
    pub sectors: u32,
    /// The caller's own.
    pub tag: u32,
}

/// What the drive model says of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timing {
    /// When the host is told.
    done_ns: u64,
    /// When the mechanism can begin the next.
    free_ns: u64,
    /// The mechanism was not waited for.
    from_memory: bool,
}

/// What a disk did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time the drive spent on reads (sum over requests on drives that work in parallel).
    pub read_ns: u64,
    /// Time the drive spent on writes.
    pub write_ns: u64,
    /// Requests that the drive's memory answered.
    pub from_memory: u64,
}

#[derive(Debug)]
enum Mechanism {
    Mechanical(Box<Mechanical>),
    Flash(Box<Flash>),
}

#[derive(Debug, Default)]
struct Queue {
    arrivals: VecDeque<DiskIo>,
    by_sector: BTreeMap<(u64, u64), DiskIo>,
    sequence: u64,
    rising: bool,
    /// Where the last request began.
    at: u64,
}

impl Queue {
    fn len(&self) -> usize {
        self.arrivals.len() + self.by_sector.len()
    }

    fn push(&mut self, scheduler: Scheduler, io: DiskIo) {
        if scheduler == Scheduler::Fcfs {
            self.arrivals.push_back(io);
        } else {
            self.sequence += 1;
            self.by_sector.insert((io.sector, self.sequence), io);
        }
    }

    fn pop(&mut self, scheduler: Scheduler) -> Option<DiskIo> {
        let io = match scheduler {
            Scheduler::Fcfs => self.arrivals.pop_front()?,
            Scheduler::OneWayElevator => self.pop_above().or_else(|| self.pop_lowest())?,
            Scheduler::TwoWayElevator => self.pop_along()?,
        };
        self.at = io.sector;
        Some(io)
    }

    fn pop_above(&mut self) -> Option<DiskIo> {
        let key = *self.by_sector.range((self.at, 0)..).next()?.0;
        self.by_sector.remove(&key)
    }

    fn pop_below(&mut self) -> Option<DiskIo> {
        let key = *self.by_sector.range(..(self.at, 0)).next_back()?.0;
        self.by_sector.remove(&key)
    }

    fn pop_lowest(&mut self) -> Option<DiskIo> {
        self.by_sector.pop_first().map(|(_, io)| io)
    }

    fn pop_along(&mut self) -> Option<DiskIo> {
        for _ in 0..2 {
            let next = if self.rising { self.pop_above() } else { self.pop_below() };
            if next.is_some() {
                return next;
            }
            self.rising = !self.rising;
        }
        None
    }
}

/// A disk with its queue.
#[derive(Debug)]
pub struct Disk {
    mechanism: Mechanism,
    scheduler: Scheduler,
    queue: Queue,
    /// Served but not yet reported: when, order of service, tag.
    finished: BinaryHeap<Reverse<(u64, u64, u32)>>,
    free_ns: u64,
    served: u64,
    counts: DiskCounts,
}

impl Disk {
    /// An idle disk at time 0. A drive without seeks serves everything at once, whatever the
    /// scheduler.
    pub fn new(drive: Drive, scheduler: Scheduler) -> Disk {
        let mechanism = match drive {
            Drive::Mechanical(p) => Mechanism::Mechanical(Box::new(Mechanical::new(p))),
            Drive::Flash(p) => Mechanism::Flash(Box::new(Flash::new(p))),
        };
        Disk {
            mechanism,
            scheduler,
            queue: Queue::default(),
            finished: BinaryHeap::new(),
            free_ns: 0,
            served: 0,
            counts: DiskCounts::default(),
        }
    }

    /// Sectors of the drive.
    pub fn sectors(&self) -> u64 {
        match &self.mechanism {
            Mechanism::Mechanical(m) => m.sectors(),
            Mechanism::Flash(f) => f.sectors(),
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> DiskCounts {
        self.counts
    }

    /// Requests that wait for the mechanism.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Cylinder of a sector; 0 on drives without.
    pub fn cylinder_of(&self, sector: u64) -> u32 {
        match &self.mechanism {
            Mechanism::Mechanical(m) => m.cylinder_of(sector),
            Mechanism::Flash(_) => 0,
        }
    }

    /// Hands over a request at `now_ns`; it is served when its turn comes.
    pub fn submit(&mut self, now_ns: u64, io: DiskIo) {
        assert!(io.sector + u64::from(io.sectors) <= self.sectors(), "{io:?} is on the drive");
        self.advance(now_ns);
        let idle = self.free_ns <= now_ns && self.queue.len() == 0;
        if idle || matches!(self.mechanism, Mechanism::Flash(_)) {
            self.queue.at = io.sector;
            self.serve(now_ns, io);
        } else {
            self.queue.push(self.scheduler, io);
        }
    }

    /// When something next happens without further requests.
    pub fn next_event_ns(&self) -> Option<u64> {
        let completion = self.finished.peek().map(|Reverse((done_ns, _, _))| *done_ns);
        let start = (self.queue.len() > 0).then_some(self.free_ns);
        match (completion, start) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Starts what can start until `now_ns` and returns a completion that is due, with its time.
    pub fn poll(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        self.advance(now_ns);
        let Reverse((done_ns, _, tag)) = *self.finished.peek()?;
        if done_ns > now_ns {
            return None;
        }
        self.finished.pop();
        Some((done_ns, tag))
    }

    fn advance(&mut self, now_ns: u64) {
        while self.free_ns <= now_ns {
            let start_ns = self.free_ns;
            let Some(io) = self.queue.pop(self.scheduler) else { return };
            self.serve(start_ns, io);
        }
    }

    fn serve(&mut self, start_ns: u64, io: DiskIo) {
        let timing = match &mut self.mechanism {
            Mechanism::Mechanical(m) => m.serve(start_ns, io.direction, io.sector, io.sectors),
            Mechanism::Flash(f) => f.serve(start_ns, io.direction, io.sector, io.sectors),
        };
        self.free_ns = timing.free_ns;
        if matches!(self.mechanism, Mechanism::Flash(_)) {
            self.free_ns = start_ns;
        }
        self.served += 1;
        self.finished.push(Reverse((timing.done_ns, self.served, io.tag)));
        let bytes = u64::from(io.sectors) * SECTOR_BYTES;
        let busy_ns = timing.free_ns - start_ns;
        self.counts.from_memory += u64::from(timing.from_memory);
        match io.direction {
            Direction::Read => {
                self.counts.reads += 1;
                self.counts.read_bytes += bytes;
                self.counts.read_ns += busy_ns;
            }
            Direction::Write => {
                self.counts.writes += 1;
                self.counts.write_bytes += bytes;
                self.counts.write_ns += busy_ns;
            }
        }
    }
}
