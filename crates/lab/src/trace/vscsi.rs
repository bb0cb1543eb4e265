//! Traces of virtual disks (CloudPhysics, Waldspurger et al., FAST 2015), which libCacheSim calls
//! vscsi: records without anything between them, little-endian, in two versions.
//!
//! - Version 1, 32 bytes: serial number (u32), length in bytes (u32), number of pieces (u32),
//!   command (u16), version (u16), first block (u64), time in microseconds (u64).
//! - Version 2, 40 bytes: command, version, serial number, length, number of pieces, first block,
//!   time, and how long it took (u64).
//!
//! The high byte of the version says which it is. As for libCacheSim the first block is the object,
//! whatever the length; the time counts in whole seconds; the command is not read. Pure.

use crate::error::BadRecord;
use crate::request::Op;
use crate::trace::binary::BinaryRecord;
use crate::trace::fields::US_PER_S;

/// How records lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// What the first two records, if there are two, say of themselves, or why they are none.
pub(crate) fn version(head: &[u8]) -> Result<Version, String> {
    let is = |version: Version, number: u8, at: usize| {
        let bytes = version.record_bytes();
        let high = |record: usize| head.get(record * bytes + at + 1).copied();
        head.len() >= bytes && high(0) == Some(number) && high(1).is_none_or(|high| high == number)
    };
    if is(Version::Two, 2, 2) {
        Ok(Version::Two)
    } else if is(Version::One, 1, 14) {
        Ok(Version::One)
    } else {
        Err("its first two records are of no version of vscsi; known are 1 and 2".to_owned())
    }
}

impl Version {
    pub(crate) fn record_bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    /// # Panics
    /// If there are fewer bytes than a record has.
    #[inline]
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<BinaryRecord, BadRecord> {
        let len_at = match self {
            Version::One => 4,
            Version::Two => 8,
        };
        let size_bytes = u32::from_le_bytes(array(&bytes[len_at..])).into();
        let object = u64::from_le_bytes(array(&bytes[16..]));
        let time_us = u64::from_le_bytes(array(&bytes[24..]));
        let time = u32::try_from(time_us / US_PER_S).map_err(|_| {
            let expected = "microseconds of a time that 32 bits hold in seconds";
            BadRecord::value("time", time_us.to_string().as_bytes(), expected)
        })?;
        Ok(BinaryRecord { time, object, size_bytes, op: Op::Read })
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("a whole record")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand: 4,096 bytes from block 0x0102030405060708 on, at 1.5 s.
    const BLOCK_AND_TIME: [u8; 16] = [8, 7, 6, 5, 4, 3, 2, 1, 0x60, 0xe3, 0x16, 0, 0, 0, 0, 0];
    const EXPECTED: BinaryRecord =
        BinaryRecord { time: 1, object: 0x0102_0304_0506_0708, size_bytes: 4096, op: Op::Read };

    fn record(version: Version) -> Vec<u8> {
        let before: [u8; 16] = match version {
            Version::One => [9, 0, 0, 0, 0, 16, 0, 0, 1, 0, 0, 0, 0x2a, 0, 7, 1],
            Version::Two => [0x2a, 0, 7, 2, 9, 0, 0, 0, 0, 16, 0, 0, 1, 0, 0, 0],
        };
        let mut bytes = [before, BLOCK_AND_TIME].concat();
        bytes.resize(version.record_bytes(), 0xff);
        bytes
    }

    #[test]
    fn bytes_are_those_of_each_version() {
        for known in [Version::One, Version::Two] {
            let bytes = record(known);
            assert_eq!(version(&bytes), Ok(known));
            assert_eq!(version(&bytes.repeat(2)), Ok(known));
            assert_eq!(known.decode(&bytes), Ok(EXPECTED));
            let mut late = bytes;
            late[24..32].fill(0xff);
            let said = known.decode(&late).expect_err("late").to_string();
            assert!(said.starts_with("time is `18446744073709551615`, not microseconds"), "{said}");
        }
    }

    #[test]
    fn records_of_no_version_are_refused() {
        let mixed = [record(Version::Two), vec![0; 40]].concat();
        for bytes in [&b"12\n"[..], &[0; 80], &mixed, &record(Version::Two)[..39]] {
            assert!(version(bytes).expect_err("no version").contains("known are 1 and 2"));
        }
    }
}
