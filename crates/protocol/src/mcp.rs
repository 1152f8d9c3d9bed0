//! Encodings of Model Context Protocol messages other than JSON.
//! Never: what a message means; its params and results pass through as they are.

pub mod flat;
