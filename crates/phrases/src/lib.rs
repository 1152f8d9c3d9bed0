//! What users of devices read or hear from the service itself, in one table for each language, and
//! which language a user gets.
//!
//! Errors for developers (problem documents, ERROR frames, results of calls) are no phrases: they are
//! English.

mod detection;
mod language;
mod phrase;
mod preference;
mod tables;

pub use language::{Language, Punctuation, accepted};
pub use phrase::Phrase;
pub use preference::Preference;
