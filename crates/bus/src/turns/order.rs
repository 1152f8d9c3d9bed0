//! The order of all turns, which Redis's clock makes.
//! Never: a place that two turns share.

use std::fmt;

/// A turn's place in the order of all turns: Redis's clock, and a number within its millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct TurnAt {
    pub(crate) ms: u64,
    pub(crate) number: u64,
}

impl fmt::Display for TurnAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

impl TurnAt {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (ms, number) = text.split_once('-')?;
        Some(Self {
            ms: ms.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    /// The place right behind this one.
    pub(super) const fn next(self) -> Self {
        let number = self.number.saturating_add(1);
        Self { number, ..self }
    }
}
