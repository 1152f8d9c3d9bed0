//! What each device offers, also while it sleeps.
//! Never: the meaning of a services object; here it is bytes under their digest.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::{
    id::{DeviceId, OrgId},
    schema::Digest,
};
use uuid::Uuid;

use crate::{Store, StoreError, database::bounded, facts::DeviceChange};

impl Store {
    /// Forgets services objects that no device offers any more and that nobody told of since
    /// this moment; says how many. The moment must be well before an edge's memory of what it
    /// told, which is a minute.
    ///
    /// # Errors
    /// As every query.
    pub async fn purge_contents(&self, untold_since: DateTime<Utc>) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM registration_contents known WHERE told_at < $1 AND NOT EXISTS
             (SELECT FROM service_registrations used
              WHERE used.org_id = known.org_id AND used.digest = known.digest)",
            untold_since
        );
        Ok(
            bounded(async { query.execute(&mut *self.throughout().await?).await })
                .await?
                .rows_affected(),
        )
    }

    /// What the devices of an organisation registered last, by digest, of at most so many of them.
    ///
    /// # Errors
    /// As every query.
    pub async fn registrations(
        &self,
        org: OrgId,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Digest)>, StoreError> {
        let query = sqlx::query!(
            "SELECT device_id, digest FROM service_registrations
             WHERE org_id = $1 ORDER BY device_id LIMIT $2",
            org.uuid(),
            i64::try_from(limit).unwrap_or(i64::MAX)
        );
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        let registration = |device: &str, digest: Vec<u8>| {
            let digest = digest.try_into().ok().map(Digest);
            device.parse().ok().zip(digest)
        };
        // The table's constraints leave no others.
        Ok(rows
            .into_iter()
            .filter_map(|row| registration(&row.device_id, row.digest))
            .collect())
    }
}

/// Enters services objects that are not known yet, by organisation and digest.
pub(crate) async fn insert_contents(
    connection: &mut PgConnection,
    contents: &BTreeMap<(OrgId, [u8; 32]), &str>,
) -> Result<(), sqlx::Error> {
    if contents.is_empty() {
        return Ok(());
    }
    let orgs: Vec<Uuid> = contents.keys().map(|(org, _)| org.uuid()).collect();
    let digests: Vec<Vec<u8>> = contents.keys().map(|(_, digest)| digest.to_vec()).collect();
    let services: Vec<String> = contents
        .values()
        .map(|services| (*services).to_owned())
        .collect();
    sqlx::query!(
        "INSERT INTO registration_contents AS known (org_id, digest, services)
         SELECT org_id, digest, services::json
         FROM UNNEST($1::uuid[], $2::bytea[], $3::text[]) AS told (org_id, digest, services)
         ON CONFLICT (org_id, digest) DO UPDATE SET told_at = now()
         WHERE known.told_at < now() - interval '1 hour'",
        &orgs,
        &digests,
        &services
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Enters what devices offer now; of two registrations the one of the newer connection wins, then the later one.
pub(crate) async fn upsert(
    connection: &mut PgConnection,
    changes: &[DeviceChange],
) -> Result<(), sqlx::Error> {
    let registered = || {
        changes
            .iter()
            .filter_map(|change| change.registration.as_ref().map(|told| (change, told)))
    };
    if registered().next().is_none() {
        return Ok(());
    }
    let orgs: Vec<Uuid> = registered()
        .map(|(change, _)| change.device.org.uuid())
        .collect();
    let devices: Vec<String> = registered()
        .map(|(change, _)| change.device.device.to_string())
        .collect();
    let digests: Vec<Vec<u8>> = registered()
        .map(|(_, told)| told.digest.0.to_vec())
        .collect();
    let epochs: Vec<i64> = registered().map(|(_, told)| told.epoch).collect();
    let times: Vec<DateTime<Utc>> = registered().map(|(_, told)| told.at).collect();
    sqlx::query!(
        "INSERT INTO service_registrations AS known (org_id, device_id, digest, epoch, registered_at)
         SELECT * FROM UNNEST($1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::timestamptz[])
         ON CONFLICT (org_id, device_id) DO UPDATE SET
             digest = excluded.digest, epoch = excluded.epoch, registered_at = excluded.registered_at
         WHERE (excluded.epoch, excluded.registered_at) >= (known.epoch, known.registered_at)",
        &orgs,
        &devices,
        &digests,
        &epochs,
        &times
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What a device registered last, within a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegistrationChange {
    pub(crate) digest: Digest,
    pub(crate) epoch: i64,
    pub(crate) at: DateTime<Utc>,
}
