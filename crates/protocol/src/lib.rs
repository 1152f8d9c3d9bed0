//! The device wire protocol and the vocabulary of a call, without I/O and without a clock. Bytes
//! and times are arguments, answers are return values.
//!
//! A frame of a device passes through these modules in this order: [`frame`] finds its end,
//! [`session`] checks that it may come now, [`message`] parses it, and [`schema`] measures and
//! compiles the services that it registers. [`token`] authenticates the device, [`outcome`] is the
//! result of a call, [`id`] has the identifiers, [`label`] the labels of devices, and [`locale`] the
//! language tags.
//!
//! Invariant: no socket, timer, thread or randomness; no indexing that can panic, no unchecked
//! arithmetic.
//!
//! "S" in these documents refers to a section of the supplement, "ours" marks what it leaves open.
//! `docs/protocol.md` has the whole protocol.

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::string_slice
    )
)]

pub mod frame;
pub mod id;
pub mod label;
pub mod locale;
pub mod message;
pub mod outcome;
pub mod schema;
pub mod session;
pub mod token;
