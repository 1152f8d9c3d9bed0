//! Voices to be deleted at their providers.
//! Invariant: a provider's voice is either referred to by a row of `voices`, or listed here until
//! its provider has deleted it.

use std::time::Duration;

use sqlx::PgConnection;
use switchboard_protocol::id::VoiceId;

use crate::{
    Store, StoreError,
    database::{connections::set_local_system, interval, with_timeout},
};

/// A provider's voice that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedVoice {
    /// The provider.
    pub provider: String,
    /// The provider's id of the voice, or the idempotency key of its training.
    pub made_as: String,
    /// Whether `made_as` is that key: the id never arrived, if the voice exists at all.
    pub is_key: bool,
}

impl Store {
    /// Claims a voice for deletion at this provider. It is due again after `lease`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_orphaned_voice(
        &self,
        provider: &str,
        lease: Duration,
    ) -> Result<Option<OrphanedVoice>, StoreError> {
        let query = sqlx::query!(
            "UPDATE voice_removals SET due_at = now() + $2::interval
             WHERE (provider, made_as, is_key) = (SELECT provider, made_as, is_key FROM voice_removals
                                                  WHERE due_at <= now() AND provider = $1
                                                  ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING provider, made_as, is_key",
            provider,
            interval(lease)
        );
        let row =
            with_timeout(async { query.fetch_optional(&mut *self.system_conn().await?).await })
                .await?;
        Ok(row.map(|row| OrphanedVoice {
            provider: row.provider,
            made_as: row.made_as,
            is_key: row.is_key,
        }))
    }

    /// Removes an entry after the provider has deleted the voice.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn remove_orphaned_voice(&self, voice: &OrphanedVoice) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "DELETE FROM voice_removals WHERE provider = $1 AND made_as = $2 AND is_key = $3",
            voice.provider,
            voice.made_as,
            voice.is_key
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }
}

/// The provider's idempotency key of a training.
pub(super) fn training_key(id: VoiceId, training: i32) -> String {
    format!("{id}-{training}")
}

/// Schedules the deletion of a provider's voice: by its id, otherwise by the key of its training,
/// if any. Must be the last statement of a transaction: it widens the scope to all organisations.
pub(super) async fn schedule_deletion(
    connection: &mut PgConnection,
    provider: &str,
    made_as: Option<&str>,
    key: Option<&str>,
) -> Result<(), sqlx::Error> {
    let Some(name) = made_as.or(key) else {
        return Ok(());
    };
    // The list belongs to the installation.
    set_local_system(connection).await?;
    // A worker that is waiting for the id under this key has received it, or has given up, by then.
    sqlx::query!(
        "INSERT INTO voice_removals (provider, made_as, is_key, due_at)
         VALUES ($1, $2, $3, now() + CASE WHEN $3 THEN interval '2 minutes' ELSE interval '0' END)
         ON CONFLICT DO NOTHING",
        provider,
        name,
        made_as.is_none()
    )
    .execute(connection)
    .await
    .map(drop)
}
