//! What a provider still has of voices that nobody has any more: it is told to let go of them, one at a time.
//! Never: one forgotten that is still there, or one that is looked for only by what its provider calls it.

use std::time::Duration;

use switchboard_store::VoiceLeftover;

use super::{Maker, provider::ProviderError};

/// How long this may take, both requests together, before somebody tries again.
const LETTING_GO: Duration = Duration::from_secs(150);

impl Maker {
    /// Has the provider let go of one, if there is one.
    pub(super) async fn let_go(&self) -> Result<(), String> {
        let claim = self.store.claim_voice_leftover(&self.provider, LETTING_GO);
        let Some(leftover) = claim.await.map_err(|error| error.report())? else {
            return Ok(());
        };
        let removed = self.remove(&leftover).await;
        removed.map_err(|error| error.to_string())?;
        let forgotten = self.store.forget_voice_leftover(&leftover).await;
        forgotten.map_err(|error| error.report())?;
        tracing::info!(provider = leftover.provider, "a provider let go of a voice");
        Ok(())
    }

    async fn remove(&self, leftover: &VoiceLeftover) -> Result<(), ProviderError> {
        let provider = self.providers.get(&leftover.provider)?;
        if !leftover.is_key {
            return provider.remove(&leftover.made_as).await;
        }
        // Asked again under the same key, it says what it called the voice, if it has begun one.
        match provider.find(&leftover.made_as).await? {
            Some(made_as) => provider.remove(&made_as).await,
            None => Ok(()),
        }
    }
}
