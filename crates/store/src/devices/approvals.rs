//! Approvals of services: which text of a service models may call, on one device or on all of an organisation.
//!
//! Invariant: an approval is of one digest. What a device declares otherwise is not approved by it.

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{ApprovalId, DeviceId, OrgId},
    schema::Digest,
};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{decode_error, with_timeout},
};

/// The most approvals of an organisation. Protects the memory of nodes, which cache their digests.
pub const MAX_APPROVALS: u32 = 5_000;
/// The most bytes of the definitions that an organisation approved. Protects the database.
const MAX_DEFINITION_BYTES: i64 = 32 * 1024 * 1024;

/// An approval of a service.
#[derive(Debug, Clone)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The service.
    pub service: String,
    /// The only device that it is for; `None` if it is for all of the organisation.
    pub device: Option<DeviceId>,
    /// The digest of the service that was approved.
    pub digest: Digest,
    /// What was approved, a JSON object; `None` if it was not read.
    pub definition: Option<Box<RawValue>>,
    /// When.
    pub approved_at: DateTime<Utc>,
    /// By which API key, or by a token of which subject.
    pub approved_by: String,
}

struct Row {
    id: Uuid,
    service: String,
    device_id: Option<String>,
    digest: Vec<u8>,
    definition: Option<String>,
    approved_at: DateTime<Utc>,
    approved_by: String,
}

impl TryFrom<Row> for Approval {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let definition = row.definition.map(RawValue::from_string);
        Ok(Self {
            id: ApprovalId::from_uuid(row.id),
            service: row.service,
            device: device(row.device_id)?,
            digest: digest(row.digest),
            definition: definition.transpose().map_err(decode_error)?,
            approved_at: row.approved_at,
            approved_by: row.approved_by,
        })
    }
}

fn device(id: Option<String>) -> Result<Option<DeviceId>, StoreError> {
    id.map(|id| id.parse().map_err(decode_error)).transpose()
}

/// A constraint of the table excludes other lengths.
fn digest(bytes: Vec<u8>) -> Digest {
    Digest(bytes.try_into().unwrap_or_default())
}

