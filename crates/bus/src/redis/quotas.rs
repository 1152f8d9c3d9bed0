//! The published quotas in Redis, and the number of live devices.

use redis::Cmd;
use switchboard_protocol::id::OrgId;

use super::client::RedisClient;
use crate::{
    backend::BackendFuture,
    error::BusError,
    quotas::{QuotaLimits, QuotaStore},
};

impl QuotaStore for RedisClient {
    fn publish_quotas<'a>(&'a self, quotas: &'a QuotaLimits) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let key = self.keys.quotas();
            let json = serde_json::to_string(quotas)
                .map_err(|error| BusError::Unexpected(error.to_string()))?;
            self.query(&key, &Cmd::set(&key, json)).await
        })
    }

    fn quotas(&self) -> BackendFuture<'_, Option<QuotaLimits>> {
        Box::pin(async move {
            let key = self.keys.quotas();
            let json: Option<String> = self.query(&key, &Cmd::get(&key)).await?;
            let quotas = json.map(|json| serde_json::from_str(&json)).transpose();
            quotas.map_err(|error| {
                BusError::Unexpected(format!("the quotas are not readable: {error}"))
            })
        })
    }

    fn count_devices(&self, org: OrgId) -> BackendFuture<'_, u64> {
        Box::pin(async move {
            let directory = self.keys.directory(org);
            self.query(&directory, &Cmd::hlen(&directory)).await
        })
    }
}
