//! The parameters of a voice to create: its name, its provider, and the consent of its speaker.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::json;
use switchboard_runtime::problem::Problem;
use switchboard_store::{VoiceConsent, VoiceSettings};
use utoipa::IntoParams;

use super::{problems, schema};
use crate::{
    http::{label::Label, limits},
    workers::voices::EMBEDDED_PROVIDER,
};

/// The query string of a voice to create.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadParams {
    /// Display name.
    #[param(example = "Grandma Anna")]
    name: Label,
    /// The provider that trains the voice: `embedded` plays the sample itself, `http` and `openai`
    /// are available if the operator has configured them. Default: `embedded`.
    #[param(max_length = 64, example = "embedded")]
    provider: Option<String>,
    /// Languages of the voice: up to 16 BCP 47 tags, separated by commas.
    #[param(
        max_length = 575,
        pattern = "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*(,[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*){0,15}$",
        example = "de-DE,en"
    )]
    languages: Option<String>,
    /// Labels: up to 32, separated by commas.
    #[param(max_length = 1631, example = "warm,old")]
    labels: Option<String>,
    /// The name of the speaker. Required.
    #[param(
        required = true,
        min_length = 1,
        max_length = 200,
        example = "Anna Example"
    )]
    consent_by: Option<String>,
    /// The text that the speaker agreed to. Required.
    #[param(
        required = true,
        min_length = 1,
        max_length = 2000,
        example = "I agree that the toy speaks with my voice."
    )]
    consent_statement: Option<String>,
    /// When the speaker agreed (RFC 3339). Default: now.
    #[param(example = "2026-01-02T03:04:05Z")]
    consent_agreed_at: Option<DateTime<Utc>>,
    /// When the consent ends (RFC 3339); the voice cannot be used from then on. Default: never.
    #[param(example = "2036-01-02T03:04:05Z")]
    consent_expires_at: Option<DateTime<Utc>>,
}

impl UploadParams {
    pub(super) fn provider(&self) -> &str {
        self.provider.as_deref().unwrap_or(EMBEDDED_PROVIDER)
    }

    /// The settings that can be changed later.
    pub(super) fn settings(&self) -> Result<VoiceSettings, Problem> {
        let settings = VoiceSettings {
            name: self.name.as_str().to_owned(),
            languages: list(self.languages.as_deref()),
            labels: list(self.labels.as_deref()),
        };
        check(&json!(settings), schema::RULES)?;
        Ok(settings)
    }

    pub(super) fn consent(&self) -> Result<VoiceConsent, Problem> {
        let required = |text: &Option<String>, parameter| {
            let text = text
                .as_deref()
                .map(str::trim)
                .filter(|text| !text.is_empty());
            text.map(str::to_owned)
                .ok_or_else(|| problems::no_consent(parameter))
        };
        let now = Utc::now();
        let consent = VoiceConsent {
            by: required(&self.consent_by, "consent_by")?,
            statement: required(&self.consent_statement, "consent_statement")?,
            agreed_at: self.consent_agreed_at.unwrap_or(now),
            expires_at: self.consent_expires_at,
        };
        check(&json!(consent), schema::CONSENT_RULES)?;
        if consent.agreed_at > now {
            return Err(Problem::invalid_query(
                "`consent_agreed_at` is in the future.",
            ));
        }
        if consent.has_ended() {
            return Err(Problem::invalid_query(
                "`consent_expires_at` is in the past.",
            ));
        }
        Ok(consent)
    }
}

fn list(text: Option<&str>) -> Vec<String> {
    let parts = text.into_iter().flat_map(|text| text.split(','));
    parts.map(|part| part.trim().to_owned()).collect()
}

/// Checks parameters against the limits of the resource.
fn check(document: &serde_json::Value, rules: &[limits::Rule]) -> Result<(), Problem> {
    limits::check(document, "", rules).map_err(|problem| Problem::invalid_query(problem.detail))
}
