//! The endpoint of one provider, with its models and its cooldowns.
//! Invariant: only configured models are requested.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use switchboard_runtime::outbound::{self, Api, Client, Contact};

use crate::{
    ConfigError,
    cooldowns::Cooldowns,
    error_response::{self, ErrorMessage},
    failure::{Failure, causes},
    model::Model,
    settings::{LimitField, Settings},
};

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("switchboard/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

/// The path of requests below the base URL.
const PATH: &str = "/chat/completions";
/// Unknown models that are remembered, so that each is logged once.
const MAX_NOTED_MODELS: usize = 64;

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub name: String,
    /// The default model.
    pub model: Model,
    pub limit_field: LimitField,
    pub cooldowns: Cooldowns,
    /// Other configured models.
    other_models: Vec<Model>,
    unknown_models: Mutex<HashSet<String>>,
    /// The base URL, without a slash at the end.
    base: String,
    uri: Uri,
    headers: HeaderMap,
    key: Option<SecretString>,
    client: Client<Full<Bytes>>,
}

impl Endpoint {
    pub(crate) fn new(
        settings: Settings,
        client: Client<Full<Bytes>>,
    ) -> Result<Self, ConfigError> {
        let invalid = |reason: &str| ConfigError::Provider {
            name: settings.name.clone(),
            reason: reason.to_owned(),
        };
        let base = settings.endpoint.to_string();
        let base = base.trim_end_matches('/').to_owned();
        let uri = format!("{base}{PATH}")
            .parse()
            .map_err(|_| invalid("the endpoint must be a URL that can be extended by a path"))?;
        let mut headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, JSON),
            (header::ACCEPT, EVENTS),
            (header::USER_AGENT, AGENT),
        ]);
        if let Some(key) = &settings.key {
            let bearer = outbound::bearer(key.expose_secret().trim()).map_err(|_| {
                invalid("the key must contain only characters that are valid in a header")
            })?;
            headers.insert(header::AUTHORIZATION, bearer);
        }
        Ok(Self {
            name: settings.name,
            model: Model::new(settings.model),
            limit_field: settings.limit_field,
            cooldowns: Cooldowns::default(),
            other_models: settings.models.into_iter().map(Model::new).collect(),
            unknown_models: Mutex::default(),
            base,
            uri,
            headers,
            key: settings.key,
            client,
        })
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(&self, body: Bytes) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let response = outbound::send(&self.client, request).await;
        response.map_err(|error| Failure::unavailable(format!("no response: {}", causes(&error))))
    }

    /// Contacts the provider without a request for a reply.
    pub(crate) async fn contact(&self, limit: Duration) -> Contact {
        let api = Api {
            client: &self.client,
            base: &self.base,
            path: PATH,
            authorization: self.headers.get(header::AUTHORIZATION),
        };
        api.contact(&self.name, limit).await
    }

    /// The message in a form that may be logged.
    pub(crate) fn redact(&self, message: ErrorMessage) -> ErrorMessage {
        message.redacted(self.key.as_ref())
    }

    /// The configured model with this name, else the default model.
    pub(crate) fn find_model(&self, name: &str) -> &Model {
        let mut models = std::iter::once(&self.model).chain(&self.other_models);
        models.find(|model| model.name == name).unwrap_or_else(|| {
            let name = error_response::redact(name, None);
            if self.note_unknown(&name) {
                tracing::info!(
                    provider.name = self.name,
                    model.name = name,
                    "requested model is not configured for this provider; using the provider's default"
                );
            }
            &self.model
        })
    }

    /// Whether any of its models does.
    pub(crate) fn sees_pictures(&self) -> bool {
        let mut models = std::iter::once(&self.model).chain(&self.other_models);
        models.any(|model| model.sees_pictures)
    }

    /// Remembers an unknown model. Returns whether it is new and there was room.
    fn note_unknown(&self, name: &str) -> bool {
        let mut unknown = self.unknown_models.lock();
        unknown.len() < MAX_NOTED_MODELS && unknown.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ModelSettings, Prices};
    use switchboard_runtime::outbound;

    fn model(name: &str, price: f64) -> ModelSettings {
        ModelSettings {
            name: name.to_owned(),
            prices: Prices {
                prompt: price,
                completion: price,
            },
            sees_pictures: false,
        }
    }

    fn endpoint(base: &'static str, key: &str) -> Result<Endpoint, ConfigError> {
        let settings = Settings {
            name: "a".to_owned(),
            endpoint: Uri::from_static(base),
            model: model("m", 1.0),
            models: vec![model("n", 2.0)],
            key: Some(key.into()),
            limit_field: LimitField::MaxTokens,
        };
        Endpoint::new(settings, outbound::client(true).unwrap())
    }

    #[test]
    fn path_is_appended_to_the_base_url() {
        for base in ["http://a/v1", "http://a/v1/"] {
            let endpoint = endpoint(base, "k").unwrap();
            assert_eq!(endpoint.uri, "http://a/v1/chat/completions");
        }
        assert_eq!(
            endpoint("http://a", "k").unwrap().uri,
            "http://a/chat/completions"
        );
    }

    #[test]
    fn key_is_redacted_everywhere() {
        let one = endpoint("http://a", " sk-secret\n").unwrap();
        assert_eq!(one.headers[header::AUTHORIZATION], "Bearer sk-secret");
        assert!(!format!("{one:?}").contains("sk-secret"));
        let message = one.redact(ErrorMessage::new("wrong sk-secret".to_owned(), None));
        assert_eq!(message.message, "wrong (the key)");
        let error = endpoint("http://a", "sk-\nsecret").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn only_configured_models_are_requested() {
        let one = endpoint("http://a", "k").unwrap();
        for (requested, expected, price) in [("m", "m", 1.0), ("n", "n", 2.0), ("o", "m", 1.0)] {
            let model = one.find_model(requested);
            let found = (model.name.as_str(), model.prices.prompt);
            assert_eq!(found, (expected, price), "{requested}");
        }
    }

    #[test]
    fn unknown_models_are_logged_once_and_bounded() {
        let one = endpoint("http://a", "k").unwrap();
        assert!(one.note_unknown("o"));
        assert!(!one.note_unknown("o"));
        let noted = (0..1_000).filter(|number| one.note_unknown(&number.to_string()));
        assert_eq!(noted.count(), MAX_NOTED_MODELS - 1);
    }
}
