//! Who changed which setting, and when.
//! Never: an entry written or changed from here; triggers in the database write them, and nobody changes them.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::AuditEntryId;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::bounded,
    owner::Owner,
    purge::{PURGE_STEP, in_steps},
};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id.
    pub id: AuditEntryId,
    /// When.
    pub at: DateTime<Utc>,
    /// Who: an API key's id, a token's subject, `operator`, or `switchboard` by itself.
    pub actor: String,
    /// `created`, `changed`, `removed` or `revoked`.
    pub action: String,
    /// What kind of thing.
    pub resource: String,
    /// Which one; it may be gone.
    pub resource_id: Uuid,
    /// What of it was changed, by name.
    pub changed: Vec<String>,
}

/// Which entries are read: those that fit all that is given.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// By this actor.
    pub actor: Option<String>,
    /// Of this action.
    pub action: Option<String>,
    /// About this kind of thing.
    pub resource: Option<String>,
    /// About this thing.
    pub resource_id: Option<Uuid>,
    /// From this moment on.
    pub since: Option<DateTime<Utc>>,
    /// Before this moment.
    pub until: Option<DateTime<Utc>>,
}

struct Row {
    id: Uuid,
    at: DateTime<Utc>,
    actor: String,
    action: String,
    resource: String,
    resource_id: Uuid,
    changed: Vec<String>,
}

impl From<Row> for AuditEntry {
    fn from(row: Row) -> Self {
        Self {
            id: AuditEntryId::from_uuid(row.id),
            at: row.at,
            actor: row.actor,
            action: row.action,
            resource: row.resource,
            resource_id: row.resource_id,
            changed: row.changed,
        }
    }
}

impl Store {
    /// Entries of this owner, the oldest first, strictly after `after`.
    ///
    /// # Errors
    /// As every query.
    pub async fn audit_log(
        &self,
        owner: Owner,
        filter: &AuditFilter,
        after: Option<AuditEntryId>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        // No actor has one, and the server takes none.
        if filter
            .actor
            .as_ref()
            .is_some_and(|actor| actor.contains('\0'))
        {
            return Ok(Vec::new());
        }
        let query = sqlx::query_as!(
            Row,
            "SELECT id, at, actor, action, resource, resource_id, changed FROM audit_log
             WHERE org_id IS NOT DISTINCT FROM $1 AND id > $2 AND ($3::text IS NULL OR actor = $3)
                   AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR resource = $5)
                   AND ($6::uuid IS NULL OR resource_id = $6) AND ($7::timestamptz IS NULL OR at >= $7)
                   AND ($8::timestamptz IS NULL OR at < $8)
             ORDER BY id LIMIT $9",
            owner.column(),
            after.map_or(Uuid::nil(), AuditEntryId::uuid),
            filter.actor,
            filter.action,
            filter.resource,
            filter.resource_id,
            filter.since,
            filter.until,
            i64::from(limit)
        );
        let rows =
            bounded(async { query.fetch_all(&mut *self.within(owner).await?).await }).await?;
        Ok(rows.into_iter().map(AuditEntry::from).collect())
    }

    /// Forgets entries from before this moment; says how many.
    ///
    /// # Errors
    /// As every query; what was removed until then stays removed.
    pub async fn purge_audit_log(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        in_steps(|| async {
            let query = sqlx::query!(
                "DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE at < $1 ORDER BY at LIMIT $2)",
                before,
                PURGE_STEP
            );
            let done = query.execute(&mut *self.throughout().await?).await?;
            Ok(done.rows_affected())
        })
        .await
    }
}
