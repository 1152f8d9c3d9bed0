//! Client of the HTTP API: tokens, calls and settings.
//!
//! Invariant: no error contains a credential.

mod arguments;

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{CallId, DeviceId},
    outcome::{Delivered, Outcome, Violation},
};

pub(crate) use self::arguments::ApiArguments;
use crate::{
    events::Events,
    exit::Failure,
    http_client::{HttpClient, HttpError, HttpRequest},
    progress,
};

/// Timeout of a request that does not call a device.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request with a large body.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(90);
/// Time that a request may exceed the timeout of its call.
const CALL_GRACE: Duration = Duration::from_secs(5);
/// Maximum timeout of a call, assumed if none is given.
const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// A client of one installation with one credential.
#[derive(Clone)]
pub(crate) struct Api {
    http: HttpClient,
    url: String,
    key: SecretString,
}

/// A request with arbitrary method, headers and body.
pub(crate) struct ApiRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A failed API request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Nothing was sent.
    #[error("{url} cannot be used: {reason}")]
    Unreachable {
        /// URL of the API.
        url: String,
        /// Description of the failure.
        reason: String,
    },
    /// The request was sent, and there was no response, or not one of this API.
    #[error("{url} may have processed the request: {reason}")]
    Unanswered {
        /// URL of the API.
        url: String,
        /// Description of the failure.
        reason: String,
    },
    /// The API returned a problem.
    #[error("{0}")]
    Refused(Box<Problem>),
}

/// An RFC 9457 problem with the members that the command line uses.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    status: u16,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: Option<String>,
    /// Outcome of the call, if it was accepted.
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
    /// Whether the call may have reached the device.
    #[serde(default)]
    pub(crate) delivered: Option<Delivered>,
    /// Violations of the schema.
    #[serde(default)]
    pub(crate) errors: Vec<Violation>,
    /// URL of the API.
    #[serde(skip)]
    url: String,
}

impl ApiError {
    /// Returns whether the API rejected the request; a retry would be rejected again.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Unanswered { .. } => false,
            Self::Refused(problem) => problem.status < 500 && problem.status != 429,
        }
    }

    /// Returns whether the credential is valid and lacks a permission.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 403)
    }

    /// Returns whether there is nothing at the path: the URL may be that of another service.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 404)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let detail = self.detail.as_ref().unwrap_or(&self.title);
        match self.status {
            404 => write!(f, "{detail} (404 from {})", self.url),
            status => write!(f, "{detail} ({status})"),
        }?;
        for violation in self
            .errors
            .iter()
            .filter(|violation| violation.detail != *detail)
        {
            let pointer = if violation.pointer.is_empty() {
                "params"
            } else {
                &violation.pointer
            };
            write!(f, "\n  {pointer}: {}", violation.detail)?;
        }
        match self.delivered {
            Some(Delivered::No) => f.write_str("\n  not delivered: a retry is safe"),
            Some(Delivered::Unknown) => f.write_str("\n  the device may have acted"),
            Some(Delivered::Yes) | None => Ok(()),
        }
    }
}

/// An issued token.
#[derive(Debug, Deserialize)]
pub(crate) struct IssuedToken {
    /// The token.
    pub(crate) access_token: SecretString,
    /// Seconds until it expires.
    pub(crate) expires_in: u64,
    /// Id of the token, for its revocation.
    pub(crate) token_id: String,
}

/// A finished call.
#[derive(Debug, Deserialize)]
pub(crate) struct CallAnswer {
    /// Outcome of the call.
    pub(crate) outcome: Outcome,
    /// Result from the device.
    pub(crate) result: Option<CallResult>,
    /// False if the result does not match the output schema of the service.
    #[serde(default = "valid")]
    pub(crate) result_valid: bool,
}

const fn valid() -> bool {
    true
}

/// Result from a device.
#[derive(Debug, Deserialize)]
pub(crate) struct CallResult {
    /// The data, unmodified.
    pub(crate) data: Option<Box<RawValue>>,
    /// Why the call failed.
    pub(crate) error: Option<String>,
}

#[derive(Serialize)]
struct TokenRequest<'a> {
    subject: &'a str,
    scopes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
}

/// A call request.
#[derive(Debug, Serialize)]
pub(crate) struct CallRequest<'a> {
    /// Name of the service.
    pub(crate) service: &'a str,
    /// Parameters.
    pub(crate) params: &'a RawValue,
    /// Timeout of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    /// `async` or `queued`; a synchronous call without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<&'static str>,
    /// Time that a queued call waits for its device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_ms: Option<u64>,
}

/// A stored call, as far as the command line uses it.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredCall {
    /// Id of the call.
    pub(crate) call_id: CallId,
    /// Outcome, once the call has ended.
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
}

