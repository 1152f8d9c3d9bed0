//! What is said of a voice when it is sent: its name, its provider, and the consent.
//! Never: a voice without consent.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::json;
use switchboard_runtime::problem::Problem;
use switchboard_store::{VoiceConsent, VoiceSettings};
use utoipa::IntoParams;

use super::{provider::EMBEDDED, refusals, shape};
use crate::{label::Label, limits};

/// The query string of a voice that is sent.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upload {
    /// What people call it.
    #[param(example = "Grandma Anna")]
    name: Label,
    /// Who makes it: `embedded`, which keeps and plays the sample, or `http`, where the operator has set one.
    #[param(max_length = 64, example = "embedded")]
    provider: Option<String>,
    /// What it speaks: up to 16 BCP 47 tags, with commas between them.
    #[param(
        max_length = 575,
        pattern = "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*(,[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*){0,15}$",
        example = "de-DE,en"
    )]
    languages: Option<String>,
    /// Words to find it by: up to 32, with commas between them.
    #[param(max_length = 1631, example = "warm,old")]
    labels: Option<String>,
    /// Whose voice it is; without it no voice is taken.
    #[param(
        required = true,
        min_length = 1,
        max_length = 200,
        example = "Anna Example"
    )]
    consent_by: Option<String>,
    /// What they agreed to; without it no voice is taken.
    #[param(
        required = true,
        min_length = 1,
        max_length = 2000,
        example = "I agree that the toy speaks with my voice."
    )]
    consent_statement: Option<String>,
    /// When they agreed; now when not given.
    #[param(example = "2026-01-02T03:04:05Z")]
    consent_agreed_at: Option<DateTime<Utc>>,
    /// From when on the voice must not be used any more; never when not given.
    #[param(example = "2036-01-02T03:04:05Z")]
    consent_expires_at: Option<DateTime<Utc>>,
}

impl Upload {
    pub(super) fn provider(&self) -> &str {
        self.provider.as_deref().unwrap_or(EMBEDDED)
    }

    /// What its author may change later.
    pub(super) fn settings(&self) -> Result<VoiceSettings, Problem> {
        let settings = VoiceSettings {
            name: self.name.as_str().to_owned(),
            languages: list(self.languages.as_deref()),
            labels: list(self.labels.as_deref()),
        };
        keep(&json!(settings), shape::RULES)?;
        Ok(settings)
    }

    pub(super) fn consent(&self) -> Result<VoiceConsent, Problem> {
        let given = |text: &Option<String>, parameter| {
            let text = text
                .as_deref()
                .map(str::trim)
                .filter(|text| !text.is_empty());
            text.map(str::to_owned)
                .ok_or_else(|| refusals::no_consent(parameter))
        };
        let now = Utc::now();
        let consent = VoiceConsent {
            by: given(&self.consent_by, "consent_by")?,
            statement: given(&self.consent_statement, "consent_statement")?,
            agreed_at: self.consent_agreed_at.unwrap_or(now),
            expires_at: self.consent_expires_at,
        };
        keep(&json!(consent), shape::CONSENT_RULES)?;
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

/// Holds what was said against the rules of what will be shown.
fn keep(said: &serde_json::Value, rules: &[limits::Rule]) -> Result<(), Problem> {
    limits::keep(said, "", rules).map_err(|problem| Problem::invalid_query(problem.detail))
}
