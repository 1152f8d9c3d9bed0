//! One model of a provider: what it costs, and what is known of how it wants to be asked.
//! Never: another model's prices.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    rests::Rests,
    settings::{Listed, Prices},
};

/// One model, as it was set.
#[derive(Debug)]
pub(crate) struct Model {
    pub name: String,
    pub prices: Prices,
    pub rests: Rests,
    has_own_temperature: AtomicBool,
}

impl Model {
    pub(crate) fn new(listed: Listed) -> Self {
        Self {
            name: listed.name,
            prices: listed.prices,
            rests: Rests::default(),
            has_own_temperature: AtomicBool::new(false),
        }
    }

    /// Whether it can be told how freely to speak, as far as is known.
    pub(crate) fn takes_temperature(&self) -> bool {
        !self.has_own_temperature.load(Ordering::Relaxed)
    }

    /// It has a temperature of its own, and is told none from now on. Whether that is new.
    pub(crate) fn keeps_temperature(&self) -> bool {
        !self.has_own_temperature.swap(true, Ordering::Relaxed)
    }
}
