//! Queues of calls that wait for their devices, and the path of a call from its queue to its end.
//! Invariant: a call that may have been sent is not handed out again, and at most one queued call
//! of a device is in flight.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::{CallId, DeviceId, DeviceKey, OrgId};
use uuid::Uuid;

use crate::{
    CallCancellation, CallEnd, RESULT_GRACE, Store, StoreError,
    database::{decode_error, interval, with_timeout},
};

/// How many calls one statement ends, so that it holds its locks only briefly.
const END_BATCH_SIZE: i64 = 500;

/// The result of claiming from a device's queue.
#[derive(Debug)]
pub enum CallClaim {
    /// The first call. Its state is `sent` from now on.
    Call(ClaimedCall),
    /// One of its calls is in flight, another worker holds the queue, or the queue is postponed.
    Busy,
    /// No call is queued.
    Empty,
}

/// A call to be sent.
#[derive(Debug, Clone)]
pub struct ClaimedCall {
    /// Its id.
    pub id: CallId,
    /// The device that it is for.
    pub device: DeviceKey,
    /// The number of this attempt. A later attempt invalidates writes by this one.
    pub attempt: i32,
    /// The service that it calls.
    pub service: String,
    /// The parameters.
    pub params: Vec<u8>,
    /// The user's input that the device requested in an earlier attempt.
    pub input: Vec<u8>,
    /// How long the device has.
    pub timeout: Duration,
    /// Time of the request.
    pub created_at: DateTime<Utc>,
}

/// An attempt to send a stored call.
#[derive(Debug, Clone, Copy)]
pub struct CallAttempt {
    /// The organisation of the call, whose share of connections its writes use.
    pub org: OrgId,
    /// The id of the call.
    pub call: CallId,
    /// The number of the attempt. A later attempt invalidates writes by this one.
    pub number: i32,
}

impl ClaimedCall {
    /// Returns this attempt.
    #[must_use]
    pub const fn attempt(&self) -> CallAttempt {
        CallAttempt {
            org: self.device.org,
            call: self.id,
            number: self.attempt,
        }
    }
}

/// Which overdue calls are ended.
#[derive(Debug, Clone, Copy)]
pub enum Overdue {
    /// Those of all organisations.
    All,
    /// Those of one organisation, in its share of connections.
    Of(OrgId),
    /// One call of this organisation, in its share of connections.
    Call(OrgId, CallId),
}

/// A stored call that ended without an answer of its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedCall {
    /// Its id.
    pub id: CallId,
    /// The device that it was for.
    pub device: DeviceKey,
    /// The service that it called.
    pub service: String,
    /// From the request to the end.
    pub elapsed: Duration,
}

/// The overdue calls that were ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OverdueCalls {
    /// Calls that waited too long.
    pub expired: Vec<ClosedCall>,
    /// Calls that were sent and whose end was not written in time.
    pub lost: Vec<ClosedCall>,
}

impl OverdueCalls {
    /// The number of both.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.expired.len().saturating_add(self.lost.len())
    }
}

struct ClosedRow {
    org_id: Uuid,
    call_id: Uuid,
    device_id: String,
    service: String,
    created_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
}

impl TryFrom<ClosedRow> for ClosedCall {
    type Error = StoreError;

    fn try_from(row: ClosedRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: CallId::from_uuid(row.call_id),
            device: DeviceKey {
                org: OrgId::from_uuid(row.org_id),
                device: row.device_id.parse().map_err(decode_error)?,
            },
            service: row.service,
            elapsed: (row.ended_at - row.created_at).to_std().unwrap_or_default(),
        })
    }
}

fn closed(rows: Vec<ClosedRow>) -> Result<Vec<ClosedCall>, StoreError> {
    rows.into_iter().map(ClosedCall::try_from).collect()
}

