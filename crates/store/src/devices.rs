//! Stored devices, connected or not. Which of them are connected is known to the bus only.

pub(crate) mod approvals;
pub(crate) mod device_events;
pub(crate) mod labels;
pub(crate) mod registrations;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::{
    id::{DeviceId, DeviceRange, OrgId},
    schema::Digest,
};

use crate::{
    Store, StoreError,
    database::{decode_error, purge::PURGE_BATCH_SIZE, with_timeout},
};
use device_events::DeviceChange;

/// A device as last seen.
#[derive(Debug, Clone)]
pub struct StoredDevice {
    /// Its id within the organisation.
    pub id: DeviceId,
    /// The newest connection that is known.
    pub epoch: i64,
    /// When it first connected.
    pub first_seen: DateTime<Utc>,
    /// Time of its last event.
    pub last_seen: DateTime<Utc>,
    /// Why its last connection ended; `None` while it is connected.
    pub left_reason: Option<String>,
    /// The digest of the services object that it registered last: [`Store::services`] reads it.
    pub digest: Option<Digest>,
    /// When it registered them. Registering the same ones again does not change it.
    pub registered_at: Option<DateTime<Utc>>,
}

struct Row {
    device_id: String,
    epoch: i64,
    first_seen: DateTime<Utc>,
    last_seen: DateTime<Utc>,
    left_reason: Option<String>,
    digest: Option<Vec<u8>>,
    registered_at: Option<DateTime<Utc>>,
}

impl TryFrom<Row> for StoredDevice {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let id = row.device_id.parse().map_err(decode_error)?;
        // A constraint of the table excludes other lengths.
        let digest = row.digest.and_then(|digest| digest.try_into().ok());
        Ok(Self {
            id,
            epoch: row.epoch,
            first_seen: row.first_seen,
            last_seen: row.last_seen,
            left_reason: row.left_reason,
            digest: digest.map(Digest),
            registered_at: row.registered_at,
        })
    }
}

impl Store {
    /// One device of an organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn device(
        &self,
        org: OrgId,
        device: &DeviceId,
    ) -> Result<Option<StoredDevice>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT d.device_id, d.epoch, d.first_seen, d.last_seen, d.left_reason,
                      r.digest AS "digest?", r.registered_at AS "registered_at?"
               FROM devices d
               LEFT JOIN service_registrations r USING (org_id, device_id)
               WHERE d.org_id = $1 AND d.device_id = $2"#,
            org.uuid(),
            device.as_str()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        row.map(StoredDevice::try_from).transpose()
    }

    /// Devices of an organisation within a range, in byte order of their ids; at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn devices<'a>(
        &self,
        org: OrgId,
        range: impl Into<DeviceRange<'a>>,
        limit: u32,
    ) -> Result<Vec<StoredDevice>, StoreError> {
        let range = range.into();
        let query = sqlx::query_as!(
            Row,
            r#"SELECT d.device_id, d.epoch, d.first_seen, d.last_seen, d.left_reason,
                      r.digest AS "digest?", r.registered_at AS "registered_at?"
               FROM devices d
               LEFT JOIN service_registrations r USING (org_id, device_id)
               WHERE d.org_id = $1 AND d.device_id >= $2 AND (d.device_id > $2 OR $3) AND d.device_id < $4
               ORDER BY d.device_id LIMIT $5"#,
            org.uuid(),
            range.start(),
            range.includes_start(),
            range.end(),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        rows.into_iter().map(StoredDevice::try_from).collect()
    }

    /// Those of these devices that are stored, in byte order of their ids.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn devices_by_id(
        &self,
        org: OrgId,
        ids: &[String],
    ) -> Result<Vec<StoredDevice>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = sqlx::query_as!(
            Row,
            r#"SELECT d.device_id, d.epoch, d.first_seen, d.last_seen, d.left_reason,
                      r.digest AS "digest?", r.registered_at AS "registered_at?"
               FROM devices d
               LEFT JOIN service_registrations r USING (org_id, device_id)
               WHERE d.org_id = $1 AND d.device_id = ANY($2) ORDER BY d.device_id"#,
            org.uuid(),
            ids
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        rows.into_iter().map(StoredDevice::try_from).collect()
    }

    /// The number of devices of an organisation within a range.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn count_devices(
        &self,
        org: OrgId,
        range: DeviceRange<'_>,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM devices
               WHERE org_id = $1 AND device_id >= $2 AND (device_id > $2 OR $3) AND device_id < $4"#,
            org.uuid(),
            range.start(),
            range.includes_start(),
            range.end()
        );
        let count =
            with_timeout(async { query.fetch_one(&mut *self.tenant_conn(org).await?).await })
                .await?;
        Ok(count.unsigned_abs())
    }

    /// Deletes a device whose newest connection is this one, its registration, its labels, its note and its
    /// approvals; false if there is no such
    /// device, or a newer connection is known. Later events of that connection do not bring it back.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn forget_device(
        &self,
        org: OrgId,
        device: &DeviceId,
        epoch: i64,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "WITH gone AS (
                 DELETE FROM devices WHERE org_id = $1 AND device_id = $2 AND epoch = $3
                 RETURNING org_id, device_id, epoch),
             unlabelled AS (DELETE FROM device_labels USING gone
                 WHERE device_labels.org_id = gone.org_id AND device_labels.device_id = gone.device_id),
             revoked AS (
                 DELETE FROM service_approvals a USING gone
                 WHERE a.org_id = gone.org_id AND a.device_id = gone.device_id)
             INSERT INTO forgotten_devices AS known (org_id, device_id, epoch)
             SELECT org_id, device_id, epoch FROM gone
             ON CONFLICT (org_id, device_id) DO UPDATE
             SET epoch = GREATEST(known.epoch, EXCLUDED.epoch), forgotten_at = now()",
            org.uuid(),
            device.as_str(),
            epoch
        );
        let forgotten =
            with_timeout(async { query.execute(&mut *self.tenant_conn(org).await?).await }).await?;
        Ok(forgotten.rows_affected() > 0)
    }

    /// Deletes what is known of devices that were forgotten before this time; returns how many. Their
    /// events must have arrived by then.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_forgotten_devices(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM forgotten_devices WHERE (org_id, device_id) IN
                 (SELECT org_id, device_id FROM forgotten_devices WHERE forgotten_at < $1 LIMIT $2)",
                before,
                PURGE_BATCH_SIZE
            )
        })
        .await
    }

    /// The devices of an organisation the SHA-256 of whose ids begins with these bytes; at most
    /// `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn devices_by_name_hash(
        &self,
        org: OrgId,
        hash: [u8; 4],
        limit: u32,
    ) -> Result<Vec<DeviceId>, StoreError> {
        let query = sqlx::query_scalar!(
            "SELECT device_id FROM devices WHERE org_id = $1 AND name_hash = $2 LIMIT $3",
            org.uuid(),
            hash.as_slice(),
            i64::from(limit)
        );
        let ids = with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
            .await?;
        ids.iter()
            .map(|id| id.parse().map_err(decode_error))
            .collect()
    }
}

