//! Contact with a provider: whether it is there and accepts the key, without use that costs money.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Request, StatusCode, Uri,
    header::{AUTHORIZATION, HeaderValue},
};
use tokio::time::timeout;

use super::{Client, send, with_causes};

/// What a contact with a provider showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// Name of the provider.
    pub provider: String,
    /// What was attempted, without credentials.
    pub attempt: String,
    /// What the provider answered, or why it cannot be used.
    pub result: Result<String, String>,
}

/// An API like OpenAI's.
#[derive(Debug)]
pub struct Api<'a> {
    /// The client of its requests.
    pub client: &'a Client<Full<Bytes>>,
    /// The base URL, without a slash at the end.
    pub base: &'a str,
    /// The path of its requests below the base URL, with a slash.
    pub path: &'a str,
    /// The credential, if any.
    pub authorization: Option<&'a HeaderValue>,
}

/// What a status means for the use of an API.
fn check(status: StatusCode) -> Result<String, String> {
    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(format!("it rejects the key: status {code}"))
        }
        status if status.is_success() => Ok(format!("status {code}")),
        _ => Err(format!("status {code}")),
    }
}

impl Api<'_> {
    /// Lists the models, which costs nothing, and requires the key where the API has one. Not every
    /// API has a list: without one, the path of its requests must exist.
    pub async fn contact(&self, provider: &str, limit: Duration) -> Contact {
        let list = format!("{}/models", self.base);
        let used = format!("{}{}", self.base, self.path);
        let listed = self.get(&list, limit).await;
        let (attempt, result) = if listed == Ok(StatusCode::NOT_FOUND) {
            let found = self.get(&used, limit).await;
            let result = found.and_then(|status| match status {
                StatusCode::NOT_FOUND => {
                    Err("there is no such API at this URL: status 404".to_owned())
                }
                // Its requests have another method and a body.
                StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::BAD_REQUEST
                | StatusCode::UNPROCESSABLE_ENTITY => {
                    Ok("it is there, and has no list of models to check the key with".to_owned())
                }
                status => check(status),
            });
            (format!("GET {list} and {used}"), result)
        } else {
            (format!("GET {list}"), listed.and_then(check))
        };
        Contact {
            provider: provider.to_owned(),
            attempt,
            result,
        }
    }

    async fn get(&self, uri: &str, limit: Duration) -> Result<StatusCode, String> {
        let uri: Uri = uri.parse().map_err(|_| "its URL is invalid".to_owned())?;
        let mut request = Request::new(Full::default());
        *request.uri_mut() = uri;
        *request.headers_mut() = HeaderMap::from_iter(
            self.authorization
                .map(|credential| (AUTHORIZATION, credential.clone())),
        );
        let response = timeout(limit, send(self.client, request)).await;
        let response = response.map_err(|_| format!("no response within {} s", limit.as_secs()))?;
        let response = response.map_err(|error| with_causes(&error).to_string())?;
        Ok(response.status())
    }
}
