//! Where a sector is (cylinder, surface, angle) and how long the arm takes to get there.
//!
//! Invariants: every sector has one place; tracks are skewed so that reading on over a track or
//! cylinder boundary loses no revolution; the seek curve never falls. Threads: immutable.

use super::params::{MechanicalParams, SeekPoints};

/// The place of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Counted from the outermost.
    pub cylinder: u32,
    /// Surface.
    pub head: u32,
    /// Sector within its track.
    pub sector: u32,
    /// Sectors of this track.
    pub sectors_per_track: u32,
    /// When the start of the sector passes the head, within a revolution.
    pub angle_ns: u64,
}

#[derive(Debug, Clone)]
struct ZoneStart {
    sector: u64,
    cylinder: u32,
    sectors_per_track: u32,
    track_skew_ns: u64,
    cylinder_skew_ns: u64,
}

/// Stretches of a drive of which it is known in which zone they begin.
const STRETCHES_MAX: u64 = 1 << 10;

/// Sectors to places.
#[derive(Debug, Clone)]
pub struct Geometry {
    zones: Vec<ZoneStart>,
    /// Zone in which each stretch of `1 << stretch_bits` sectors begins, so that none is searched
    /// for.
    zone_of_stretch: Vec<u32>,
    stretch_bits: u32,
    heads: u32,
    revolution_ns: u64,
    sectors: u64,
}

impl Geometry {
    /// The layout of a drive: tracks of a cylinder first, then the next cylinder inwards.
    ///
    /// # Panics
    /// If [`MechanicalParams::check`] would refuse the parameters.
    pub fn new(params: &MechanicalParams) -> Geometry {
        assert_eq!(params.check(), Ok(()), "parameters of {} make sense", params.name);
        let (mut sector, mut cylinder) = (0, 0);
        let zones: Vec<ZoneStart> = params
            .zones
            .iter()
            .map(|zone| {
                // One sector of slack: the skew must be at least the switch.
                let slack_ns = params.revolution_ns / u64::from(zone.sectors_per_track);
                let start = ZoneStart {
                    sector,
                    cylinder,
                    sectors_per_track: zone.sectors_per_track,
                    track_skew_ns: u64::from(params.head_switch_us) * 1_000 + slack_ns,
                    cylinder_skew_ns: u64::from(params.seek.single_us) * 1_000 + slack_ns,
                };
                sector += u64::from(zone.cylinders)
                    * u64::from(params.heads)
                    * u64::from(zone.sectors_per_track);
                cylinder += zone.cylinders;
                start
            })
            .collect();
        let sectors = params.sectors();
        let stretch_bits = (sectors / STRETCHES_MAX).next_power_of_two().trailing_zeros();
        let zone_at = |stretch: u64| {
            zones.partition_point(|zone| zone.sector <= stretch << stretch_bits) as u32 - 1
        };
        let zone_of_stretch = (0..=(sectors - 1) >> stretch_bits).map(zone_at).collect();
        Geometry {
            zones,
            zone_of_stretch,
            stretch_bits,
            heads: params.heads,
            revolution_ns: params.revolution_ns,
            sectors,
        }
    }

    fn zone(&self, sector: u64) -> &ZoneStart {
        let mut index = self.zone_of_stretch[(sector >> self.stretch_bits) as usize] as usize;
        while self.zones.get(index + 1).is_some_and(|next| next.sector <= sector) {
            index += 1;
        }
        &self.zones[index]
    }

    /// Sectors of the drive.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Where `sector` is.
    ///
    /// # Panics
    /// If the drive has no such sector.
    pub fn place(&self, sector: u64) -> Place {
        assert!(sector < self.sectors, "sector {sector} is on a drive of {}", self.sectors);
        let zone = self.zone(sector);
        let per_track = u64::from(zone.sectors_per_track);
        let track = (sector - zone.sector) / per_track;
        let within = (sector - zone.sector) % per_track;
        let heads = u64::from(self.heads);
        let (cylinder, head) = (track / heads, track % heads);
        let cylinder_turn_ns = (heads - 1) * zone.track_skew_ns + zone.cylinder_skew_ns;
        let skew_ns = cylinder * cylinder_turn_ns + head * zone.track_skew_ns;
        let angle_ns = (skew_ns + within * self.revolution_ns / per_track) % self.revolution_ns;
        Place {
            cylinder: zone.cylinder + cylinder as u32,
            head: head as u32,
            sector: within as u32,
            sectors_per_track: zone.sectors_per_track,
            angle_ns,
        }
    }
}

/// Seek time over distance: `a * sqrt(d - 1) + b * (d - 1) + c` through the three points that data
/// sheets give (Lee and Katz, SIGMETRICS 1993).
#[derive(Debug, Clone)]
pub struct SeekCurve {
    root_ns: f64,
    linear_ns: f64,
    single_ns: f64,
}

impl SeekCurve {
    /// The curve of a drive with so many cylinders.
    pub fn new(points: SeekPoints, cylinders: u32) -> SeekCurve {
        let single = f64::from(points.single_us) * 1e3;
        let average = f64::from(points.average_us) * 1e3;
        let full = f64::from(points.full_us) * 1e3;
        let n = f64::from(cylinders.max(2));
        // Means of sqrt(d) and d over random pairs are 8/15 sqrt(n) and n/3.
        let linear = (15.0 * (average - single) - 8.0 * (full - single)) / (-3.0 * n);
        let root = (full - single - linear * n) / n.sqrt();
        SeekCurve { root_ns: root.max(0.0), linear_ns: linear.max(0.0), single_ns: single }
    }

    /// Time to cross so many cylinders.
    pub fn time_ns(&self, cylinders: u32) -> u64 {
        if cylinders == 0 {
            return 0;
        }
        let d = f64::from(cylinders - 1);
        (self.single_ns + self.root_ns * d.sqrt() + self.linear_ns * d) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Drive, drive_names};

    /// The last zone that begins no later than the sector, found by looking at all of them.
    #[test]
    fn every_sector_is_in_its_zone() {
        let mut rng = fastrand::Rng::with_seed(4);
        for name in drive_names() {
            let Some(Drive::Mechanical(params)) = Drive::named(name) else { continue };
            let geometry = Geometry::new(&params);
            let borders = geometry.zones.iter().flat_map(|zone| [zone.sector, zone.sector + 1]);
            let before = geometry.zones.iter().skip(1).map(|zone| zone.sector - 1);
            let ends = [geometry.sectors - 1];
            let anywhere = (0..1_000).map(|_| rng.u64(0..geometry.sectors));
            for sector in borders.chain(before).chain(ends).chain(anywhere) {
                let expected = geometry.zones.iter().rfind(|zone| zone.sector <= sector);
                let expected = expected.expect("the first begins at 0").sector;
                assert_eq!(geometry.zone(sector).sector, expected, "{name}, {sector}");
            }
        }
    }
}
