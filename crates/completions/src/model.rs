//! One model of a provider: its prices, its abilities and its state.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    cooldowns::Cooldowns,
    settings::{ModelSettings, Prices},
};

/// A configured model.
#[derive(Debug)]
pub(crate) struct Model {
    pub name: String,
    pub prices: Prices,
    pub sees_pictures: bool,
    pub cooldowns: Cooldowns,
    rejects_temperature: AtomicBool,
}

impl Model {
    pub(crate) fn new(settings: ModelSettings) -> Self {
        Self {
            name: settings.name,
            prices: settings.prices,
            sees_pictures: settings.sees_pictures,
            cooldowns: Cooldowns::default(),
            rejects_temperature: AtomicBool::new(false),
        }
    }

    /// Whether requests may set a temperature, as far as is known.
    pub(crate) fn accepts_temperature(&self) -> bool {
        !self.rejects_temperature.load(Ordering::Relaxed)
    }

    /// Records that the model has a fixed temperature. Returns whether that is new.
    pub(crate) fn set_rejects_temperature(&self) -> bool {
        !self.rejects_temperature.swap(true, Ordering::Relaxed)
    }
}
