//! Training of voices by workers: leases, and the time of the next request to the provider.
//! Invariant: a worker whose lease was taken over can no longer write.

use std::time::Duration;

use switchboard_protocol::id::VoiceId;
use uuid::Uuid;

use super::{
    VoiceFault, VoiceSettings, VoiceState,
    deletions::{schedule_deletion, training_key},
};
use crate::{
    Owner, Store, StoreError,
    database::{interval, job_turn::JobTurn, with_timeout},
    media::objects::ObjectKey,
};

/// A voice that is leased to a worker.
#[derive(Debug, Clone)]
pub struct VoiceJob {
    /// Its id.
    pub id: VoiceId,
    /// Its owner.
    pub owner: Owner,
    /// Its settings.
    pub settings: VoiceSettings,
    /// The provider that trains it.
    pub provider: String,
    /// The number of the current training, from 1.
    pub training: i32,
    /// The provider's id of the voice, once known.
    pub made_as: Option<String>,
    /// Its state.
    pub state: VoiceState,
    /// The media type of the sample.
    pub mime_type: String,
    /// The SHA-256 of the sample.
    pub sha256: Vec<u8>,
    /// Whether the consent has ended.
    pub consent_ended: bool,
    /// Number of attempts since the provider's last answer, this one included.
    pub attempts: i32,
    /// Number of invalid answers of the provider since then.
    pub failures: i32,
}

/// The status of a voice at its provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoiceStatus {
    /// The provider is training it.
    Training {
        /// The provider's id of the voice.
        made_as: String,
        /// Time until the next request.
        next: Duration,
    },
    /// It can be used.
    Ready {
        /// The provider's id of the voice.
        made_as: Option<String>,
        /// Time until the next request, if there is one.
        next: Option<Duration>,
    },
    /// The training failed.
    Failed(VoiceFault),
    /// It can no longer be used.
    Expired(VoiceFault),
}

impl VoiceJob {
    /// The object key of its sample.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::voice(self.owner, self.id)
    }

    /// The provider's idempotency key of this training.
    #[must_use]
    pub fn training_key(&self) -> String {
        training_key(self.id, self.training)
    }
}

