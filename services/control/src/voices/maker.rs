//! Has voices made in the background: claims one, sends its sample to its provider, asks how far it is, and writes that down.
//! Never: a voice asked for after its consent has ended, or two workers on one voice.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{
    ObjectError, Store, StoreError, VoiceFault, VoiceJob, VoiceStanding, VoiceState,
};
use uuid::Uuid;

use super::provider::{ProviderError, Providers};
use crate::{
    leases::{self, LEASE, Labour, MOST_ATTEMPTS, REST},
    metrics::VoiceMetrics,
};

/// The longest rest of a voice whose provider does not answer as agreed; it doubles up to there.
const LONGEST_REST: Duration = Duration::from_secs(600);
/// How often in a row it may not do so until a voice that it is to make is given up: after about a day.
const MOST_FAILURES: i32 = 150;

/// The making of one provider's voices.
pub(crate) struct Maker {
    pub(super) store: Store,
    pub(super) providers: Providers,
    pub(super) provider: String,
    metrics: VoiceMetrics,
}

/// Why nothing is known of a voice.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// It could not be made, whoever tries.
    #[error("{}", .0.detail)]
    Fault(VoiceFault),
    /// Its provider does not answer as agreed.
    #[error("{0}")]
    Away(String),
    /// It may be made another time, and its provider has no part in it.
    #[error("{0}")]
    Later(String),
}

impl From<ProviderError> for Stop {
    fn from(error: ProviderError) -> Self {
        match error {
            ProviderError::Away(reason) => Self::Away(reason),
            ProviderError::Refused(fault) => Self::Fault(fault),
        }
    }
}

impl From<ObjectError> for Stop {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Missing(_) => Self::Fault(damaged()),
            other => Self::Later(other.to_string()),
        }
    }
}

fn damaged() -> VoiceFault {
    let detail = "The sample is not there any more as it was sent; send the voice again.";
    VoiceFault::new("sample_damaged", detail)
}

impl Maker {
    pub(crate) const fn new(
        store: Store,
        providers: Providers,
        provider: String,
        metrics: VoiceMetrics,
    ) -> Self {
        Self {
            store,
            providers,
            provider,
            metrics,
        }
    }

    /// What is known of the voice now.
    async fn ask(&self, job: &VoiceJob) -> Result<VoiceStanding, Stop> {
        if job.consent_ended {
            return Ok(VoiceStanding::Expired(VoiceFault::consent_ended()));
        }
        if job.attempts > MOST_ATTEMPTS {
            let tried = job.attempts.saturating_sub(1);
            let detail = format!("The making of it was interrupted {tried} times.");
            return Err(Stop::Fault(VoiceFault::new("given_up", detail)));
        }
        let provider = self.providers.get(&job.provider)?;
        let standing = match &job.made_as {
            Some(made_as) => provider.status(made_as).await?,
            None => {
                let key = job.making_key();
                provider.make(job, &key, self.sample(job).await?).await?
            }
        };
        Ok(standing)
    }

    /// The sample, if it is what was sent.
    async fn sample(&self, job: &VoiceJob) -> Result<Bytes, Stop> {
        let objects = self.store.objects();
        let objects = objects.ok_or_else(|| Stop::Later("there is no object store".to_owned()))?;
        let bytes = objects.get(&job.key()).await?;
        let hashed = bytes.clone();
        let sha256 = tokio::task::spawn_blocking(move || Sha256::digest(&hashed).to_vec()).await;
        match sha256 {
            Ok(sha256) if sha256 == job.sha256 => Ok(bytes),
            Ok(_) => Err(Stop::Fault(damaged())),
            Err(_) => Err(Stop::Later("the sample could not be hashed".to_owned())),
        }
    }

    async fn settle(
        &self,
        name: Uuid,
        job: &VoiceJob,
        standing: &VoiceStanding,
    ) -> Result<(), String> {
        let settled = self.store.settle_voice(name, job, standing).await;
        if !settled.map_err(|error| error.report())? {
            tracing::info!(voice.id = %job.id, "a voice is made no further here");
            return Ok(());
        }
        match standing {
            VoiceStanding::Training { .. } => {}
            VoiceStanding::Ready { .. } if job.state == VoiceState::Ready => {}
            VoiceStanding::Ready { .. } => {
                self.metrics.voices_ready.inc();
                tracing::info!(owner = %job.owner, voice.id = %job.id, "a voice is ready");
            }
            VoiceStanding::Failed(fault) => {
                self.metrics.voices_failed.inc();
                tracing::info!(owner = %job.owner, voice.id = %job.id, fault.kind, "a voice could not be made");
            }
            VoiceStanding::Expired(fault) => {
                self.metrics.voices_expired.inc();
                tracing::info!(owner = %job.owner, voice.id = %job.id, fault.kind, "a voice has expired");
            }
        }
        Ok(())
    }

    /// Gives back a voice whose provider does not answer as agreed: for longer each time, and not for ever.
    async fn wait(&self, name: Uuid, job: &VoiceJob, reason: String) -> Result<(), String> {
        let failures = job.failures.saturating_add(1);
        if failures >= MOST_FAILURES && job.state != VoiceState::Ready {
            let detail = format!(
                "The provider did not answer as agreed {failures} times in a row, for about a day."
            );
            let fault = VoiceFault::new("provider_away", detail);
            self.settle(name, job, &VoiceStanding::Failed(fault))
                .await?;
            return Err(reason);
        }
        let doublings = job.failures.clamp(0, 7).unsigned_abs();
        let rest = REST.saturating_mul(1 << doublings).min(LONGEST_REST);
        let _ = self.store.release_voice(name, job.id, rest, failures).await;
        Err(reason)
    }
}

impl Labour for Maker {
    type Job = VoiceJob;
    const WHAT: &'static str = "voices";

    async fn claim(&self, name: Uuid) -> Result<Option<VoiceJob>, StoreError> {
        self.store.claim_voice(name, LEASE, &self.provider).await
    }

    async fn work(&self, name: Uuid, job: &VoiceJob, shutdown: &Shutdown) -> Result<(), String> {
        let (id, store) = (job.id, &self.store);
        let asked = tokio::select! {
            asked = self.ask(job) => asked,
            () = leases::keep(|| store.renew_voice(name, id, LEASE)) => return Ok(()),
            () = shutdown.draining() => {
                let _ = store.release_voice(name, id, Duration::ZERO, job.failures).await;
                return Ok(());
            }
        };
        match asked {
            Ok(standing) => self.settle(name, job, &standing).await,
            Err(Stop::Fault(fault)) => self.settle(name, job, &VoiceStanding::Failed(fault)).await,
            Err(Stop::Away(reason)) => self.wait(name, job, reason).await,
            Err(Stop::Later(reason)) => {
                // When this does not arrive either, the lease ends by itself.
                let _ = store.release_voice(name, id, REST, job.failures).await;
                Err(reason)
            }
        }
    }

    async fn idle(&mut self) {
        if let Err(reason) = self.let_go().await {
            tracing::warn!(
                reason,
                "a provider has not let go of a voice; it is asked again"
            );
        }
    }
}
