//! The endpoint for embeddings. Requests are not retried here.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use secrecy::ExposeSecret;
use serde_json::json;
use switchboard_runtime::outbound::{self, Client, FetchError};
use tokio::time::timeout;

use crate::{Config, response};

/// Maximum bytes of a response: some hundred vectors of thousands of numbers.
const MAX_RESPONSE_BYTES: usize = 32 * 1024 * 1024;

/// Why there are no embeddings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// There was no response.
    #[error("no response of the embeddings endpoint: {0}")]
    Unreachable(String),
    /// There was no response in time: the endpoint hangs, perhaps on one of the texts.
    #[error("the embeddings endpoint did not respond within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The endpoint is overloaded.
    #[error("the embeddings endpoint is busy for {} s", after.as_secs())]
    Busy {
        /// The requested pause.
        after: Duration,
    },
    /// The endpoint rejects these texts.
    #[error("the embeddings endpoint rejects a text: {0}")]
    Rejected(String),
    /// The endpoint does not work, whatever the texts.
    #[error("invalid response of the embeddings endpoint: {0}")]
    Invalid(String),
}

/// An endpoint with its model. Clones share connections.
#[derive(Debug, Clone)]
pub struct Endpoint {
    client: Client<Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    model: Arc<str>,
}

impl Endpoint {
    /// The configured endpoint, if any.
    #[must_use]
    pub fn from_config(config: &Config) -> Option<Self> {
        let (base, model) = (
            config.embeddings_endpoint.as_ref()?,
            config.embeddings_model.as_deref()?,
        );
        let uri = format!("{}/embeddings", base.to_string().trim_end_matches('/'));
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(key) = &config.embeddings_key {
            // A key with a line break cannot be sent; the endpoint then reports a missing key.
            if let Ok(bearer) = outbound::bearer(key.expose_secret()) {
                headers.insert(header::AUTHORIZATION, bearer);
            }
        }
        Some(Self {
            client: outbound::client(true).ok()?,
            uri: uri.parse().ok()?,
            headers,
            model: model.into(),
        })
    }

    /// The name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Embeds texts. The vectors are in the order of the texts, each of length one.
    ///
    /// # Errors
    /// [`EmbedError`] when there are no valid vectors within the timeout.
    pub async fn embed(
        &self,
        texts: &[&str],
        limit: Duration,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let body = json!({"model": &*self.model, "input": texts, "encoding_format": "float"});
        let response = timeout(limit, self.send(body.to_string()))
            .await
            .map_err(|_| EmbedError::TimedOut(limit))?
            .map_err(|error| EmbedError::Unreachable(error.to_string()))?;
        match response.status() {
            StatusCode::OK => response::parse(response.body(), texts.len()),
            status => {
                let sent = self.headers.get(header::AUTHORIZATION);
                let sent = sent.and_then(|bearer| bearer.to_str().ok()?.strip_prefix("Bearer "));
                let key = sent.unwrap_or_default();
                let (headers, body) = (response.headers(), response.body());
                Err(response::error(status, headers, body, key))
            }
        }
    }

    async fn send(&self, body: String) -> Result<Response<Bytes>, FetchError> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        outbound::fetch(&self.client, request, MAX_RESPONSE_BYTES).await
    }
}
