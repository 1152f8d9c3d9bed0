//! Runs `switchboard_fuzz::decoder`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| switchboard_fuzz::decoder(input));