impl Store {
    /// The approval of each of these services, in the order of their names: the one of this digest, else the device's
    /// own, else the newest. Those that were never approved have none. With what was approved only if it is wanted,
    /// because it may be large.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn approvals_of_device(
        &self,
        org: OrgId,
        device: &DeviceId,
        services: &[(String, Digest)],
        with_definitions: bool,
    ) -> Result<Vec<Approval>, StoreError> {
        let names: Vec<String> = services.iter().map(|(name, _)| name.clone()).collect();
        let digests: Vec<Vec<u8>> = services
            .iter()
            .map(|(_, digest)| digest.0.to_vec())
            .collect();
        let query = sqlx::query_as!(
            Row,
            r#"SELECT DISTINCT ON (a.service) a.id, a.service, a.device_id, a.digest, a.approved_at, a.approved_by,
                      CASE WHEN $5 THEN a.definition END AS definition
               FROM UNNEST($3::text[], $4::bytea[]) AS declared (service, digest)
               JOIN service_approvals a ON a.org_id = $1 AND a.service = declared.service
                   AND (a.device_id = $2 OR a.device_id IS NULL)
               ORDER BY a.service, a.digest = declared.digest DESC, a.device_id IS NULL, a.approved_at DESC"#,
            org.uuid(),
            device.as_str(),
            &names,
            &digests,
            with_definitions
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        rows.into_iter().map(Approval::try_from).collect()
    }

    /// The digests of all approvals of an organisation, with the device that each is for.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn approved_digests(
        &self,
        org: OrgId,
    ) -> Result<Vec<(Option<DeviceId>, Digest)>, StoreError> {
        let query = sqlx::query!(
            "SELECT device_id, digest FROM service_approvals WHERE org_id = $1",
            org.uuid()
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        let rows = rows.into_iter();
        rows.map(|row| Ok((device(row.device_id)?, digest(row.digest))))
            .collect()
    }

    /// Approves a service, in place of a former approval of the same device. False if the organisation has as many
    /// as it may, or as much text. Repetitions change nothing.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails.
    pub async fn approve_service(
        &self,
        org: OrgId,
        device: Option<&DeviceId>,
        (service, digest): (&str, Digest),
        (definition, by): (&RawValue, &str),
    ) -> Result<bool, StoreError> {
        let device = device.map(DeviceId::as_str);
        with_timeout(async {
            let mut transaction = self.begin_tenant_in_turn(org).await?;
            // Others of the organisation wait, also in other processes: the sums hold.
            sqlx::query!("SELECT id FROM orgs WHERE id = $1 FOR NO KEY UPDATE", org.uuid())
                .fetch_optional(&mut *transaction)
                .await?;
            let updated = sqlx::query!(
                "UPDATE service_approvals known SET digest = $4, definition = $5, approved_by = $6, approved_at = now()
                 WHERE org_id = $1 AND device_id = $2 AND service = $3 AND digest <> $4
                     AND (SELECT sum(octet_length(definition)) FROM service_approvals WHERE org_id = $1)
                         - octet_length(known.definition) + octet_length($5) <= $7",
                org.uuid(),
                device,
                service,
                digest.0.as_slice(),
                definition.get(),
                by,
                MAX_DEFINITION_BYTES
            )
            .execute(&mut *transaction)
            .await?;
            let is_known = sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM service_approvals WHERE org_id = $1
                       AND device_id IS NOT DISTINCT FROM $2 AND service = $3 AND digest = $4) AS "is_known!""#,
                org.uuid(),
                device,
                service,
                digest.0.as_slice()
            )
            .fetch_one(&mut *transaction)
            .await?;
            let added = if updated.rows_affected() > 0 || is_known {
                1
            } else {
                let inserted = sqlx::query!(
                    "INSERT INTO service_approvals (id, org_id, device_id, service, digest, definition, approved_by)
                     SELECT $1, $2, $3, $4, $5, $6, $7 FROM service_approvals WHERE org_id = $2
                     HAVING count(*) < $8 AND COALESCE(sum(octet_length(definition)), 0) + octet_length($6) <= $9",
                    Uuid::now_v7(),
                    org.uuid(),
                    device,
                    service,
                    digest.0.as_slice(),
                    definition.get(),
                    by,
                    i64::from(MAX_APPROVALS),
                    MAX_DEFINITION_BYTES
                );
                inserted.execute(&mut *transaction).await?.rows_affected()
            };
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(added > 0)
        })
        .await
    }

    /// The approvals of an organisation in the order of their ids, strictly after one, without what was approved.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn approvals(
        &self,
        org: OrgId,
        after: Option<ApprovalId>,
        limit: u32,
    ) -> Result<Vec<Approval>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id, service, device_id, digest, NULL::text AS definition, approved_at, approved_by
               FROM service_approvals WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
            org.uuid(),
            after.map_or(Uuid::nil(), ApprovalId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        rows.into_iter().map(Approval::try_from).collect()
    }

    /// An approval of an organisation, without what was approved.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn approval(
        &self,
        org: OrgId,
        id: ApprovalId,
    ) -> Result<Option<Approval>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id, service, device_id, digest, NULL::text AS definition, approved_at, approved_by
               FROM service_approvals WHERE org_id = $1 AND id = $2"#,
            org.uuid(),
            id.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        });
        row.await?.map(Approval::try_from).transpose()
    }

    /// Revokes an approval. False if the organisation has none with this id.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn revoke_approval(&self, org: OrgId, id: ApprovalId) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM service_approvals WHERE org_id = $1 AND id = $2",
            org.uuid(),
            id.uuid()
        );
        let revoked =
            with_timeout(async { query.execute(&mut *self.tenant_conn(org).await?).await }).await?;
        Ok(revoked.rows_affected() > 0)
    }
}
