//! Fuzzes the configuration file. Host names in it are not resolved here. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::configuration(data));
