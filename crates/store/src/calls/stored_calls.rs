//! Asynchronous and queued calls: insert, read, list, purge.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
    token::Restrictions,
};
use switchboard_runtime::paging::Order;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    CallKey, NewCall, ReservedCall, Store, StoreError,
    calls::{idempotent_calls::reserve, reach::CallReach},
    database::{
        decode_error, interval,
        purge::{PURGE_BATCH_SIZE, in_batches},
        with_timeout,
    },
};

/// The time after a call's deadline in which its end can still be written; after that it is lost.
pub const RESULT_GRACE: Duration = Duration::from_secs(2);
/// How a call whose caller does not wait for the result is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(as = KeptCallMode, rename_all = "lowercase", example = "queued")]
pub enum CallMode {
    /// It is sent immediately.
    Async,
    /// It is sent when its device is connected.
    Queued,
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(as = KeptCallState, rename_all = "lowercase", example = "ended")]
pub enum CallState {
    /// It waits for its device, and can be cancelled.
    Queued,
    /// It is being sent, or has been sent.
    Sent,
    /// It has ended.
    Ended,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether the device may have executed it.
    pub delivered: Delivered,
    /// The device's result or the error, byte for byte; empty in lists.
    pub answer: Vec<u8>,
    /// False if the result is not known to match the output schema of its service.
    pub result_valid: bool,
}

/// A stored call. All times are the database's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    /// Its id.
    pub id: CallId,
    /// The device that it is for.
    pub device: DeviceId,
    /// Whether it waits for the device.
    pub mode: CallMode,
    /// Its state.
    pub state: CallState,
    /// The service that it calls.
    pub service: String,
    /// Time of the request.
    pub created_at: DateTime<Utc>,
    /// When it stops waiting for its device.
    pub expires_at: Option<DateTime<Utc>>,
    /// When the current attempt times out.
    pub deadline: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When this was read.
    pub read_at: DateTime<Utc>,
    /// How it ended.
    pub end: Option<CallEnd>,
}

/// A call to insert.
#[derive(Debug, Clone, Copy)]
pub struct NewStoredCall<'a> {
    /// Its id.
    pub id: CallId,
    /// The device that it is for.
    pub device: &'a DeviceKey,
    /// The service that it calls.
    pub service: &'a str,
    /// How long the device has once the call is sent.
    pub timeout: Duration,
    /// How it is delivered.
    pub work: CallDispatch<'a>,
}

/// How a new call is delivered.
#[derive(Debug, Clone, Copy)]
pub enum CallDispatch<'a> {
    /// The inserting process sends it immediately. It is not sent again.
    Async,
    /// It is queued for its device.
    Queued {
        /// The parameters.
        params: &'a [u8],
        /// The user's input that the device requested in an earlier attempt.
        input: &'a [u8],
        /// When it stops waiting.
        expiry: Expiry,
        /// How many calls may be queued.
        limits: QueueLimits,
    },
}

/// When a queued call stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// At this time.
    At(DateTime<Utc>),
    /// This long after it was inserted.
    In(Duration),
}

/// How many calls may be queued. Bounds the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// For one device.
    pub per_device: u32,
    /// For all devices of an organisation.
    pub per_org: u32,
}

/// The result of inserting a call.
#[derive(Debug)]
pub enum CallInsert {
    /// It was inserted.
    Inserted(Box<StoredCall>),
    /// Its idempotency key belongs to this call already.
    Existing(ReservedCall),
    /// The device's queue is full.
    DeviceQueueFull,
    /// The organisation's queues are full.
    OrgQueueFull,
}

/// The reason why a call is not known to be inserted.
#[derive(Debug, thiserror::Error)]
pub enum InsertCallError {
    /// It was certainly not inserted.
    #[error("the call was not stored")]
    NotInserted(#[source] StoreError),
    /// It may have been inserted: the commit was sent, its result is unknown.
    #[error("the call may have been stored")]
    Uncertain(#[source] StoreError),
}

/// The result of cancelling a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallCancellation {
    /// It was cancelled before it was sent; the device did not receive it.
    Cancelled,
    /// It was sent already.
    Sent,
    /// It had already ended otherwise.
    Ended,
    /// There is no such call.
    Unknown,
}

/// Restricts a list of calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallFilter<'a> {
    /// Calls for this device.
    pub device: Option<&'a DeviceId>,
    /// Calls in this state.
    pub state: Option<CallState>,
    /// Calls within these restrictions.
    pub restrictions: Option<&'a Restrictions>,
}

