//! Providers of speech over real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixture;
mod providers;
mod streams;
