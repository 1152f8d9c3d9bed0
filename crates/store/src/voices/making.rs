//! Who asks providers for which voice, and what they say: a lease that is renewed, and a time for the next question.
//! Never: a word from a worker whose voice somebody else asks for now.

use std::time::Duration;

use switchboard_protocol::id::VoiceId;
use uuid::Uuid;

use super::{
    VoiceFault, VoiceSettings, VoiceState,
    removals::{let_go, making_key},
};
use crate::{
    Store, StoreError,
    database::{bounded, interval},
    objects::ObjectKey,
    owner::Owner,
};

/// A voice that a worker has to itself until its lease ends.
#[derive(Debug, Clone)]
pub struct VoiceJob {
    /// Which voice.
    pub id: VoiceId,
    /// Whose it is.
    pub owner: Owner,
    /// What it is called and speaks.
    pub settings: VoiceSettings,
    /// Who makes it.
    pub provider: String,
    /// How often it has been begun to be made from the start, this time included.
    pub making: i32,
    /// What its provider calls it, once it has said so.
    pub made_as: Option<String>,
    /// How far it is.
    pub state: VoiceState,
    /// What the sample is.
    pub mime_type: String,
    /// Of the sample.
    pub sha256: Vec<u8>,
    /// Whether it may not be used any more.
    pub consent_ended: bool,
    /// How often it was asked for since its provider said something last, this time included.
    pub attempts: i32,
    /// How often since then its provider did not answer as agreed.
    pub failures: i32,
}

/// What is known of a voice from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoiceStanding {
    /// Its provider is making it; it is asked again after a while.
    Training {
        /// What the provider calls it.
        made_as: String,
        /// After how long.
        next: Duration,
    },
    /// It can be spoken with; its provider is asked again after a while, if ever.
    Ready {
        /// What the provider calls it.
        made_as: Option<String>,
        /// After how long.
        next: Option<Duration>,
    },
    /// It could not be made.
    Failed(VoiceFault),
    /// It cannot be spoken with any more.
    Expired(VoiceFault),
}

impl VoiceJob {
    /// Where its sample is in the object store.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::voice(self.owner, self.id)
    }

    /// What each attempt at this making has in common, for its provider.
    #[must_use]
    pub fn making_key(&self) -> String {
        making_key(self.id, self.making)
    }
}

impl Store {
    /// Takes over a voice that this provider has to be asked for and that nobody asks for.
    ///
    /// # Errors
    /// As every query.
    pub async fn claim_voice(
        &self,
        worker: Uuid,
        lease: Duration,
        provider: &str,
    ) -> Result<Option<VoiceJob>, StoreError> {
        let query = sqlx::query!(
            r#"UPDATE voices
               SET worker = $1, due_at = now() + $2::interval, attempts = attempts + 1,
                   updated_at = CASE WHEN state = 'uploaded' THEN now() ELSE updated_at END,
                   state = CASE WHEN state = 'uploaded' THEN 'training' ELSE state END
               WHERE id = (SELECT id FROM voices WHERE due_at <= now() AND provider = $3
                           ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
               RETURNING id, org_id, name, languages, labels, provider, making, made_as, mime_type, sha256, attempts, failures,
                         state, coalesce(consent_expires_at <= now(), false) AS "consent_ended!""#,
            worker,
            interval(lease),
            provider
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.throughout().await?).await }).await?;
        Ok(row.map(|row| VoiceJob {
            id: VoiceId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            settings: VoiceSettings {
                name: row.name,
                languages: row.languages,
                labels: row.labels,
            },
            provider: row.provider,
            making: row.making,
            made_as: row.made_as,
            state: VoiceState::from_column(&row.state),
            mime_type: row.mime_type,
            sha256: row.sha256,
            consent_ended: row.consent_ended,
            attempts: row.attempts,
            failures: row.failures,
        }))
    }

    /// Keeps a voice for longer; false when it is not this worker's any more.
    ///
    /// # Errors
    /// As every query.
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
        let renewed =
            bounded(async { query.execute(&mut *self.throughout().await?).await }).await?;
        Ok(renewed.rows_affected() > 0)
    }

    /// Gives a voice back as it was, for anybody to take after a while; this attempt does not count. So often its provider
    /// has not answered as agreed by now.
    ///
    /// # Errors
    /// As every query.
    pub async fn release_voice(
        &self,
        worker: Uuid,
        id: VoiceId,
        after: Duration,
        failures: i32,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE voices SET worker = NULL, due_at = now() + $3::interval, attempts = greatest(attempts - 1, 0), failures = $4
             WHERE id = $1 AND worker = $2",
            id.uuid(),
            worker,
            interval(after),
            failures
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }

    /// Writes down what its provider said of a voice; false when it is not this worker's any more. What the provider
    /// made and nobody speaks with any more, it is to let go of, also when it never said what it calls it.
    ///
    /// # Errors
    /// As every query.
    pub async fn settle_voice(
        &self,
        worker: Uuid,
        job: &VoiceJob,
        standing: &VoiceStanding,
    ) -> Result<bool, StoreError> {
        let (state, made_as, next, fault) = match standing {
            VoiceStanding::Training { made_as, next } => {
                ("training", Some(made_as), Some(*next), None)
            }
            VoiceStanding::Ready { made_as, next } => ("ready", made_as.as_ref(), *next, None),
            VoiceStanding::Failed(fault) => ("failed", None, None, Some(fault)),
            VoiceStanding::Expired(fault) => ("expired", None, None, Some(fault)),
        };
        bounded(async {
            let mut transaction = self.begin_throughout().await?;
            // A voice that can be spoken with is also due when its consent ends; least() passes nulls over.
            let settled = sqlx::query!(
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
            let is_settled = settled.rows_affected() > 0;
            let is_unheard = is_settled && fault.is_some() && job.made_as.is_none();
            let key = is_unheard.then(|| job.making_key());
            let left = if is_settled {
                job.made_as.as_ref().filter(|before| Some(*before) != made_as)
            } else {
                // Who asks for it in the same making is told the same name, and may be speaking with it.
                let same = sqlx::query_scalar!(
                    "SELECT id FROM voices WHERE id = $1 AND making = $2",
                    job.id.uuid(),
                    job.making
                )
                .fetch_optional(&mut *transaction)
                .await?;
                made_as.filter(|_| same.is_none())
            };
            let left = left.map(String::as_str);
            let_go(&mut transaction, &job.provider, left, key.as_deref()).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(is_settled)
        })
        .await
    }
}
