//! HTTP requests to voice providers.
//!
//! Invariant: responses are bounded, redirects are not followed, and the key is neither logged nor
//! shown.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use switchboard_runtime::outbound::{self, Client};
use switchboard_store::{VoiceFault, VoiceStatus};
use tokio::time::timeout;

use super::provider::ProviderError;

/// How long a request may take, including the upload of the sample.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a response about one voice.
pub(super) const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The maximum length of the id of a voice.
const MAX_ID_BYTES: usize = 200;
/// The prefix of a reason from the provider.
const REASON_PREFIX: &str = "Message of the provider: ";
/// The maximum length of the detail of a fault, in characters.
const MAX_DETAIL_CHARS: usize = 500;

/// A client of the provider at a URL.
pub(super) struct ProviderClient {
    client: Client<Full<Bytes>>,
    endpoint: String,
    key: Option<SecretString>,
}

impl ProviderClient {
    /// A client of the provider at the configured URL, if any.
    pub(super) fn new(endpoint: Option<&str>, key: Option<&SecretString>) -> Option<Self> {
        let endpoint = endpoint?;
        let client = outbound::client(true)
            .inspect_err(|error| tracing::error!(%error, "the voice provider is not available"))
            .ok()?;
        Some(Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            key: key.cloned(),
        })
    }

    /// A request to the URL with `below` appended.
    pub(super) fn request(&self, method: Method, below: &str) -> request::Builder {
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

    /// Sends a request; its response has at most `max_bytes`.
    pub(super) async fn send(
        &self,
        request: request::Builder,
        body: Bytes,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, ProviderError> {
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| unavailable(&error.to_string()))?;
        let response = outbound::fetch(&self.client, request, max_bytes);
        let response = timeout(REQUEST_TIMEOUT, response).await;
        let response = response.map_err(|_| unavailable("the request timed out"))?;
        response.map_err(|error| unavailable(&error.to_string()))
    }

    /// Deletes what is at the URL with `below` appended, if it exists.
    pub(super) async fn delete(&self, below: &str) -> Result<(), ProviderError> {
        let request = self.request(Method::DELETE, below);
        let response = self.send(request, Bytes::new(), MAX_RESPONSE_BYTES).await?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            status if status.is_success() => Ok(()),
            // Whatever the status is, the voice still exists.
            status => Err(unavailable(&format!("status {status}"))),
        }
    }

    /// The JSON in the body of a response.
    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        response: &Response<Bytes>,
    ) -> Result<T, ProviderError> {
        serde_json::from_slice(response.body()).map_err(|error| {
            // The error repeats a part of the response.
            let error = self.redact(&error.to_string());
            unavailable(&format!("invalid response: {error}"))
        })
    }

    /// A reason from the provider, as the organisation reads it.
    pub(super) fn reason(&self, reason: &str) -> String {
        detail(&format!("{REASON_PREFIX}{}", self.redact(reason)))
    }

    fn redact(&self, text: &str) -> String {
        match &self.key {
            Some(key) => outbound::redact(text, key.expose_secret()),
            None => text.to_owned(),
        }
    }
}

/// Without control characters, and bounded.
pub(super) fn detail(text: &str) -> String {
    let text = text.chars().filter(|c| !c.is_control());
    text.take(MAX_DETAIL_CHARS).collect()
}

pub(super) fn unavailable(reason: &str) -> ProviderError {
    ProviderError::Unavailable(format!("the voice provider is unavailable: {reason}"))
}

/// The status of a voice that the provider no longer has.
pub(super) fn lost() -> VoiceStatus {
    VoiceStatus::Expired(VoiceFault::new(
        "provider_lost_it",
        "The provider no longer has this voice.",
    ))
}

pub(super) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// Fails unless the status is a success.
pub(super) fn check_status(status: StatusCode) -> Result<(), ProviderError> {
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
    Ok(())
}

/// The id of a voice, if it can be stored.
pub(super) fn checked_id(id: String) -> Result<String, ProviderError> {
    if id.is_empty() || id.len() > MAX_ID_BYTES || id.contains('\0') {
        return Err(unavailable("invalid id of a voice"));
    }
    Ok(id)
}
