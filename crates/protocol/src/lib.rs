//! The device wire protocol and the vocabulary of a call, without I/O and without a clock:
//! bytes and times come in as arguments, answers go out as values.
//! Never: sockets, timers, threads, randomness, indexing that can panic, unchecked arithmetic.
//!
//! What a device sends passes through these modules in this order: [`frame`] finds where it ends,
//! [`session`] decides whether it may come now, [`message`] reads it, and [`schema`] measures and
//! compiles what it registers. [`access`] says who it is, [`outcome`] how a call to it ended, and
//! [`id`] names all of them. [`mcp`] is the other side: messages of callers in another encoding.

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::string_slice
    )
)]

pub mod access;
pub mod frame;
pub mod id;
pub mod mcp;
pub mod message;
pub mod outcome;
pub mod schema;
pub mod session;
