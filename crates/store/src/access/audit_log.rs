//! The audit log of settings. Triggers in the database write the entries; this crate only reads and
//! purges them.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{AuditEntryId, DeviceId, OrgId};
use switchboard_runtime::paging::Order;
use uuid::Uuid;

use crate::{
    Owner, Store, StoreError,
    database::{purge::PURGE_BATCH_SIZE, with_timeout},
};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The id of the entry.
    pub id: AuditEntryId,
    /// Time of the change.
    pub at: DateTime<Utc>,
    /// The actor: an API key's id, a token's subject, `operator`, or `switchboard` for background
    /// work.
    pub actor: String,
    /// `created`, `changed`, `removed` or `revoked`.
    pub action: String,
    /// The kind of resource.
    pub resource: String,
    /// The id of the resource, which may have been deleted.
    pub resource_id: Uuid,
    /// The id of the resource if it is a device, whose ids are not UUIDs.
    pub device_id: Option<String>,
    /// The names of the changed fields.
    pub changed: Vec<String>,
}

/// Restricts the entries; all given conditions apply.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Changes by this actor.
    pub actor: Option<String>,
    /// This action.
    pub action: Option<String>,
    /// This kind of resource.
    pub resource: Option<String>,
    /// This resource.
    pub resource_id: Option<Uuid>,
    /// This device.
    pub device_id: Option<DeviceId>,
    /// From this time on.
    pub since: Option<DateTime<Utc>>,
    /// Before this time.
    pub until: Option<DateTime<Utc>>,
}

struct Row {
    id: Uuid,
    at: DateTime<Utc>,
    actor: String,
    action: String,
    resource: String,
    resource_id: Uuid,
    device_id: Option<String>,
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
            device_id: row.device_id,
            changed: row.changed,
        }
    }
}

/// The query of a page of entries, with its comparison and order.
macro_rules! entries {
    (
        $follows:literal, $order:literal, $owner:expr, $after:expr, $filter:expr, $pending_since:expr,
        $limit:expr
    ) => {
        sqlx::query_as!(
            Row,
            "SELECT id, at, actor, action, resource, resource_id, device_id, changed FROM audit_log
             WHERE org_id IS NOT DISTINCT FROM $1 AND id "
                + $follows
                + " $2 AND ($3::text IS NULL OR actor = $3)
                    AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR resource = $5)
                    AND ($6::uuid IS NULL OR resource_id = $6) AND ($7::timestamptz IS NULL OR at >= $7)
                    AND ($8::timestamptz IS NULL OR at < $8) AND ($9::timestamptz IS NULL OR at < $9)
                    AND ($10::text IS NULL OR device_id = $10) "
                + $order,
            $owner.column(),
            $after,
            $filter.actor,
            $filter.action,
            $filter.resource,
            $filter.resource_id,
            $filter.since,
            $filter.until,
            $pending_since,
            $filter.device_id.as_ref().map(DeviceId::as_str),
            i64::from($limit)
        )
    };
}

impl Store {
    /// Entries of this owner in this order, strictly after `after`. Oldest first, entries are left out
    /// while an older transaction may still commit earlier ones: a reader that continues after the last
    /// entry would never see those.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn audit_log(
        &self,
        owner: Owner,
        filter: &AuditFilter,
        (order, after): (Order, Option<AuditEntryId>),
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        // No actor contains NUL, and the server rejects it.
        if filter
            .actor
            .as_ref()
            .is_some_and(|actor| actor.contains('\0'))
        {
            return Ok(Vec::new());
        }
        let rows = with_timeout(async {
            let mut connection = self.tenant_conn(owner).await?;
            if order == Order::Desc {
                let after = after.map_or(Uuid::max(), AuditEntryId::uuid);
                let query = entries!(
                    "<",
                    "ORDER BY id DESC LIMIT $11",
                    owner,
                    after,
                    filter,
                    None::<DateTime<Utc>>,
                    limit
                );
                return query.fetch_all(&mut *connection).await;
            }
            // A statement of its own: what commits after it is in the snapshot of the next one. Ids have
            // the order of entries to the millisecond.
            let pending_since =
                sqlx::query_scalar!("SELECT date_trunc('milliseconds', audit_log_pending_since())");
            let pending_since = pending_since.fetch_one(&mut *connection).await?;
            let after = after.map_or(Uuid::nil(), AuditEntryId::uuid);
            let query = entries!(
                ">",
                "ORDER BY id LIMIT $11",
                owner,
                after,
                filter,
                pending_since,
                limit
            );
            query.fetch_all(&mut *connection).await
        })
        .await?;
        Ok(rows.into_iter().map(AuditEntry::from).collect())
    }

    /// Deletes entries from before this time, and the oldest ones of each organisation beyond
    /// `max_per_org`; returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_audit_log(
        &self,
        before: DateTime<Utc>,
        max_per_org: i64,
    ) -> Result<u64, StoreError> {
        let mut purged = self.purge(|| {
            sqlx::query!(
                "DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE at < $1 ORDER BY at LIMIT $2)",
                before,
                PURGE_BATCH_SIZE
            )
        })
        .await?;
        for org in self.org_ids().await? {
            let Some(newest) = self.newest_entry_beyond(org, max_per_org).await? else {
                continue;
            };
            let query = || {
                sqlx::query!(
                    "DELETE FROM audit_log WHERE id IN
                     (SELECT id FROM audit_log WHERE org_id = $1 AND id <= $2 ORDER BY id LIMIT $3)",
                    org.uuid(),
                    newest,
                    PURGE_BATCH_SIZE
                )
            };
            purged += self.purge(query).await?;
        }
        Ok(purged)
    }

    /// The newest entry of an organisation except for this many.
    async fn newest_entry_beyond(&self, org: OrgId, max: i64) -> Result<Option<Uuid>, StoreError> {
        let query = sqlx::query_scalar!(
            "SELECT id FROM audit_log WHERE org_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1",
            org.uuid(),
            max
        );
        with_timeout(async { query.fetch_optional(&mut *self.system_conn().await?).await }).await
    }
}
