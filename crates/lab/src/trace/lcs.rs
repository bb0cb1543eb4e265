//! libCacheSim's own binary form, lcs: a header of 8,192 bytes, whose version says how long a
//! record is, and records without anything between them, all little-endian. Pure.
//!
//! Header: a mark (u64), version (u64), statistics of the trace, the mark again in the last 8
//! bytes. The statistics are not read: the lab counts itself. Records begin with time in seconds
//! (u32) and object (u64); then come
//! - version 1: size (u32), next use (i64), which is oracleGeneral;
//! - version 2: size (u32), operation (u8), tenant (24 bits), next use;
//! - version 3: size (i64), operation, tenant, lifetime in seconds (u32), next use;
//! - versions 4 to 8: as 3, and 1, 2, 4, 8 or 16 features (u32).
//!
//! Tenant, lifetime, next use and features are not read. The operation is one of memcached's: a
//! delete deletes, as in every trace that has deletes; what stores is a write.

use crate::error::BadRecord;
use crate::request::Op;
use crate::trace::binary::BinaryRecord;

/// Bytes before the first record.
pub(crate) const HEADER_BYTES: usize = 8192;
const MARK: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
/// Bytes of a record, by version from 1 on.
const RECORD_BYTES: [usize; 8] = [24, 28, 36, 40, 44, 52, 68, 100];

/// The version of a trace, which says what its records hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u8);

/// Whether the first bytes of a trace can be of this form.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    head.starts_with(&MARK)
}

/// What the header says, or why it is none.
pub(crate) fn version(head: &[u8]) -> Result<Version, String> {
    if !looks_like(head) {
        return Err("it does not begin with the mark of lcs".to_owned());
    }
    let Some(header) = head.first_chunk::<HEADER_BYTES>() else {
        return Err(format!("it ends within the {HEADER_BYTES} bytes of the header of lcs"));
    };
    if !header.ends_with(&MARK) {
        return Err("the header of lcs does not end with its mark".to_owned());
    }
    let version = u64::from_le_bytes(array(&header[8..]));
    match u8::try_from(version) {
        Ok(known) if (1..=RECORD_BYTES.len()).contains(&usize::from(known)) => Ok(Version(known)),
        _ => Err(format!("it is version {version} of lcs; known are 1 to {}", RECORD_BYTES.len())),
    }
}

impl Version {
    pub(crate) fn record_bytes(self) -> usize {
        RECORD_BYTES[usize::from(self.0) - 1]
    }

    /// # Panics
    /// If there are fewer bytes than a record has.
    #[inline]
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<BinaryRecord, BadRecord> {
        let time = u32::from_le_bytes(array(bytes));
        let object = u64::from_le_bytes(array(&bytes[4..]));
        let small_size = u64::from(u32::from_le_bytes(array(&bytes[12..])));
        let (size_bytes, op) = match self.0 {
            1 => (small_size, Op::Read),
            2 => (small_size, op_of(bytes[16])),
            _ => (long_size(i64::from_le_bytes(array(&bytes[12..])))?, op_of(bytes[20])),
        };
        Ok(BinaryRecord { time, object, size_bytes, op })
    }
}

fn long_size(size: i64) -> Result<u64, BadRecord> {
    u64::try_from(size)
        .map_err(|_| BadRecord::value("size", size.to_string().as_bytes(), "a number of bytes"))
}

/// From 1 on: get, gets, set, add, cas, replace, append, prepend, delete, incr, decr, read, write,
/// update. Anything else asks for an object like a get.
fn op_of(code: u8) -> Op {
    match code {
        3..=8 | 10 | 11 | 13 | 14 => Op::Write,
        9 => Op::Delete,
        _ => Op::Read,
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("a whole record or header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
        bytes[HEADER_BYTES - 8..].copy_from_slice(&MARK);
        bytes
    }

    /// Worked out by hand: second 1, object 0x0102030405060708, 4,096 bytes, a delete by tenant 7.
    #[test]
    fn bytes_are_those_of_each_version() {
        let begin = [1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0, 16, 0, 0];
        for (number, further, op) in [
            (1, &[][..], Op::Read),
            (2, &[9, 7, 0, 0], Op::Delete),
            (3, &[0, 0, 0, 0, 9, 7, 0, 0, 60, 0, 0, 0], Op::Delete),
            (8, &[0, 0, 0, 0, 13, 7, 0, 0, 60, 0, 0, 0], Op::Write),
        ] {
            let version = version(&header(number)).expect("known");
            let mut record = [&begin[..], further].concat();
            assert!(record.len() + 8 <= version.record_bytes(), "and the next use");
            record.resize(version.record_bytes(), 0xff);
            let expected =
                BinaryRecord { time: 1, object: 0x0102_0304_0506_0708, size_bytes: 4096, op };
            assert_eq!(version.decode(&record), Ok(expected), "version {number}");
        }
    }

    #[test]
    fn a_size_below_nothing_is_refused() {
        let mut record = vec![0; 36];
        record[12..20].copy_from_slice(&(-5_i64).to_le_bytes());
        let refused = Version(3).decode(&record).expect_err("negative");
        assert_eq!(refused.to_string(), "size is `-5`, not a number of bytes");
    }

    #[test]
    fn a_header_that_is_none_says_why() {
        for number in 1..=8 {
            assert!(version(&header(number)).is_ok());
        }
        let why = |bytes: &[u8]| version(bytes).expect_err("no header");
        assert_eq!(why(&header(0)), "it is version 0 of lcs; known are 1 to 8");
        assert_eq!(why(&header(257)), "it is version 257 of lcs; known are 1 to 8");
        assert!(why(&header(1)[..8191]).contains("ends within the 8192 bytes"));
        assert!(why(b"12\n13\n").contains("does not begin"));
        let mut open_ended = header(1);
        open_ended[HEADER_BYTES - 1] ^= 1;
        assert!(why(&open_ended).contains("does not end with its mark"));
    }
}
