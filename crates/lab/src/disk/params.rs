//! What a drive is: its parameters, and how they are read from a file.
//!
//! The drives that the lab brings lie in `crates/lab/drives`, one JSON file each with the source of
//! its figures; another file of the same form does as well ([`Drive::open`]). Invariant: what
//! [`Drive::parse`] returns has passed [`MechanicalParams::check`] or [`FlashParams::check`], so
//! that the models neither divide by 0 nor overflow. Threads: plain data.

use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::SECTOR_BYTES;

use crate::name_hint::there_are;

/// Limits of what a file may say, such that no sum or product of the models overflows.
const ZONES_MAX: u32 = 1 << 10;
const CYLINDERS_MAX: u32 = 1 << 21;
const TRACK_SECTORS_MAX: u32 = 1 << 20;
const HEADS_MAX: u32 = 1 << 10;
const SIZE_BYTES_MAX: u64 = 1 << 50;
const TIME_US_MAX: u32 = 10_000_000;
const TIME_NS_MAX: u64 = 1_000_000_000;
const NS_PER_MINUTE: u64 = 60_000_000_000;

/// A band of cylinders with equally long tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Cylinders of the zone.
    pub cylinders: u32,
    /// Sectors of 512 bytes on each track.
    pub sectors_per_track: u32,
}

/// Three points of the seek curve, as data sheets give them, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekPoints {
    /// To the next cylinder.
    pub single_us: u32,
    /// Mean over random pairs of cylinders.
    pub average_us: u32,
    /// From the first cylinder to the last.
    pub full_us: u32,
}

/// Memory on the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveCache {
    /// Bytes of one segment; reading ahead stops when it is full.
    pub segment_bytes: u32,
    /// How many runs of sectors are remembered.
    pub segments: u32,
    /// Writes are acknowledged when they are in the drive's memory.
    pub write_back: bool,
    /// Bytes of writes that it then holds until they are on the surface; of a file that does not
    /// say, half of what the segments have together.
    #[serde(default)]
    pub write_bytes: Option<u64>,
}

impl DriveCache {
    fn write_room_bytes(&self) -> u64 {
        let half_bytes = u64::from(self.segment_bytes) * u64::from(self.segments) / 2;
        if self.write_back { self.write_bytes.unwrap_or(half_bytes) } else { 0 }
    }
}

/// A disk with seeks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanicalParams {
    /// Name used in reports.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// Where the figures are from.
    pub source: String,
    /// One revolution, in nanoseconds; files give revolutions a minute.
    #[serde(rename = "revolutions_per_minute", deserialize_with = "revolution_ns")]
    pub revolution_ns: u64,
    /// Surfaces.
    pub heads: u32,
    /// From the outermost in; files may give equal bands instead.
    #[serde(deserialize_with = "zones")]
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

fn revolution_ns<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let per_minute = u32::deserialize(from)?;
    // Of no revolutions `check` says that it makes no sense.
    Ok(NS_PER_MINUTE.checked_div(u64::from(per_minute)).unwrap_or(0))
}

fn zones<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Zone>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a list of zones, or cylinders, outer_sectors_per_track, \
        inner_sectors_per_track, bands and narrowing (even or slow_at_first)"
    )]
    enum Form {
        Zones(Vec<Zone>),
        Bands(Bands),
    }
    match Form::deserialize(from)? {
        Form::Zones(zones) => Ok(zones),
        Form::Bands(bands) => bands.zones().map_err(D::Error::custom),
    }
}

/// Cylinders in equal bands, tracks shorter from band to band.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bands {
    cylinders: u32,
    outer_sectors_per_track: u32,
    inner_sectors_per_track: u32,
    bands: u32,
    narrowing: Narrowing,
}

/// How tracks become shorter from band to band.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Narrowing {
    Even,
    SlowAtFirst,
}

impl Bands {
    fn zones(&self) -> Result<Vec<Zone>, String> {
        let (outer, inner) = (self.outer_sectors_per_track, self.inner_sectors_per_track);
        if !(2..=ZONES_MAX).contains(&self.bands) || self.bands > self.cylinders {
            return Err(format!("bands are 2 to {ZONES_MAX}, and not more than cylinders"));
        }
        if outer < inner || outer > TRACK_SECTORS_MAX {
            return Err(format!(
                "outer tracks have at least the inner's sectors, at most {TRACK_SECTORS_MAX}"
            ));
        }
        let (count, cylinders) = (u64::from(self.bands), u64::from(self.cylinders));
        let zone = |band: u64| {
            let (step, last) = match self.narrowing {
                Narrowing::Even => (band, count - 1),
                Narrowing::SlowAtFirst => (band * band, (count - 1) * (count - 1)),
            };
            let drop = u64::from(outer - inner) * step / last;
            Zone {
                cylinders: (cylinders * (band + 1) / count - cylinders * band / count) as u32,
                sectors_per_track: outer - drop as u32,
            }
        };
        Ok((0..count).map(zone).collect())
    }
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

