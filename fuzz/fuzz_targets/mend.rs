//! Fuzzes the mending of a bit by its checksum (the first four bytes): it changes nothing, or the
//! one bit with which the checksum matches; and a bit that turned over is always found. Threads:
//! none.
#![no_main]

mod common;

use common::flip_one;
use damelo::format::mend_bit;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((crc, bytes)) = data.split_first_chunk::<4>() else { return };
    let crc = u32::from_le_bytes(*crc);
    let mut mended = bytes.to_vec();
    if mend_bit(&mut mended, crc) {
        assert_eq!(crc32c::crc32c(&mended), crc);
        let turned: u32 = mended.iter().zip(bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(turned, 1);
    } else {
        assert_eq!(mended, bytes);
    }
    if !bytes.is_empty() {
        let mut flipped = bytes.to_vec();
        flip_one(&mut flipped);
        assert!(mend_bit(&mut flipped, crc32c::crc32c(bytes)));
        assert_eq!(flipped, bytes);
    }
});
