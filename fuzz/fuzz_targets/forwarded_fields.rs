//! Fuzzes what a proxy before this one tells of its client. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::forwarded_fields(data));
