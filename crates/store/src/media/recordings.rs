//! Recordings of what users say to devices, of organisations that have switched them on.
//! Invariant: nothing is stored for an organisation that has switched them off before.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use switchboard_protocol::id::{DeviceId, OrgId, RecordingId};
use uuid::Uuid;

use crate::{
    Owner, PendingUpload, Store, StoreError,
    database::with_timeout,
    media::objects::{ObjectError, ObjectKey, hex},
};

/// How many recordings one statement deletes.
const BATCH_SIZE: i64 = 1_000;

/// A recording to store.
#[derive(Debug, Clone)]
pub struct NewRecording {
    /// The id of the recording.
    pub id: RecordingId,
    /// The device that it was spoken to.
    pub device: DeviceId,
    /// Its duration in milliseconds.
    pub duration_ms: u32,
    /// A file of Ogg Opus.
    pub file: Bytes,
}

/// A stored recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecording {
    /// The id of the recording.
    pub id: RecordingId,
    /// Its organisation.
    pub org: OrgId,
    /// The device that it was spoken to.
    pub device_id: String,
    /// Its duration in milliseconds.
    pub duration_ms: i32,
    /// The size in bytes.
    pub size_bytes: i64,
    /// The SHA-256 of the bytes.
    pub sha256: Vec<u8>,
    /// Time of storing, which is the end of the turn.
    pub created_at: DateTime<Utc>,
}

impl StoredRecording {
    /// The object key of its bytes.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::recording(Owner::Org(self.org), self.id)
    }

    /// The hash as lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}

