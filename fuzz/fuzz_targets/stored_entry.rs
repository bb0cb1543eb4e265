//! Fuzzes the metadata of stored responses, stamp included. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::stored_entry(data));
