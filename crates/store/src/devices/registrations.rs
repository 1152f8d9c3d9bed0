//! The registered services of each device, connected or not. A services object is opaque here:
//! bytes under their digest.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::PgConnection;
use switchboard_protocol::{
    id::{DeviceId, OrgId},
    schema::Digest,
};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{decode_error, page::MAX_PAGE_BYTES, with_timeout},
    devices::device_events::DeviceChange,
};

impl Store {
    /// Deletes services objects that no device uses and that were not registered since this time;
    /// returns how many. The time must be well before the edges' cache of published digests
    /// expires, which is a minute.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn purge_contents(&self, unused_since: DateTime<Utc>) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM registration_contents known WHERE told_at < $1 AND NOT EXISTS
             (SELECT FROM service_registrations used
              WHERE used.org_id = known.org_id AND used.digest = known.digest)",
            unused_since
        );
        Ok(
            with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
                .await?
                .rows_affected(),
        )
    }

    /// The services objects with these distinct digests that devices of an organisation registered,
    /// byte for byte and in this order: those that have at most 4 MiB together, at least one.
    /// `None` for one that is not stored.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails.
    pub async fn services(
        &self,
        org: OrgId,
        digests: &[Digest],
    ) -> Result<Vec<Option<Box<RawValue>>>, StoreError> {
        if digests.is_empty() {
            return Ok(Vec::new());
        }
        let digests: Vec<Vec<u8>> = digests.iter().map(|digest| digest.0.to_vec()).collect();
        let (page, mut contents) = with_timeout(async {
            let mut connection = self.tenant_conn(org).await?;
            let page = match digests.len() {
                1 => &digests[..],
                _ => first_of_page(&mut connection, org, &digests).await?,
            };
            let contents = contents(&mut connection, org, page).await?;
            Ok::<_, sqlx::Error>((page, contents))
        })
        .await?;
        let services = page.iter().map(|digest| {
            let text = contents.remove(digest.as_slice());
            text.map(RawValue::from_string).transpose()
        });
        let services: Result<_, _> = services.collect();
        services.map_err(decode_error)
    }

    /// The names of the services in the services objects with these digests, sorted, in this order.
    /// `None` for one that is not stored.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn service_names(
        &self,
        org: OrgId,
        digests: &[Digest],
    ) -> Result<Vec<Option<Vec<String>>>, StoreError> {
        if digests.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<Vec<u8>> = digests.iter().map(|digest| digest.0.to_vec()).collect();
        let query = sqlx::query!(
            r#"SELECT digest, ARRAY(SELECT json_object_keys(services)) AS "names!"
               FROM registration_contents WHERE org_id = $1 AND digest = ANY($2)"#,
            org.uuid(),
            &wanted
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        let mut names: HashMap<Vec<u8>, Vec<String>> = rows
            .into_iter()
            .map(|row| (row.digest, row.names))
            .collect();
        let names = wanted.iter().map(|digest| {
            let mut names = names.remove(digest)?;
            names.sort_unstable();
            Some(names)
        });
        Ok(names.collect())
    }

    /// The digests that the devices of an organisation registered last, for at most `limit`
    /// devices.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        let registration = |device: &str, digest: Vec<u8>| {
            let digest = digest.try_into().ok().map(Digest);
            device.parse().ok().zip(digest)
        };
        // The table's constraints exclude other values.
        Ok(rows
            .into_iter()
            .filter_map(|row| registration(&row.device_id, row.digest))
            .collect())
    }
}

