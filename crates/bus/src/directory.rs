//! Which node owns the connection of which device, and what the devices offer.

mod catalog_events;
mod disconnect;
mod lookup;
mod presence_cache;
mod registration_cache;
mod resync;
mod takeover;

pub(crate) use self::{
    catalog_events::CatalogChannels,
    presence_cache::PresenceCache,
    registration_cache::RegistrationCache,
    resync::{PendingDevices, check_claims, record_missed, run_resync},
};
pub use self::{
    catalog_events::{CatalogEvent, CatalogWatch},
    lookup::ClaimedEpoch,
};
