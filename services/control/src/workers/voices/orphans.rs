//! Deletes voices at their provider after they were deleted here, one at a time.
//!
//! Invariant: the row of an orphan is deleted after the voice of the provider.

use std::time::Duration;

use switchboard_store::OrphanedVoice;

use super::{VoiceTraining, provider::ProviderError};

/// How long an orphan belongs to a worker: longer than both requests can take.
const ORPHAN_LEASE: Duration = Duration::from_secs(150);

impl VoiceTraining {
    /// Deletes one orphan, if there is one.
    pub(super) async fn delete_orphan(&self) -> Result<(), String> {
        let claim = self
            .store
            .claim_orphaned_voice(&self.provider, ORPHAN_LEASE);
        let Some(orphan) = claim.await.map_err(|error| error.report())? else {
            return Ok(());
        };
        let deleted = self.delete_at_provider(&orphan).await;
        deleted.map_err(|error| error.to_string())?;
        let deleted = self.store.remove_orphaned_voice(&orphan).await;
        deleted.map_err(|error| error.report())?;
        tracing::info!(provider = orphan.provider, "voice deleted at its provider");
        Ok(())
    }

    async fn delete_at_provider(&self, orphan: &OrphanedVoice) -> Result<(), ProviderError> {
        let provider = self.providers.get(&orphan.provider)?;
        if !orphan.is_key {
            return provider.delete(&orphan.made_as).await;
        }
        // The training may have started without a stored id; the provider finds it by its key.
        match provider.find(&orphan.made_as).await? {
            Some(made_as) => provider.delete(&made_as).await,
            None => Ok(()),
        }
    }
}
