//! What a credential reaches, as parameters of a query of calls.

use switchboard_protocol::{id::DeviceId, label::DeviceLabel, token::Restrictions};

/// The restrictions of a credential. `None` restricts nothing.
pub(super) struct CallReach<'a> {
    pub(super) device_prefix: Option<&'a str>,
    /// Names of services, or beginnings of names and `*`.
    pub(super) services: Option<Vec<String>>,
    pub(super) device_label: Option<&'a str>,
}

impl<'a> From<Option<&'a Restrictions>> for CallReach<'a> {
    fn from(restrictions: Option<&'a Restrictions>) -> Self {
        let prefix = restrictions.and_then(|one| one.device_prefix.as_ref());
        let services = restrictions.and_then(|one| one.services.as_ref());
        let label = restrictions.and_then(|one| one.device_label.as_ref());
        Self {
            device_prefix: prefix.map(DeviceId::as_str),
            services: services
                .map(|patterns| patterns.iter().map(|one| one.as_str().to_owned()).collect()),
            device_label: label.map(DeviceLabel::as_str),
        }
    }
}
