#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1_guard_fuzz::heads::run(bytes));
