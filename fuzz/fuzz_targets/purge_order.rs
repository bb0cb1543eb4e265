//! Fuzzes orders to purge, as JSON and as headers. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::purge_order(data));
