//! Quotas of organisations: the defaults, their publication, and the admission of requests.

use std::collections::BTreeMap;

use switchboard_bus::QuotaLimits;
use switchboard_runtime::quota::{Limits, MAX_LIMIT, Quota};
use switchboard_store::{Owner, Store, StoreError};

use crate::{Control, http::error::ControlError};

/// The quotas of organisations for which the operator set none.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct QuotaConfig {
    /// Quota of connected devices, for each organisation. As of every quota, 0 is unlimited, and
    /// `PATCH /v1/orgs/{id}` replaces it for one organisation
    #[arg(long, env, value_name = "COUNT", default_value_t = Self::DEFAULT.quota_devices_connected, value_parser = limit())]
    pub quota_devices_connected: u64,

    /// Quota of devices that have ever connected. At the quota, no tokens are issued for further
    /// ones
    #[arg(long, env, value_name = "COUNT", default_value_t = Self::DEFAULT.quota_devices_known, value_parser = limit())]
    pub quota_devices_known: u64,

    /// Quota of bytes of pictures, voice samples, skills books and recordings
    #[arg(long, env, value_name = "BYTES", default_value_t = Self::DEFAULT.quota_object_bytes, value_parser = limit())]
    pub quota_object_bytes: u64,

    /// Quota of templates, NPCs, memories, pictures, skills books, voices and webhooks together
    #[arg(long, env, value_name = "COUNT", default_value_t = Self::DEFAULT.quota_settings, value_parser = limit())]
    pub quota_settings: u64,

    /// Quota of API keys that are neither revoked nor expired
    #[arg(long, env, value_name = "COUNT", default_value_t = Self::DEFAULT.quota_api_keys, value_parser = limit())]
    pub quota_api_keys: u64,

    /// Quota of access tokens that have not expired, revoked ones included. Protects the memory of
    /// all nodes, which store each revocation until then
    #[arg(long, env, value_name = "COUNT", default_value_t = Self::DEFAULT.quota_live_tokens, value_parser = limit())]
    pub quota_live_tokens: u64,

    /// Quota of bytes of stored results of calls. At the quota, no call is accepted whose result
    /// is stored
    #[arg(long, env, value_name = "BYTES", default_value_t = Self::DEFAULT.quota_stored_result_bytes, value_parser = limit())]
    pub quota_stored_result_bytes: u64,

    /// Quota of turns of conversations in a day, which begins at midnight UTC
    #[arg(long, env, value_name = "COUNT", default_value_t = Self::DEFAULT.quota_turns_per_day, value_parser = limit())]
    pub quota_turns_per_day: u64,

    /// Quota of the cost of language models in such a day, at the prices of `--models`
    #[arg(long, env, value_name = "COST", default_value_t = Self::DEFAULT.quota_model_cost_per_day, value_parser = cost)]
    pub quota_model_cost_per_day: f64,

    /// Quota of minutes of speech in such a day: recognised utterances, and answers that were spoken
    #[arg(long, env, value_name = "MINUTES", default_value_t = Self::DEFAULT.quota_speech_minutes_per_day, value_parser = minutes())]
    pub quota_speech_minutes_per_day: u64,

    /// Seconds between measurements of an organisation for warnings of its quotas; each process
    /// takes a part of the organisations
    #[arg(long, env, value_name = "S", default_value_t = Self::DEFAULT.quota_check_interval_s, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub quota_check_interval_s: u32,
}

impl QuotaConfig {
    /// The values without flags.
    pub const DEFAULT: Self = Self {
        quota_devices_connected: 100_000,
        quota_devices_known: 200_000,
        quota_object_bytes: 10 * 1024 * 1024 * 1024,
        quota_settings: 100_000,
        quota_api_keys: 1_000,
        quota_live_tokens: 200_000,
        quota_stored_result_bytes: 1024 * 1024 * 1024,
        quota_turns_per_day: 100_000,
        quota_model_cost_per_day: 0.0,
        quota_speech_minutes_per_day: 10_000,
        quota_check_interval_s: 300,
    };

    pub(crate) fn limits(&self) -> Limits {
        let cost = Quota::ModelCostPerDay.from_number(self.quota_model_cost_per_day);
        let minutes = self.quota_speech_minutes_per_day;
        let speech = minutes.saturating_mul(Quota::SpeechMinutesPerDay.unit());
        Limits(BTreeMap::from([
            (Quota::DevicesConnected, self.quota_devices_connected),
            (Quota::DevicesKnown, self.quota_devices_known),
            (Quota::ObjectBytes, self.quota_object_bytes),
            (Quota::Settings, self.quota_settings),
            (Quota::ApiKeys, self.quota_api_keys),
            (Quota::LiveTokens, self.quota_live_tokens),
            (Quota::StoredResultBytes, self.quota_stored_result_bytes),
            (Quota::TurnsPerDay, self.quota_turns_per_day),
            // The parser of the flag rejects others.
            (Quota::ModelCostPerDay, cost.unwrap_or_default()),
            (Quota::SpeechMinutesPerDay, speech),
        ]))
    }
}

fn limit() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(0..=MAX_LIMIT)
}

fn minutes() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(0..=MAX_LIMIT / Quota::SpeechMinutesPerDay.unit())
}

fn cost(text: &str) -> Result<f64, String> {
    let cost: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    let limit = Quota::ModelCostPerDay.from_number(cost);
    limit.map(|_| cost).map_err(|reason| format!("it {reason}"))
}

/// The quotas of all organisations, with these defaults, and the settings that all nodes need.
///
/// # Errors
/// [`StoreError`] if the query fails.
pub(crate) async fn load(store: &Store, defaults: &Limits) -> Result<QuotaLimits, StoreError> {
    Ok(QuotaLimits {
        defaults: defaults.clone(),
        orgs: store.quotas().await?,
        locales: store.org_locales().await?,
        journal_params: store.orgs_with_journal_params().await?,
        approving: Some(store.approving_orgs().await?),
    })
}

impl Control {
    /// Admits what an owner is about to create. The installation has no quotas.
    ///
    /// # Errors
    /// A problem if the organisation would have more than its quota.
    pub(crate) async fn admit(
        &self,
        owner: Owner,
        more: &[(Quota, usize)],
    ) -> Result<(), ControlError> {
        let Owner::Org(org) = owner else {
            return Ok(());
        };
        for (quota, more) in more {
            let more = u64::try_from(*more).unwrap_or(u64::MAX);
            let quotas = self.authenticator.quotas();
            quotas.admit(org, *quota, more).await?;
        }
        Ok(())
    }

    /// Publishes the quotas and settings to all nodes. They are already stored, so a failure only delays them
    /// until the key publisher runs again; the request has succeeded.
    pub(crate) async fn publish_quotas(&self) {
        let quotas = match load(&self.store, &self.quota_defaults).await {
            Ok(quotas) => quotas,
            Err(error) => {
                tracing::warn!(
                    error = error.report(),
                    "quotas cannot be read; the key publisher sends them within seconds"
                );
                return;
            }
        };
        if let Err(error) = self.bus.publish_quotas(&quotas).await {
            tracing::warn!(%error, "quotas cannot be published; the key publisher sends them within seconds");
        }
    }
}
