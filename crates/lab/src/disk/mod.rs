//! Disks in virtual time: a queue, a scheduler and a model of the drive behind it.
//!
//! A drive with a memory for writes (write-back) says that one is done as soon as it is there, and
//! writes it when no read waits; where that memory is full, reads and writes take turns.
//!
//! Invariants: virtual time given to a disk never goes back; every request submitted completes
//! exactly once; counts and bytes of what was served equal those submitted, less writes that others
//! took the place of in the drive's memory, once nothing happens any more; no time counts twice.
//! Threads: one user.

mod flash;
mod geometry;
mod held;
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
use held::Held;
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
    /// Time the drive was busy with reads. Where several requests are under way at once, as on
    /// flash, time counts once, for the one that was there first.
    pub read_ns: u64,
    /// Time the drive was busy with writes.
    pub write_ns: u64,
    /// Requests that the drive's memory answered.
    pub from_memory: u64,
    /// Writes that are not in `writes`, since one of the same sectors still waited in the drive's
    /// memory, which then goes to the surface once for both.
    pub absorbed: u64,
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
    /// Of drives with write-back.
    held: Option<Held>,
    /// Writes that wait for room there.
    late: Queue,
    /// When the bus has brought what it brings to that memory.
    bus_free_ns: u64,
    /// Whose turn it is where both wait.
    read_last: bool,
    /// Served but not yet reported: when, order of service, tag.
    finished: BinaryHeap<Reverse<(u64, u64, u32)>>,
    free_ns: u64,
    /// Until when time has been counted.
    busy_until_ns: u64,
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
        let write_room_bytes = drive.write_room_bytes();
        let mechanism = match drive {
            Drive::Mechanical(p) => Mechanism::Mechanical(Box::new(Mechanical::new(p))),
            Drive::Flash(p) => Mechanism::Flash(Box::new(Flash::new(p))),
        };
        Disk {
            mechanism,
            queue: Queue::new(scheduler),
            held: (write_room_bytes > 0).then(|| Held::new(write_room_bytes)),
            late: Queue::new(scheduler),
            bus_free_ns: 0,
            read_last: false,
            finished: BinaryHeap::new(),
            free_ns: 0,
            busy_until_ns: 0,
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

    /// Requests that wait for the mechanism, or for room in the drive's memory.
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.late.len()
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
        let is_flash = matches!(self.mechanism, Mechanism::Flash(_));
        if self.goes_to_memory(&io) {
            self.write_to_memory(now_ns, io);
        } else if self.is_in_memory(&io) {
            self.read_from_memory(now_ns, io);
        } else if self.free_ns <= now_ns || is_flash {
            // Nothing waits where the mechanism is free.
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
        let writes = self.held.as_ref().is_some_and(Held::has_any);
        let start_ns = if self.queue.len() > 0 || writes { self.free_ns } else { NEVER };
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
            if !self.begin_next(self.free_ns) {
                return;
            }
        }
    }

    /// Begins what comes next, with the mechanism free; false if nothing waits.
    fn begin_next(&mut self, start_ns: u64) -> bool {
        if let Some(held) = &mut self.held {
            held.end();
            self.take_late(start_ns);
            let is_writes_turn = self.late.len() > 0 && self.read_last;
            if (is_writes_turn || self.queue.len() == 0) && self.write_held(start_ns) {
                return true;
            }
        }
        let Some(io) = self.queue.pop() else { return false };
        self.serve(start_ns, io);
        true
    }

    fn goes_to_memory(&self, io: &DiskIo) -> bool {
        let held = self.held.as_ref().filter(|_| io.direction == Direction::Write);
        held.is_some_and(|held| held.can_ever_hold(io))
    }

    fn is_in_memory(&self, io: &DiskIo) -> bool {
        let held = self.held.as_ref().filter(|_| io.direction == Direction::Read);
        held.is_some_and(|held| held.covers(io))
    }

    fn write_to_memory(&mut self, now_ns: u64, io: DiskIo) {
        self.late.push(io);
        self.take_late(now_ns);
        if self.free_ns <= now_ns {
            self.write_held(now_ns);
        }
    }

    /// Takes writes into the drive's memory while it has room, and says that they are done.
    fn take_late(&mut self, now_ns: u64) {
        let (Some(held), Mechanism::Mechanical(drive)) = (&mut self.held, &self.mechanism) else {
            return;
        };
        while let Some(io) = self.late.pop_if(|io| held.takes(io)) {
            let ready_ns = now_ns + drive.command_ns();
            self.bus_free_ns = ready_ns.max(self.bus_free_ns) + drive.bus_ns(io.sectors);
            self.counts.absorbed += u64::from(!held.put(&io, ready_ns));
            self.served += 1;
            self.finished.push(Reverse((self.bus_free_ns, self.served, io.tag)));
            self.counts.from_memory += 1;
        }
    }

    /// Writes one of those in the drive's memory to the surface; false if there is none.
    fn write_held(&mut self, start_ns: u64) -> bool {
        let (Some(held), Mechanism::Mechanical(drive)) = (&mut self.held, &mut self.mechanism)
        else {
            return false;
        };
        let Some(next) = held.begin() else { return false };
        let from_ns = start_ns.max(next.ready_ns);
        self.free_ns = drive.write(from_ns, next.sector, next.sectors);
        self.read_last = false;
        self.count(Direction::Write, next.sectors, self.free_ns - start_ns);
        true
    }

    /// What waits to be written is read from where it waits; the surface is not needed.
    fn read_from_memory(&mut self, now_ns: u64, io: DiskIo) {
        let Mechanism::Mechanical(drive) = &self.mechanism else { return };
        let done_ns = now_ns + drive.command_ns() + drive.bus_ns(io.sectors);
        self.served += 1;
        self.finished.push(Reverse((done_ns, self.served, io.tag)));
        self.counts.from_memory += 1;
        self.count(Direction::Read, io.sectors, 0);
    }

    fn count(&mut self, direction: Direction, sectors: u32, busy_ns: u64) {
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        match direction {
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
        self.counts.from_memory += u64::from(timing.from_memory);
        self.read_last = io.direction == Direction::Read;
        // What came before may still be under way, on flash.
        let from_ns = start_ns.max(self.busy_until_ns);
        self.busy_until_ns = self.busy_until_ns.max(timing.free_ns);
        self.count(io.direction, io.sectors, timing.free_ns.saturating_sub(from_ns));
    }
}
