//! Quotas of organisations: what the operator set, and how much is used.

use std::{collections::BTreeMap, time::Duration};

use sqlx::types::Json;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::quota::{Limits, Quota};

use crate::{
    Org, Store, StoreError,
    database::{ScopedConnection, interval, with_timeout},
    settings::orgs,
};

/// The amounts that were asked for.
struct Row {
    devices_known: Option<i64>,
    object_bytes: Option<i64>,
    settings: Option<i64>,
    api_keys: Option<i64>,
    live_tokens: Option<i64>,
    stored_result_bytes: Option<i64>,
    turns_per_day: Option<i64>,
    model_cost_per_day: Option<f64>,
    speech_ms_per_day: Option<i64>,
}

impl Store {
    /// How much an organisation uses of these quotas. The bus counts connected devices, so they
    /// are left out.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn measure_quotas(
        &self,
        org: OrgId,
        quotas: &[Quota],
    ) -> Result<BTreeMap<Quota, u64>, StoreError> {
        amounts(org, quotas, self.tenant_conn(org)).await
    }

    /// The same for all quotas, outside the share of the organisation: its requests do not delay
    /// the checks of others.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn check_quotas(&self, org: OrgId) -> Result<BTreeMap<Quota, u64>, StoreError> {
        amounts(org, &Quota::ALL, self.operator_conn(org)).await
    }

    /// Sets quotas of an organisation; `None` is the default. Others stay. `None` if there is no
    /// organisation with this id.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn set_quotas(
        &self,
        id: OrgId,
        quotas: &BTreeMap<Quota, Option<u64>>,
    ) -> Result<Option<Org>, StoreError> {
        let query = sqlx::query_as!(
            orgs::Row,
            r#"UPDATE orgs SET quotas = jsonb_strip_nulls(quotas || $2) WHERE id = $1
               RETURNING id, name, default_npc_id, version, created_at, updated_at, suspended_at,
                         record_speech, recording_retention_days, locale, journal_params, model_approval,
                         quotas AS "quotas: Json<Limits>""#,
            id.uuid(),
            Json(quotas) as _
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.operator_conn(id).await?)
                .await
        })
        .await?;
        Ok(row.map(Org::from))
    }

    /// The organisations with quotas of their own, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn quotas(&self) -> Result<Vec<(OrgId, Limits)>, StoreError> {
        let query = sqlx::query!(
            r#"SELECT id, quotas AS "quotas: Json<Limits>" FROM orgs WHERE quotas <> '{}' ORDER BY id"#
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let rows = rows.into_iter();
        Ok(rows
            .map(|row| (OrgId::from_uuid(row.id), row.quotas.0))
            .collect())
    }

    /// Claims organisations whose use was not checked for this long; at most `limit`. No other
    /// process checks them until then.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_quota_checks(
        &self,
        pause: Duration,
        limit: u32,
    ) -> Result<Vec<OrgId>, StoreError> {
        let query = sqlx::query_scalar!(
            "UPDATE orgs SET quotas_checked_at = now() WHERE id IN
               (SELECT id FROM orgs WHERE quotas_checked_at <= now() - $1::interval
                ORDER BY quotas_checked_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
             RETURNING id",
            interval(pause),
            i64::from(limit)
        );
        let ids =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(ids.into_iter().map(OrgId::from_uuid).collect())
    }

    /// The number of warned organisations by the name of their quota.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn count_quota_warnings(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let query = sqlx::query!(
            r#"SELECT warned.quota AS "quota!", count(*) AS "orgs!"
               FROM orgs, unnest(quotas_warned) AS warned (quota)
               WHERE quotas_warned <> '{}' GROUP BY warned.quota"#
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(rows.into_iter().map(|row| (row.quota, row.orgs)).collect())
    }
}

