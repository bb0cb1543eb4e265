//! Fuzzes redirects that name the origin itself. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::redirects(data));
