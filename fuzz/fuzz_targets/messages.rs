//! Fuzzes the heads of requests, and of origins' answers. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::messages(data));
