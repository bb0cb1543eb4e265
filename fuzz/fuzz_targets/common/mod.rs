//! What the fuzz targets of the on-disk format share: the nonce, repairing checksums, turning over
//! a bit.
//!
//! A fuzzer does not guess a checksum, so each target decodes its input twice: as it is, and with
//! the checksums repaired, which reaches the checks behind them. Threads: none.

// Each target is a crate of its own and uses a part of this.
#![allow(dead_code, reason = "no target needs all of it")]

use std::ops::Range;

use damelo::format::{PAGE_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, StoreNonce};

/// The nonce of the fuzzed store.
pub const NONCE: StoreNonce = StoreNonce(0x0302_0100);

/// Stores at `at` the checksum of `range`, if the bytes reach that far.
pub fn seal(bytes: &mut [u8], range: Range<usize>, at: usize) {
    if let Some(crc) = bytes.get(range).map(crc32c::crc32c)
        && let Some(place) = bytes.get_mut(at..at + 4)
    {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Calls `check` with the bytes, then with what `repair` made of them.
pub fn raw_and_repaired(bytes: &[u8], repair: impl Fn(&mut [u8]), check: impl Fn(&[u8])) {
    check(bytes);
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    check(&bytes);
}

/// Calls `check` with the bytes, then with the checksum of `range` stored at `at`.
pub fn raw_and_sealed(bytes: &[u8], range: Range<usize>, at: usize, check: impl Fn(&[u8])) {
    raw_and_repaired(bytes, |bytes| seal(bytes, range.clone(), at), check);
}

/// Repairs the header of a page and of every record that a walk comes to.
pub fn seal_page(page: &mut [u8]) {
    seal(page, 0..60, 60);
    let mut at = PAGE_HEADER_BYTES;
    while at + RECORD_HEADER_BYTES <= page.len() {
        seal(page, at..at + 60, at + 60);
        let Ok(header) = RecordHeader::decode(&page[at..], NONCE) else { return };
        at = at.saturating_add(header.stored_bytes() as usize);
    }
}

/// Turns over a bit of `bytes`, chosen by what they are.
pub fn flip_one(bytes: &mut [u8]) {
    let chosen = crc32c::crc32c(bytes) as usize % (bytes.len() * 8).max(1);
    if let Some(byte) = bytes.get_mut(chosen / 8) {
        *byte ^= 1 << (chosen % 8);
    }
}