impl Store {
    /// The number of queued calls in all organisations.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn queued_calls(&self) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "waiting!" FROM calls WHERE state = 'queued'"#
        );
        with_timeout(async { count.fetch_one(&mut *self.system_conn().await?).await }).await
    }

    /// Claims the first call of a device's queue and sets its state to `sent`. A queue that is
    /// postponed, or locked by another worker, is skipped unless `force` is set: a worker that has
    /// just ended one of its calls, or was notified that the device connected, must not leave the
    /// next call waiting.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails. The call may be `sent` nevertheless; it is then lost
    /// after its deadline.
    pub async fn claim_call(
        &self,
        device: &DeviceKey,
        force: bool,
    ) -> Result<CallClaim, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_tenant(device.org).await?;
            let claim = claim(&mut transaction, device, force).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(claim)
        })
        .await
    }

    /// Returns a call to its position in the queue, and postpones the queue by `delay`; for calls
    /// that were certainly not delivered. False if the call is no longer in this attempt.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the call may have been requeued.
    pub async fn requeue_call(
        &self,
        attempt: CallAttempt,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"WITH back AS (
                 UPDATE calls SET state = 'queued', deadline = NULL
                 WHERE call_id = $1 AND attempts = $2 AND state = 'sent' AND mode = 'queued'
                 RETURNING org_id, device_id),
               put_aside AS (
                 UPDATE call_queues queue SET due_at = now() + $3::interval FROM back
                 WHERE queue.org_id = back.org_id AND queue.device_id = back.device_id)
               SELECT count(*) AS "back!" FROM back"#,
            attempt.call.uuid(),
            attempt.number,
            interval(delay)
        );
        let requeued = with_timeout(async {
            query
                .fetch_one(&mut *self.tenant_conn(attempt.org).await?)
                .await
        });
        Ok(requeued.await? > 0)
    }

    /// Writes the end of a call, notifies waiters, and frees its key if it was not delivered. False
    /// if it has already ended, or is no longer in this attempt.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the end may have been written.
    pub async fn end_call(&self, attempt: CallAttempt, end: &CallEnd) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"WITH ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, result_valid = $6,
                                  ended_at = now(), deadline = NULL, params = NULL, input = NULL
                 WHERE call_id = $1 AND attempts = $2 AND state = 'sent'
                 RETURNING org_id, device_id, call_id, key_hash, delivered),
               freed AS (
                 DELETE FROM idempotent_calls remembered USING ended
                 WHERE ended.delivered = 'no' AND remembered.org_id = ended.org_id
                   AND remembered.key_hash = ended.key_hash AND remembered.call_id = ended.call_id),
               due AS (
                 UPDATE call_queues queue SET due_at = now() FROM ended
                 WHERE queue.org_id = ended.org_id AND queue.device_id = ended.device_id)
               SELECT count(pg_notify('switchboard_calls', call_id::text)) AS "ended!" FROM ended"#,
            attempt.call.uuid(),
            attempt.number,
            end.outcome.as_str(),
            end.delivered.as_str(),
            end.answer,
            end.result_valid
        );
        let ended = with_timeout(async {
            query
                .fetch_one(&mut *self.tenant_conn(attempt.org).await?)
                .await
        });
        Ok(ended.await? > 0)
    }

    /// Cancels a queued call; `end` is written as its end. Returns the call unless it had ended before.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the call may have been cancelled.
    pub async fn cancel_call(
        &self,
        org: OrgId,
        call: CallId,
        end: &CallEnd,
    ) -> Result<(CallCancellation, Option<ClosedCall>), StoreError> {
        let query = sqlx::query_as!(
            ClosedRow,
            r#"WITH ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  params = NULL, input = NULL
                 WHERE org_id = $1 AND call_id = $2 AND state = 'queued'
                 RETURNING org_id, call_id, device_id, service, created_at, ended_at, key_hash),
               freed AS (
                 DELETE FROM idempotent_calls remembered USING ended
                 WHERE remembered.org_id = ended.org_id AND remembered.key_hash = ended.key_hash
                   AND remembered.call_id = ended.call_id)
               SELECT org_id, call_id, device_id, service, created_at, ended_at AS "ended_at!" FROM ended
               WHERE pg_notify('switchboard_calls', call_id::text) IS NOT NULL"#,
            org.uuid(),
            call.uuid(),
            end.outcome.as_str(),
            end.delivered.as_str(),
            end.answer
        );
        let cancelled = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        });
        if let Some(cancelled) = cancelled.await? {
            let cancelled = cancelled.try_into()?;
            return Ok((CallCancellation::Cancelled, Some(cancelled)));
        }
        let stored = self.stored_call(org, call).await?;
        let cancellation = match stored.map(|call| call.end) {
            None => CallCancellation::Unknown,
            Some(None) => CallCancellation::Sent,
            Some(Some(stored))
                if (stored.outcome, stored.delivered) == (end.outcome, end.delivered) =>
            {
                CallCancellation::Cancelled
            }
            Some(Some(_)) => CallCancellation::Ended,
        };
        Ok((cancellation, None))
    }

    /// Ends overdue calls: queued ones past their expiry as `expired`, sent ones past their
    /// deadline as `lost`. Handles one batch of each. Returns them.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn end_overdue_calls(
        &self,
        which: Overdue,
        expired: &CallEnd,
        lost: &CallEnd,
    ) -> Result<OverdueCalls, StoreError> {
        let only = match which {
            Overdue::Call(_, call) => Some(call.uuid()),
            Overdue::All | Overdue::Of(_) => None,
        };
        // Row-level security restricts the statements to the organisation of the connection.
        let connection = async || match which {
            Overdue::All => self.system_conn().await,
            Overdue::Of(org) | Overdue::Call(org, _) => self.tenant_conn(org).await,
        };
        let mark_expired = sqlx::query_as!(
            ClosedRow,
            r#"WITH due AS (
                 SELECT call_id FROM calls
                 WHERE state = 'queued' AND expires_at <= now() AND ($1::uuid IS NULL OR call_id = $1)
                 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
               ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  params = NULL, input = NULL
                 FROM due WHERE calls.call_id = due.call_id
                 RETURNING calls.org_id, calls.call_id, device_id, service, created_at, ended_at, key_hash),
               freed AS (
                 DELETE FROM idempotent_calls remembered USING ended
                 WHERE remembered.org_id = ended.org_id AND remembered.key_hash = ended.key_hash
                   AND remembered.call_id = ended.call_id)
               SELECT org_id, call_id, device_id, service, created_at, ended_at AS "ended_at!" FROM ended
               WHERE pg_notify('switchboard_calls', call_id::text) IS NOT NULL"#,
            only,
            END_BATCH_SIZE,
            expired.outcome.as_str(),
            expired.delivered.as_str(),
            expired.answer
        );
        let expired =
            with_timeout(async { mark_expired.fetch_all(&mut *connection().await?).await }).await?;
        let mark_lost = sqlx::query_as!(
            ClosedRow,
            r#"WITH due AS (
                 SELECT call_id FROM calls
                 WHERE state = 'sent' AND deadline <= now() - $6::interval AND ($1::uuid IS NULL OR call_id = $1)
                 ORDER BY deadline LIMIT $2 FOR UPDATE SKIP LOCKED),
               ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  deadline = NULL, params = NULL, input = NULL
                 FROM due WHERE calls.call_id = due.call_id
                 RETURNING calls.org_id, calls.call_id, device_id, service, created_at, ended_at)
               SELECT org_id, call_id, device_id, service, created_at, ended_at AS "ended_at!" FROM ended
               WHERE pg_notify('switchboard_calls', call_id::text) IS NOT NULL"#,
            only,
            END_BATCH_SIZE,
            lost.outcome.as_str(),
            lost.delivered.as_str(),
            lost.answer,
            interval(RESULT_GRACE)
        );
        let lost =
            with_timeout(async { mark_lost.fetch_all(&mut *connection().await?).await }).await?;
        Ok(OverdueCalls {
            expired: closed(expired)?,
            lost: closed(lost)?,
        })
    }

    /// Queues in the order of their devices, strictly after `after`: all, or those that are due.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn call_queues(
        &self,
        after: Option<&DeviceKey>,
        due_only: bool,
        limit: u32,
    ) -> Result<Vec<DeviceKey>, StoreError> {
        let org = after.map_or(Uuid::nil(), |device| device.org.uuid());
        let device = after.map_or("", |device| device.device.as_str());
        self.call_queues_after(org, device, due_only, limit).await
    }

    /// The same for the queues of one organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn call_queues_of(
        &self,
        org: OrgId,
        after: Option<&DeviceId>,
        due_only: bool,
        limit: u32,
    ) -> Result<Vec<DeviceKey>, StoreError> {
        let device = after.map_or("", DeviceId::as_str);
        let queues = self.call_queues_after(org.uuid(), device, due_only, limit);
        let mut queues = queues.await?;
        queues.retain(|queue| queue.org == org);
        Ok(queues)
    }

    async fn call_queues_after(
        &self,
        org: Uuid,
        device: &str,
        due_only: bool,
        limit: u32,
    ) -> Result<Vec<DeviceKey>, StoreError> {
        let query = sqlx::query!(
            "SELECT org_id, device_id FROM call_queues
             WHERE (org_id, device_id) > ($1, $2) AND (NOT $3 OR due_at <= now())
             ORDER BY org_id, device_id LIMIT $4",
            org,
            device,
            due_only,
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let keys = rows.into_iter().map(|row| key(row.org_id, &row.device_id));
        keys.collect()
    }

    /// Those of the devices that have queued calls.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn call_queues_for(
        &self,
        devices: &[DeviceKey],
    ) -> Result<Vec<DeviceKey>, StoreError> {
        let (orgs, names) = columns(devices);
        let query = sqlx::query!(
            "SELECT org_id, device_id FROM call_queues
             WHERE (org_id, device_id) IN (SELECT * FROM UNNEST($1::uuid[], $2::text[]))",
            &orgs,
            &names
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let keys = rows.into_iter().map(|row| key(row.org_id, &row.device_id));
        keys.collect()
    }

    /// Postpones the queues of devices that are not connected, by `delay` or until they connect.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn postpone_call_queues(
        &self,
        devices: &[DeviceKey],
        delay: Duration,
    ) -> Result<(), StoreError> {
        let (orgs, names) = columns(devices);
        let query = sqlx::query!(
            "WITH due AS (
               SELECT org_id, device_id FROM call_queues
               WHERE (org_id, device_id) IN (SELECT * FROM UNNEST($1::uuid[], $2::text[])) AND due_at <= now()
               FOR UPDATE SKIP LOCKED)
             UPDATE call_queues queue SET due_at = now() + $3::interval FROM due
             WHERE queue.org_id = due.org_id AND queue.device_id = due.device_id",
            &orgs,
            &names,
            interval(delay)
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await }).await?;
        Ok(())
    }
}

