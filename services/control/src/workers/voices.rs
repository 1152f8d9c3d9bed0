//! Trains voices in the background: claims a voice, sends its sample to its provider,
//! polls its status, and stores it.
//!
//! Invariant: no provider trains a voice whose consent has ended.

mod client;
mod http_provider;
mod openai_provider;
mod orphans;
mod provider;

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use switchboard_bus::Bus;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{
    JobTurn, ObjectError, Owner, Store, StoreError, VoiceFault, VoiceJob, VoiceState, VoiceStatus,
};
use uuid::Uuid;

use crate::{
    live_events,
    metrics::VoiceMetrics,
    workers::lease::{self, LeasedJob, MAX_ATTEMPTS, RETRY_BACKOFF, TASK_LEASE},
};
use provider::ProviderError;
pub(crate) use provider::{EMBEDDED_PROVIDER, Providers};

/// The maximum backoff after a failure of the provider; it doubles up to this value.
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// Consecutive failures of the provider until a training fails: about a day.
const MAX_FAILURES: i32 = 150;

/// The job that trains the voices of one provider.
pub(super) struct VoiceTraining {
    store: Store,
    bus: Bus,
    providers: Providers,
    provider: String,
    metrics: VoiceMetrics,
}

/// Why the status of a voice is unknown.
#[derive(Debug, thiserror::Error)]
enum TrainingError {
    /// The training fails; a retry fails, too.
    #[error("{}", .0.detail)]
    Fault(VoiceFault),
    /// The provider is unavailable, or its response is invalid.
    #[error("{0}")]
    Unavailable(String),
    /// A temporary failure on our side.
    #[error("{0}")]
    Retry(String),
}

impl From<ProviderError> for TrainingError {
    fn from(error: ProviderError) -> Self {
        match error {
            ProviderError::Unavailable(reason) => Self::Unavailable(reason),
            ProviderError::Rejected(fault) => Self::Fault(fault),
        }
    }
}

impl From<ObjectError> for TrainingError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Missing(_) => Self::Fault(sample_damaged()),
            other => Self::Retry(other.to_string()),
        }
    }
}

fn sample_damaged() -> VoiceFault {
    let detail = "The stored sample is missing or damaged; create the voice again.";
    VoiceFault::new("sample_damaged", detail)
}

const fn state_of(status: &VoiceStatus) -> VoiceState {
    match status {
        VoiceStatus::Training { .. } => VoiceState::Training,
        VoiceStatus::Ready { .. } => VoiceState::Ready,
        VoiceStatus::Failed(_) => VoiceState::Failed,
        VoiceStatus::Expired(_) => VoiceState::Expired,
    }
}

impl VoiceTraining {
    pub(super) fn new(
        (store, bus): (Store, Bus),
        providers: Providers,
        provider: String,
        metrics: VoiceMetrics,
    ) -> Self {
        Self {
            store,
            bus,
            providers,
            provider,
            metrics,
        }
    }

    /// The current status of the voice. Starts the training if the provider does not have it yet.
    async fn advance(&self, job: &VoiceJob) -> Result<VoiceStatus, TrainingError> {
        if job.consent_ended {
            return Ok(VoiceStatus::Expired(VoiceFault::consent_ended()));
        }
        if job.attempts > MAX_ATTEMPTS {
            let attempts = job.attempts.saturating_sub(1);
            let detail = format!("The training was interrupted {attempts} times.");
            return Err(TrainingError::Fault(VoiceFault::new("given_up", detail)));
        }
        let provider = self.providers.get(&job.provider)?;
        let status = match &job.made_as {
            Some(made_as) => provider.status(made_as).await?,
            None => {
                let key = job.training_key();
                provider.create(job, &key, self.sample(job).await?).await?
            }
        };
        Ok(status)
    }

    /// The sample, after a check of its hash.
    async fn sample(&self, job: &VoiceJob) -> Result<Bytes, TrainingError> {
        let objects = self.store.objects();
        let objects =
            objects.ok_or_else(|| TrainingError::Retry("there is no object store".to_owned()))?;
        let bytes = objects.get(&job.key()).await?;
        let copy = bytes.clone();
        let sha256 = tokio::task::spawn_blocking(move || Sha256::digest(&copy).to_vec()).await;
        match sha256 {
            Ok(sha256) if sha256 == job.sha256 => Ok(bytes),
            Ok(_) => Err(TrainingError::Fault(sample_damaged())),
            Err(_) => Err(TrainingError::Retry(
                "the sample could not be hashed".to_owned(),
            )),
        }
    }

