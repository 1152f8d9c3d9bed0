//! A provider that speaks HTTP, at the address that an operator sets: samples are sent there, and it is asked how far it is.
//! Never: an answer without a bound, a redirect followed, or a key in a log.
//!
//! `POST` to the address, with the sample as body and an `Idempotency-Key`, begins a voice; `GET` and `DELETE` of the
//! address and the voice's id ask for it and remove it. It answers `{"id", "state", "error"}`, with the states of voices.
//! `POST` without a sample begins nothing: it asks what was begun under the key.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use switchboard_runtime::outbound::{self, Client};
use switchboard_store::{VoiceFault, VoiceJob, VoiceStanding, VoiceState};
use tokio::time::timeout;

use super::provider::{ASK_AGAIN, Doing, LOOK_AFTER, Provider, ProviderError};
use crate::Config;

/// How long an answer may take, the sending of the sample included.
const WITHIN: Duration = Duration::from_secs(60);
/// The longest answer, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024;
/// The longest id that it may give a voice, in bytes.
const LONGEST_ID: usize = 200;
/// What is put before its reason.
const SAYS: &str = "The provider says: ";
/// The longest detail of a fault, in characters.
const LONGEST_DETAIL: usize = 500;

/// A provider somewhere else.
pub(super) struct Remote {
    client: Client<Full<Bytes>>,
    endpoint: String,
    key: Option<SecretString>,
}

/// What it says of a voice.
#[derive(Deserialize)]
struct Answer {
    id: String,
    state: VoiceState,
    #[serde(default)]
    error: Option<Reason>,
}

/// Why it has not made a voice, or has it no more.
#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    detail: String,
}

impl Remote {
    /// The one that is set, if any.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let endpoint = config.voices_endpoint.as_ref()?;
        let client = outbound::client(true)
            .inspect_err(|error| tracing::error!(%error, "there can be no provider of voices"))
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

    async fn ask(
        &self,
        request: request::Builder,
        body: Bytes,
    ) -> Result<Response<Bytes>, ProviderError> {
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| away(&error.to_string()))?;
        let answer = outbound::ask(&self.client, request, LONGEST_ANSWER);
        let answer = timeout(WITHIN, answer).await;
        let answer = answer.map_err(|_| away("it does not answer"))?;
        answer.map_err(|error| away(&error.to_string()))
    }
}

impl Provider for Remote {
    fn make<'a>(
        &'a self,
        job: &'a VoiceJob,
        key: &'a str,
        sample: Bytes,
    ) -> Doing<'a, VoiceStanding> {
        let (name, languages) = (&job.settings.name, job.settings.languages.join(","));
        let query = format!("?name={}&languages={}", encoded(name), encoded(&languages));
        let request = self
            .request(Method::POST, &query)
            .header("Idempotency-Key", key)
            .header(header::CONTENT_TYPE, &job.mime_type);
        Box::pin(async move { Ok(answer(&self.ask(request, sample).await?)?.standing()) })
    }

    fn status<'a>(&'a self, made_as: &'a str) -> Doing<'a, VoiceStanding> {
        let request = self.request(Method::GET, &format!("/{}", encoded(made_as)));
        Box::pin(async move {
            let response = self.ask(request, Bytes::new()).await?;
            if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
                let fault =
                    VoiceFault::new("provider_lost_it", "The provider has this voice no more.");
                return Ok(VoiceStanding::Expired(fault));
            }
            Ok(answer(&response)?.standing())
        })
    }

    fn find<'a>(&'a self, key: &'a str) -> Doing<'a, Option<String>> {
        let request = self
            .request(Method::POST, "")
            .header("Idempotency-Key", key);
        Box::pin(async move {
            match answer(&self.ask(request, Bytes::new()).await?) {
                Ok(answer) => Ok(Some(answer.id)),
                Err(ProviderError::Refused(_)) => Ok(None),
                Err(away) => Err(away),
            }
        })
    }

    fn remove<'a>(&'a self, made_as: &'a str) -> Doing<'a, ()> {
        let request = self.request(Method::DELETE, &format!("/{}", encoded(made_as)));
        Box::pin(async move {
            match self.ask(request, Bytes::new()).await?.status() {
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
                status if status.is_success() => Ok(()),
                // Whatever the reason is, the voice is still there.
                status => Err(away(&format!("it answered {status}"))),
            }
        })
    }
}

fn away(reason: &str) -> ProviderError {
    ProviderError::Away(format!("the provider of voices cannot be used: {reason}"))
}

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// What a response says, when it is as agreed.
fn answer(response: &Response<Bytes>) -> Result<Answer, ProviderError> {
    let status = response.status();
    let passing = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::CONFLICT,
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
    ];
    if status.is_client_error() && !passing.contains(&status) {
        let detail = format!("The provider refused the sample: it answered {status}.");
        return Err(ProviderError::Refused(VoiceFault::new(
            "provider_refused",
            detail,
        )));
    }
    if !status.is_success() {
        return Err(away(&format!("it answered {status}")));
    }
    let answer: Answer = serde_json::from_slice(response.body())
        .map_err(|error| away(&format!("its answer is not as agreed: {error}")))?;
    if answer.id.is_empty() || answer.id.len() > LONGEST_ID || answer.id.contains('\0') {
        return Err(away("it named a voice by what is no id"));
    }
    Ok(answer)
}

impl Answer {
    fn standing(self) -> VoiceStanding {
        let fault = VoiceFault::new("provider", self.reason());
        match self.state {
            VoiceState::Uploaded | VoiceState::Training => VoiceStanding::Training {
                made_as: self.id,
                next: ASK_AGAIN,
            },
            VoiceState::Ready => VoiceStanding::Ready {
                made_as: Some(self.id),
                next: Some(LOOK_AFTER),
            },
            VoiceState::Failed => VoiceStanding::Failed(fault),
            VoiceState::Expired => VoiceStanding::Expired(fault),
        }
    }

    fn reason(&self) -> String {
        match &self.error {
            Some(reason) if !reason.detail.is_empty() => {
                let said = reason.detail.chars().filter(|c| !c.is_control());
                SAYS.chars().chain(said).take(LONGEST_DETAIL).collect()
            }
            _ => "The provider does not say why.".to_owned(),
        }
    }
}
