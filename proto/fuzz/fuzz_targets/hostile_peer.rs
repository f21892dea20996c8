#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tunnel_fuzz::hostile_peer::run(bytes));
