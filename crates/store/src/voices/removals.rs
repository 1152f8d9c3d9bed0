//! What providers still have of voices that are gone: remembered until the provider has let go of it.
//! Never: a voice at a provider that no row names and nobody will remove.

use std::time::Duration;

use sqlx::PgConnection;
use switchboard_protocol::id::VoiceId;

use crate::{
    Store, StoreError,
    connections::speak_throughout,
    database::{bounded, interval},
};

/// Something that a provider has and should not have any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoiceLeftover {
    /// Who has it.
    pub provider: String,
    /// What its provider calls it, or the key that it was to be made under.
    pub made_as: String,
    /// Whether that is a key: what the provider calls it never arrived, if it has made it at all.
    pub is_key: bool,
}

impl Store {
    /// Takes up one that this provider should let go of. Nobody else does for so long; then it is tried again.
    ///
    /// # Errors
    /// As every query.
    pub async fn claim_voice_leftover(
        &self,
        provider: &str,
        lease: Duration,
    ) -> Result<Option<VoiceLeftover>, StoreError> {
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
            bounded(async { query.fetch_optional(&mut *self.throughout().await?).await }).await?;
        Ok(row.map(|row| VoiceLeftover {
            provider: row.provider,
            made_as: row.made_as,
            is_key: row.is_key,
        }))
    }

    /// Forgets what its provider has let go of.
    ///
    /// # Errors
    /// As every query.
    pub async fn forget_voice_leftover(&self, leftover: &VoiceLeftover) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "DELETE FROM voice_removals WHERE provider = $1 AND made_as = $2 AND is_key = $3",
            leftover.provider,
            leftover.made_as,
            leftover.is_key
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }
}

/// What each attempt at a making has in common, for its provider.
pub(super) fn making_key(id: VoiceId, making: i32) -> String {
    format!("{id}-{making}")
}

/// Has a provider let go of a voice: by what it calls it, else by the key that it was to be made under, if any. The last
/// thing of a transaction: it speaks for everyone then.
pub(super) async fn let_go(
    connection: &mut PgConnection,
    provider: &str,
    made_as: Option<&str>,
    key: Option<&str>,
) -> Result<(), sqlx::Error> {
    let Some(name) = made_as.or(key) else {
        return Ok(());
    };
    // Which organisation it was does not matter any more.
    speak_throughout(connection).await?;
    // Whoever is being told what it is called, under this key, has been told or has given up by then.
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
