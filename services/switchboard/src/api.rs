//! The HTTP API as the command line uses it: get a token, make a call, read and write settings.
//! Never: a credential in an error.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{CallId, DeviceId},
    outcome::{Delivered, Outcome, Violation},
};

use crate::{
    arguments::DataArguments,
    events::Events,
    exit::Failure,
    site::{Ask, Site},
};

/// How long a request that calls no device may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request with a large body may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(90);
/// How much longer than its call a request may take.
const CALL_MARGIN: Duration = Duration::from_secs(5);
/// The longest timeout a call may have, used when none is given.
const LONGEST_CALL: Duration = Duration::from_secs(300);

/// Where the API is and who asks; taken from a running `up` when nothing is given.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ApiArguments {
    /// The HTTP API; without it that of the `up` that runs on --data-dir
    #[arg(long, env = "SWITCHBOARD_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key or access token; without it the key of the `up` that runs on --data-dir
    #[arg(
        long,
        env = "SWITCHBOARD_API_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub(crate) api_key: Option<SecretString>,
    /// A PEM file with the certificate authorities to trust instead of the system's
    #[arg(long, env = "SWITCHBOARD_TLS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArguments,
}

/// A client of one installation, with one credential.
#[derive(Clone)]
pub(crate) struct Api {
    site: Site,
    url: String,
    key: SecretString,
}

/// A request that is none of the usual ones.
pub(crate) struct Sent<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why the API did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// No answer, or not one of ours.
    #[error("{url} cannot be used: {reason}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What happened instead.
        reason: String,
    },
    /// The answer was a problem.
    #[error("{0}")]
    Refused(Box<Problem>),
}

/// An RFC 9457 problem with the members of ours that matter here.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    status: u16,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: Option<String>,
    /// How the call ended, if it was accepted.
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
    /// Whether the device may have acted.
    #[serde(default)]
    pub(crate) delivered: Option<Delivered>,
    /// Where the params break the schema.
    #[serde(default)]
    pub(crate) errors: Vec<Violation>,
}

impl ApiError {
    /// Whether the API understood and said no: asked again, it says the same.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Unreachable { .. } => false,
            Self::Refused(problem) => problem.status < 500 && problem.status != 429,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{} ({})", detail, self.status),
            None => write!(f, "{} ({})", self.title, self.status),
        }?;
        for violation in &self.errors {
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

/// A token as the API hands it out.
#[derive(Debug, Deserialize)]
pub(crate) struct IssuedToken {
    /// The token itself.
    pub(crate) access_token: SecretString,
    /// Seconds until it expires.
    pub(crate) expires_in: u64,
    /// Its name, for revoking it.
    pub(crate) token_id: String,
}

/// A finished call.
#[derive(Debug, Deserialize)]
pub(crate) struct CallAnswer {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// What the device said.
    pub(crate) result: Option<CallResult>,
}

/// What a device said.
#[derive(Debug, Deserialize)]
pub(crate) struct CallResult {
    /// The value, as sent.
    pub(crate) data: Option<Box<RawValue>>,
    /// Why it did not work.
    pub(crate) error: Option<String>,
}

#[derive(Serialize)]
struct TokenRequest<'a> {
    subject: &'a str,
    scopes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
}

/// A call as the command line makes it.
#[derive(Debug, Serialize)]
pub(crate) struct CallRequest<'a> {
    /// The service's name.
    pub(crate) service: &'a str,
    /// Its parameters.
    pub(crate) params: &'a RawValue,
    /// How long the device has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    /// `async` or `queued`; a call without it is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<&'static str>,
    /// How long a queued call waits for its device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_ms: Option<u64>,
}

/// What this program reads of a call that is kept.
#[derive(Debug, Deserialize)]
pub(crate) struct KeptCall {
    /// Its id.
    pub(crate) call_id: CallId,
    /// How it ended, once it has.
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
}

impl ApiArguments {
    /// The client for what was given, filled up from a running `up`.
    ///
    /// # Errors
    /// When something is missing that no `up` on this data folder provides.
    pub(crate) fn connect(&self) -> Result<Api, Failure> {
        let missing = self.url.is_none() || self.api_key.is_none();
        let instance = if missing { self.data.instance()? } else { None };
        let (from_url, from_key) = match instance {
            Some(instance) => (
                instance.http_url,
                Some(SecretString::from(instance.api_key)),
            ),
            None => (None, None),
        };
        let none = |what: &str, flag: &str, variable: &str| {
            Failure::usage(format!(
                "no {what}: start `switchboard up`, or give {flag} or the environment variable {variable}"
            ))
        };
        let url = self
            .url
            .clone()
            .or(from_url)
            .ok_or_else(|| none("URL of the API", "--url", "SWITCHBOARD_URL"))?;
        let key = self.api_key.clone().or(from_key);
        let key = key.ok_or_else(|| none("API key", "--api-key", "SWITCHBOARD_API_KEY"))?;
        let site = Site::new(&url, self.tls_ca.as_deref())
            .map_err(|error| Failure::usage(format!("--url: {error:#}")))?;
        Ok(Api { site, url, key })
    }
}

impl Api {
    /// The site and the key, for requests of another kind.
    pub(crate) fn into_parts(self) -> (Site, SecretString) {
        (self.site, self.key)
    }

    /// The host of the API, without a port.
    pub(crate) fn host(&self) -> &str {
        self.site.host()
    }

    /// Gets a token for `subject` (`device:ID`, `client:NAME`).
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
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

