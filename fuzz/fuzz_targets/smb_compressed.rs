#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir_sim::fuzz::run("smb_compressed", input));
