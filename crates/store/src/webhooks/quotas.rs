//! Warnings of quotas as webhook events, in the transaction that records them.
//! Invariant: an organisation is warned once until its use falls.

use std::time::Duration;

use chrono::Utc;
use serde::Serialize;
use serde_json::Number;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::quota::{Quota, QuotaUse};
use uuid::Uuid;

use super::{
    WebhookEvent,
    outbox::{Event, EventBatch},
};
use crate::{Store, StoreError, database::with_timeout, usage::quotas::names};

/// The `data` member of the payload.
#[derive(Serialize)]
struct Data {
    quota: Quota,
    used: Number,
    /// Warned ones have a limit.
    limit: Option<Number>,
}

impl Store {
    /// Records of which quotas an organisation is nearly used up, and notifies its webhooks of
    /// those of which it was not warned yet. Returns these.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails.
    pub async fn record_quota_use(
        &self,
        org: OrgId,
        uses: &[QuotaUse],
    ) -> Result<Vec<QuotaUse>, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_operator(org).await?;
            let warned = sqlx::query_scalar!(
                "SELECT quotas_warned FROM orgs WHERE id = $1 FOR NO KEY UPDATE",
                org.uuid()
            )
            .fetch_optional(&mut *transaction)
            .await?
            .unwrap_or_default();
            let was_warned = |one: &QuotaUse| warned.iter().any(|name| name == one.quota.as_str());
            let now = uses.iter().filter(|one| one.is_warned(was_warned(one)));
            let now: Vec<_> = now.copied().collect();
            let quotas: Vec<_> = now.iter().map(|one| one.quota).collect();
            let new: Vec<_> = now.into_iter().filter(|one| !was_warned(one)).collect();
            if names(&quotas) == warned {
                return Ok::<_, sqlx::Error>(new);
            }
            sqlx::query!(
                "UPDATE orgs SET quotas_warned = $2 WHERE id = $1",
                org.uuid(),
                &names(&quotas)
            )
            .execute(&mut *transaction)
            .await?;
            events(org, &new).insert(&mut transaction).await?;
            transaction.commit().await?;
            Ok(new)
        })
        .await
    }
}

fn events(org: OrgId, warnings: &[QuotaUse]) -> EventBatch {
    let mut batch = EventBatch::default();
    for warning in warnings {
        let number = |amount| warning.quota.to_number(amount);
        batch.add(Event {
            org,
            event: WebhookEvent::QuotaWarning,
            id: Uuid::now_v7(),
            subject: None,
            at: Utc::now(),
            data: Data {
                quota: warning.quota,
                used: number(warning.used),
                limit: warning.limit.map(number),
            },
            delay: Duration::ZERO,
        });
    }
    batch
}
