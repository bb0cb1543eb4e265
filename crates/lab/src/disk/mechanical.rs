//! How long one request takes on a drive with seeks: arm, rotation, switches, on-drive memory.
//!
//! Owns the position of the arm and what the drive's memory holds. Invariants: time never goes
//! back; what the drive's memory says it holds was read from, or written to, those sectors.
//! Threads: one user.

use super::geometry::{Geometry, SeekCurve};
use super::params::MechanicalParams;
use super::{Direction, Timing};

/// A run of sectors in the drive's memory.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// The head goes on reading behind the last read until its segment is full or it is called away.
#[derive(Debug, Clone, Copy)]
struct ReadAhead {
    start: u64,
    from: u64,
    at_ns: u64,
    until: u64,
}

/// State of one drive.
#[derive(Debug, Clone)]
pub(crate) struct Mechanical {
    params: MechanicalParams,
    geometry: Geometry,
    curve: SeekCurve,
    cylinder: u32,
    head: u32,
    segments: Vec<Segment>,
    ahead: Option<ReadAhead>,
    /// Where the last write ended, and when: the head is just behind it then.
    written: Option<(u64, u64)>,
    uses: u64,
}

impl Mechanical {
    pub(crate) fn new(params: MechanicalParams) -> Mechanical {
        let geometry = Geometry::new(&params);
        let curve = SeekCurve::new(params.seek, params.cylinders());
        Mechanical {
            params,
            geometry,
            curve,
            cylinder: 0,
            head: 0,
            segments: Vec::new(),
            ahead: None,
            written: None,
            uses: 0,
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.geometry.sectors()
    }

    /// Does one request that begins at `start_ns` with the drive idle.
    pub(crate) fn serve(
        &mut self,
        start_ns: u64,
        direction: Direction,
        sector: u64,
        sectors: u32,
    ) -> Timing {
        assert!(sectors > 0, "a request moves something");
        let ready_ns = start_ns + self.command_ns();
        match direction {
            Direction::Read => self.read(ready_ns, self.bus_ns(sectors), sector, sectors),
            Direction::Write => {
                let done_ns = self.write(ready_ns, sector, sectors);
                Timing { done_ns, free_ns: done_ns, from_memory: false }
            }
        }
    }

    /// Until the drive knows what it is to do.
    pub(crate) fn command_ns(&self) -> u64 {
        u64::from(self.params.controller_us) * 1_000
    }

    /// How long the bus takes for that.
    pub(crate) fn bus_ns(&self, sectors: u32) -> u64 {
        u64::from(sectors) * 512 * 1_000 / u64::from(self.params.bus_bytes_per_us)
    }

    fn read(&mut self, ready_ns: u64, bus_ns: u64, sector: u64, sectors: u32) -> Timing {
        let end = sector + u64::from(sectors);
        if let Some(done_ns) = self.answer_from_memory(ready_ns, bus_ns, sector, end) {
            return Timing { done_ns, free_ns: done_ns, from_memory: true };
        }
        self.stop_reading_ahead(ready_ns);
        let done_ns = self.transfer(ready_ns, Direction::Read, sector, sectors);
        let until = (end + self.room()).min(self.geometry.sectors());
        self.ahead = Some(ReadAhead { start: sector, from: end, at_ns: done_ns, until });
        // The bus runs beside the surface; only the last sector's trip is seen.
        let done_ns = done_ns + bus_ns / u64::from(sectors);
        Timing { done_ns, free_ns: done_ns, from_memory: false }
    }

    /// Writes to the surface; returns when that is over. What goes on where the last write ended,
    /// and was there by then, does not wait for the next turn.
    pub(crate) fn write(&mut self, ready_ns: u64, sector: u64, sectors: u32) -> u64 {
        self.stop_reading_ahead(ready_ns);
        let end = sector + u64::from(sectors);
        self.segments.retain(|s| s.end <= sector || s.start >= end);
        let settled_ns = match self.written {
            Some((written_end, at_ns)) if written_end == sector && ready_ns <= at_ns => {
                self.move_to(end - 1);
                at_ns + self.stream_ns(sector, end)
            }
            _ => self.transfer(ready_ns, Direction::Write, sector, sectors),
        };
        self.written = Some((end, settled_ns));
        settled_ns
    }

    /// When the drive's memory answers, or `None` if it cannot.
    fn answer_from_memory(
        &mut self,
        ready_ns: u64,
        bus_ns: u64,
        sector: u64,
        end: u64,
    ) -> Option<u64> {
        self.uses += 1;
        if let Some(s) = self.segments.iter_mut().find(|s| s.start <= sector && end <= s.end) {
            s.used = self.uses;
            return Some(ready_ns + bus_ns);
        }
        let ahead = self.ahead?;
        let room = self.room();
        let reached = self.reached(ready_ns);
        let oldest = ahead.start.max(reached.saturating_sub(room));
        if sector < oldest || sector > reached {
            return None;
        }
        let until = (end + room).min(self.geometry.sectors());
        if end <= reached {
            self.ahead = Some(ReadAhead { start: oldest, from: reached, at_ns: ready_ns, until });
            return Some(ready_ns + bus_ns);
        }
        if reached == ahead.until {
            return None;
        }
        // The head is on its way there: go on behind it.
        let arrives_ns = (ahead.at_ns + self.stream_ns(ahead.from, end)).max(ready_ns);
        self.ahead = Some(ReadAhead { start: oldest, from: end, at_ns: arrives_ns, until });
        self.move_to(end - 1);
        Some(arrives_ns + bus_ns / (end - sector))
    }

    /// Sectors that reading ahead may be in front of the host.
    fn room(&self) -> u64 {
        u64::from(self.params.cache.segment_bytes / 512)
    }

    /// How far reading ahead has come.
    fn reached(&self, now_ns: u64) -> u64 {
        let Some(ahead) = self.ahead else { return 0 };
        let elapsed_ns = now_ns.saturating_sub(ahead.at_ns);
        let is_behind = |to: u64| to == ahead.from || self.stream_ns(ahead.from, to) <= elapsed_ns;
        // After most pauses it is at its end, and nothing has to be searched for.
        if is_behind(ahead.until) {
            return ahead.until;
        }
        let (mut low, mut high) = (ahead.from, ahead.until);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if is_behind(middle) { low = middle } else { high = middle }
        }
        low
    }