impl Store {
    /// Claims a voice of this provider that is due and not leased, of the owner whose turn it is.
    /// Voices of suspended organisations wait, except for the end of their consent.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_voice(
        &self,
        worker: Uuid,
        lease: Duration,
        provider: &str,
        turn: &mut JobTurn,
    ) -> Result<Option<VoiceJob>, StoreError> {
        loop {
            if let Some(job) = self.claim_next_voice(worker, lease, provider, turn).await? {
                turn.served(job.owner);
                return Ok(Some(job));
            }
            if !turn.restart() {
                return Ok(None);
            }
        }
    }

    async fn claim_next_voice(
        &self,
        worker: Uuid,
        lease: Duration,
        provider: &str,
        turn: &JobTurn,
    ) -> Result<Option<VoiceJob>, StoreError> {
        // As for skills books. Most voices are not due: the walk begins only if one is.
        let query = sqlx::query!(
            r#"WITH RECURSIVE owners AS (
                 (SELECT coalesce(org_id, '00000000-0000-0000-0000-000000000000') AS owner FROM voices
                  WHERE provider = $3 AND due_at IS NOT NULL
                    AND coalesce(org_id, '00000000-0000-0000-0000-000000000000') >= $4
                    AND EXISTS (SELECT FROM voices WHERE due_at <= now())
                  ORDER BY coalesce(org_id, '00000000-0000-0000-0000-000000000000') LIMIT 1)
                 UNION ALL
                 SELECT (SELECT coalesce(org_id, '00000000-0000-0000-0000-000000000000') FROM voices
                         WHERE provider = $3 AND due_at IS NOT NULL
                           AND coalesce(org_id, '00000000-0000-0000-0000-000000000000') > owners.owner
                         ORDER BY coalesce(org_id, '00000000-0000-0000-0000-000000000000') LIMIT 1)
                 FROM owners WHERE owners.owner IS NOT NULL),
               next AS (
                 SELECT voice.id AS voice_id FROM owners
                 CROSS JOIN LATERAL (
                   SELECT id FROM voices
                   WHERE provider = $3 AND coalesce(org_id, '00000000-0000-0000-0000-000000000000') = owners.owner
                     AND due_at <= now()
                     AND (owners.owner <> ALL (ARRAY(SELECT id FROM orgs WHERE suspended_at IS NOT NULL)) OR consent_expires_at <= now())
                   ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) voice
                 WHERE owners.owner <> ALL ($5) LIMIT 1)
               UPDATE voices
               SET worker = $1, due_at = now() + $2::interval, attempts = attempts + 1,
                   updated_at = CASE WHEN state = 'uploaded' THEN now() ELSE updated_at END,
                   state = CASE WHEN state = 'uploaded' THEN 'training' ELSE state END
               WHERE id = (SELECT voice_id FROM next)
               RETURNING id, org_id, name, languages, labels, provider, making, made_as, mime_type, sha256, attempts, failures,
                         state, coalesce(consent_expires_at <= now(), false) AS "consent_ended!""#,
            worker,
            interval(lease),
            provider,
            turn.first(),
            turn.busy()
        );
        let row =
            with_timeout(async { query.fetch_optional(&mut *self.system_conn().await?).await })
                .await?;
        Ok(row.map(|row| VoiceJob {
            id: VoiceId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            settings: VoiceSettings {
                name: row.name,
                languages: row.languages,
                labels: row.labels,
            },
            provider: row.provider,
            training: row.making,
            made_as: row.made_as,
            state: VoiceState::from_column(&row.state),
            mime_type: row.mime_type,
            sha256: row.sha256,
            consent_ended: row.consent_ended,
            attempts: row.attempts,
            failures: row.failures,
        }))
    }

    /// Extends the lease; false if the voice is no longer leased to this worker.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn renew_voice(
        &self,
        worker: Uuid,
        id: VoiceId,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "UPDATE voices SET due_at = now() + $3::interval WHERE id = $1 AND worker = $2",
            id.uuid(),
            worker,
            interval(lease)
        );
        self.execute_leased(query).await
    }

    /// Releases a voice unchanged for other workers after `delay`; this attempt does not count.
    /// `failures` is the number of invalid answers of the provider.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn release_voice(
        &self,
        worker: Uuid,
        id: VoiceId,
        delay: Duration,
        failures: i32,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE voices SET worker = NULL, due_at = now() + $3::interval, attempts = greatest(attempts - 1, 0), failures = $4
             WHERE id = $1 AND worker = $2",
            id.uuid(),
            worker,
            interval(delay),
            failures
        );
        self.execute_leased(query).await.map(drop)
    }

    /// Writes the provider's status of a voice; false if it is no longer leased to this worker. A
    /// provider's voice that is no longer used is scheduled for deletion, by its id or by the key
    /// of its training.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn update_voice_status(
        &self,
        worker: Uuid,
        job: &VoiceJob,
        status: &VoiceStatus,
    ) -> Result<bool, StoreError> {
        let (state, made_as, next, fault) = match status {
            VoiceStatus::Training { made_as, next } => {
                ("training", Some(made_as), Some(*next), None)
            }
            VoiceStatus::Ready { made_as, next } => ("ready", made_as.as_ref(), *next, None),
            VoiceStatus::Failed(fault) => ("failed", None, None, Some(fault)),
            VoiceStatus::Expired(fault) => ("expired", None, None, Some(fault)),
        };
        with_timeout(async {
            let mut transaction = self.begin_system().await?;
            // A ready voice is also due when its consent ends; least() ignores nulls.
            let updated = sqlx::query!(
                "UPDATE voices
                 SET state = $3, made_as = $4, error_kind = $6, error_detail = $7, worker = NULL, attempts = 0, failures = 0,
                     due_at = CASE WHEN $6::text IS NULL THEN least(now() + $5::interval, consent_expires_at) END,
                     updated_at = CASE WHEN state = $3 THEN updated_at ELSE now() END
                 WHERE id = $1 AND worker = $2",
                job.id.uuid(),
                worker,
                state,
                made_as,
                next.map(interval),
                fault.map(|fault| &fault.kind),
                fault.map(|fault| &fault.detail)
            )
            .execute(&mut *transaction)
            .await?;
            let is_updated = updated.rows_affected() > 0;
            let id_is_unknown = is_updated && fault.is_some() && job.made_as.is_none();
            let key = id_is_unknown.then(|| job.training_key());
            let obsolete = if is_updated {
                job.made_as.as_ref().filter(|previous| Some(*previous) != made_as)
            } else {
                // Another worker of the same training receives the same id, and may be using it.
                let current = sqlx::query_scalar!(
                    "SELECT id FROM voices WHERE id = $1 AND making = $2",
                    job.id.uuid(),
                    job.training
                )
                .fetch_optional(&mut *transaction)
                .await?;
                made_as.filter(|_| current.is_none())
            };
            let obsolete = obsolete.map(String::as_str);
            schedule_deletion(&mut transaction, &job.provider, obsolete, key.as_deref()).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(is_updated)
        })
        .await
    }
}
