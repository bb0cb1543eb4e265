//! Fuzzes the marks of purges, with their snapshots and deltas, and the lists of variants as they
//! lie in the store. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::purge_marks(data));
