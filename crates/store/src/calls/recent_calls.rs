//! The stored journal: the latest synchronous calls of an organisation.
//!
//! Invariant: params and results are stored, and read, only while the organisation wants them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use switchboard_protocol::{
    id::{ApiKeyId, CallId, DeviceId, JournalEntryId, NpcId, OrgId, TokenId},
    token::{Restrictions, Subject},
};
use switchboard_runtime::label;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    calls::{journal::JournaledCall, reach::CallReach},
    database::{decode_error, interval, purge::PURGE_BATCH_SIZE, with_timeout},
};

/// How long a call stays in the journal.
pub const JOURNAL_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Calls in the journal of an organisation; the oldest ones beyond are deleted.
pub const MAX_JOURNALED_CALLS: i64 = 10_000;

/// What a synchronous call came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase", example = "rest")]
pub enum CallVia {
    /// A request over HTTP.
    Rest,
    /// A tool of an MCP endpoint.
    Mcp,
    /// A tool of a conversation.
    Chat,
}

label!(CallVia {
    Rest => "rest",
    Mcp => "mcp",
    Chat => "chat",
});

/// The kind of caller of a synchronous call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase", example = "key")]
pub enum CallerKind {
    /// An API key.
    Key,
    /// An access token.
    Token,
    /// An NPC in a conversation.
    Npc,
    /// The assistant of a device that has no NPC.
    Assistant,
}

label!(CallerKind {
    Key => "key",
    Token => "token",
    Npc => "npc",
    Assistant => "assistant",
});

/// The caller of a synchronous call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallCaller {
    /// An API key.
    Key(ApiKeyId),
    /// An access token.
    Token {
        /// The token.
        id: TokenId,
        /// Its subject.
        subject: Subject,
    },
    /// An NPC in a conversation.
    Npc(NpcId),
    /// The assistant of a device that has no NPC.
    Assistant,
}

impl CallCaller {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> CallerKind {
        match self {
            Self::Key(_) => CallerKind::Key,
            Self::Token { .. } => CallerKind::Token,
            Self::Npc(_) => CallerKind::Npc,
            Self::Assistant => CallerKind::Assistant,
        }
    }

    pub(super) const fn uuid(&self) -> Option<Uuid> {
        match self {
            Self::Key(id) => Some(id.uuid()),
            Self::Token { id, .. } => Some(id.uuid()),
            Self::Npc(id) => Some(id.uuid()),
            Self::Assistant => None,
        }
    }

    fn from_row(kind: &str, id: Option<Uuid>, subject: Option<String>) -> Option<Self> {
        Some(match (kind, id) {
            ("key", Some(id)) => Self::Key(ApiKeyId::from_uuid(id)),
            ("token", Some(id)) => Self::Token {
                id: TokenId::from_uuid(id),
                subject: subject?.parse().ok()?,
            },
            ("npc", Some(id)) => Self::Npc(NpcId::from_uuid(id)),
            ("assistant", None) => Self::Assistant,
            _ => return None,
        })
    }
}

/// A synchronous call that has ended. It has no `Debug`, because its texts are not for logs.
pub struct RecentCall {
    /// The id of its entry.
    pub id: JournalEntryId,
    /// The id of the call.
    pub call: CallId,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// The device that was called.
    pub device: DeviceId,
    /// The service that was called.
    pub service: String,
    /// The outcome, or `unavailable`.
    pub outcome: String,
    /// `yes`, `no` or `unknown`.
    pub delivered: String,
    /// How long it took.
    pub elapsed: Duration,
    /// What it came through.
    pub via: String,
    /// Who made it.
    pub caller: CallCaller,
    /// The name of the API key, if it made the call and exists.
    pub key_name: Option<String>,
    /// The length of the params.
    pub params_bytes: i32,
    /// The length of the result; 0 if the device sent none.
    pub result_bytes: i32,
    /// The beginning of the params.
    pub params: Option<String>,
    /// The beginning of the result.
    pub result: Option<String>,
}

/// Restricts a list of synchronous calls; all given conditions apply.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecentCallFilter<'a> {
    /// Calls of this device.
    pub device: Option<&'a DeviceId>,
    /// Calls of this service.
    pub service: Option<&'a str>,
    /// Calls with this outcome.
    pub outcome: Option<&'a str>,
    /// Calls of this API key, access token or NPC.
    pub caller: Option<Uuid>,
    /// Calls within these restrictions.
    pub restrictions: Option<&'a Restrictions>,
}

