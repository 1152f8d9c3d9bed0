//! The total order of turns, made by Redis's clock.

use std::fmt;

/// A turn's position in the queue, unique: milliseconds of Redis's clock, and a number within the
/// millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct TurnPosition {
    pub(crate) ms: u64,
    pub(crate) number: u64,
}

impl fmt::Display for TurnPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

impl TurnPosition {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (ms, number) = text.split_once('-')?;
        Some(Self {
            ms: ms.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    /// The position directly behind this one.
    pub(super) const fn next(self) -> Self {
        let number = self.number.saturating_add(1);
        Self { number, ..self }
    }
}