/// How much an organisation uses of these quotas.
async fn amounts(
    org: OrgId,
    quotas: &[Quota],
    connection: impl Future<Output = Result<ScopedConnection, sqlx::Error>> + Send,
) -> Result<BTreeMap<Quota, u64>, StoreError> {
    let names = names(quotas);
    // A subquery is executed only if its quota is asked for. `octet_length` reads no stored
    // bytes out of line, and an index on a size would make the end of each call slower.
    let query = sqlx::query_as!(
        Row,
        r#"SELECT
                 CASE WHEN 'devices_known' = ANY ($2) THEN
                   (SELECT count(*) FROM devices WHERE org_id = $1) END AS devices_known,
                 CASE WHEN 'object_bytes' = ANY ($2) THEN (
                   (SELECT coalesce(sum(size_bytes), 0)
                    FROM (SELECT DISTINCT object, size_bytes FROM pictures WHERE org_id = $1) p)
                   + (SELECT coalesce(sum(p.size_bytes), 0)
                      FROM skills_book_parts p JOIN skills_books b ON b.id = p.book_id WHERE b.org_id = $1)
                   + (SELECT coalesce(sum(size_bytes), 0) FROM voices WHERE org_id = $1)
                   + (SELECT coalesce(sum(size_bytes), 0) FROM recordings WHERE org_id = $1)
                 )::bigint END AS object_bytes,
                 CASE WHEN 'settings' = ANY ($2) THEN (
                   (SELECT count(*) FROM templates WHERE org_id = $1)
                   + (SELECT count(*) FROM npcs WHERE org_id = $1)
                   + (SELECT count(*) FROM memories WHERE org_id = $1)
                   + (SELECT count(*) FROM pictures WHERE org_id = $1)
                   + (SELECT count(*) FROM skills_books WHERE org_id = $1)
                   + (SELECT count(*) FROM voices WHERE org_id = $1)
                   + (SELECT count(*) FROM webhooks WHERE org_id = $1)) END AS settings,
                 CASE WHEN 'api_keys' = ANY ($2) THEN
                   (SELECT count(*) FROM api_keys WHERE org_id = $1 AND revoked_at IS NULL
                      AND (expires_at IS NULL OR expires_at > now())) END AS api_keys,
                 CASE WHEN 'live_tokens' = ANY ($2) THEN
                   (SELECT count(*) FROM tokens WHERE org_id = $1 AND expires_at > now()) END AS live_tokens,
                 CASE WHEN 'stored_result_bytes' = ANY ($2) THEN (
                   (SELECT coalesce(sum(octet_length(answer)), 0) FROM calls WHERE org_id = $1)
                   + (SELECT coalesce(sum(octet_length(body)), 0) FROM idempotent_calls WHERE org_id = $1)
                   + (SELECT coalesce(sum(octet_length(body)), 0) FROM idempotent_requests WHERE org_id = $1)
                 )::bigint END AS stored_result_bytes,
                 CASE WHEN 'turns_per_day' = ANY ($2) THEN
                   (SELECT coalesce(sum(turns), 0)::bigint FROM usage_turns
                    WHERE org_id = $1 AND hour >= date_trunc('day', now(), 'UTC')) END AS turns_per_day,
                 CASE WHEN 'model_cost_per_day' = ANY ($2) THEN
                   (SELECT coalesce(sum(cost), 0) FROM usage_turns
                    WHERE org_id = $1 AND hour >= date_trunc('day', now(), 'UTC')) END AS model_cost_per_day,
                 CASE WHEN 'speech_minutes_per_day' = ANY ($2) THEN
                   (SELECT coalesce(sum(speech_ms), 0)::bigint FROM usage_turns
                    WHERE org_id = $1 AND hour >= date_trunc('day', now(), 'UTC')) END AS speech_ms_per_day"#,
        org.uuid(),
        &names
    );
    let row = with_timeout(async { query.fetch_one(&mut *connection.await?).await }).await?;
    let counts = [
        (Quota::DevicesKnown, row.devices_known),
        (Quota::ObjectBytes, row.object_bytes),
        (Quota::Settings, row.settings),
        (Quota::ApiKeys, row.api_keys),
        (Quota::LiveTokens, row.live_tokens),
        (Quota::StoredResultBytes, row.stored_result_bytes),
        (Quota::TurnsPerDay, row.turns_per_day),
        (Quota::SpeechMinutesPerDay, row.speech_ms_per_day),
    ];
    let counts = counts.into_iter();
    let measured = counts.filter_map(|(quota, count)| Some((quota, count?.unsigned_abs())));
    let cost = row.model_cost_per_day.map(Quota::cost);
    Ok(measured
        .chain(cost.map(|cost| (Quota::ModelCostPerDay, cost)))
        .collect())
}

/// The names of quotas, as the database knows them.
pub(crate) fn names(quotas: &[Quota]) -> Vec<String> {
    quotas
        .iter()
        .map(|quota| quota.as_str().to_owned())
        .collect()
}
