//! The statements for the keys of several calls of an organisation.
//!
//! The arrays and `LIMIT` are sub-selects, which hide the number of rows from the planner: it expects
//! one, and looks each row up in the index. Otherwise it reads all rows of the organisation as long as
//! the statistics of the table are older than its growth.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::{CallId, OrgId};
use uuid::Uuid;

use super::{NewCall, ReservedCall, StoredOutcome};
use crate::database::{batches::Item, interval};

/// A key to reserve for a call.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(super) hash: [u8; 32],
    pub(super) call: NewCall,
}

/// An outcome to write.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(super) hash: [u8; 32],
    pub(super) call: CallId,
    pub(super) outcome: StoredOutcome,
}

struct Row {
    key_hash: Vec<u8>,
    call_id: Uuid,
    fingerprint: Vec<u8>,
    created_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    read_at: DateTime<Utc>,
    status: Option<i32>,
    body: Option<Vec<u8>>,
}

impl From<Row> for ReservedCall {
    fn from(row: Row) -> Self {
        let status = row.status.and_then(|status| u16::try_from(status).ok());
        let outcome = status.zip(row.body);
        Self {
            id: CallId::from_uuid(row.call_id),
            fingerprint: row.fingerprint,
            created_at: row.created_at,
            deadline: row.deadline,
            read_at: row.read_at,
            outcome: outcome.map(|(status, body)| StoredOutcome { status, body }),
        }
    }
}

impl Item for Reservation {
    type Output = Option<ReservedCall>;

    fn key(&self) -> &[u8; 32] {
        &self.hash
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    /// An item whose key was taken, and then released between the two queries, is executed again.
    async fn execute(
        connection: &mut PgConnection,
        org: OrgId,
        items: &[&Self],
    ) -> Result<Vec<Option<Self::Output>>, sqlx::Error> {
        let hashes = column(items, |item| item.hash.as_slice());
        let reserved = sqlx::query_scalar!(
            "INSERT INTO idempotent_calls AS former (org_id, key_hash, fingerprint, call_id, deadline, expires_at)
             SELECT $1, key_hash, fingerprint, call_id, now() + timeout, now() + retention
             FROM unnest($2::bytea[], $3::bytea[], $4::uuid[], $5::interval[], $6::interval[])
               AS new (key_hash, fingerprint, call_id, timeout, retention)
             ON CONFLICT (org_id, key_hash) DO UPDATE SET
                 fingerprint = excluded.fingerprint, call_id = excluded.call_id, deadline = excluded.deadline,
                 status = NULL, body = NULL, created_at = now(), expires_at = excluded.expires_at
             WHERE former.expires_at <= now()
             RETURNING key_hash",
            org.uuid(),
            &hashes as &[&[u8]],
            &column(items, |item| item.call.fingerprint.as_slice()) as &[&[u8]],
            &column(items, |item| item.call.id.uuid()),
            &column(items, |item| interval(item.call.timeout)),
            &column(items, |item| interval(item.call.retention))
        );
        let reserved = reserved.fetch_all(&mut *connection).await?;
        let reserved: HashSet<_> = reserved.into_iter().collect();
        if reserved.len() == items.len() {
            return Ok(column(items, |_| Some(None)));
        }
        let taken = hashes.into_iter().filter(|hash| !reserved.contains(*hash));
        let taken: Vec<_> = taken.collect();
        let existing = sqlx::query_as!(
            Row,
            r#"SELECT known.key_hash, call_id, fingerprint, created_at, deadline, now() AS "read_at!", status, body
               FROM (SELECT * FROM unnest((SELECT $2::bytea[])) AS new (key_hash) LIMIT (SELECT cardinality($2))) new
               JOIN idempotent_calls known ON known.org_id = $1 AND known.key_hash = new.key_hash"#,
            org.uuid(),
            &taken as &[&[u8]]
        );
        let existing = existing.fetch_all(connection).await?.into_iter();
        let mut existing: HashMap<_, _> = existing
            .map(|row| (row.key_hash.clone(), ReservedCall::from(row)))
            .collect();
        let outputs = items.iter().map(|item| {
            if reserved.contains(item.hash.as_slice()) {
                Some(None)
            } else {
                existing.remove(item.hash.as_slice()).map(Some)
            }
        });
        Ok(outputs.collect())
    }

    /// Releases the keys: their calls are not made.
    async fn undo(
        connection: &mut PgConnection,
        org: OrgId,
        items: &[&Self],
    ) -> Result<(), sqlx::Error> {
        let hashes = column(items, |item| item.hash.as_slice());
        let calls = column(items, |item| item.call.id.uuid());
        release(connection, org, &hashes, &calls).await.map(drop)
    }
}

/// Releases keys that belong to these calls, which have no outcome; returns how many.
pub(super) async fn release(
    connection: &mut PgConnection,
    org: OrgId,
    hashes: &[&[u8]],
    calls: &[Uuid],
) -> Result<u64, sqlx::Error> {
    let query = sqlx::query!(
        "DELETE FROM idempotent_calls AS former
         USING (SELECT * FROM unnest((SELECT $2::bytea[]), (SELECT $3::uuid[])) AS new (key_hash, call_id)
               LIMIT (SELECT cardinality($2))) new
         WHERE former.org_id = $1 AND former.key_hash = new.key_hash AND former.call_id = new.call_id
           AND former.status IS NULL",
        org.uuid(),
        hashes as &[&[u8]],
        calls
    );
    Ok(query.execute(connection).await?.rows_affected())
}

impl Item for Ending {
    type Output = bool;

    fn key(&self) -> &[u8; 32] {
        &self.hash
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.outcome.body.len()
    }

    async fn execute(
        connection: &mut PgConnection,
        org: OrgId,
        items: &[&Self],
    ) -> Result<Vec<Option<bool>>, sqlx::Error> {
        let hashes = column(items, |item| item.hash.as_slice());
        let written = sqlx::query_scalar!(
            "UPDATE idempotent_calls AS former SET status = new.status, body = new.body
             FROM (SELECT * FROM unnest((SELECT $2::bytea[]), (SELECT $3::uuid[]), (SELECT $4::integer[]), (SELECT $5::bytea[]))
                     AS new (key_hash, call_id, status, body) LIMIT (SELECT cardinality($2))) new
             WHERE former.org_id = $1 AND former.key_hash = new.key_hash AND former.call_id = new.call_id
               AND former.status IS NULL
             RETURNING former.key_hash",
            org.uuid(),
            &hashes as &[&[u8]],
            &column(items, |item| item.call.uuid()),
            &column(items, |item| i32::from(item.outcome.status)),
            &column(items, |item| item.outcome.body.as_slice()) as &[&[u8]]
        );
        let written: HashSet<_> = written.fetch_all(connection).await?.into_iter().collect();
        let outputs = hashes.into_iter().map(|hash| Some(written.contains(hash)));
        Ok(outputs.collect())
    }
}

/// A parameter of a statement: a value of each item.
fn column<'a, I, T>(items: &[&'a I], value: impl Fn(&'a I) -> T) -> Vec<T> {
    items.iter().map(|item| value(item)).collect()
}
