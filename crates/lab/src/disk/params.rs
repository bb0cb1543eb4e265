//! Parameter sets of drives, each with the source of its figures.
//!
//! Invariant: every set passes [`MechanicalParams::check`] (a test asserts it). Threads: plain data.

/// A band of cylinders with equally long tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Cylinders of the zone.
    pub cylinders: u32,
    /// Sectors of 512 bytes on each track.
    pub sectors_per_track: u32,
}

/// Three points of the seek curve, as data sheets give them, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekPoints {
    /// To the next cylinder.
    pub single_us: u32,
    /// Mean over random pairs of cylinders.
    pub average_us: u32,
    /// From the first cylinder to the last.
    pub full_us: u32,
}

/// Memory on the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveCache {
    /// Bytes of one segment; reading ahead stops when it is full.
    pub segment_bytes: u32,
    /// How many runs of sectors are remembered.
    pub segments: u32,
    /// Writes are acknowledged when they are in the drive's memory.
    pub write_back: bool,
}

/// A disk with seeks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MechanicalParams {
    /// Name used in reports.
    pub name: &'static str,
    /// One revolution, in nanoseconds.
    pub revolution_ns: u64,
    /// Surfaces.
    pub heads: u32,
    /// From the outermost in.
    pub zones: Vec<Zone>,
    /// The seek curve.
    pub seek: SeekPoints,
    /// Extra settling before a write, in microseconds.
    pub write_settle_us: u32,
    /// From one surface to the next, in microseconds.
    pub head_switch_us: u32,
    /// Of each request, in microseconds.
    pub controller_us: u32,
    /// Bus rate in bytes per microsecond (equals MB/s).
    pub bus_bytes_per_us: u32,
    /// Memory on the drive.
    pub cache: DriveCache,
}

impl MechanicalParams {
    /// Sectors of the whole drive.
    pub fn sectors(&self) -> u64 {
        let per_zone = |z: &Zone| u64::from(z.cylinders) * u64::from(z.sectors_per_track);
        u64::from(self.heads) * self.zones.iter().map(per_zone).sum::<u64>()
    }

    /// Cylinders of the whole drive.
    pub fn cylinders(&self) -> u32 {
        self.zones.iter().map(|z| z.cylinders).sum()
    }

    /// True if the set makes sense: nothing zero that is divided by, seeks in order.
    pub fn check(&self) -> bool {
        let zones = self.zones.iter().all(|z| z.cylinders > 0 && z.sectors_per_track > 0);
        let seeks = self.seek.single_us <= self.seek.average_us
            && self.seek.average_us <= self.seek.full_us;
        zones
            && seeks
            && !self.zones.is_empty()
            && self.revolution_ns > 0
            && self.heads > 0
            && self.bus_bytes_per_us > 0
    }
}

/// A drive without moving parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashParams {
    /// Name used in reports.
    pub name: &'static str,
    /// Bytes of the drive.
    pub size_bytes: u64,
    /// Units (dies) that work at the same time.
    pub units: u32,
    /// Bytes that go to one unit before the next takes over.
    pub stripe_bytes: u32,
    /// A unit reading one stripe, in nanoseconds.
    pub read_ns: u64,
    /// A unit programming one stripe, in nanoseconds.
    pub program_ns: u64,
    /// Acknowledging a write from the drive's buffer, in nanoseconds.
    pub write_ack_ns: u64,
    /// Bytes the write buffer holds.
    pub buffer_bytes: u64,
    /// Bytes programmed for a hundred bytes written: the collector's work.
    pub write_amplification_percent: u32,
    /// Of each request, in nanoseconds.
    pub controller_ns: u64,
    /// Link rate in bytes per microsecond.
    pub bus_bytes_per_us: u32,
}

/// Any drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drive {
    /// With seeks.
    Mechanical(MechanicalParams),
    /// Without.
    Flash(FlashParams),
}

impl Drive {
    /// Name used in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Drive::Mechanical(p) => p.name,
            Drive::Flash(p) => p.name,
        }
    }

    /// Usable bytes.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Drive::Mechanical(p) => p.sectors() * 512,
            Drive::Flash(p) => p.size_bytes,
        }
    }

    /// The drive of that name, see [`drive_names`].
    pub fn named(name: &str) -> Option<Drive> {
        let (_, make) = DRIVES.iter().find(|(n, _)| *n == name)?;
        Some(make())
    }
}

type MakeDrive = fn() -> Drive;

const DRIVES: [(&str, MakeDrive); 6] = [
    ("atlas-10k", || Drive::Mechanical(atlas_10k(1, "atlas-10k"))),
    ("atlas-10k-tripled", || Drive::Mechanical(atlas_10k(3, "atlas-10k-tripled"))),
    ("ibm-9lzx", || Drive::Mechanical(ibm_9lzx())),
    ("sata-7200-2009", || Drive::Mechanical(sata_7200_2009())),
    ("hdd-18tb", || Drive::Mechanical(hdd_18tb())),
    ("nvme-1tb", || Drive::Flash(nvme_1tb())),
];

