//! The queues of calls that wait for their devices, and how a call goes from there to its end.
//! Never: a call given out that may have been sent before, or two of one device's queue under way at once.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::{CallId, DeviceKey, OrgId};
use uuid::Uuid;

use crate::{
    CallEnd, SETTLING, Store, StoreError, Withdrawal,
    database::{bounded, interval, undecodable},
};

/// How many calls one statement settles, so that none holds its locks for long.
const SETTLE_STEP: i64 = 500;

/// What a device's queue gave.
#[derive(Debug)]
pub enum Claim {
    /// The first call. It counts as sent from now on.
    Call(ClaimedCall),
    /// One of its calls is under way, somebody else is at the queue, or it is put aside.
    Busy,
    /// Nothing waits.
    Empty,
}

/// A call about to be sent.
#[derive(Debug, Clone)]
pub struct ClaimedCall {
    /// Its id.
    pub id: CallId,
    /// The device that it is for.
    pub device: DeviceKey,
    /// Which attempt this is; whoever makes another one says nothing of this one any more.
    pub attempt: i32,
    /// The service that it calls.
    pub service: String,
    /// What it is sent with.
    pub params: Vec<u8>,
    /// What the device asked for before.
    pub input: Vec<u8>,
    /// How long the device has.
    pub timeout: Duration,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

/// How many calls ended by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettledCalls {
    /// Those that had waited too long.
    pub expired: u64,
    /// Those that had been sent and never heard of again.
    pub lost: u64,
}

impl SettledCalls {
    /// Both kinds.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.expired.saturating_add(self.lost)
    }
}

impl Store {
    /// How many calls wait in queues, of all organisations.
    ///
    /// # Errors
    /// As every query.
    pub async fn queued_calls(&self) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "waiting!" FROM calls WHERE state = 'queued'"#
        );
        bounded(async { count.fetch_one(&mut *self.throughout().await?).await }).await
    }

    /// Takes the first call of a device's queue. When this returns it, it stands on record as sent. A queue that is put
    /// aside, or that somebody else is at, is passed by unless `anyway`: whoever has just ended a call of it, or knows
    /// that its device has come, must not leave the next one lying.
    ///
    /// # Errors
    /// As every query. The call may stand as sent all the same; then it is lost after its deadline.
    pub async fn claim_call(&self, device: &DeviceKey, anyway: bool) -> Result<Claim, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(device.org).await?;
            let claim = claim(&mut transaction, device, anyway).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(claim)
        })
        .await
    }

    /// Puts a call back to the place that it had, and its queue aside for `pause`; for calls that were certainly not
    /// delivered. False when the call is not in this attempt any more.
    ///
    /// # Errors
    /// As every query; it may be back.
    pub async fn put_call_back(
        &self,
        call: CallId,
        attempt: i32,
        pause: Duration,
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
            call.uuid(),
            attempt,
            interval(pause)
        );
        Ok(bounded(async { query.fetch_one(&mut *self.throughout().await?).await }).await? > 0)
    }

    /// Puts a call's end on record, tells who waits for it, and frees its key if it was not delivered. False when it
    /// has ended already, or is not in this attempt any more.
    ///
    /// # Errors
    /// As every query; the end may have been written.
    pub async fn end_call(
        &self,
        call: CallId,
        attempt: i32,
        end: &CallEnd,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"WITH ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  deadline = NULL, params = NULL, input = NULL
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
            call.uuid(),
            attempt,
            end.outcome.as_str(),
            end.delivered.as_str(),
            end.answer
        );
        Ok(bounded(async { query.fetch_one(&mut *self.throughout().await?).await }).await? > 0)
    }

    /// Takes back a call that waits; `end` is how it then ended.
    ///
    /// # Errors
    /// As every query; it may be taken back.
    pub async fn withdraw_call(
        &self,
        org: OrgId,
        call: CallId,
        end: &CallEnd,
    ) -> Result<Withdrawal, StoreError> {
        let query = sqlx::query_scalar!(
            r#"WITH ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  params = NULL, input = NULL
                 WHERE org_id = $1 AND call_id = $2 AND state = 'queued'
                 RETURNING org_id, call_id, key_hash),
               freed AS (
                 DELETE FROM idempotent_calls remembered USING ended
                 WHERE remembered.org_id = ended.org_id AND remembered.key_hash = ended.key_hash
                   AND remembered.call_id = ended.call_id)
               SELECT count(pg_notify('switchboard_calls', call_id::text)) AS "ended!" FROM ended"#,
            org.uuid(),
            call.uuid(),
            end.outcome.as_str(),
            end.delivered.as_str(),
            end.answer
        );
        if bounded(async { query.fetch_one(&mut *self.within(org).await?).await }).await? > 0 {
            return Ok(Withdrawal::Withdrawn);
        }
        let known = self.kept_call(org, call).await?;
        Ok(match known.map(|call| call.end) {
            None => Withdrawal::Unknown,
            Some(None) => Withdrawal::Sent,
            Some(Some(known))
                if (known.outcome, known.delivered) == (end.outcome, end.delivered) =>
            {
                Withdrawal::Withdrawn
            }
            Some(Some(_)) => Withdrawal::Ended,
        })
    }

    /// Ends what waited too long as `expired`, and what was sent and never heard of again as `lost`; all that is due,
    /// up to a bound, or one call. Says how many.
    ///
    /// # Errors
    /// As every query.
    pub async fn settle_calls(
        &self,
        only: Option<CallId>,
        expired: &CallEnd,
        lost: &CallEnd,
    ) -> Result<SettledCalls, StoreError> {
        let only = only.map(CallId::uuid);
        let expire = sqlx::query_scalar!(
            r#"WITH due AS (
                 SELECT call_id FROM calls
                 WHERE state = 'queued' AND expires_at <= now() AND ($1::uuid IS NULL OR call_id = $1)
                 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
               ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  params = NULL, input = NULL
                 FROM due WHERE calls.call_id = due.call_id
                 RETURNING calls.org_id, calls.call_id, calls.key_hash),
               freed AS (
                 DELETE FROM idempotent_calls remembered USING ended
                 WHERE remembered.org_id = ended.org_id AND remembered.key_hash = ended.key_hash
                   AND remembered.call_id = ended.call_id)
               SELECT count(pg_notify('switchboard_calls', call_id::text)) AS "ended!" FROM ended"#,
            only,
            SETTLE_STEP,
            expired.outcome.as_str(),
            expired.delivered.as_str(),
            expired.answer
        );
        let expired =
            bounded(async { expire.fetch_one(&mut *self.throughout().await?).await }).await?;
        let lose = sqlx::query_scalar!(
            r#"WITH due AS (
                 SELECT call_id FROM calls
                 WHERE state = 'sent' AND deadline <= now() - $6::interval AND ($1::uuid IS NULL OR call_id = $1)
                 ORDER BY deadline LIMIT $2 FOR UPDATE SKIP LOCKED),
               ended AS (
                 UPDATE calls SET state = 'ended', outcome = $3, delivered = $4, answer = $5, ended_at = now(),
                                  deadline = NULL, params = NULL, input = NULL
                 FROM due WHERE calls.call_id = due.call_id
                 RETURNING calls.call_id)
               SELECT count(pg_notify('switchboard_calls', call_id::text)) AS "ended!" FROM ended"#,
            only,
            SETTLE_STEP,
            lost.outcome.as_str(),
            lost.delivered.as_str(),
            lost.answer,
            interval(SETTLING)
        );
        let lost = bounded(async { lose.fetch_one(&mut *self.throughout().await?).await }).await?;
        Ok(SettledCalls {
            expired: expired.unsigned_abs(),
            lost: lost.unsigned_abs(),
        })
    }

    /// Queues in the order of their devices, strictly after `after`: all, or those to be looked at by now.
    ///
    /// # Errors
    /// As every query.
    pub async fn call_queues(
        &self,
        after: Option<&DeviceKey>,
        due_only: bool,
        limit: u32,
    ) -> Result<Vec<DeviceKey>, StoreError> {
        let query = sqlx::query!(
            "SELECT org_id, device_id FROM call_queues
             WHERE (org_id, device_id) > ($1, $2) AND (NOT $3 OR due_at <= now())
             ORDER BY org_id, device_id LIMIT $4",
            after.map_or(Uuid::nil(), |device| device.org.uuid()),
            after.map_or("", |device| device.device.as_str()),
            due_only,
            i64::from(limit)
        );
        let rows = bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?;
        let keys = rows.into_iter().map(|row| key(row.org_id, &row.device_id));
        keys.collect()
    }

    /// Those of these devices that calls wait for.
    ///
    /// # Errors
    /// As every query.
    pub async fn call_queues_of(
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
        let rows = bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?;
        let keys = rows.into_iter().map(|row| key(row.org_id, &row.device_id));
        keys.collect()
    }

    /// Puts queues aside whose devices are not there, for this long or until they come.
    ///
    /// # Errors
    /// As every query.
    pub async fn postpone_call_queues(
        &self,
        devices: &[DeviceKey],
        pause: Duration,
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
            interval(pause)
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await }).await?;
        Ok(())
    }
}

