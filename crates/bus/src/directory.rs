//! Which node owns the connection of which device, and what the devices offer.

mod catalog_events;
mod lookup;
mod registration_cache;
mod resync;

pub use self::catalog_events::{CatalogEvent, CatalogWatch};
pub(crate) use self::{
    catalog_events::{CatalogSender, catalog_channel},
    registration_cache::RegistrationCache,
    resync::{PendingUpserts, run_resync},
};
