//! Fuzzes the values of manifest and patch records, whose checksum is the record's. Threads: none.
#![no_main]

use damelo::format::{Manifest, Patch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(manifest) = Manifest::decode(data, 32 << 20) {
        assert_eq!(manifest.encode().as_deref(), Ok(data));
    }
    if let Ok(patch) = Patch::decode(data) {
        assert_eq!(patch.encode(), data);
    }
});
