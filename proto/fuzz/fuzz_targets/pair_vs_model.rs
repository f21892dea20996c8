#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tunnel_fuzz::pair_vs_model::run(bytes));
