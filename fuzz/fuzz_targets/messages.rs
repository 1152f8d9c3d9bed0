//! Runs `switchboard_fuzz::messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| switchboard_fuzz::messages(input));
