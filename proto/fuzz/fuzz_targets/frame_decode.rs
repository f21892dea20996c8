#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tunnel_fuzz::frame_decode::run(bytes));
