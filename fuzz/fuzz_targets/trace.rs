//! Fuzzes the trace readers of the lab: the first line says the form, the rest is the trace.
//! Threads: none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| damelo_lab::trace::fuzz_trace(data));