/// The reason why a recording was not stored.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The object store failed.
    #[error("the object store failed while storing a recording")]
    Objects(#[from] ObjectError),
    /// The database failed.
    #[error("the database failed while storing a recording")]
    Store(#[from] StoreError),
}

/// The recordings that are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingFilter<'a> {
    /// All.
    All,
    /// This one.
    One(RecordingId),
    /// Those of a device.
    Device(&'a DeviceId),
}

struct Row {
    id: Uuid,
    org_id: Uuid,
    device_id: String,
    duration_ms: i32,
    size_bytes: i64,
    sha256: Vec<u8>,
    created_at: DateTime<Utc>,
}

impl From<Row> for StoredRecording {
    fn from(row: Row) -> Self {
        Self {
            id: RecordingId::from_uuid(row.id),
            org: OrgId::from_uuid(row.org_id),
            device_id: row.device_id,
            duration_ms: row.duration_ms,
            size_bytes: row.size_bytes,
            sha256: row.sha256,
            created_at: row.created_at,
        }
    }
}

impl Store {
    /// Whether an organisation has switched recordings on, and there is an object store for them.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn records_speech(&self, org: OrgId) -> Result<bool, StoreError> {
        if self.objects().is_none() {
            return Ok(false);
        }
        let query = sqlx::query_scalar!("SELECT record_speech FROM orgs WHERE id = $1", org.uuid());
        let found = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        });
        Ok(found.await?.unwrap_or_default())
    }

    /// Stores a recording: first its bytes, then its row. Returns false, and stores nothing, if the
    /// organisation has switched recordings off.
    ///
    /// # Errors
    /// [`RecordingError`] if one of the two stores fails.
    pub async fn add_recording(
        &self,
        org: OrgId,
        recording: NewRecording,
    ) -> Result<bool, RecordingError> {
        let Some(objects) = self.objects() else {
            return Ok(false);
        };
        if !self.records_speech(org).await? {
            return Ok(false);
        }
        let key = ObjectKey::recording(Owner::Org(org), recording.id);
        let file = recording.file.clone();
        let put = PendingUpload::put::<RecordingError>(objects, key, file, recording);
        let upload = put.await?;
        let row = &upload.row;
        // The lock makes a later change wait, and sees an earlier one.
        let query = sqlx::query!(
            "INSERT INTO recordings (id, org_id, device_id, duration_ms, size_bytes, sha256)
             SELECT $1, o.id, $3, $4, $5, $6 FROM orgs o WHERE o.id = $2 AND o.record_speech FOR SHARE",
            row.id.uuid(),
            org.uuid(),
            row.device.as_str(),
            i32::try_from(row.duration_ms).unwrap_or(i32::MAX),
            i64::try_from(row.file.len()).unwrap_or(i64::MAX),
            upload.sha256
        );
        let inserted =
            with_timeout(async { query.execute(&mut *self.tenant_conn(org).await?).await });
        let inserted = inserted.await?.rows_affected() > 0;
        if !inserted {
            upload.discard().await;
        }
        Ok(inserted)
    }

    /// One recording of an organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn recording(
        &self,
        org: OrgId,
        id: RecordingId,
    ) -> Result<Option<StoredRecording>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, device_id, duration_ms, size_bytes, sha256, created_at
             FROM recordings WHERE org_id = $1 AND id = $2",
            org.uuid(),
            id.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        });
        Ok(row.await?.map(StoredRecording::from))
    }

    /// Recordings of an organisation, or of one of its devices, oldest first, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn recordings(
        &self,
        org: OrgId,
        device: Option<&DeviceId>,
        after: Option<RecordingId>,
        limit: u32,
    ) -> Result<Vec<StoredRecording>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, device_id, duration_ms, size_bytes, sha256, created_at
             FROM recordings
             WHERE org_id = $1 AND ($2::text IS NULL OR device_id = $2) AND id > $3
             ORDER BY id LIMIT $4",
            org.uuid(),
            device.map(DeviceId::as_str),
            after.map_or(Uuid::nil(), RecordingId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await });
        Ok(rows.await?.into_iter().map(StoredRecording::from).collect())
    }

    /// Deletes recordings of an organisation, 1,000 at most: first their rows, then their bytes.
    /// Returns how many, and whether there are more.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails. Bytes that could not be deleted are logged, and later
    /// deleted as orphans.
    pub async fn delete_recordings(
        &self,
        org: OrgId,
        filter: RecordingFilter<'_>,
    ) -> Result<(u64, bool), StoreError> {
        let (id, device) = match filter {
            RecordingFilter::All => (None, None),
            RecordingFilter::One(id) => (Some(id.uuid()), None),
            RecordingFilter::Device(device) => (None, Some(device.as_str())),
        };
        let query = sqlx::query!(
            "DELETE FROM recordings WHERE org_id = $1 AND id IN
               (SELECT id FROM recordings
                WHERE org_id = $1 AND ($2::uuid IS NULL OR id = $2) AND ($3::text IS NULL OR device_id = $3)
                ORDER BY id LIMIT $4)
             RETURNING org_id, id",
            org.uuid(),
            id,
            device,
            BATCH_SIZE
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await });
        let deleted = rows.await?.into_iter().map(|row| (row.org_id, row.id));
        Ok(self.delete_recorded_objects(deleted.collect()).await)
    }

    /// Deletes the recordings that are older than the retention of their organisation. Returns how
    /// many.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; what was deleted until then stays deleted.
    pub async fn purge_recordings(&self) -> Result<u64, StoreError> {
        let mut purged = 0;
        loop {
            let query = sqlx::query!(
                "DELETE FROM recordings WHERE id IN
                   (SELECT expired.id FROM orgs o CROSS JOIN LATERAL
                      (SELECT r.id FROM recordings r
                       WHERE r.org_id = o.id
                         AND r.created_at < now() - make_interval(days => o.recording_retention_days)
                       LIMIT $1) expired
                    LIMIT $1)
                 RETURNING org_id, id",
                BATCH_SIZE
            );
            let rows =
                with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await });
            let deleted = rows.await?.into_iter().map(|row| (row.org_id, row.id));
            let (deleted, has_more) = self.delete_recorded_objects(deleted.collect()).await;
            purged += deleted;
            if !has_more {
                return Ok(purged);
            }
        }
    }

    /// Deletes the bytes of recordings whose rows are deleted. Returns how many these are, and whether
    /// they are a whole batch.
    async fn delete_recorded_objects(&self, rows: Vec<(Uuid, Uuid)>) -> (u64, bool) {
        let count = rows.len() as u64;
        let keys = rows.into_iter().map(|(org, id)| {
            let owner = Owner::Org(OrgId::from_uuid(org));
            ObjectKey::recording(owner, RecordingId::from_uuid(id))
        });
        if let Some(objects) = self.objects()
            && let Err(error) = objects.delete_all(keys.collect()).await
        {
            tracing::warn!(
                error = error.report(),
                "could not delete the bytes of deleted recordings; they are left to the orphan collection"
            );
        }
        (count, count == BATCH_SIZE.unsigned_abs())
    }
}