    /// Whether the set makes sense: nothing zero that is divided by, seeks in order.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let seek = self.seek;
        let in_order = seek.single_us <= seek.average_us && seek.average_us <= seek.full_us;
        let fits = |z: &Zone| {
            (1..=CYLINDERS_MAX).contains(&z.cylinders)
                && (1..=TRACK_SECTORS_MAX).contains(&z.sectors_per_track)
        };
        let times = [seek.full_us, self.write_settle_us, self.head_switch_us, self.controller_us];
        // Otherwise the root or the linear part of the curve would be negative, and the curve miss
        // the points (see `SeekCurve`).
        let [over_average, over_full] =
            [seek.average_us, seek.full_us].map(|us| u64::from(us.saturating_sub(seek.single_us)));
        let is_curved = 3 * over_average >= over_full && 15 * over_average <= 8 * over_full;
        let rules = [
            (in_order, "seek: seeks grow from single_us over average_us to full_us"),
            (
                is_curved,
                "seek: average_us is 1/3 to 8/15 of the way from single_us to full_us, or no curve of seeks \
                 meets all three",
            ),
            ((1..=ZONES_MAX as usize).contains(&self.zones.len()), "zones: 1 to 1,024 of them"),
            (
                self.zones.iter().all(fits),
                "zones: one has 1 to 2^21 cylinders, its tracks 1 to 2^20 sectors",
            ),
            (self.revolution_ns > 0, "revolutions_per_minute is above 0"),
            ((1..=HEADS_MAX).contains(&self.heads), "heads are 1 to 1,024"),
            (self.bus_bytes_per_us > 0, "bus_bytes_per_us is above 0"),
            (
                times.iter().all(|us| *us <= TIME_US_MAX),
                "seek.full_us, write_settle_us, head_switch_us and controller_us are at most 10,000,000",
            ),
            (self.cache.segments <= 1 << 16, "cache.segments are at most 65,536"),
            (self.cache.write_room_bytes() <= SIZE_BYTES_MAX, "cache.write_bytes is at most 2^50"),
        ];
        first_broken(&rules)?;
        // Only now: the sum of sectors cannot overflow.
        first_broken(&[(
            self.sectors() * SECTOR_BYTES <= SIZE_BYTES_MAX,
            "heads and zones: at most 2^50 bytes",
        )])
    }
}

/// A drive without moving parts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParams {
    /// Name used in reports.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// Where the figures are from.
    pub source: String,
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

impl FlashParams {
    /// Whether the set makes sense: nothing zero that is divided by.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let times = [self.read_ns, self.program_ns, self.write_ack_ns, self.controller_ns];
        first_broken(&[
            ((1..=1 << 16).contains(&self.units), "units are 1 to 65,536"),
            (u64::from(self.stripe_bytes) >= SECTOR_BYTES, "stripe_bytes is at least 512"),
            (
                self.stripe_bytes.is_multiple_of(SECTOR_BYTES as u32),
                "stripe_bytes is of whole sectors of 512",
            ),
            (
                (SECTOR_BYTES..=SIZE_BYTES_MAX).contains(&self.size_bytes),
                "size_bytes is 512 to 2^50",
            ),
            (self.buffer_bytes <= SIZE_BYTES_MAX, "buffer_bytes is at most 2^50"),
            (self.bus_bytes_per_us > 0, "bus_bytes_per_us is above 0"),
            (
                times.iter().all(|ns| *ns <= TIME_NS_MAX),
                "read_ns, program_ns, write_ack_ns and controller_ns are at most a second",
            ),
            (
                (100..=10_000).contains(&self.write_amplification_percent),
                "write_amplification_percent is 100 to 10,000",
            ),
        ])
    }
}