/// Every drive that [`Drive::named`] knows.
pub fn drive_names() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|(name, _)| *name)
}

/// Cylinders in equal bands, tracks shorter from band to band: evenly, or slowly at first.
fn bands(
    cylinders: u32,
    outer_sectors: u32,
    inner_sectors: u32,
    count: u32,
    even: bool,
) -> Vec<Zone> {
    let band = |i: u32| {
        let first = u64::from(cylinders) * u64::from(i) / u64::from(count);
        let next = u64::from(cylinders) * u64::from(i + 1) / u64::from(count);
        let (step, last) = if even { (i, count - 1) } else { (i * i, (count - 1) * (count - 1)) };
        let drop = (outer_sectors - inner_sectors) * step / last;
        Zone { cylinders: (next - first) as u32, sectors_per_track: outer_sectors - drop }
    };
    (0..count).map(band).collect()
}

/// Quantum Atlas 10K, 9.1 GB: 10,025 rpm, 10,042 cylinders, 6 surfaces, 229 to 334 sectors a track,
/// seeks of 1.2 ms (next cylinder), 5.0 ms (mean) and 10.8 ms (full), from Lumb et al., OSDI 2000,
/// table 1. UCFS §4.1 multiplies the sectors of each track by three.
fn atlas_10k(times: u32, name: &'static str) -> MechanicalParams {
    MechanicalParams {
        name,
        revolution_ns: 60_000_000_000 / 10_025,
        heads: 6,
        zones: bands(10_042, 334 * times, 229 * times, 24, false),
        seek: SeekPoints { single_us: 1_200, average_us: 5_000, full_us: 10_800 },
        write_settle_us: 500,
        head_switch_us: 800,
        controller_us: 200,
        bus_bytes_per_us: 160,
        cache: DriveCache { segment_bytes: 200 << 10, segments: 10, write_back: false },
    }
}

/// IBM 9LZX, 9.1 GB. The thesis (§5.2) gives size and a sustained 180 to 240 Mbit/s; speed and seeks
/// are those of 10,000 rpm drives of the year (the Ultrastar 36LZX has 4.9 ms, 2.99 ms).
fn ibm_9lzx() -> MechanicalParams {
    MechanicalParams {
        name: "ibm-9lzx",
        revolution_ns: 60_000_000_000 / 10_020,
        heads: 10,
        zones: bands(5_050, 402, 302, 11, true),
        seek: SeekPoints { single_us: 800, average_us: 5_300, full_us: 11_000 },
        write_settle_us: 500,
        head_switch_us: 800,
        controller_us: 200,
        bus_bytes_per_us: 80,
        cache: DriveCache { segment_bytes: 128 << 10, segments: 8, write_back: false },
    }
}

/// A 250 GB SATA disk of 2009, 7,200 rpm, 16 MB of memory (Hades §4.1 prints "7.5KRPM"); mean seek
/// 8.5 ms as its contemporaries state (Hitachi 7K1000.C manual, table 9), 110 MB/s outermost.
fn sata_7200_2009() -> MechanicalParams {
    MechanicalParams {
        name: "sata-7200-2009",
        revolution_ns: 60_000_000_000 / 7_200,
        heads: 2,
        zones: bands(161_000, 1_990, 1_040, 16, true),
        seek: SeekPoints { single_us: 1_000, average_us: 8_500, full_us: 18_000 },
        write_settle_us: 1_000,
        head_switch_us: 1_000,
        controller_us: 150,
        bus_bytes_per_us: 300,
        cache: DriveCache { segment_bytes: 1 << 20, segments: 16, write_back: true },
    }
}

/// An 18 TB helium disk, 7,200 rpm, 18 surfaces, as Seagate's Exos X18 data sheet has it: 270 MB/s
/// outermost, 4.16 ms latency, 256 MB of memory; mean seek about 8 ms.
fn hdd_18tb() -> MechanicalParams {
    MechanicalParams {
        name: "hdd-18tb",
        revolution_ns: 60_000_000_000 / 7_200,
        heads: 18,
        zones: bands(530_000, 4_990, 2_380, 32, true),
        seek: SeekPoints { single_us: 600, average_us: 8_000, full_us: 16_500 },
        write_settle_us: 500,
        head_switch_us: 1_050,
        controller_us: 100,
        bus_bytes_per_us: 550,
        cache: DriveCache { segment_bytes: 4 << 20, segments: 32, write_back: true },
    }
}

/// A 1 TB consumer NVMe drive as Samsung states for the 980 PRO: 7,000 MB/s read, 5,000 MB/s written,
/// 22,000 reads and 60,000 writes a second of 4 KiB one at a time, up to 1,000,000 reads a second.
fn nvme_1tb() -> FlashParams {
    FlashParams {
        name: "nvme-1tb",
        size_bytes: 1_000_204_886_016,
        units: 64,
        stripe_bytes: 16 << 10,
        read_ns: 40_000,
        program_ns: 200_000,
        write_ack_ns: 12_000,
        buffer_bytes: 64 << 20,
        write_amplification_percent: 100,
        controller_ns: 4_500,
        bus_bytes_per_us: 7_000,
    }
}