async fn claim(
    connection: &mut PgConnection,
    device: &DeviceKey,
    anyway: bool,
) -> Result<Claim, sqlx::Error> {
    let (org, name) = (device.org.uuid(), device.device.as_str());
    if !lock(connection, device, anyway).await? {
        return Ok(Claim::Busy);
    }
    let sent = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM calls WHERE org_id = $1 AND device_id = $2 AND mode = 'queued' AND state = 'sent')
           AS "sent!""#,
        org,
        name
    );
    if sent.fetch_one(&mut *connection).await? {
        return Ok(Claim::Busy);
    }
    loop {
        if let Some(call) = take_first(connection, device).await? {
            let over = call.timeout + SETTLING;
            let put_aside = sqlx::query!(
                "UPDATE call_queues SET due_at = now() + $3::interval WHERE org_id = $1 AND device_id = $2",
                org,
                name,
                interval(over)
            );
            put_aside.execute(connection).await?;
            return Ok(Claim::Call(call));
        }
        let gone = sqlx::query!(
            "DELETE FROM call_queues WHERE org_id = $1 AND device_id = $2 AND NOT EXISTS
               (SELECT FROM calls WHERE org_id = $1 AND device_id = $2 AND state = 'queued' AND expires_at > now())",
            org,
            name
        );
        // Otherwise the first one was taken back at this very moment, and another one is the first now.
        if gone.execute(&mut *connection).await?.rows_affected() > 0 {
            return Ok(Claim::Empty);
        }
    }
}

/// Locks a queue; false when there is none, or it is passed by.
async fn lock(
    connection: &mut PgConnection,
    device: &DeviceKey,
    anyway: bool,
) -> Result<bool, sqlx::Error> {
    let (org, name) = (device.org.uuid(), device.device.as_str());
    let locked = if anyway {
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
    let taken = sqlx::query!(
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
    let taken = taken.fetch_optional(connection).await?;
    Ok(taken.map(|row| ClaimedCall {
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
        device: device.parse().map_err(undecodable)?,
    })
}
