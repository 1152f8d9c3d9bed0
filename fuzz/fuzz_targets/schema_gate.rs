//! Runs `switchboard_fuzz::schema_gate`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| switchboard_fuzz::schema_gate(input));