impl CallMode {
    /// The name in requests and responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Queued => "queued",
        }
    }
}

impl CallState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Queued, Self::Sent, Self::Ended];

    /// The name in requests and responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Ended => "ended",
        }
    }
}

impl StoredCall {
    /// When the call ends without further action: it expires, or is lost.
    #[must_use]
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match self.state {
            CallState::Queued => self.expires_at,
            CallState::Sent => self.deadline.map(|deadline| deadline + RESULT_GRACE),
            CallState::Ended => None,
        }
    }
}

struct Row {
    call_id: Uuid,
    device_id: String,
    mode: String,
    state: String,
    service: String,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    read_at: DateTime<Utc>,
    outcome: Option<String>,
    delivered: Option<String>,
    answer: Option<Vec<u8>>,
    result_valid: bool,
}

/// A value that this version does not know; a newer one may have written it.
#[derive(Debug, thiserror::Error)]
#[error("a stored call has an unknown value in {0}")]
struct UnknownValue(&'static str);

impl TryFrom<Row> for StoredCall {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unknown = |what| decode_error(UnknownValue(what));
        let modes = [CallMode::Async, CallMode::Queued];
        let mode = modes.into_iter().find(|mode| mode.as_str() == row.mode);
        let state = CallState::ALL.into_iter();
        let state = state.into_iter().find(|state| state.as_str() == row.state);
        let end = match (row.outcome, row.delivered) {
            (Some(outcome), Some(delivered)) => Some(CallEnd {
                outcome: from_name(&Outcome::ALL, Outcome::as_str, &outcome)
                    .ok_or_else(|| unknown("outcome"))?,
                delivered: from_name(&DELIVERED, Delivered::as_str, &delivered)
                    .ok_or_else(|| unknown("`delivered`"))?,
                answer: row.answer.unwrap_or_default(),
                result_valid: row.result_valid,
            }),
            _ => None,
        };
        Ok(Self {
            id: CallId::from_uuid(row.call_id),
            device: row.device_id.parse().map_err(decode_error)?,
            mode: mode.ok_or_else(|| unknown("mode"))?,
            state: state.ok_or_else(|| unknown("state"))?,
            service: row.service,
            created_at: row.created_at,
            expires_at: row.expires_at,
            deadline: row.deadline,
            ended_at: row.ended_at,
            read_at: row.read_at,
            end,
        })
    }
}

const DELIVERED: [Delivered; 3] = [Delivered::No, Delivered::Unknown, Delivered::Yes];

fn from_name<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> Option<T> {
    all.iter().copied().find(|one| name(*one) == text)
}

/// The query of a page of calls, with its comparison and order.
macro_rules! calls_page {
    ($follows:literal, $order:literal, $org:expr, $after:expr, $filter:expr, $reach:expr, $limit:expr) => {
        sqlx::query_as!(
            Row,
            r#"SELECT call_id, device_id, mode, state, service, created_at, expires_at, deadline, ended_at,
                      now() AS "read_at!", outcome, delivered, NULL::bytea AS answer, result_valid
               FROM calls
               WHERE org_id = $1 AND call_id "#
                + $follows
                + " $2 AND ($3::text IS NULL OR device_id = $3) AND ($4::text IS NULL OR state = $4)
                    AND ($6::text IS NULL OR starts_with(device_id, $6))
                    AND ($7::text[] IS NULL OR EXISTS
                        (SELECT FROM unnest($7) AS pattern
                         WHERE CASE WHEN right(pattern, 1) = '*' THEN starts_with(service, left(pattern, -1))
                                    ELSE service = pattern END))
                    AND ($8::text IS NULL OR EXISTS
                        (SELECT FROM device_labels AS known
                         WHERE known.org_id = $1 AND known.device_id = calls.device_id AND $8 = ANY (known.labels))) "
                + $order,
            $org.uuid(),
            $after,
            $filter.device.map(DeviceId::as_str),
            $filter.state.map(CallState::as_str),
            i64::from($limit),
            $reach.device_prefix,
            $reach.services.as_deref(),
            $reach.device_label
        )
    };
}

