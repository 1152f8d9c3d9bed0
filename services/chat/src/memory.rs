//! Long-term memory: memories extracted from conversations, and summaries of long ones.

pub(crate) mod extract;
pub(crate) mod job;
pub(crate) mod salience;
pub(crate) mod summarize;
