//! Fuzzes the file of users of the forward proxy. Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_http_proxy::users_file(data));
