//! The services that a device declares, with what approvals are of.
//!
//! Invariant: at most one service is parsed at a time. A parsed registration is many times as large as its text.

use std::collections::BTreeMap;

use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::DeviceKey,
    schema::{Digest, shown_members},
};
use switchboard_runtime::problem::{Problem, ProblemKind, internal};

use crate::{
    Gateway,
    devices::{ServicesCache, device_unavailable, find},
};

/// The services of a device by their names.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) services: BTreeMap<String, DeclaredService>,
}

/// A service that a device declares.
pub(super) struct DeclaredService {
    pub(super) digest: Digest,
    /// A JSON object.
    pub(super) definition: Box<RawValue>,
}

impl Declared {
    /// Reads the services of a device, as far as the caller reaches them.
    ///
    /// # Errors
    /// 404 for an unknown device, or 503 if the services cannot be read.
    pub(super) async fn read(
        gateway: &Gateway,
        caller: &Caller,
        key: &DeviceKey,
    ) -> Result<Self, Problem> {
        let (entry, _) = find(gateway, key).await?;
        let mut cache = ServicesCache::new(gateway, caller);
        let services = cache.get(&entry).await;
        let services = services.map_err(|error| device_unavailable(&error))?;
        if cache.has_unread() {
            let detail =
                "The services of the device cannot be read at the moment; a retry is safe.";
            return Err(Problem::new(ProblemKind::BusUnavailable, detail));
        }
        Ok(services.as_deref().map(Self::parse).unwrap_or_default())
    }

    /// Parses a services object, which was validated when it was registered.
    pub(super) fn parse(services: &RawValue) -> Self {
        let services: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(services.get()).unwrap_or_default();
        let services = services.into_iter().filter_map(|(service, definition)| {
            let parsed: Value = serde_json::from_str(definition.get()).ok()?;
            let digest = Digest::of_service(&service, &parsed);
            Some((service, DeclaredService { digest, definition }))
        });
        Self {
            services: services.collect(),
        }
    }
}

impl DeclaredService {
    /// What an approval keeps of it.
    pub(super) fn shown(&self) -> Result<Box<RawValue>, Problem> {
        let parsed: Value = serde_json::from_str(self.definition.get()).map_err(|_| internal())?;
        to_raw_value(&shown_members(&parsed)).map_err(|_| internal())
    }
}
