//! Calls that outlive the connection that asked for them: kept, read, listed, taken back, forgotten.
//! Never: a call that is sent before it is kept, or an end that is written over another.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    CallKey, NewCall, RememberedCall, Store, StoreError,
    database::{bounded, interval, undecodable},
    idempotent_calls::{remembered, take},
    purge::{PURGE_STEP, in_steps},
};

/// After the deadline of a call this much may pass until its end is on record; then it is lost.
pub const SETTLING: Duration = Duration::from_secs(2);
/// What happens to a call whose caller does not wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(as = KeptCallMode, rename_all = "lowercase", example = "queued")]
pub enum CallMode {
    /// It is sent at once.
    Async,
    /// It is sent when its device is there.
    Queued,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(as = KeptCallState, rename_all = "lowercase", example = "ended")]
pub enum CallState {
    /// It waits for its device, and can be taken back.
    Queued,
    /// It is being sent, or has been.
    Sent,
    /// It is over.
    Ended,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// The one outcome.
    pub outcome: Outcome,
    /// Whether the device may have acted.
    pub delivered: Delivered,
    /// The device's result or the refusal, byte for byte; empty in lists.
    pub answer: Vec<u8>,
}

/// A call as it is kept; all times are the database's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCall {
    /// Its id.
    pub id: CallId,
    /// The device that it is for.
    pub device: DeviceId,
    /// Whether it waits for the device.
    pub mode: CallMode,
    /// How far it has come.
    pub state: CallState,
    /// The service that it calls.
    pub service: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it stops waiting for its device.
    pub expires_at: Option<DateTime<Utc>>,
    /// When the attempt that is under way is over.
    pub deadline: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When this was read.
    pub read_at: DateTime<Utc>,
    /// How it ended.
    pub end: Option<CallEnd>,
}

/// A call about to be kept.
#[derive(Debug, Clone, Copy)]
pub struct NewKeptCall<'a> {
    /// Its id.
    pub id: CallId,
    /// The device that it is for.
    pub device: &'a DeviceKey,
    /// The service that it calls.
    pub service: &'a str,
    /// How long the device has, once it is sent.
    pub timeout: Duration,
    /// What is to be done with it.
    pub work: CallWork<'a>,
}

/// What is to be done with a call.
#[derive(Debug, Clone, Copy)]
pub enum CallWork<'a> {
    /// Whoever keeps it sends it now, and nobody sends it again.
    Async,
    /// It waits.
    Queued {
        /// What it is sent with.
        params: &'a [u8],
        /// What the device asked for before.
        input: &'a [u8],
        /// How long it waits.
        expiry: Expiry,
        /// How many may wait.
        limits: QueueLimits,
    },
}

/// When a queued call stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// At this moment.
    At(DateTime<Utc>),
    /// So long after it was kept.
    In(Duration),
}

/// How many calls may wait. Protects the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// For one device.
    pub per_device: u32,
    /// For all devices of an organisation.
    pub per_org: u32,
}

/// What became of a call that was to be kept.
#[derive(Debug)]
pub enum Keeping {
    /// It is kept.
    Kept(Box<KeptCall>),
    /// Its key has a call already.
    Remembered(RememberedCall),
    /// As many as may wait for this device.
    DeviceQueueFull,
    /// As many as may wait in this organisation.
    OrgQueueFull,
}

/// Why it is not known that a call is kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It certainly is not.
    #[error("the call was not kept")]
    NotKept(#[source] StoreError),
    /// It may be.
    #[error("the call may have been kept")]
    Unsure(#[source] StoreError),
}

/// What became of a call that was to be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// It is not sent any more; the device never saw it.
    Withdrawn,
    /// It is sent already.
    Sent,
    /// It had ended otherwise.
    Ended,
    /// There is no such call.
    Unknown,
}

/// Which calls are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallFilter<'a> {
    /// Those for this device.
    pub device: Option<&'a DeviceId>,
    /// Those in this state.
    pub state: Option<CallState>,
}

impl CallMode {
    /// The name used in requests and answers.
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

    /// The name used in requests and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Ended => "ended",
        }
    }
}

impl KeptCall {
    /// When something happens to this call without anybody doing anything: it expires, or is lost.
    #[must_use]
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match self.state {
            CallState::Queued => self.expires_at,
            CallState::Sent => self.deadline.map(|deadline| deadline + SETTLING),
            CallState::Ended => None,
        }
    }
}

/// A row, read now.
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
}

