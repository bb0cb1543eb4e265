//! Ids, sizes and clocks used throughout the crate. Plain values, no threads.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Identifies a group: objects that belong together. They are placed together on disk, and one call
/// loves, hates, prefetches or purges all of them. The caller chooses the ids; any number of groups
/// may exist.
///
/// ```
/// use damelo::GroupId;
/// assert_eq!(GroupId::of("example.org"), GroupId::of("example.org"));
/// assert_ne!(GroupId::of("example.org"), GroupId::new(3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupId(u64);

impl GroupId {
    /// A group by number.
    pub const fn new(id: u64) -> GroupId {
        GroupId(id)
    }

    /// A group by name: a 64-bit hash of it, the same in every process and release.
    pub fn of(name: impl AsRef<[u8]>) -> GroupId {
        GroupId(twox_hash::XxHash3_64::oneshot(name.as_ref()))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Seeded hash of a key, by which index, journal and the tables in memory know an object. On disk
/// it is the `hash` of records and summary entries. Never zero for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// The hash that was computed, or read from disk.
    pub(crate) const fn from_raw(hash: u64) -> KeyHash {
        KeyHash(hash)
    }

    /// The number, for the index, for policies, and for what is written.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

/// Sequence number of a record: the order in which the store was written to. Of two versions of a
/// key the greater is the newer, and a purge names a bound. On disk it is the `seq` of records,
/// summary entries and journal records. The life of a segment takes one too ([`SegmentLife`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// Before all records, whose numbers begin at 1.
    pub(crate) const ZERO: Sequence = Sequence(0);
    /// After all records.
    pub(crate) const MAX: Sequence = Sequence(u64::MAX);

    /// A number that was given before, or read from disk.
    pub(crate) const fn from_raw(number: u64) -> Sequence {
        Sequence(number)
    }

    /// The number, to be written.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The one after this.
    pub(crate) const fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }

    /// The low half, by which a manifest tells its parts from other records.
    pub(crate) const fn low_half(self) -> u32 {
        self.0 as u32
    }
}

/// One life of a segment, from its opening until it is free again, by the sequence number that it
/// took when it began: so no other life of the store has it, not even one of which a crash left no
/// trace. On disk it is the `segment_seq` of pages, footers and manifests, and by its low half that
/// of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct SegmentLife(u64);

impl SegmentLife {
    /// Of a segment that holds nothing.
    pub(crate) const NONE: SegmentLife = SegmentLife(0);
    /// Of a segment on a volume that was missing: one that holds something, but nothing that is
    /// known. Lives of stores made now begin above it.
    pub(crate) const MISSING: SegmentLife = SegmentLife(1);

    /// A life that begins with this number of its own.
    pub(crate) const fn begun_at(seq: Sequence) -> SegmentLife {
        SegmentLife(seq.get())
    }

    /// A number that was given before, or read from disk.
    pub(crate) const fn from_raw(number: u64) -> SegmentLife {
        SegmentLife(number)
    }

    /// The number, to be written or to be counted with.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The low half, by which a record tells its life from others of the segment.
    pub(crate) const fn low_half(self) -> u32 {
        self.0 as u32
    }

    /// True if the segment holds nothing.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A size in bytes, written as `20GiB`, `512 MiB`, `64k` or `4096`.
///
/// Units are powers of two whether written `KiB`, `KB` or `K`, as is usual for disks and caches.
///
/// ```
/// use damelo::ByteSize;
/// assert_eq!("20GiB".parse::<ByteSize>().unwrap().bytes(), 20 << 30);
/// assert_eq!("1.5 MiB".parse::<ByteSize>().unwrap().bytes(), 3 << 19);
/// assert_eq!(ByteSize::new(65536).to_string(), "64KiB");
/// assert_eq!(ByteSize::new(1_050_000).to_string(), "1.0MiB");
/// assert_eq!(format!("{:#}", ByteSize::new(1_050_000)), "1050000B", "exactly");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A size by number of bytes.
    pub const fn new(bytes: u64) -> ByteSize {
        ByteSize(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

const SIZE_UNITS: [(&str, u32); 6] =
    [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in SIZE_UNITS {
            let one = 1_u64 << shift;
            if self.0 >= one && (!f.alternate() || self.0.is_multiple_of(one)) {
                return if self.0.is_multiple_of(one) {
                    write!(f, "{}{unit}", self.0 / one)
                } else {
                    write!(f, "{:.1}{unit}", self.0 as f64 / one as f64)
                };
            }
        }
        f.write_str("0B")
    }
}

/// Sizes are below this, 8 EiB, so that sums of a few of them do not overflow.
const SIZE_BYTES_END: f64 = (1_u64 << 63) as f64;

/// The text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not a size below 8EiB: write a number and a unit, such as 512MiB or 20GiB")]
pub struct ParseByteSizeError {
    input: String,
}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(input: &str) -> Result<ByteSize, ParseByteSizeError> {
        let error = || ParseByteSizeError { input: input.to_owned() };
        let text = input.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number: f64 = text[..split].parse().map_err(|_| error())?;
        let shift = match text[split..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            "p" | "pb" | "pib" => 50,
            _ => return Err(error()),
        };
        if shift == 0 && text[..split].contains('.') {
            return Err(error());
        }
        let bytes = number * (1_u64 << shift) as f64;
        if bytes >= SIZE_BYTES_END {
            return Err(error());
        }
        // Whole numbers are multiplied as integers: a double is exact to 53 bits only.
        match text[..split].parse::<u64>() {
            Ok(whole) => whole.checked_mul(1 << shift).map(ByteSize).ok_or_else(error),
            Err(_) => Ok(ByteSize(bytes as u64)),
        }
    }
}

/// Wall-clock and monotonic time. A trait, so that tests and the lab can supply their own.
pub trait Clock: Send + Sync + 'static {
    /// Seconds since 1970 by the wall clock; may jump in either direction.
    fn unix_seconds(&self) -> u64;
    /// Milliseconds since 1970 by the wall clock, in the resolution that the clock has.
    fn unix_millis(&self) -> u64 {
        self.unix_seconds().saturating_mul(1000)
    }
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Starts counting monotonic time now.
    pub fn new() -> SystemClock {
        SystemClock { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn unix_seconds(&self) -> u64 {
        // A clock before 1970 reads as 1970: no object is then expired.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }

    fn unix_millis(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        since_1970.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_as_people_do() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("64k", 65536), ("2 GB", 2 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap().bytes(), bytes, "{text}");
        }
        for text in ["", "GiB", "-1", "1.5", "12 parsecs", "99999999TiB", "1e3"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(ByteSize::new(0).to_string(), "0B");
        assert_eq!(ByteSize::new(1536).to_string(), "1.5KiB");
    }
}