async fn claim(
    connection: &mut PgConnection,
    device: &DeviceKey,
    force: bool,
) -> Result<CallClaim, sqlx::Error> {
    let (org, name) = (device.org.uuid(), device.device.as_str());
    if !lock(connection, device, force).await? {
        return Ok(CallClaim::Busy);
    }
    let in_flight = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM calls WHERE org_id = $1 AND device_id = $2 AND mode = 'queued' AND state = 'sent')
           AS "sent!""#,
        org,
        name
    );
    if in_flight.fetch_one(&mut *connection).await? {
        return Ok(CallClaim::Busy);
    }
    loop {
        if let Some(call) = take_first(connection, device).await? {
            let attempt_time = call.timeout + RESULT_GRACE;
            let postpone = sqlx::query!(
                "UPDATE call_queues SET due_at = now() + $3::interval WHERE org_id = $1 AND device_id = $2",
                org,
                name,
                interval(attempt_time)
            );
            postpone.execute(connection).await?;
            return Ok(CallClaim::Call(call));
        }
        let delete = sqlx::query!(
            "DELETE FROM call_queues WHERE org_id = $1 AND device_id = $2 AND NOT EXISTS
               (SELECT FROM calls WHERE org_id = $1 AND device_id = $2 AND state = 'queued' AND expires_at > now())",
            org,
            name
        );
        // Otherwise the first call was cancelled at this moment, and another one is now first.
        if delete.execute(&mut *connection).await?.rows_affected() > 0 {
            return Ok(CallClaim::Empty);
        }
    }
}

