//! Writes that a drive with a memory for them (write-back) has said are done, and has to write.
//!
//! Owns which they are and how much room they leave; the drive writes them upwards, then begins
//! with the lowest again. What is written again while it waits goes to the surface once.
//! Invariants: they are never more bytes than there is room for; what is being written counts until
//! it is on the surface, and takes no newer contents. Threads: one user.

use std::collections::BTreeMap;

use super::{DiskIo, SECTOR_BYTES};

/// One of them; sectors are counted from the key's.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    sectors: u32,
    ready_ns: u64,
}

/// What the surface gets next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) sector: u64,
    pub(super) sectors: u32,
    /// When the drive knew of it.
    pub(super) ready_ns: u64,
}

#[derive(Debug)]
pub(super) struct Held {
    room_bytes: u64,
    /// What waits and what is being written.
    bytes: u64,
    being_written_bytes: u64,
    /// By first sector and time of arrival.
    waiting: BTreeMap<(u64, u64), Waiting>,
    arrivals: u64,
    /// Where the last one that was written ended.
    at: u64,
}

impl Held {
    pub(super) fn new(room_bytes: u64) -> Held {
        Held {
            room_bytes,
            bytes: 0,
            being_written_bytes: 0,
            waiting: BTreeMap::new(),
            arrivals: 0,
            at: 0,
        }
    }

    /// True if it would fit were nothing else there.
    pub(super) fn can_ever_hold(&self, io: &DiskIo) -> bool {
        bytes_of(io.sectors) <= self.room_bytes
    }

    /// True if there is room for it, or one that waits has it.
    pub(super) fn takes(&self, io: &DiskIo) -> bool {
        self.covers(io) || self.has_room_for(io)
    }

    fn has_room_for(&self, io: &DiskIo) -> bool {
        self.bytes + bytes_of(io.sectors) <= self.room_bytes
    }

    /// Takes it; false if it takes its place in one that waits with all its sectors.
    pub(super) fn put(&mut self, io: &DiskIo, ready_ns: u64) -> bool {
        if let Some(key) = self.covering(io) {
            if let Some(waiting) = self.waiting.get_mut(&key) {
                waiting.ready_ns = waiting.ready_ns.max(ready_ns);
            }
            return false;
        }
        assert!(self.has_room_for(io), "only what fits is taken");
        self.bytes += bytes_of(io.sectors);
        self.arrivals += 1;
        self.waiting.insert((io.sector, self.arrivals), Waiting { sectors: io.sectors, ready_ns });
        true
    }

    /// True if there is something that is not on the surface yet.
    pub(super) fn has_any(&self) -> bool {
        self.bytes > 0
    }

    /// True if one that waits has all these sectors.
    pub(super) fn covers(&self, io: &DiskIo) -> bool {
        self.covering(io).is_some()
    }

    fn covering(&self, io: &DiskIo) -> Option<(u64, u64)> {
        let (&key, waiting) = self.waiting.range(..=(io.sector, u64::MAX)).next_back()?;
        let is_within = io.sector + u64::from(io.sectors) <= key.0 + u64::from(waiting.sectors);
        is_within.then_some(key)
    }

    /// The next one for the surface.
    pub(super) fn begin(&mut self) -> Option<Next> {
        debug_assert_eq!(self.being_written_bytes, 0, "one at a time");
        let above = self.waiting.range((self.at, 0)..).next();
        let (&key, &Waiting { sectors, ready_ns }) =
            above.or_else(|| self.waiting.iter().next())?;
        self.waiting.remove(&key);
        self.being_written_bytes = bytes_of(sectors);
        self.at = key.0 + u64::from(sectors);
        Some(Next { sector: key.0, sectors, ready_ns })
    }

    /// What was begun is on the surface.
    pub(super) fn end(&mut self) {
        self.bytes -= std::mem::take(&mut self.being_written_bytes);
    }
}

fn bytes_of(sectors: u32) -> u64 {
    u64::from(sectors) * SECTOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Direction;

    fn io(sector: u64, sectors: u32) -> DiskIo {
        DiskIo { direction: Direction::Write, sector, sectors, tag: 0 }
    }

    #[test]
    fn goes_upwards_then_from_the_lowest_and_frees_what_is_written() {
        let mut held = Held::new(30 * SECTOR_BYTES);
        for sector in [50, 20, 60] {
            assert!(held.has_room_for(&io(sector, 10)));
            held.put(&io(sector, 10), sector);
        }
        assert!(!held.has_room_for(&io(0, 1)) && held.can_ever_hold(&io(0, 30)));
        assert!(!held.can_ever_hold(&io(0, 31)));
        assert!(held.covers(&io(52, 8)) && !held.covers(&io(52, 9)) && !held.covers(&io(10, 1)));
        let mut order = Vec::new();
        while let Some(next) = held.begin() {
            assert!(
                !held.has_room_for(&io(0, 10 * (order.len() as u32 + 1))),
                "until it is written"
            );
            held.end();
            order.push(next.sector);
            assert!(held.has_room_for(&io(0, 10 * order.len() as u32)));
        }
        assert_eq!(order, [20, 50, 60]);
        assert!(!held.has_any());
        for sector in [10, 65, 70] {
            held.put(&io(sector, 5), 0);
        }
        let mut order = Vec::new();
        while let Some(next) = held.begin() {
            held.end();
            order.push(next.sector);
        }
        assert_eq!(order, [70, 10, 65], "the last write ended at 70");
    }
}
