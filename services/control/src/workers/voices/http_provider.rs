//! The voice provider at a URL that the operator configures.
//!
//! - `POST` to the URL, with the sample as body and an `Idempotency-Key`, starts a training.
//! - `POST` without a body returns the voice that was created with the key.
//! - `GET` and `DELETE` of the URL with the id of a voice appended get and delete that voice.
//!
//! Responses are `{"id", "state", "error"}`, with the states of voices.

use bytes::Bytes;
use http::{Method, Response, StatusCode, header, request};
use serde::Deserialize;
use switchboard_store::{VoiceFault, VoiceJob, VoiceState, VoiceStatus};

use super::{
    client::{self, MAX_RESPONSE_BYTES, ProviderClient, encoded},
    provider::{
        Provider, ProviderError, ProviderFuture, READY_CHECK_INTERVAL, TRAINING_POLL_INTERVAL,
    },
};
use crate::Config;

/// A provider at a URL.
pub(super) struct HttpProvider {
    client: ProviderClient,
}

/// The voice in a response.
#[derive(Deserialize)]
struct ProviderVoice {
    id: String,
    state: VoiceState,
    #[serde(default)]
    error: Option<Reason>,
}

/// Why a training failed, or a voice expired.
#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    detail: String,
}

impl HttpProvider {
    /// The configured provider, if any.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let endpoint = config.voices_endpoint.as_deref();
        let client = ProviderClient::new(endpoint, config.voices_key.as_ref())?;
        Some(Self { client })
    }

    async fn send(
        &self,
        request: request::Builder,
        body: Bytes,
    ) -> Result<Response<Bytes>, ProviderError> {
        self.client.send(request, body, MAX_RESPONSE_BYTES).await
    }

    /// The voice in a response with a valid form.
    fn voice(&self, response: &Response<Bytes>) -> Result<ProviderVoice, ProviderError> {
        client::check_status(response.status())?;
        let mut voice: ProviderVoice = self.client.parse(response)?;
        voice.id = client::checked_id(voice.id)?;
        Ok(voice)
    }

    fn status_of(&self, voice: ProviderVoice) -> VoiceStatus {
        let reason = match &voice.error {
            Some(reason) if !reason.detail.is_empty() => self.client.reason(&reason.detail),
            _ => "The provider gave no reason.".to_owned(),
        };
        let fault = VoiceFault::new("provider", reason);
        match voice.state {
            VoiceState::Uploaded | VoiceState::Training => VoiceStatus::Training {
                made_as: voice.id,
                next: TRAINING_POLL_INTERVAL,
            },
            VoiceState::Ready => VoiceStatus::Ready {
                made_as: Some(voice.id),
                next: Some(READY_CHECK_INTERVAL),
            },
            VoiceState::Failed => VoiceStatus::Failed(fault),
            VoiceState::Expired => VoiceStatus::Expired(fault),
        }
    }
}

impl Provider for HttpProvider {
    fn create<'a>(
        &'a self,
        job: &'a VoiceJob,
        key: &'a str,
        sample: Bytes,
    ) -> ProviderFuture<'a, VoiceStatus> {
        let (name, languages) = (&job.settings.name, job.settings.languages.join(","));
        let query = format!("?name={}&languages={}", encoded(name), encoded(&languages));
        let request = self
            .client
            .request(Method::POST, &query)
            .header("Idempotency-Key", key)
            .header(header::CONTENT_TYPE, &job.mime_type);
        Box::pin(async move {
            let voice = self.voice(&self.send(request, sample).await?)?;
            Ok(self.status_of(voice))
        })
    }

    fn status<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, VoiceStatus> {
        let below = format!("/{}", encoded(made_as));
        let request = self.client.request(Method::GET, &below);
        Box::pin(async move {
            let response = self.send(request, Bytes::new()).await?;
            if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
                return Ok(client::lost());
            }
            Ok(self.status_of(self.voice(&response)?))
        })
    }

    fn find<'a>(&'a self, key: &'a str) -> ProviderFuture<'a, Option<String>> {
        let request = self
            .client
            .request(Method::POST, "")
            .header("Idempotency-Key", key);
        Box::pin(async move {
            match self.voice(&self.send(request, Bytes::new()).await?) {
                Ok(voice) => Ok(Some(voice.id)),
                Err(ProviderError::Rejected(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn delete<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, ()> {
        let below = format!("/{}", encoded(made_as));
        Box::pin(async move { self.client.delete(&below).await })
    }
}