impl Store {
    /// Inserts a call, and its idempotency key if it has one; both or neither. `timeout` bounds the
    /// time until the commit.
    ///
    /// # Errors
    /// [`InsertCallError::NotInserted`], or [`InsertCallError::Uncertain`] if the result of the
    /// commit is unknown.
    pub async fn insert_call(
        &self,
        call: NewStoredCall<'_>,
        key: Option<(&CallKey, &NewCall)>,
        timeout: Duration,
    ) -> Result<CallInsert, InsertCallError> {
        let written = async {
            let mut transaction = match call.work {
                // The row of the organisation is locked.
                CallDispatch::Queued { .. } => self.begin_tenant_in_turn(call.device.org).await?,
                CallDispatch::Async => self.begin_tenant(call.device.org).await?,
            };
            let result = insert_with_key(&mut transaction, call, key).await?;
            Ok::<_, StoreError>((transaction, result))
        };
        let written = tokio::time::timeout(timeout, written).await;
        let (transaction, result) = written
            .unwrap_or(Err(StoreError::Unavailable(None)))
            .map_err(InsertCallError::NotInserted)?;
        if matches!(result, CallInsert::Inserted(_)) {
            let commit = with_timeout(transaction.commit()).await;
            commit.map_err(InsertCallError::Uncertain)?;
        }
        Ok(result)
    }

    /// One call of an organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn stored_call(
        &self,
        org: OrgId,
        id: CallId,
    ) -> Result<Option<StoredCall>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT call_id, device_id, mode, state, service, created_at, expires_at, deadline, ended_at,
                      now() AS "read_at!", outcome, delivered, answer, result_valid
               FROM calls WHERE org_id = $1 AND call_id = $2"#,
            org.uuid(),
            id.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        row.map(StoredCall::try_from).transpose()
    }

    /// Calls of an organisation in this order of their ids, strictly after `after`, without their
    /// results.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn stored_calls(
        &self,
        org: OrgId,
        filter: CallFilter<'_>,
        (order, after): (Order, Option<CallId>),
        limit: u32,
    ) -> Result<Vec<StoredCall>, StoreError> {
        let reach = CallReach::from(filter.restrictions);
        let rows = with_timeout(async {
            let mut connection = self.tenant_conn(org).await?;
            match order {
                Order::Asc => {
                    let after = after.map_or(Uuid::nil(), CallId::uuid);
                    let query = calls_page!(
                        ">",
                        "ORDER BY call_id LIMIT $5",
                        org,
                        after,
                        filter,
                        reach,
                        limit
                    );
                    query.fetch_all(&mut *connection).await
                }
                Order::Desc => {
                    let after = after.map_or(Uuid::max(), CallId::uuid);
                    let query = calls_page!(
                        "<",
                        "ORDER BY call_id DESC LIMIT $5",
                        org,
                        after,
                        filter,
                        reach,
                        limit
                    );
                    query.fetch_all(&mut *connection).await
                }
            }
        })
        .await?;
        rows.into_iter().map(StoredCall::try_from).collect()
    }

    /// Deletes calls that ended more than `retention` ago, and their keys; returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_stored_calls(&self, retention: Duration) -> Result<u64, StoreError> {
        in_batches(|| async {
            let query = sqlx::query_scalar!(
                r#"WITH gone AS (
                     DELETE FROM calls WHERE call_id IN
                       (SELECT call_id FROM calls WHERE state = 'ended' AND ended_at <= now() - $1::interval
                        ORDER BY ended_at LIMIT $2)
                     RETURNING org_id, call_id, key_hash),
                   freed AS (
                     DELETE FROM idempotent_calls remembered USING gone
                     WHERE remembered.org_id = gone.org_id AND remembered.key_hash = gone.key_hash
                       AND remembered.call_id = gone.call_id)
                   SELECT count(*) AS "gone!" FROM gone"#,
                interval(retention),
                PURGE_BATCH_SIZE
            );
            let deleted = query.fetch_one(&mut *self.system_conn().await?).await?;
            Ok(deleted.unsigned_abs())
        })
        .await
    }
}

