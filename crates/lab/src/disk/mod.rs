//! Disks in virtual time: a queue, a scheduler and a model of the drive behind it.
//!
//! Invariants: virtual time given to a disk never goes back; every request submitted completes
//! exactly once; counts and bytes of what was served equal those submitted. Threads: one user.

mod flash;
mod geometry;
mod mechanical;
mod params;
mod queue;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub use geometry::{Geometry, Place, SeekCurve};
pub use params::{
    Drive, DriveCache, DriveError, FlashParams, MechanicalParams, SeekPoints, Zone, drive_names,
};

use flash::Flash;
use mechanical::Mechanical;
use queue::Queue;

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

/// A disk with its queue.
#[derive(Debug)]
pub struct Disk {
    mechanism: Mechanism,
    queue: Queue,
    /// Served but not yet reported: when, order of service, tag.
    finished: BinaryHeap<Reverse<(u64, u64, u32)>>,
    free_ns: u64,
    /// See [`Disk::next_event_ns`]; asked for far more often than it changes. [`NEVER`] if nothing
    /// happens.
    next_ns: u64,
    served: u64,
    counts: DiskCounts,
}

const NEVER: u64 = u64::MAX;

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
            queue: Queue::new(scheduler),
            finished: BinaryHeap::new(),
            free_ns: 0,
            next_ns: NEVER,
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
    ///
    /// # Panics
    /// If the request reaches beyond the drive.
    pub fn submit(&mut self, now_ns: u64, io: DiskIo) {
        assert!(io.sector + u64::from(io.sectors) <= self.sectors(), "{io:?} is on the drive");
        self.advance(now_ns);
        let idle = self.free_ns <= now_ns && self.queue.len() == 0;
        if idle || matches!(self.mechanism, Mechanism::Flash(_)) {
            self.queue.pass(&io);
            self.serve(now_ns, io);
        } else {
            self.queue.push(io);
        }
        self.note_next();
    }

    /// When something next happens without further requests.
    #[inline]
    pub fn next_event_ns(&self) -> Option<u64> {
        (self.next_ns != NEVER).then_some(self.next_ns)
    }

    fn note_next(&mut self) {
        let completion_ns = self.finished.peek().map_or(NEVER, |Reverse((done_ns, _, _))| *done_ns);
        let start_ns = if self.queue.len() > 0 { self.free_ns } else { NEVER };
        self.next_ns = completion_ns.min(start_ns);
    }

    /// Starts what can start until `now_ns` and returns a completion that is due, with its time.
    pub fn poll(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_ns > now_ns {
            return None;
        }
        self.advance(now_ns);
        let due = self.finished.peek().is_some_and(|Reverse((done_ns, _, _))| *done_ns <= now_ns);
        let done = if due { self.finished.pop() } else { None };
        self.note_next();
        done.map(|Reverse((done_ns, _, tag))| (done_ns, tag))
    }

    fn advance(&mut self, now_ns: u64) {
        while self.free_ns <= now_ns {
            let start_ns = self.free_ns;
            let Some(io) = self.queue.pop() else { return };
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