/// A word that this version does not know; a newer one may have written it.
#[derive(Debug, thiserror::Error)]
#[error("a call's {0} is not known here")]
struct UnknownWord(&'static str);

impl TryFrom<Row> for KeptCall {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unknown = |what| undecodable(UnknownWord(what));
        let modes = [CallMode::Async, CallMode::Queued];
        let mode = modes.into_iter().find(|mode| mode.as_str() == row.mode);
        let state = CallState::ALL.into_iter();
        let state = state.into_iter().find(|state| state.as_str() == row.state);
        let end = match (row.outcome, row.delivered) {
            (Some(outcome), Some(delivered)) => Some(CallEnd {
                outcome: named(&Outcome::ALL, Outcome::as_str, &outcome)
                    .ok_or_else(|| unknown("outcome"))?,
                delivered: named(&DELIVERED, Delivered::as_str, &delivered)
                    .ok_or_else(|| unknown("`delivered`"))?,
                answer: row.answer.unwrap_or_default(),
            }),
            _ => None,
        };
        Ok(Self {
            id: CallId::from_uuid(row.call_id),
            device: row.device_id.parse().map_err(undecodable)?,
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

fn named<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> Option<T> {
    all.iter().copied().find(|one| name(*one) == text)
}

impl Store {
    /// Keeps a call, under a key if it has one; both or neither. `within` is how long that may take.
    ///
    /// # Errors
    /// [`KeepError::NotKept`] unless the database was asked to commit and did not say whether it has.
    pub async fn keep_call(
        &self,
        call: NewKeptCall<'_>,
        key: Option<(&CallKey, &NewCall)>,
        within: Duration,
    ) -> Result<Keeping, KeepError> {
        let written = async {
            let mut transaction = self.begin_within(call.device.org).await?;
            let keeping = keep(&mut transaction, call, key).await?;
            Ok::<_, StoreError>((transaction, keeping))
        };
        let written = tokio::time::timeout(within, written).await;
        let (transaction, keeping) = written
            .unwrap_or(Err(StoreError::Unavailable(None)))
            .map_err(KeepError::NotKept)?;
        if matches!(keeping, Keeping::Kept(_)) {
            let commit = bounded(transaction.commit()).await;
            commit.map_err(KeepError::Unsure)?;
        }
        Ok(keeping)
    }

    /// One call of an organisation.
    ///
    /// # Errors
    /// As every query.
    pub async fn kept_call(&self, org: OrgId, id: CallId) -> Result<Option<KeptCall>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT call_id, device_id, mode, state, service, created_at, expires_at, deadline, ended_at,
                      now() AS "read_at!", outcome, delivered, answer
               FROM calls WHERE org_id = $1 AND call_id = $2"#,
            org.uuid(),
            id.uuid()
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(org).await?).await }).await?;
        row.map(KeptCall::try_from).transpose()
    }

    /// Calls of an organisation in the order of their ids, strictly after `after`, without their answers.
    ///
    /// # Errors
    /// As every query.
    pub async fn kept_calls(
        &self,
        org: OrgId,
        filter: CallFilter<'_>,
        after: Option<CallId>,
        limit: u32,
    ) -> Result<Vec<KeptCall>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT call_id, device_id, mode, state, service, created_at, expires_at, deadline, ended_at,
                      now() AS "read_at!", outcome, delivered, NULL::bytea AS answer
               FROM calls
               WHERE org_id = $1 AND call_id > $2 AND ($3::text IS NULL OR device_id = $3)
                 AND ($4::text IS NULL OR state = $4)
               ORDER BY call_id LIMIT $5"#,
            org.uuid(),
            after.map_or(Uuid::nil(), CallId::uuid),
            filter.device.map(DeviceId::as_str),
            filter.state.map(CallState::as_str),
            i64::from(limit)
        );
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        rows.into_iter().map(KeptCall::try_from).collect()
    }

    /// Forgets calls that ended longer ago than this, and their keys; says how many.
    ///
    /// # Errors
    /// As every query; what was removed until then stays removed.
    pub async fn purge_kept_calls(&self, kept: Duration) -> Result<u64, StoreError> {
        in_steps(|| async {
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
                interval(kept),
                PURGE_STEP
            );
            let gone = query.fetch_one(&mut *self.throughout().await?).await?;
            Ok(gone.unsigned_abs())
        })
        .await
    }
}

async fn keep(
    connection: &mut PgConnection,
    call: NewKeptCall<'_>,
    key: Option<(&CallKey, &NewCall)>,
) -> Result<Keeping, sqlx::Error> {
    if let CallWork::Queued { .. } = call.work {
        // One at a time in an organisation: the numbers below are true, and positions are in the order of commits.
        sqlx::query!(
            "SELECT id FROM orgs WHERE id = $1 FOR NO KEY UPDATE",
            call.device.org.uuid()
        )
        .fetch_optional(&mut *connection)
        .await?;
    }
    if let Some((key, remember)) = key {
        while !take(&mut *connection, key, remember).await? {
            // Between the two questions the other call can have given its key back.
            if let Some(existing) = remembered(&mut *connection, key).await? {
                return Ok(Keeping::Remembered(existing));
            }
        }
    }
    if let CallWork::Queued { limits, .. } = call.work
        && let Some(full) = full(connection, call.device, limits).await?
    {
        return Ok(full);
    }
    let kept = insert(connection, call, key.map(|(key, _)| key)).await?;
    if kept.mode == CallMode::Queued {
        // A queue that is put aside stays so. Its row is locked all the same: it must not be removed as empty now.
        sqlx::query!(
            "INSERT INTO call_queues (org_id, device_id, due_at) VALUES ($1, $2, now())
             ON CONFLICT (org_id, device_id) DO UPDATE SET due_at = call_queues.due_at",
            call.device.org.uuid(),
            call.device.device.as_str()
        )
        .execute(connection)
        .await?;
    }
    Ok(Keeping::Kept(Box::new(kept)))
}

/// Whether as many wait as may.
async fn full(
    connection: &mut PgConnection,
    device: &DeviceKey,
    limits: QueueLimits,
) -> Result<Option<Keeping>, sqlx::Error> {
    // Counted no further than the limit.
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
        Some(Keeping::DeviceQueueFull)
    } else if waiting.org >= i64::from(limits.per_org) {
        Some(Keeping::OrgQueueFull)
    } else {
        None
    })
}

async fn insert(
    connection: &mut PgConnection,
    call: NewKeptCall<'_>,
    key: Option<&CallKey>,
) -> Result<KeptCall, sqlx::Error> {
    let (mode, state) = match call.work {
        CallWork::Async => (CallMode::Async, CallState::Sent),
        CallWork::Queued { .. } => (CallMode::Queued, CallState::Queued),
    };
    let (params, input, at, wait) = match call.work {
        CallWork::Async => (None, None, None, None),
        CallWork::Queued {
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
                     now() AS "read_at!", outcome, delivered, answer"#,
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
    KeptCall::try_from(row).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
