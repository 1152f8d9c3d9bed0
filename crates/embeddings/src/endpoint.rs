//! One endpoint and one model: texts in, vectors out.
//! Never: a redirect followed, or a text sent a second time by itself.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use secrecy::ExposeSecret;
use serde_json::json;
use switchboard_runtime::outbound::{self, AskError, Client};
use tokio::time::timeout;

use crate::{Config, answer};

/// The longest answer that is read, in bytes: some hundred vectors of thousands of numbers.
const LONGEST_ANSWER: usize = 32 * 1024 * 1024;
/// Why there are no embeddings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// No answer came.
    #[error("the embeddings endpoint does not answer: {0}")]
    Unreachable(String),
    /// It wants to be left alone for a while.
    #[error("the embeddings endpoint has too much to do, and is left alone for {} s", after.as_secs())]
    Busy {
        /// For so long.
        after: Duration,
    },
    /// It does not take these texts.
    #[error("the embeddings endpoint refuses a text: {0}")]
    Refused(String),
    /// What it says is no use, whatever the texts.
    #[error("the embeddings endpoint is no use: {0}")]
    Unusable(String),
}

/// Where embeddings are made, and by which model. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Endpoint {
    client: Client<Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    model: Arc<str>,
}

impl Endpoint {
    /// The endpoint that an operator set, if one is.
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
            // One with a line break could not be sent; the endpoint then says that it misses a key.
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

    /// The vectors of these texts, in their order, each of length one.
    ///
    /// # Errors
    /// [`EmbedError`] when there are none within this time.
    pub async fn embed(
        &self,
        texts: &[&str],
        within: Duration,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let asked = json!({"model": &*self.model, "input": texts, "encoding_format": "float"});
        let answer = timeout(within, self.ask(asked.to_string()))
            .await
            .map_err(|_| EmbedError::Unreachable(format!("nothing in {} ms", within.as_millis())))?
            .map_err(|error| EmbedError::Unreachable(error.to_string()))?;
        match answer.status() {
            StatusCode::OK => answer::read(answer.body(), texts.len()),
            status => Err(answer::refusal(status, answer.headers(), answer.body())),
        }
    }

    async fn ask(&self, body: String) -> Result<Response<Bytes>, AskError> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        outbound::ask(&self.client, request, LONGEST_ANSWER).await
    }
}
