//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian, without header: time in seconds
//! (u32), object (u64), size (u32), number of the request that asks for the object next (i64; the
//! first request is 1; -1 or the greatest for never). The last is not read: the lab computes it
//! itself. Pure.

/// Bytes of one record.
pub(crate) const RECORD_BYTES: usize = 24;
/// Written for "never again"; libCacheSim reads it as it does the -1 of its own converter.
pub(crate) const NEVER: i64 = i64::MAX;

/// One decoded record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OracleRecord {
    pub(crate) time_s: u32,
    pub(crate) object: u64,
    pub(crate) size_bytes: u32,
    pub(crate) next_access: i64,
}

impl OracleRecord {
    #[inline]
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> OracleRecord {
        let [t0, t1, t2, t3, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, next @ ..] = *bytes;
        OracleRecord {
            time_s: u32::from_le_bytes([t0, t1, t2, t3]),
            object: u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            size_bytes: u32::from_le_bytes([s0, s1, s2, s3]),
            next_access: i64::from_le_bytes(next),
        }
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.time_s.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.object.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.next_access.to_le_bytes());
        bytes
    }
}

/// Whether the first bytes of an unnamed binary file can be of this form: next uses lie ahead of
/// their request or are never, times do not go back, and both hold for every record seen.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<RECORD_BYTES>();
    let mut time_s = 0;
    for (n, bytes) in records.iter().enumerate() {
        let record = OracleRecord::decode(bytes);
        let next = record.next_access;
        if record.time_s < time_s || (next != -1 && next <= n as i64) {
            return false;
        }
        time_s = record.time_s;
    }
    !records.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand: 1, 0x0102030405060708, 4096, never.
    const GOLDEN: [u8; RECORD_BYTES] =
        [1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0, 16, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127];

    #[test]
    fn bytes_are_those_of_the_format() {
        let record = OracleRecord {
            time_s: 1,
            object: 0x0102_0304_0506_0708,
            size_bytes: 4096,
            next_access: NEVER,
        };
        assert_eq!(record.encode(), GOLDEN);
        assert_eq!(OracleRecord::decode(&GOLDEN), record);
    }

    #[test]
    fn other_binary_files_are_told_apart() {
        assert!(looks_like(&GOLDEN));
        assert!(!looks_like(&[]));
        let mut went_back = [GOLDEN, GOLDEN].concat();
        went_back[RECORD_BYTES] = 0;
        assert!(!looks_like(&went_back), "the second request is earlier than the first");
        let mut past = GOLDEN;
        past[16..].copy_from_slice(&0i64.to_le_bytes());
        assert!(!looks_like(&past), "the next use is the request itself");
    }
}
