//! The voice provider at a URL that the operator configures.
//!
//! - `POST` to the URL, with the sample as body and an `Idempotency-Key`, starts a training.
//! - `POST` without a body returns the voice that was created with the key.
//! - `GET` and `DELETE` of the URL with the id of a voice appended get and delete that voice.
//!
//! Responses are `{"id", "state", "error"}`, with the states of voices.
//! Invariant: responses are bounded, redirects are not followed, and the key is not logged.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use switchboard_runtime::outbound::{self, Client};
use switchboard_store::{VoiceFault, VoiceJob, VoiceState, VoiceStatus};
use tokio::time::timeout;

use super::provider::{
    Provider, ProviderError, ProviderFuture, READY_CHECK_INTERVAL, TRAINING_POLL_INTERVAL,
};
use crate::Config;

/// How long a request may take, including the upload of the sample.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The maximum length of the id of a voice.
const MAX_ID_BYTES: usize = 200;
/// The prefix of a reason from the provider.
const REASON_PREFIX: &str = "Message of the provider: ";
/// The maximum length of the detail of a fault, in characters.
const MAX_DETAIL_CHARS: usize = 500;

/// A provider at a URL.
pub(super) struct HttpProvider {
    client: Client<Full<Bytes>>,
    endpoint: String,
    key: Option<SecretString>,
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
        let endpoint = config.voices_endpoint.as_ref()?;
        let client = outbound::client(true)
            .inspect_err(|error| tracing::error!(%error, "the voice provider is not available"))
            .ok()?;
        Some(Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            key: config.voices_key.clone(),
        })
    }

    fn request(&self, method: Method, below: &str) -> request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{below}", self.endpoint));
        match &self.key {
            Some(key) => {
                let bearer = format!("Bearer {}", key.expose_secret());
                request.header(header::AUTHORIZATION, bearer)
            }
            None => request,
        }
    }

    async fn send(
        &self,
        request: request::Builder,
        body: Bytes,
    ) -> Result<Response<Bytes>, ProviderError> {
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| unavailable(&error.to_string()))?;
        let response = outbound::fetch(&self.client, request, MAX_RESPONSE_BYTES);
        let response = timeout(REQUEST_TIMEOUT, response).await;
        let response = response.map_err(|_| unavailable("the request timed out"))?;
        response.map_err(|error| unavailable(&error.to_string()))
    }

    /// The voice in a response. Its reason, which the organisation reads, does not have the key.
    fn voice(&self, response: &Response<Bytes>) -> Result<ProviderVoice, ProviderError> {
        let mut voice = parse(response)?;
        if let (Some(reason), Some(key)) = (&mut voice.error, &self.key) {
            reason.detail = outbound::redact(&reason.detail, key.expose_secret());
        }
        Ok(voice)
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
            .request(Method::POST, &query)
            .header("Idempotency-Key", key)
            .header(header::CONTENT_TYPE, &job.mime_type);
        Box::pin(async move {
            Ok(self
                .voice(&self.send(request, sample).await?)?
                .into_status())
        })
    }

    fn status<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, VoiceStatus> {
        let request = self.request(Method::GET, &format!("/{}", encoded(made_as)));
        Box::pin(async move {
            let response = self.send(request, Bytes::new()).await?;
            if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
                let fault =
                    VoiceFault::new("provider_lost_it", "The provider no longer has this voice.");
                return Ok(VoiceStatus::Expired(fault));
            }
            Ok(self.voice(&response)?.into_status())
        })
    }

    fn find<'a>(&'a self, key: &'a str) -> ProviderFuture<'a, Option<String>> {
        let request = self
            .request(Method::POST, "")
            .header("Idempotency-Key", key);
        Box::pin(async move {
            match parse(&self.send(request, Bytes::new()).await?) {
                Ok(voice) => Ok(Some(voice.id)),
                Err(ProviderError::Rejected(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn delete<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, ()> {
        let request = self.request(Method::DELETE, &format!("/{}", encoded(made_as)));
        Box::pin(async move {
            match self.send(request, Bytes::new()).await?.status() {
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
                status if status.is_success() => Ok(()),
                // Whatever the status is, the voice still exists.
                status => Err(unavailable(&format!("status {status}"))),
            }
        })
    }
}

fn unavailable(reason: &str) -> ProviderError {
    ProviderError::Unavailable(format!("the voice provider is unavailable: {reason}"))
}

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// The voice in a response with a valid form.
fn parse(response: &Response<Bytes>) -> Result<ProviderVoice, ProviderError> {
    let status = response.status();
    let temporary = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::CONFLICT,
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
    ];
    if status.is_client_error() && !temporary.contains(&status) {
        let detail = format!("The provider rejected the sample with status {status}.");
        return Err(ProviderError::Rejected(VoiceFault::new(
            "provider_refused",
            detail,
        )));
    }
    if !status.is_success() {
        return Err(unavailable(&format!("status {status}")));
    }
    let voice: ProviderVoice = serde_json::from_slice(response.body())
        .map_err(|error| unavailable(&format!("invalid response: {error}")))?;
    if voice.id.is_empty() || voice.id.len() > MAX_ID_BYTES || voice.id.contains('\0') {
        return Err(unavailable("invalid id of a voice"));
    }
    Ok(voice)
}

impl ProviderVoice {
    fn into_status(self) -> VoiceStatus {
        let fault = VoiceFault::new("provider", self.reason());
        match self.state {
            VoiceState::Uploaded | VoiceState::Training => VoiceStatus::Training {
                made_as: self.id,
                next: TRAINING_POLL_INTERVAL,
            },
            VoiceState::Ready => VoiceStatus::Ready {
                made_as: Some(self.id),
                next: Some(READY_CHECK_INTERVAL),
            },
            VoiceState::Failed => VoiceStatus::Failed(fault),
            VoiceState::Expired => VoiceStatus::Expired(fault),
        }
    }

    fn reason(&self) -> String {
        match &self.error {
            Some(reason) if !reason.detail.is_empty() => {
                let reason = reason.detail.chars().filter(|c| !c.is_control());
                REASON_PREFIX
                    .chars()
                    .chain(reason)
                    .take(MAX_DETAIL_CHARS)
                    .collect()
            }
            _ => "The provider gave no reason.".to_owned(),
        }
    }
}