impl Api {
    /// Creates a client. Errors name the `place` that the address comes from.
    ///
    /// # Errors
    /// When the URL is malformed or the certificates cannot be read.
    pub(crate) fn new(
        url: &str,
        key: SecretString,
        tls_ca: Option<&Path>,
        place: &str,
    ) -> Result<Self, Failure> {
        let http = HttpClient::new(url, tls_ca)
            .map_err(|error| Failure::usage(format!("{place}: {error:#}")))?;
        let url = format!("{url} ({place})");
        Ok(Self { http, url, key })
    }

    /// Shows the progress of a body of this size.
    pub(crate) fn with_progress(mut self, bytes: usize) -> Self {
        self.http.progress = progress::sending(u64::try_from(bytes).unwrap_or_default());
        self
    }

    /// Returns the address and where it comes from.
    pub(crate) fn address(&self) -> &str {
        &self.url
    }

    /// Returns the HTTP client and the credential.
    pub(crate) fn into_parts(self) -> (HttpClient, SecretString) {
        (self.http, self.key)
    }

    /// Returns the host of the API without the port.
    pub(crate) fn host(&self) -> &str {
        self.http.host()
    }

    /// Issues a token for `subject` (`device:ID`, `client:NAME`).
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn token(
        &self,
        subject: &str,
        scopes: &[String],
        ttl_s: Option<u64>,
    ) -> Result<IssuedToken, ApiError> {
        let request = TokenRequest {
            subject,
            scopes,
            ttl_s,
        };
        self.post("/v1/tokens", &request, HeaderMap::new(), REQUEST_TIMEOUT)
            .await
    }

    /// Calls a device and waits for the result.
    ///
    /// # Errors
    /// When the API is unreachable, or the call ended without a result.
    pub(crate) async fn call(
        &self,
        device: &DeviceId,
        call: &CallRequest<'_>,
        idempotency_key: Option<&str>,
    ) -> Result<CallAnswer, ApiError> {
        let headers = self.key_header(idempotency_key)?;
        let timeout = call
            .timeout_ms
            .map_or(MAX_CALL_TIMEOUT, Duration::from_millis)
            .saturating_add(CALL_GRACE);
        let path = format!("/v1/devices/{device}/calls");
        self.post(&path, call, headers, timeout).await
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.exchange(
            (Method::GET, path),
            HeaderMap::new(),
            Vec::new(),
            REQUEST_TIMEOUT,
        )
        .await
    }

