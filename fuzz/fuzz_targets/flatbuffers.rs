//! Runs `switchboard_fuzz::flatbuffers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| switchboard_fuzz::flatbuffers(input));
