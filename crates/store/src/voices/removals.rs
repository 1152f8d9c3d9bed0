//! What providers still have of voices that are gone: remembered until the provider has let go of it.
//! Never: a voice at a provider that no row names and nobody will remove.

use std::time::Duration;

use sqlx::PgConnection;

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
    /// What its provider calls it.
    pub made_as: String,
}

impl Store {
    /// Takes up one that one of these providers should let go of. Nobody else does for so long; then it is tried again.
    ///
    /// # Errors
    /// As every query.
    pub async fn claim_voice_leftover(
        &self,
        providers: &[String],
        lease: Duration,
    ) -> Result<Option<VoiceLeftover>, StoreError> {
        let query = sqlx::query!(
            "UPDATE voice_removals SET due_at = now() + $2::interval
             WHERE (provider, made_as) = (SELECT provider, made_as FROM voice_removals
                                          WHERE due_at <= now() AND provider = ANY ($1)
                                          ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING provider, made_as",
            providers,
            interval(lease)
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.throughout().await?).await }).await?;
        Ok(row.map(|row| VoiceLeftover {
            provider: row.provider,
            made_as: row.made_as,
        }))
    }

    /// Forgets what its provider has let go of.
    ///
    /// # Errors
    /// As every query.
    pub async fn forget_voice_leftover(&self, leftover: &VoiceLeftover) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "DELETE FROM voice_removals WHERE provider = $1 AND made_as = $2",
            leftover.provider,
            leftover.made_as
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }
}

/// Has a provider let go of a voice, if it has one. The last thing of a transaction: it speaks for everyone then.
pub(super) async fn let_go(
    connection: &mut PgConnection,
    provider: &str,
    made_as: Option<&str>,
) -> Result<(), sqlx::Error> {
    let Some(made_as) = made_as else {
        return Ok(());
    };
    // Which organisation it was does not matter any more.
    speak_throughout(connection).await?;
    sqlx::query!(
        "INSERT INTO voice_removals (provider, made_as) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        provider,
        made_as
    )
    .execute(connection)
    .await
    .map(drop)
}