/// The first digests whose services objects have at most 4 MiB together. The recursion ends there,
/// so that no further row is decompressed.
async fn first_of_page<'a>(
    connection: &mut PgConnection,
    org: OrgId,
    digests: &'a [Vec<u8>],
) -> Result<&'a [Vec<u8>], sqlx::Error> {
    let sums = sqlx::query_scalar!(
        r#"WITH RECURSIVE ahead AS (
               SELECT 0 AS number, 0::bigint AS bytes
               UNION ALL
               SELECT ahead.number + 1, ahead.bytes + COALESCE((
                          SELECT octet_length(c.services::text) FROM registration_contents c
                          WHERE c.org_id = $1 AND c.digest = ($2::bytea[])[ahead.number + 1]), 0)
               FROM ahead WHERE ahead.number < cardinality($2) AND ahead.bytes <= $3)
           SELECT bytes AS "bytes!" FROM ahead WHERE number > 0 ORDER BY number"#,
        org.uuid(),
        digests,
        MAX_PAGE_BYTES
    )
    .fetch_all(connection)
    .await?;
    let fitting = sums.iter().take_while(|bytes| **bytes <= MAX_PAGE_BYTES);
    let count = fitting.count().max(1);
    Ok(digests.get(..count).unwrap_or(digests))
}

/// The services objects with these digests, as text.
async fn contents(
    connection: &mut PgConnection,
    org: OrgId,
    digests: &[Vec<u8>],
) -> Result<HashMap<Vec<u8>, String>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT digest, services::text AS "services!" FROM registration_contents
           WHERE org_id = $1 AND digest = ANY($2)"#,
        org.uuid(),
        digests
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.digest, row.services))
        .collect())
}

/// Inserts new services objects, by organisation and digest.
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

/// Inserts or updates the current registrations, after [`devices::upsert`](super::upsert) locked the
/// rows of their devices. Of two registrations, the newer connection wins, then the later time.
///
/// Nothing is written for a device that comes back with the stored services: its row keeps the
/// connection and the time at which it first registered them. A registration counts as that of a
/// device that comes back in the first 5 s of its connection (an epoch is a time in microseconds).
/// A later one is always written, so that one before it, which arrives late, does not replace it.
/// Other services of a connection that is not the newest one known replace nothing.
pub(crate) async fn upsert(
    connection: &mut PgConnection,
    changes: &[DeviceChange],
) -> Result<(), sqlx::Error> {
    let (mut orgs, mut devices, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    let (mut epochs, mut times, mut newest) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        let Some(registration) = &change.registration else {
            continue;
        };
        orgs.push(change.device.org.uuid());
        devices.push(change.device.device.as_str());
        digests.push(registration.digest.0.as_slice());
        epochs.push(registration.epoch);
        times.push(registration.at);
        newest.push(change.epoch);
    }
    if orgs.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO service_registrations AS known (org_id, device_id, digest, epoch, registered_at)
         SELECT told.org_id, told.device_id, told.digest, told.epoch, told.registered_at
         FROM UNNEST($1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::timestamptz[], $6::bigint[])
             AS told (org_id, device_id, digest, epoch, registered_at, newest_epoch)
         WHERE NOT EXISTS (SELECT FROM forgotten_devices gone
             WHERE gone.org_id = told.org_id AND gone.device_id = told.device_id AND gone.epoch >= told.epoch)
           AND NOT EXISTS (SELECT FROM service_registrations same
             WHERE same.org_id = told.org_id AND same.device_id = told.device_id AND same.digest = told.digest
               AND told.registered_at < to_timestamp(told.epoch / 1e6::float8) + interval '5 seconds')
           AND NOT EXISTS (SELECT FROM devices JOIN service_registrations USING (org_id, device_id)
             WHERE org_id = told.org_id AND device_id = told.device_id AND devices.epoch > told.newest_epoch)
         ON CONFLICT (org_id, device_id) DO UPDATE SET
             digest = excluded.digest, epoch = excluded.epoch, registered_at = excluded.registered_at
         WHERE (excluded.epoch, excluded.registered_at) >= (known.epoch, known.registered_at)",
        &orgs,
        &devices as &[&str],
        &digests as &[&[u8]],
        &epochs,
        &times,
        &newest
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The last registration of a device in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegistrationChange {
    pub(crate) digest: Digest,
    pub(crate) epoch: i64,
    pub(crate) at: DateTime<Utc>,
}