/// Locks a queue; false if there is none, or it is skipped.
async fn lock(
    connection: &mut PgConnection,
    device: &DeviceKey,
    force: bool,
) -> Result<bool, sqlx::Error> {
    let (org, name) = (device.org.uuid(), device.device.as_str());
    let locked = if force {
        let wait = sqlx::query_scalar!(
            "SELECT due_at FROM call_queues WHERE org_id = $1 AND device_id = $2 FOR UPDATE",
            org,
            name
        );
        wait.fetch_optional(connection).await?
    } else {
        let pass_by = sqlx::query_scalar!(
            "SELECT due_at FROM call_queues WHERE org_id = $1 AND device_id = $2 AND due_at <= now()
             FOR UPDATE SKIP LOCKED",
            org,
            name
        );
        pass_by.fetch_optional(connection).await?
    };
    Ok(locked.is_some())
}

async fn take_first(
    connection: &mut PgConnection,
    device: &DeviceKey,
) -> Result<Option<ClaimedCall>, sqlx::Error> {
    let claimed = sqlx::query!(
        r#"UPDATE calls SET state = 'sent', attempts = attempts + 1,
                            deadline = now() + make_interval(secs => timeout_ms / 1000.0)
           WHERE state = 'queued' AND call_id =
             (SELECT call_id FROM calls WHERE org_id = $1 AND device_id = $2 AND state = 'queued' AND expires_at > now()
              ORDER BY position LIMIT 1)
           RETURNING call_id, attempts, service, params AS "params!", COALESCE(input, '') AS "input!", timeout_ms,
                     created_at"#,
        device.org.uuid(),
        device.device.as_str()
    );
    let claimed = claimed.fetch_optional(connection).await?;
    Ok(claimed.map(|row| ClaimedCall {
        id: CallId::from_uuid(row.call_id),
        device: device.clone(),
        attempt: row.attempts,
        service: row.service,
        params: row.params,
        input: row.input,
        timeout: Duration::from_millis(u64::from(row.timeout_ms.unsigned_abs())),
        created_at: row.created_at,
    }))
}

fn columns(devices: &[DeviceKey]) -> (Vec<Uuid>, Vec<String>) {
    let pairs = devices.iter();
    pairs
        .map(|key| (key.org.uuid(), key.device.to_string()))
        .unzip()
}

fn key(org: Uuid, device: &str) -> Result<DeviceKey, StoreError> {
    Ok(DeviceKey {
        org: OrgId::from_uuid(org),
        device: device.parse().map_err(decode_error)?,
    })
}