/// Inserts or updates devices. Of two states the newer connection wins, then the later time, so
/// repeated and late changes are harmless. An older connection only changes `first_seen`.
pub(crate) async fn upsert(
    connection: &mut PgConnection,
    changes: &[DeviceChange],
) -> Result<(), sqlx::Error> {
    let (mut orgs, mut devices, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first_seen, mut last_seen, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        orgs.push(change.device.org.uuid());
        devices.push(change.device.device.as_str());
        epochs.push(change.epoch);
        first_seen.push(change.first_seen);
        last_seen.push(change.last_seen);
        left.push(change.left_reason);
    }
    sqlx::query!(
        "INSERT INTO devices AS known (org_id, device_id, epoch, first_seen, last_seen, left_reason)
         SELECT * FROM UNNEST($1::uuid[], $2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::text[])
             AS told (org_id, device_id, epoch, first_seen, last_seen, left_reason)
         WHERE NOT EXISTS (SELECT FROM forgotten_devices gone
             WHERE gone.org_id = told.org_id AND gone.device_id = told.device_id AND gone.epoch >= told.epoch)
         ON CONFLICT (org_id, device_id) DO UPDATE SET
             epoch = GREATEST(known.epoch, excluded.epoch),
             first_seen = LEAST(known.first_seen, excluded.first_seen),
             last_seen = CASE
                 WHEN (excluded.epoch, excluded.last_seen) > (known.epoch, known.last_seen) THEN excluded.last_seen
                 ELSE known.last_seen
             END,
             left_reason = CASE
                 WHEN (excluded.epoch, excluded.last_seen) > (known.epoch, known.last_seen) THEN excluded.left_reason
                 WHEN (excluded.epoch, excluded.last_seen) = (known.epoch, known.last_seen)
                     THEN COALESCE(excluded.left_reason, known.left_reason)
                 ELSE known.left_reason
             END",
        &orgs,
        &devices as &[&str],
        &epochs,
        &first_seen,
        &last_seen,
        &left as &[Option<&str>]
    )
    .execute(connection)
    .await?;
    Ok(())
}