    /// Creates a resource; a repetition with the same key has no effect.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
        idempotency_key: &str,
    ) -> Result<T, ApiError> {
        let headers = self.key_header(Some(idempotency_key))?;
        self.exchange((Method::POST, path), headers, body, TRANSFER_TIMEOUT)
            .await
    }

    /// Sends a request and returns the body of the response.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn bytes(&self, request: ApiRequest<'_>) -> Result<Bytes, ApiError> {
        let what = (request.method, request.path);
        self.request(what, request.headers, request.body, TRANSFER_TIMEOUT)
            .await
    }

    /// Sends a request and parses the JSON of the response; null if it is empty.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ApiError> {
        self.exchange((method, path), HeaderMap::new(), body, TRANSFER_TIMEOUT)
            .await
    }

    /// Creates an asynchronous or queued call.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn create_async_call(
        &self,
        device: &DeviceId,
        call: &CallRequest<'_>,
        idempotency_key: Option<&str>,
    ) -> Result<StoredCall, ApiError> {
        let headers = self.key_header(idempotency_key)?;
        let path = format!("/v1/devices/{device}/calls");
        self.post(&path, call, headers, REQUEST_TIMEOUT).await
    }

    /// Returns a stored call, unmodified and parsed. Waits up to `wait` for its end.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn stored_call(
        &self,
        id: CallId,
        wait: Duration,
    ) -> Result<(Box<RawValue>, StoredCall), ApiError> {
        let path = format!("/v1/calls/{id}?wait_ms={}", wait.as_millis());
        let timeout = wait.saturating_add(REQUEST_TIMEOUT);
        let what = (Method::GET, path.as_str());
        let document: Box<RawValue> = self
            .exchange(what, HeaderMap::new(), Vec::new(), timeout)
            .await?;
        let call = serde_json::from_str(document.get()).map_err(|error| self.unanswered(error))?;
        Ok((document, call))
    }

    fn key_header(&self, idempotency_key: Option<&str>) -> Result<HeaderMap, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = idempotency_key {
            let key = self.header_value(key)?;
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        Ok(headers)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unreachable(error))?;
        self.exchange((Method::POST, path), headers, body, timeout)
            .await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        what: (Method, &str),
        headers: HeaderMap,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<T, ApiError> {
        let response = self.request(what, headers, body, timeout).await?;
        let response: &[u8] = if response.is_empty() {
            b"null"
        } else {
            &response
        };
        serde_json::from_slice(response).map_err(|error| self.unanswered(error))
    }

    /// Calls a device whose progress is read: an event stream that ends with the result.
    ///
    /// # Errors
    /// When the API is unreachable, or refuses the call before it is sent.
    pub(crate) async fn call_events(
        &self,
        device: &DeviceId,
        call: &CallRequest<'_>,
        idempotency_key: Option<&str>,
    ) -> Result<Events, ApiError> {
        let headers = self.key_header(idempotency_key)?;
        let path = format!("/v1/devices/{device}/calls");
        let body = serde_json::to_vec(call).map_err(|error| self.unreachable(error))?;
        self.open_events((Method::POST, &path), headers, body).await
    }

    /// Sends a request whose response is an event stream.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn events(&self, path: &str, body: Vec<u8>) -> Result<Events, ApiError> {
        let what = (Method::POST, path);
        self.open_events(what, HeaderMap::new(), body).await
    }

    /// Opens the stream of what happens in the organisation.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request.
    pub(crate) async fn live_events(&self, path: &str) -> Result<Events, ApiError> {
        let what = (Method::GET, path);
        self.open_events(what, HeaderMap::new(), Vec::new()).await
    }

    async fn open_events(
        &self,
        (method, path): (Method, &str),
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Events, ApiError> {
        self.authorize(&mut headers)?;
        let accepted = HeaderValue::from_static("text/event-stream");
        headers.insert(header::ACCEPT, accepted);
        let request = HttpRequest {
            method,
            path,
            headers,
            body,
            timeout: REQUEST_TIMEOUT,
        };
        let opened = self.http.open(request).await;
        let mut response = opened.map_err(|error| self.failed(&error))?;
        if response.status.is_success() {
            return Ok(Events::new(response));
        }
        let body = response.read_to_end().await;
        let body = body.map_err(|error| self.failed(&error))?;
        Err(self.refused(response.status, &body))
    }

    /// Adds the credential and the content type.
    fn authorize(&self, headers: &mut HeaderMap) -> Result<(), ApiError> {
        let mut credential = self.header_value(&format!("Bearer {}", self.key.expose_secret()))?;
        credential.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, credential);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        Ok(())
    }

    /// Returns the body of a successful response.
    async fn request(
        &self,
        (method, path): (Method, &str),
        mut headers: HeaderMap,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<Bytes, ApiError> {
        self.authorize(&mut headers)?;
        let request = HttpRequest {
            method,
            path,
            headers,
            body,
            timeout,
        };
        let (status, response) = self
            .http
            .fetch(request)
            .await
            .map_err(|error| self.failed(&error))?;
        if status.is_success() {
            return Ok(response);
        }
        Err(self.refused(status, &response))
    }

    /// The result of a call, or its problem, as the last event of its stream has them.
    ///
    /// # Errors
    /// When the call ended without a result.
    pub(crate) fn streamed_answer(&self, data: &str) -> Result<CallAnswer, ApiError> {
        if let Ok(problem) = serde_json::from_str::<Problem>(data)
            && let Ok(status) = StatusCode::from_u16(problem.status)
        {
            return Err(self.refused(status, data.as_bytes()));
        }
        serde_json::from_str(data).map_err(|error| self.unanswered(error))
    }

    fn refused(&self, status: StatusCode, response: &[u8]) -> ApiError {
        match serde_json::from_slice::<Problem>(response) {
            Ok(problem) => ApiError::Refused(Box::new(Problem {
                status: status.as_u16(),
                url: self.url.clone(),
                ..problem
            })),
            // A proxy, or another program.
            Err(_) if status.is_client_error() => ApiError::Refused(Box::new(Problem {
                status: status.as_u16(),
                title: format!("{} refused the request, and is no Switchboard", self.url),
                detail: None,
                outcome: None,
                delivered: None,
                errors: Vec::new(),
                url: self.url.clone(),
            })),
            Err(_) => self.unanswered(format!("unexpected response with status {status}")),
        }
    }

    pub(crate) fn failed(&self, error: &HttpError) -> ApiError {
        match error {
            HttpError::NotSent(_) => self.unreachable(error),
            HttpError::Broken(_) => self.unanswered(error),
        }
    }

    pub(crate) fn unanswered(&self, reason: impl ToString) -> ApiError {
        ApiError::Unanswered {
            url: self.url.clone(),
            reason: reason.to_string(),
        }
    }

    fn header_value(&self, text: &str) -> Result<HeaderValue, ApiError> {
        // The text may be a credential, so the error does not repeat it.
        HeaderValue::from_str(text)
            .map_err(|_| self.unreachable("the key contains invalid characters"))
    }

    pub(crate) fn unreachable(&self, reason: impl ToString) -> ApiError {
        ApiError::Unreachable {
            url: self.url.clone(),
            reason: reason.to_string(),
        }
    }
}