struct Row {
    id: Uuid,
    call_id: Uuid,
    ended_at: DateTime<Utc>,
    device_id: String,
    service: String,
    outcome: String,
    delivered: String,
    microseconds: i64,
    via: String,
    caller_kind: String,
    caller_id: Option<Uuid>,
    subject: Option<String>,
    key_name: Option<String>,
    params_bytes: i32,
    result_bytes: i32,
    params: Option<String>,
    result: Option<String>,
}

/// A value that this version does not know; a newer one may have written it.
#[derive(Debug, thiserror::Error)]
#[error("a call of the journal has an unknown caller")]
struct UnknownCaller;

impl TryFrom<Row> for RecentCall {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let caller = CallCaller::from_row(&row.caller_kind, row.caller_id, row.subject);
        Ok(Self {
            id: JournalEntryId::from_uuid(row.id),
            call: CallId::from_uuid(row.call_id),
            ended_at: row.ended_at,
            device: row.device_id.parse().map_err(decode_error)?,
            service: row.service,
            outcome: row.outcome,
            delivered: row.delivered,
            elapsed: Duration::from_micros(row.microseconds.unsigned_abs()),
            via: row.via,
            caller: caller.ok_or_else(|| decode_error(UnknownCaller))?,
            key_name: row.key_name,
            params_bytes: row.params_bytes,
            result_bytes: row.result_bytes,
            params: row.params,
            result: row.result,
        })
    }
}

/// Calls as the columns of a statement.
#[derive(Default)]
struct Columns {
    orgs: Vec<Uuid>,
    ids: Vec<Uuid>,
    calls: Vec<Uuid>,
    ended: Vec<DateTime<Utc>>,
    devices: Vec<String>,
    services: Vec<String>,
    outcomes: Vec<String>,
    delivered: Vec<String>,
    microseconds: Vec<i64>,
    vias: Vec<String>,
    caller_kinds: Vec<String>,
    caller_ids: Vec<Option<Uuid>>,
    subjects: Vec<Option<String>>,
    params_bytes: Vec<i32>,
    result_bytes: Vec<i32>,
    params: Vec<Option<String>>,
    results: Vec<Option<String>>,
    orgs_with_texts: Vec<Uuid>,
}

impl Columns {
    fn push(&mut self, call: &JournaledCall) {
        self.orgs.push(call.device.org.uuid());
        self.ids.push(call.id.uuid());
        self.calls.push(call.call.uuid());
        self.ended.push(call.ended_at);
        self.devices.push(call.device.device.as_str().to_owned());
        self.services.push(storable(&call.service));
        self.outcomes.push(call.outcome.to_owned());
        self.delivered.push(call.delivered.as_str().to_owned());
        self.microseconds
            .push(i64::try_from(call.elapsed.as_micros()).unwrap_or(i64::MAX));
        self.vias.push(call.via.as_str().to_owned());
        self.caller_kinds
            .push(call.caller.kind().as_str().to_owned());
        self.caller_ids.push(call.caller.uuid());
        self.subjects.push(match &call.caller {
            CallCaller::Token { subject, .. } => Some(subject.to_string()),
            _ => None,
        });
        let bytes = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
        self.params_bytes.push(bytes(call.params_bytes));
        self.result_bytes.push(bytes(call.result_bytes));
        self.params.push(call.params.as_deref().map(storable));
        self.results.push(call.result.as_deref().map(storable));
        if call.params.is_some() || call.result.is_some() {
            self.orgs_with_texts.push(call.device.org.uuid());
        }
    }
}

/// The text as the server accepts it.
fn storable(text: &str) -> String {
    text.replace('\0', "?")
}