    /// Stores the status and releases the voice.
    async fn record(
        &self,
        worker: Uuid,
        job: &VoiceJob,
        status: &VoiceStatus,
    ) -> Result<(), String> {
        let recorded = self.store.update_voice_status(worker, job, status).await;
        if !recorded.map_err(|error| error.report())? {
            tracing::info!(voice.id = %job.id, "lease of a voice lost");
            return Ok(());
        }
        if state_of(status) != job.state {
            live_events::voice_changed(&self.bus, job.owner, job.id, Some(state_of(status)));
        }
        match status {
            VoiceStatus::Training { .. } => {}
            VoiceStatus::Ready { .. } if job.state == VoiceState::Ready => {}
            VoiceStatus::Ready { .. } => {
                self.metrics.voices_ready.inc();
                tracing::info!(owner = %job.owner, voice.id = %job.id, "voice is ready");
            }
            VoiceStatus::Failed(fault) => {
                self.metrics.voices_failed.inc();
                tracing::info!(owner = %job.owner, voice.id = %job.id, fault.kind, "voice training failed");
            }
            VoiceStatus::Expired(fault) => {
                self.metrics.voices_expired.inc();
                tracing::info!(owner = %job.owner, voice.id = %job.id, fault.kind, "voice expired");
            }
        }
        Ok(())
    }

    /// Releases a voice whose provider failed, with a growing backoff. Too many
    /// failures end the training.
    async fn postpone(&self, worker: Uuid, job: &VoiceJob, reason: String) -> Result<(), String> {
        let failures = job.failures.saturating_add(1);
        if failures >= MAX_FAILURES && job.state != VoiceState::Ready {
            let detail =
                format!("The provider was unavailable {failures} times in a row, for about a day.");
            let fault = VoiceFault::new("provider_away", detail);
            self.record(worker, job, &VoiceStatus::Failed(fault))
                .await?;
            return Err(reason);
        }
        let doublings = job.failures.clamp(0, 7).unsigned_abs();
        let backoff = RETRY_BACKOFF
            .saturating_mul(1 << doublings)
            .min(MAX_BACKOFF);
        let _ = self
            .store
            .release_voice(worker, job.id, backoff, failures)
            .await;
        Err(reason)
    }
}

impl LeasedJob for VoiceTraining {
    type Task = VoiceJob;
    const NAME: &'static str = "voices";

    async fn claim(
        &self,
        worker: Uuid,
        turn: &mut JobTurn,
    ) -> Result<Option<VoiceJob>, StoreError> {
        self.store
            .claim_voice(worker, TASK_LEASE, &self.provider, turn)
            .await
    }

    fn owner(job: &VoiceJob) -> Owner {
        job.owner
    }

    async fn release(&self, worker: Uuid, job: &VoiceJob) {
        let released = self
            .store
            .release_voice(worker, job.id, Duration::ZERO, job.failures);
        let _ = released.await;
    }

    async fn process(
        &self,
        worker: Uuid,
        job: &VoiceJob,
        shutdown: &Shutdown,
    ) -> Result<(), String> {
        let (id, store) = (job.id, &self.store);
        let status = tokio::select! {
            status = self.advance(job) => status,
            () = lease::renew_until_lost(|| store.renew_voice(worker, id, TASK_LEASE)) => return Ok(()),
            () = shutdown.draining() => {
                self.release(worker, job).await;
                return Ok(());
            }
        };
        match status {
            Ok(status) => self.record(worker, job, &status).await,
            Err(TrainingError::Fault(fault)) => {
                self.record(worker, job, &VoiceStatus::Failed(fault)).await
            }
            Err(TrainingError::Unavailable(reason)) => self.postpone(worker, job, reason).await,
            Err(TrainingError::Retry(reason)) => {
                // If the release fails, the lease expires.
                let _ = store
                    .release_voice(worker, id, RETRY_BACKOFF, job.failures)
                    .await;
                Err(reason)
            }
        }
    }

    async fn idle(&mut self) {
        if let Err(reason) = self.delete_orphan().await {
            tracing::warn!(
                reason,
                "deleted voice cannot be deleted at its provider; retrying"
            );
        }
    }
}
