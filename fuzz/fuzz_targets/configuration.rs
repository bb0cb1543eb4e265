//! Fuzzes the configuration file. Host names in it are resolved: let it have no network. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::configuration(data));