fn first_broken(rules: &[(bool, &'static str)]) -> Result<(), &'static str> {
    rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(rule))
}

/// Any drive.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Drive {
    /// With seeks.
    Mechanical(MechanicalParams),
    /// Without.
    Flash(FlashParams),
}

/// A drive of its text; what is wrong names the field that it is wrong with.
fn read(text: &str) -> Result<Drive, String> {
    // With its line, as long as it is no JSON.
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    Drive::deserialize(&value).map_err(|error| wrong_field(&value).unwrap_or(error.to_string()))
}

/// The field that makes no drive even of one that is known to be good, and why. What is missing or
/// unknown is none: that the first error names.
fn wrong_field(value: &Value) -> Option<String> {
    let good = DRIVES.iter().find_map(|(_, text)| {
        let good: Value = serde_json::from_str(text).ok()?;
        (good["kind"] == value["kind"]).then_some(good)
    })?;
    let error_with = |path: &[&str], given: &Value| {
        let mut tried = good.clone();
        let at = path.iter().try_fold(&mut tried, |at, key| at.get_mut(key));
        *at? = given.clone();
        Drive::deserialize(&tried).err().map(|error| format!("{}: {error}", path.join(".")))
    };
    let fields = value.as_object()?.iter();
    fields.into_iter().find_map(|(name, given)| {
        let whole = error_with(&[name], given)?;
        let inner = given.as_object().into_iter().flatten();
        let part = inner.into_iter().find_map(|(part, given)| error_with(&[name, part], given));
        Some(part.unwrap_or(whole))
    })
}

/// Why there is no such drive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// Neither a drive that the lab brings nor a file of parameters.
    #[error("there is no drive `{given}`; {known}; or write the name of a .json file")]
    Unknown {
        /// As given.
        given: String,
        /// Those that there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the drive `{path}`")]
    Open {
        /// As given.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What the file says is not a drive.
    #[error("{path} is not a drive: {reason}")]
    Malformed {
        /// As given.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl Drive {
    /// Name used in reports.
    pub fn name(&self) -> &str {
        match self {
            Drive::Mechanical(p) => &p.name,
            Drive::Flash(p) => &p.name,
        }
    }

    /// Usable bytes.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Drive::Mechanical(p) => p.sectors() * SECTOR_BYTES,
            Drive::Flash(p) => p.size_bytes,
        }
    }

    /// Bytes of writes that are acknowledged before they are on the surface: 0 of flash, which has
    /// a model of its own for that.
    pub(super) fn write_room_bytes(&self) -> u64 {
        match self {
            Drive::Mechanical(p) => p.cache.write_room_bytes(),
            Drive::Flash(_) => 0,
        }
    }

    /// What a read of so many bytes at a random place takes on average, nothing waiting before it.
    pub fn mean_read_ns(&self, bytes: u64) -> u64 {
        match self {
            Drive::Mechanical(p) => {
                let track = u64::from(p.zones[p.zones.len() / 2].sectors_per_track) * SECTOR_BYTES;
                let seek_ns = u64::from(p.controller_us + p.seek.average_us) * 1_000;
                seek_ns + p.revolution_ns / 2 + bytes * p.revolution_ns / track
            }
            Drive::Flash(p) => {
                let rounds = bytes.div_ceil(u64::from(p.stripe_bytes) * u64::from(p.units)).max(1);
                let bus_ns = bytes * 1_000 / u64::from(p.bus_bytes_per_us);
                p.controller_ns + rounds * p.read_ns + bus_ns
            }
        }
    }

    /// The drive of that name, see [`drive_names`].
    pub fn named(name: &str) -> Option<Drive> {
        let (_, text) = DRIVES.iter().find(|(known, _)| *known == name)?;
        Some(Drive::parse(name, text).expect("a test reads every drive that the lab brings"))
    }

    /// The drive of that name or, of a name that ends in `.json`, what the file says.
    ///
    /// # Errors
    /// When there is none, or what the file says makes no sense.
    pub fn open(given: &str) -> Result<Drive, DriveError> {
        if let Some(drive) = Drive::named(given) {
            return Ok(drive);
        }
        if Path::new(given).extension().is_none_or(|end| end != "json") {
            let known = there_are(given, drive_names());
            return Err(DriveError::Unknown { given: given.to_owned(), known });
        }
        // A pipe or device has no end.
        let read = || match std::fs::metadata(given)?.is_file() {
            true => std::fs::read_to_string(given),
            false => Err(std::io::Error::other("it is not a regular file")),
        };
        let text = read().map_err(|source| DriveError::Open { path: given.to_owned(), source })?;
        Drive::parse(given, &text)
    }

    /// Reads parameters; `path` is what errors call them.
    ///
    /// # Errors
    /// When they are not of the form, or make no sense.
    pub fn parse(path: &str, text: &str) -> Result<Drive, DriveError> {
        let malformed = |reason: String| DriveError::Malformed { path: path.to_owned(), reason };
        let drive = read(text).map_err(malformed)?;
        let checked = match &drive {
            Drive::Mechanical(p) => p.check(),
            Drive::Flash(p) => p.check(),
        };
        checked.map_err(|rule| malformed(format!("it breaks a rule: {rule}")))?;
        Ok(drive)
    }
}

macro_rules! drives {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../../drives/", $name, ".json"))),)*]
    };
}

const DRIVES: [(&str, &str); 6] = drives![
    "atlas-10k",
    "atlas-10k-tripled",
    "ibm-9lzx",
    "sata-7200-2009",
    "hdd-18tb",
    "nvme-1tb",
];

/// Every drive that [`Drive::named`] knows.
pub fn drive_names() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|(name, _)| *name)
}
