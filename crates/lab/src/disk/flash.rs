//! How long one request takes on a drive of many flash units.
//!
//! A request is cut into stripes that go to units in turn, as the drive's own layout would spread
//! them; units work side by side, each on one thing at a time. Writes are acknowledged from the
//! buffer and programmed behind it, amplified by the collector. Invariant: a unit is never busy
//! with two things. Threads: one user.

use super::params::FlashParams;
use super::{Direction, Timing};

/// State of one drive.
#[derive(Debug, Clone)]
pub(crate) struct Flash {
    params: FlashParams,
    /// When each unit can read again. Programs are suspended for reads, as drives do, so that a
    /// read waits for reads only.
    read_free_ns: Vec<u64>,
    /// When each unit will have programmed all that was given to it.
    program_free_ns: Vec<u64>,
    bus_free_ns: u64,
}

impl Flash {
    pub(crate) fn new(params: FlashParams) -> Flash {
        assert!(params.units > 0, "{} has units", params.name);
        assert!(params.stripe_bytes >= 512, "{} has stripes of sectors", params.name);
        let units = params.units as usize;
        Flash {
            params,
            read_free_ns: vec![0; units],
            program_free_ns: vec![0; units],
            bus_free_ns: 0,
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.params.size_bytes / 512
    }

    /// Does one request that arrives at `now_ns`.
    pub(crate) fn serve(
        &mut self,
        now_ns: u64,
        direction: Direction,
        sector: u64,
        sectors: u32,
    ) -> Timing {
        let ready_ns = now_ns + self.params.controller_ns;
        let bytes = u64::from(sectors) * 512;
        let bus_ns = bytes * 1_000 / u64::from(self.params.bus_bytes_per_us);
        let media_ns = match direction {
            Direction::Read => self.read(ready_ns, sector, sectors),
            Direction::Write => self.write(ready_ns, sector, sectors),
        };
        // The link carries one transfer at a time; it may work ahead of the last unit.
        self.bus_free_ns = self.bus_free_ns.max(ready_ns) + bus_ns;
        let done_ns = media_ns.max(self.bus_free_ns);
        Timing { done_ns, free_ns: done_ns, from_memory: false }
    }

    fn stripes(&self, sector: u64, sectors: u32) -> std::ops::RangeInclusive<u64> {
        let stripe_sectors = u64::from(self.params.stripe_bytes / 512);
        sector / stripe_sectors..=(sector + u64::from(sectors) - 1) / stripe_sectors
    }

    /// Which unit holds a stripe: mixed, so that a stride does not meet one unit only.
    fn unit(&self, stripe: u64) -> usize {
        let units = u64::from(self.params.units);
        ((stripe + stripe / units * 7) % units) as usize
    }

    fn read(&mut self, ready_ns: u64, sector: u64, sectors: u32) -> u64 {
        let mut done_ns = ready_ns;
        for stripe in self.stripes(sector, sectors) {
            let unit = self.unit(stripe);
            let free_ns = self.read_free_ns[unit].max(ready_ns) + self.params.read_ns;
            self.read_free_ns[unit] = free_ns;
            done_ns = done_ns.max(free_ns);
        }
        done_ns
    }

    fn write(&mut self, ready_ns: u64, sector: u64, sectors: u32) -> u64 {
        let stripe_bytes = u64::from(self.params.stripe_bytes);
        let amplified = u64::from(self.params.write_amplification_percent);
        let mut bytes = u64::from(sectors) * 512;
        let per_unit = self.params.buffer_bytes / stripe_bytes / u64::from(self.params.units);
        let full_program_ns = self.params.program_ns * amplified / 100;
        let slack_ns = full_program_ns * per_unit;
        let mut done_ns = ready_ns + self.params.write_ack_ns;
        for stripe in self.stripes(sector, sectors) {
            let unit = self.unit(stripe);
            let here = bytes.min(stripe_bytes);
            bytes -= here;
            let program_ns = full_program_ns * here / stripe_bytes;
            let free_ns = self.program_free_ns[unit].max(ready_ns) + program_ns;
            self.program_free_ns[unit] = free_ns;
            // Once the buffer is full a write waits for programs to make room.
            done_ns = done_ns.max(free_ns.saturating_sub(slack_ns));
        }
        done_ns
    }
}
