//! What the fuzz targets share: the nonce, and repairing checksums.
//!
//! A fuzzer does not guess a checksum, so each target decodes its input twice: as it is, and with
//! the checksum repaired, which reaches the checks behind it. Threads: none.

use std::ops::Range;

use damelo::format::StoreNonce;

/// The nonce of the fuzzed store.
#[allow(dead_code, reason = "superblocks carry no nonce")]
pub const NONCE: StoreNonce = StoreNonce(0x0302_0100);

/// Calls `check` with the bytes, then with the checksum of `range` stored at `at`.
pub fn raw_and_sealed(bytes: &[u8], range: Range<usize>, at: usize, check: impl Fn(&[u8])) {
    check(bytes);
    let mut bytes = bytes.to_vec();
    if let Some(crc) = bytes.get(range).map(crc32c::crc32c)
        && let Some(place) = bytes.get_mut(at..at + 4)
    {
        place.copy_from_slice(&crc.to_le_bytes());
        check(&bytes);
    }
}
