//! Labels and notes of devices.

use std::collections::HashMap;

use switchboard_protocol::{
    id::{DeviceId, DeviceRange, OrgId},
    label::DeviceLabel,
};

use crate::{
    Store, StoreError,
    database::{decode_error, with_timeout},
};

/// What people say about a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceNotes {
    /// Its labels in byte order, each once.
    pub labels: Vec<String>,
    /// A text for people; empty if there is none.
    pub note: String,
}

/// A label, and how many devices have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelCount {
    /// The label.
    pub label: String,
    /// Devices of the organisation that have it.
    pub devices: i64,
}

impl Store {
    /// Sets the labels, the note or both of a device, which need not be known; `None` leaves what there
    /// is. The labels are in byte order, each once.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails.
    pub async fn set_device_notes(
        &self,
        org: OrgId,
        device: &DeviceId,
        labels: Option<&[DeviceLabel]>,
        note: Option<&str>,
    ) -> Result<DeviceNotes, StoreError> {
        let labels: Option<Vec<String>> =
            labels.map(|labels| labels.iter().map(DeviceLabel::to_string).collect());
        with_timeout(async {
            let mut transaction = self.begin_tenant(org).await?;
            let notes = sqlx::query_as!(
                DeviceNotes,
                "INSERT INTO device_labels AS known (org_id, device_id, labels, note)
                 VALUES ($1, $2, COALESCE($3::text[], '{}'), COALESCE($4::text, ''))
                 ON CONFLICT (org_id, device_id) DO UPDATE
                 SET labels = COALESCE($3, known.labels), note = COALESCE($4, known.note)
                 RETURNING labels, note",
                org.uuid(),
                device.as_str(),
                labels.as_deref(),
                note
            )
            .fetch_one(&mut *transaction)
            .await?;
            sqlx::query!(
                "DELETE FROM device_labels
                 WHERE org_id = $1 AND device_id = $2 AND labels = '{}' AND note = ''",
                org.uuid(),
                device.as_str()
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(notes)
        })
        .await
    }

    /// The labels and the note of a device.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn device_notes(
        &self,
        org: OrgId,
        device: &DeviceId,
    ) -> Result<DeviceNotes, StoreError> {
        let query = sqlx::query_as!(
            DeviceNotes,
            "SELECT labels, note FROM device_labels WHERE org_id = $1 AND device_id = $2",
            org.uuid(),
            device.as_str()
        );
        let notes = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        });
        Ok(notes.await?.unwrap_or_default())
    }

    /// The labels of those of these devices that have some.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn labels_of_devices(
        &self,
        org: OrgId,
        ids: &[String],
    ) -> Result<HashMap<DeviceId, Vec<String>>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let query = sqlx::query!(
            "SELECT device_id, labels FROM device_labels
             WHERE org_id = $1 AND device_id = ANY($2) AND labels <> '{}'",
            org.uuid(),
            ids
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        let rows = rows
            .into_iter()
            .map(|row| Ok((row.device_id.parse().map_err(decode_error)?, row.labels)));
        rows.collect()
    }

    /// The devices of a range that have all of these labels, in byte order of their ids; at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn labelled_devices(
        &self,
        org: OrgId,
        range: DeviceRange<'_>,
        labels: &[DeviceLabel],
        limit: u32,
    ) -> Result<Vec<DeviceId>, StoreError> {
        let labels: Vec<String> = labels.iter().map(DeviceLabel::to_string).collect();
        let query = sqlx::query_scalar!(
            "SELECT device_id FROM device_labels
             WHERE org_id = $1 AND device_id >= $2 AND (device_id > $2 OR $3) AND device_id < $4 AND labels @> $5
             ORDER BY device_id LIMIT $6",
            org.uuid(),
            range.start(),
            range.includes_start(),
            range.end(),
            &labels,
            i64::from(limit)
        );
        let ids = with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
            .await?;
        ids.iter()
            .map(|id| id.parse().map_err(decode_error))
            .collect()
    }

    /// The number of devices of a range that have all of these labels.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn count_labelled_devices(
        &self,
        org: OrgId,
        range: DeviceRange<'_>,
        labels: &[DeviceLabel],
    ) -> Result<u64, StoreError> {
        let labels: Vec<String> = labels.iter().map(DeviceLabel::to_string).collect();
        let query = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM device_labels
               WHERE org_id = $1 AND device_id >= $2 AND (device_id > $2 OR $3) AND device_id < $4 AND labels @> $5"#,
            org.uuid(),
            range.start(),
            range.includes_start(),
            range.end(),
            &labels
        );
        let count =
            with_timeout(async { query.fetch_one(&mut *self.tenant_conn(org).await?).await })
                .await?;
        Ok(count.unsigned_abs())
    }

    /// The labels of the devices of a range that have all of `having`, strictly after `after` in byte order,
    /// each with the number of these devices; at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn labels(
        &self,
        org: OrgId,
        range: DeviceRange<'_>,
        having: &[DeviceLabel],
        after: Option<&DeviceLabel>,
        limit: u32,
    ) -> Result<Vec<LabelCount>, StoreError> {
        let having: Vec<String> = having.iter().map(DeviceLabel::to_string).collect();
        let query = sqlx::query_as!(
            LabelCount,
            r#"SELECT label AS "label!", count(*) AS "devices!"
               FROM device_labels, unnest(labels) AS label
               WHERE org_id = $1 AND device_id >= $2 AND (device_id > $2 OR $3) AND device_id < $4 AND labels @> $5
                     AND label COLLATE "C" > $6
               GROUP BY label ORDER BY label COLLATE "C" LIMIT $7"#,
            org.uuid(),
            range.start(),
            range.includes_start(),
            range.end(),
            &having,
            after.map_or("", DeviceLabel::as_str),
            i64::from(limit)
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await }).await
    }
}
