//! Fuzzes the values of manifest and patch records, whose checksum is the record's. Threads: none.
#![no_main]

use damelo::format::{Manifest, Patch};
use libfuzzer_sys::fuzz_target;

const SEGMENT_BYTES: u64 = 32 << 20;

fuzz_target!(|data: &[u8]| {
    if let Ok(manifest) = Manifest::decode(data, SEGMENT_BYTES) {
        assert_eq!(manifest.encode().as_deref(), Ok(data));
        let total: u64 = manifest.parts.iter().map(|part| u64::from(part.value_len)).sum();
        assert_eq!(total, manifest.total_len);
        for part in &manifest.parts {
            let end = u64::from(part.offset_units) * 64 + u64::from(part.value_len);
            assert!(end < SEGMENT_BYTES);
        }
    }
    if let Ok(patch) = Patch::decode(data) {
        assert_eq!(patch.encode(), data);
    }
});