    fn stop_reading_ahead(&mut self, now_ns: u64) {
        let end = self.reached(now_ns);
        if let Some(ahead) = self.ahead.take()
            && self.params.cache.segments > 0
        {
            if self.segments.len() == self.params.cache.segments as usize {
                let oldest = (0..self.segments.len()).min_by_key(|&i| self.segments[i].used);
                self.segments.swap_remove(oldest.unwrap_or(0));
            }
            // Of a longer read the segment holds the end.
            let start = ahead.start.max(end.saturating_sub(self.room()));
            self.segments.push(Segment { start, end, used: self.uses });
            self.move_to(end.max(ahead.start + 1) - 1);
        }
    }

    fn move_to(&mut self, sector: u64) {
        let place = self.geometry.place(sector);
        (self.cylinder, self.head) = (place.cylinder, place.head);
    }

    /// Time to read on from `from`, before which the head has just passed a sector, to `to` in
    /// track order, switches included.
    fn stream_ns(&self, from: u64, to: u64) -> u64 {
        let place = self.geometry.place(from - 1);
        let per_track = u64::from(place.sectors_per_track);
        let sectors_ns = (to - from) * self.params.revolution_ns / per_track;
        let tracks = (u64::from(place.sector) + (to - from)) / per_track;
        let cylinders = (u64::from(place.head) + tracks) / u64::from(self.params.heads);
        let switches_ns = (tracks - cylinders) * u64::from(self.params.head_switch_us) * 1_000;
        sectors_ns + switches_ns + cylinders * u64::from(self.params.seek.single_us) * 1_000
    }

    /// Moves the arm, waits for the sector and passes over all of them; returns when it is over.
    fn transfer(&mut self, ready_ns: u64, direction: Direction, sector: u64, sectors: u32) -> u64 {
        let revolution_ns = self.params.revolution_ns;
        let (mut now_ns, mut at, mut left) = (ready_ns, sector, u64::from(sectors));
        let mut settle_ns = match direction {
            Direction::Write => u64::from(self.params.write_settle_us) * 1_000,
            Direction::Read => 0,
        };
        while left > 0 {
            let place = self.geometry.place(at);
            if place.cylinder != self.cylinder {
                now_ns += self.curve.time_ns(place.cylinder.abs_diff(self.cylinder)) + settle_ns;
            } else if place.head != self.head {
                now_ns += u64::from(self.params.head_switch_us) * 1_000 + settle_ns;
            }
            // Within one request the skew already allows for settling.
            settle_ns = 0;
            (self.cylinder, self.head) = (place.cylinder, place.head);
            // Both angles are less than a revolution.
            let angle_ns = now_ns % revolution_ns;
            let past_ns = if place.angle_ns < angle_ns { revolution_ns } else { 0 };
            let wait_ns = place.angle_ns + past_ns - angle_ns;
            let here = left.min(u64::from(place.sectors_per_track - place.sector));
            now_ns += wait_ns + here * revolution_ns / u64::from(place.sectors_per_track);
            at += here;
            left -= here;
        }
        now_ns
    }

    pub(crate) fn cylinder_of(&self, sector: u64) -> u32 {
        self.geometry.place(sector).cylinder
    }
}
