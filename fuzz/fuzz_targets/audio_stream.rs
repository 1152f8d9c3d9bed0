//! Runs `switchboard_fuzz::audio_stream`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| switchboard_fuzz::audio_stream(input));
