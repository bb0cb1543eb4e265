//! Fuzzes the header of the PROXY protocol. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::proxy_header(data));
