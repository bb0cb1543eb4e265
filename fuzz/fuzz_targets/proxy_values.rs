//! Fuzzes single values of the proxy's settings: listeners, access rules, groupings, sizes,
//! patterns. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::proxy_values(data));