impl Store {
    /// Adds calls to the journal; those that it has are skipped, and those of deleted organisations.
    pub(super) async fn insert_recent_calls<'a>(
        &self,
        calls: impl Iterator<Item = &'a JournaledCall>,
    ) -> Result<(), StoreError> {
        let mut columns = Columns::default();
        calls.for_each(|call| columns.push(call));
        if columns.ids.is_empty() {
            return Ok(());
        }
        // They are locked until the end, or texts could be inserted while the organisation ceases to want
        // them: after the trigger has deleted those that it has.
        let query = sqlx::query!(
            "WITH wanting AS (
                 SELECT id FROM orgs WHERE id = ANY ($18::uuid[]) AND journal_params ORDER BY id FOR SHARE)
             INSERT INTO recent_calls (org_id, id, call_id, ended_at, device_id, service, outcome, delivered, microseconds, via,
                                       caller_kind, caller_id, subject, params_bytes, result_bytes, params, result)
             SELECT ended.org_id, ended.id, call_id, ended_at, device_id, service, outcome, delivered, microseconds, via,
                    caller_kind, caller_id, subject, params_bytes, result_bytes,
                    CASE WHEN wanting.id IS NOT NULL THEN params END, CASE WHEN wanting.id IS NOT NULL THEN result END
             FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[],
                         $9::bigint[], $10::text[], $11::text[], $12::uuid[], $13::text[], $14::integer[], $15::integer[],
                         $16::text[], $17::text[])
                  AS ended (org_id, id, call_id, ended_at, device_id, service, outcome, delivered, microseconds, via,
                            caller_kind, caller_id, subject, params_bytes, result_bytes, params, result)
             JOIN orgs ON orgs.id = ended.org_id
             LEFT JOIN wanting ON wanting.id = ended.org_id
             ON CONFLICT DO NOTHING",
            &columns.orgs,
            &columns.ids,
            &columns.calls,
            &columns.ended,
            &columns.devices,
            &columns.services,
            &columns.outcomes,
            &columns.delivered,
            &columns.microseconds,
            &columns.vias,
            &columns.caller_kinds,
            &columns.caller_ids as &[Option<Uuid>],
            &columns.subjects as &[Option<String>],
            &columns.params_bytes,
            &columns.result_bytes,
            &columns.params as &[Option<String>],
            &columns.results as &[Option<String>],
            &columns.orgs_with_texts
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// Counts calls that are not in the journal, by organisation and hour. `counter` identifies the
    /// process, and `batch` increases with each of its batches: a repeated batch is ignored.
    pub(super) async fn add_left_out_calls(
        &self,
        (counter, batch): (Uuid, i64),
        left_out: &[(OrgId, DateTime<Utc>, i64)],
    ) -> Result<(), StoreError> {
        if left_out.is_empty() {
            return Ok(());
        }
        let orgs: Vec<_> = left_out.iter().map(|(org, ..)| org.uuid()).collect();
        let hours: Vec<_> = left_out.iter().map(|(_, hour, _)| *hour).collect();
        let counts: Vec<_> = left_out.iter().map(|(.., calls)| *calls).collect();
        // All writers lock the rows in the same order.
        let query = sqlx::query!(
            "WITH new AS (
                 INSERT INTO usage_batches AS known (counter, batch) VALUES ($1, $2)
                 ON CONFLICT (counter) DO UPDATE SET batch = EXCLUDED.batch, written_at = now()
                 WHERE known.batch < EXCLUDED.batch
                 RETURNING counter)
             INSERT INTO left_out_calls AS known (org_id, hour, calls)
             SELECT counted.org_id, counted.hour, counted.calls
             FROM new, UNNEST($3::uuid[], $4::timestamptz[], $5::bigint[]) AS counted (org_id, hour, calls)
             JOIN orgs ON orgs.id = counted.org_id
             ORDER BY counted.org_id, counted.hour
             ON CONFLICT (org_id, hour) DO UPDATE SET calls = known.calls + EXCLUDED.calls",
            counter,
            batch,
            &orgs,
            &hours,
            &counts
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// Synchronous calls of an organisation that ended within [`JOURNAL_TTL`], newest first, strictly
    /// after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn recent_calls(
        &self,
        org: OrgId,
        filter: RecentCallFilter<'_>,
        after: Option<JournalEntryId>,
        limit: u32,
    ) -> Result<Vec<RecentCall>, StoreError> {
        // No stored text contains NUL, and the server rejects it.
        let has_nul = |text: Option<&str>| text.is_some_and(|text| text.contains('\0'));
        if has_nul(filter.service) || has_nul(filter.outcome) {
            return Ok(Vec::new());
        }
        let reach = CallReach::from(filter.restrictions);
        let query = sqlx::query_as!(
            Row,
            r#"SELECT r.id, r.call_id, r.ended_at, r.device_id, r.service, r.outcome, r.delivered, r.microseconds, r.via,
                      r.caller_kind, r.caller_id, r.subject, k.name AS "key_name?", r.params_bytes, r.result_bytes,
                      CASE WHEN o.journal_params THEN r.params END AS params,
                      CASE WHEN o.journal_params THEN r.result END AS result
               FROM recent_calls r JOIN orgs o ON o.id = r.org_id
               LEFT JOIN api_keys k ON k.org_id = r.org_id AND k.id = r.caller_id AND r.caller_kind = 'key'
               WHERE r.org_id = $1 AND r.id < $2 AND r.ended_at > now() - $3::interval
                     AND ($4::text IS NULL OR r.device_id = $4) AND ($5::text IS NULL OR r.service = $5)
                     AND ($6::text IS NULL OR r.outcome = $6) AND ($7::uuid IS NULL OR r.caller_id = $7)
                     AND ($8::text IS NULL OR starts_with(r.device_id, $8))
                     AND ($9::text[] IS NULL OR EXISTS
                         (SELECT FROM unnest($9) AS pattern
                          WHERE CASE WHEN right(pattern, 1) = '*' THEN starts_with(r.service, left(pattern, -1))
                                     ELSE r.service = pattern END))
                     AND ($10::text IS NULL OR EXISTS
                         (SELECT FROM device_labels l
                          WHERE l.org_id = r.org_id AND l.device_id = r.device_id AND $10 = ANY (l.labels)))
               ORDER BY r.id DESC LIMIT $11"#,
            org.uuid(),
            after.map_or(Uuid::max(), JournalEntryId::uuid),
            interval(JOURNAL_TTL),
            filter.device.map(DeviceId::as_str),
            filter.service,
            filter.outcome,
            filter.caller,
            reach.device_prefix,
            reach.services.as_deref(),
            reach.device_label,
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await });
        rows.await?.into_iter().map(RecentCall::try_from).collect()
    }

    /// The number of an organisation's synchronous calls within [`JOURNAL_TTL`] that are not in the
    /// journal, to the hour.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn left_out_calls(&self, org: OrgId) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"SELECT coalesce(sum(calls), 0)::bigint AS "calls!" FROM left_out_calls
               WHERE org_id = $1 AND hour > now() - $2::interval"#,
            org.uuid(),
            interval(JOURNAL_TTL)
        );
        with_timeout(async { query.fetch_one(&mut *self.tenant_conn(org).await?).await }).await
    }

    /// Deletes the oldest calls of an organisation beyond [`MAX_JOURNALED_CALLS`]. Returns their number.
    pub(super) async fn trim_recent_calls(&self, org: OrgId) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM recent_calls WHERE org_id = $1 AND id IN
                 (SELECT id FROM recent_calls WHERE org_id = $1 AND id <=
                      (SELECT id FROM recent_calls WHERE org_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1)
                  ORDER BY id LIMIT $3)",
                org.uuid(),
                MAX_JOURNALED_CALLS,
                PURGE_BATCH_SIZE
            )
        })
        .await
    }

    /// Deletes calls older than [`JOURNAL_TTL`], and the oldest ones beyond [`MAX_JOURNALED_CALLS`] of
    /// each organisation. Returns their number.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_recent_calls(&self) -> Result<u64, StoreError> {
        let ttl = interval(JOURNAL_TTL);
        let mut purged = self
            .purge(|| {
                sqlx::query!(
                    "DELETE FROM recent_calls WHERE (org_id, id) IN
                     (SELECT org_id, id FROM recent_calls WHERE ended_at < now() - $1::interval ORDER BY ended_at LIMIT $2)",
                    ttl,
                    PURGE_BATCH_SIZE
                )
            })
            .await?;
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM left_out_calls WHERE (org_id, hour) IN
                 (SELECT org_id, hour FROM left_out_calls WHERE hour < now() - $1::interval LIMIT $2)",
                ttl,
                PURGE_BATCH_SIZE
            )
        })
        .await?;
        for org in self.orgs_with_too_many_calls().await? {
            purged += self.trim_recent_calls(org).await?;
        }
        Ok(purged)
    }

    async fn orgs_with_too_many_calls(&self) -> Result<Vec<OrgId>, StoreError> {
        let query = sqlx::query_scalar!(
            "SELECT org_id FROM recent_calls GROUP BY org_id HAVING count(*) > $1",
            MAX_JOURNALED_CALLS
        );
        let orgs = with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await });
        Ok(orgs.await?.into_iter().map(OrgId::from_uuid).collect())
    }
}