    /// Calls a device and waits for the end of the call.
    ///
    /// # Errors
    /// When the API is not reachable, or the call ended without a result.
    pub(crate) async fn call(
        &self,
        device: &DeviceId,
        call: &CallRequest<'_>,
        idempotency_key: Option<&str>,
    ) -> Result<CallAnswer, ApiError> {
        let headers = self.key_header(idempotency_key)?;
        let within = call
            .timeout_ms
            .map_or(LONGEST_CALL, Duration::from_millis)
            .saturating_add(CALL_MARGIN);
        let path = format!("/v1/devices/{device}/calls");
        self.post(&path, call, headers, within).await
    }

    /// Reads something.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.exchange(
            (Method::GET, path),
            HeaderMap::new(),
            Vec::new(),
            REQUEST_TIMEOUT,
        )
        .await
    }

    /// Makes something, once for each key.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn make<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
        idempotency_key: &str,
    ) -> Result<T, ApiError> {
        let headers = self.key_header(Some(idempotency_key))?;
        self.exchange((Method::POST, path), headers, body, TRANSFER_TIMEOUT)
            .await
    }

    /// Sends a request and reads the bytes of its answer.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn bytes(&self, sent: Sent<'_>) -> Result<Bytes, ApiError> {
        let what = (sent.method, sent.path);
        self.answer(what, sent.headers, sent.body, TRANSFER_TIMEOUT)
            .await
    }

    /// Removes something, in whatever version it is.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn remove(&self, path: &str) -> Result<(), ApiError> {
        let any = HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_static("*"))]);
        self.answer((Method::DELETE, path), any, Vec::new(), REQUEST_TIMEOUT)
            .await
            .map(drop)
    }

    /// Sends any request and reads the JSON of its answer; null when it has none.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ApiError> {
        self.exchange((method, path), HeaderMap::new(), body, TRANSFER_TIMEOUT)
            .await
    }

    /// Asks for a call without waiting for its end.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn keep_call(
        &self,
        device: &DeviceId,
        call: &CallRequest<'_>,
        idempotency_key: Option<&str>,
    ) -> Result<KeptCall, ApiError> {
        let headers = self.key_header(idempotency_key)?;
        let path = format!("/v1/devices/{device}/calls");
        self.post(&path, call, headers, REQUEST_TIMEOUT).await
    }

    /// What became of a call: its document, as served, and what matters of it. Waits so long for its end.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn kept_call(
        &self,
        id: CallId,
        wait: Duration,
    ) -> Result<(Box<RawValue>, KeptCall), ApiError> {
        let path = format!("/v1/calls/{id}?wait_ms={}", wait.as_millis());
        let within = wait.saturating_add(REQUEST_TIMEOUT);
        let what = (Method::GET, path.as_str());
        let document: Box<RawValue> = self
            .exchange(what, HeaderMap::new(), Vec::new(), within)
            .await?;
        let call = serde_json::from_str(document.get()).map_err(|error| self.unusable(error))?;
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
        within: Duration,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unusable(error))?;
        self.exchange((Method::POST, path), headers, body, within)
            .await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        what: (Method, &str),
        headers: HeaderMap,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<T, ApiError> {
        let answer = self.answer(what, headers, body, within).await?;
        let answer: &[u8] = if answer.is_empty() { b"null" } else { &answer };
        serde_json::from_slice(answer).map_err(|error| self.unusable(error))
    }

    /// Asks for something that is told event by event.
    ///
    /// # Errors
    /// When the API is not reachable or refuses.
    pub(crate) async fn events(&self, path: &str, body: Vec<u8>) -> Result<Events, ApiError> {
        let mut headers = HeaderMap::new();
        self.sign(&mut headers)?;
        let ask = Ask {
            method: Method::POST,
            path,
            headers,
            body,
            within: REQUEST_TIMEOUT,
        };
        let opened = self.site.open(ask).await;
        let mut answer = opened.map_err(|error| self.unusable(error))?;
        if answer.status.is_success() {
            return Ok(Events::of(answer));
        }
        let whole = answer.whole().await;
        let whole = whole.map_err(|error| self.unusable(error))?;
        Err(self.refusal(answer.status, &whole))
    }

    /// Says who asks, and in which form.
    fn sign(&self, headers: &mut HeaderMap) -> Result<(), ApiError> {
        let mut credential = self.header_value(&format!("Bearer {}", self.key.expose_secret()))?;
        credential.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, credential);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        Ok(())
    }

    /// The body of an answer that is no refusal.
    async fn answer(
        &self,
        (method, path): (Method, &str),
        mut headers: HeaderMap,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<Bytes, ApiError> {
        self.sign(&mut headers)?;
        let ask = Ask {
            method,
            path,
            headers,
            body,
            within,
        };
        let (status, answer) = self
            .site
            .ask(ask)
            .await
            .map_err(|error| self.unusable(error))?;
        if status.is_success() {
            return Ok(answer);
        }
        Err(self.refusal(status, &answer))
    }

    fn refusal(&self, status: StatusCode, answer: &[u8]) -> ApiError {
        match serde_json::from_slice::<Problem>(answer) {
            Ok(problem) => ApiError::Refused(Box::new(Problem {
                status: status.as_u16(),
                ..problem
            })),
            Err(_) => self.unusable(format!("it answered {status}, and not as this API does")),
        }
    }

    fn header_value(&self, text: &str) -> Result<HeaderValue, ApiError> {
        // The text may be a credential: what is wrong with it is said without repeating it.
        HeaderValue::from_str(text)
            .map_err(|_| self.unusable("a key cannot hold line breaks and the like"))
    }

    pub(crate) fn unusable(&self, reason: impl ToString) -> ApiError {
        ApiError::Unreachable {
            url: self.url.clone(),
            reason: reason.to_string(),
        }
    }
}
