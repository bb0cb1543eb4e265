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

/// Sectors to places.
#[derive(Debug, Clone)]
pub struct Geometry {
    zones: Vec<ZoneStart>,
    heads: u32,
    revolution_ns: u64,
    sectors: u64,
}

impl Geometry {
    /// The layout of a drive: tracks of a cylinder first, then the next cylinder inwards.
    pub fn new(params: &MechanicalParams) -> Geometry {
        assert_eq!(params.check(), Ok(()), "parameters of {} make sense", params.name);
        let (mut sector, mut cylinder) = (0, 0);
        let zones = params
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
        Geometry {
            zones,
            heads: params.heads,
            revolution_ns: params.revolution_ns,
            sectors: params.sectors(),
        }
    }

    /// Sectors of the drive.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Where `sector` is.
    pub fn place(&self, sector: u64) -> Place {
        assert!(sector < self.sectors, "sector {sector} is on a drive of {}", self.sectors);
        let index = self.zones.partition_point(|z| z.sector <= sector) - 1;
        let zone = &self.zones[index];
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