async fn insert_with_key(
    connection: &mut PgConnection,
    call: NewStoredCall<'_>,
    key: Option<(&CallKey, &NewCall)>,
) -> Result<CallInsert, sqlx::Error> {
    if let CallDispatch::Queued { .. } = call.work {
        // Serialises inserts within an organisation: the counts below are exact, and positions are
        // in the order of commits.
        sqlx::query!(
            "SELECT id FROM orgs WHERE id = $1 FOR NO KEY UPDATE",
            call.device.org.uuid()
        )
        .fetch_optional(&mut *connection)
        .await?;
    }
    if let Some((key, reservation)) = key
        && let Some(existing) = reserve(&mut *connection, key, reservation).await?
    {
        return Ok(CallInsert::Existing(existing));
    }
    if let CallDispatch::Queued { limits, .. } = call.work
        && let Some(full) = full_queue(connection, call.device, limits).await?
    {
        return Ok(full);
    }
    let stored = insert(connection, call, key.map(|(key, _)| key)).await?;
    if stored.mode == CallMode::Queued {
        // A postponed queue stays postponed. Its row is locked nevertheless, so that it is not
        // deleted as empty at this moment.
        sqlx::query!(
            "INSERT INTO call_queues (org_id, device_id, due_at) VALUES ($1, $2, now())
             ON CONFLICT (org_id, device_id) DO UPDATE SET due_at = call_queues.due_at",
            call.device.org.uuid(),
            call.device.device.as_str()
        )
        .execute(connection)
        .await?;
    }
    Ok(CallInsert::Inserted(Box::new(stored)))
}

/// The result if a queue is full.
async fn full_queue(
    connection: &mut PgConnection,
    device: &DeviceKey,
    limits: QueueLimits,
) -> Result<Option<CallInsert>, sqlx::Error> {
    // Counts no further than the limit.
    let waiting = sqlx::query!(
        r#"SELECT
             (SELECT count(*) FROM (SELECT FROM calls WHERE org_id = $1 AND device_id = $2 AND state = 'queued'
                                    LIMIT $3) one) AS "device!",
             (SELECT count(*) FROM (SELECT FROM calls WHERE org_id = $1 AND state = 'queued' LIMIT $4) one) AS "org!""#,
        device.org.uuid(),
        device.device.as_str(),
        i64::from(limits.per_device),
        i64::from(limits.per_org)
    )
    .fetch_one(connection)
    .await?;
    Ok(if waiting.device >= i64::from(limits.per_device) {
        Some(CallInsert::DeviceQueueFull)
    } else if waiting.org >= i64::from(limits.per_org) {
        Some(CallInsert::OrgQueueFull)
    } else {
        None
    })
}

async fn insert(
    connection: &mut PgConnection,
    call: NewStoredCall<'_>,
    key: Option<&CallKey>,
) -> Result<StoredCall, sqlx::Error> {
    let (mode, state) = match call.work {
        CallDispatch::Async => (CallMode::Async, CallState::Sent),
        CallDispatch::Queued { .. } => (CallMode::Queued, CallState::Queued),
    };
    let (params, input, at, wait) = match call.work {
        CallDispatch::Async => (None, None, None, None),
        CallDispatch::Queued {
            params,
            input,
            expiry,
            ..
        } => match expiry {
            Expiry::At(at) => (Some(params), Some(input), Some(at), None),
            Expiry::In(wait) => (Some(params), Some(input), None, Some(interval(wait))),
        },
    };
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO calls (call_id, org_id, device_id, mode, state, service, params, input, timeout_ms, key_hash,
                              attempts, expires_at, deadline)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, CASE $5 WHEN 'sent' THEN 1 ELSE 0 END,
                   COALESCE($11::timestamptz, now() + $12::interval),
                   CASE $5 WHEN 'sent' THEN now() + $13::interval END)
           RETURNING call_id, device_id, mode, state, service, created_at, expires_at, deadline, ended_at,
                     now() AS "read_at!", outcome, delivered, answer, result_valid"#,
        call.id.uuid(),
        call.device.org.uuid(),
        call.device.device.as_str(),
        mode.as_str(),
        state.as_str(),
        call.service,
        params,
        input,
        i32::try_from(call.timeout.as_millis()).unwrap_or(i32::MAX),
        key.map(|key| key.hash.as_slice()),
        at,
        wait,
        interval(call.timeout)
    )
    .fetch_one(connection)
    .await?;
    StoredCall::try_from(row).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
