//! Fuzzes the credentials of a client of the forward proxy. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::credentials(data));
