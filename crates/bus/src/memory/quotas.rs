//! The published quotas, and the number of live devices.

use switchboard_protocol::id::OrgId;

use super::Member;
use crate::{
    backend::BackendFuture,
    quotas::{QuotaLimits, QuotaStore},
};

impl QuotaStore for Member {
    fn publish_quotas<'a>(&'a self, quotas: &'a QuotaLimits) -> BackendFuture<'a, ()> {
        self.with_state(|state| state.quotas = Some(quotas.clone()))
    }

    fn quotas(&self) -> BackendFuture<'_, Option<QuotaLimits>> {
        self.with_state(|state| state.quotas.clone())
    }

    fn count_devices(&self, org: OrgId) -> BackendFuture<'_, u64> {
        self.with_state(|state| state.device_count(org))
    }
}
