//! One provider: where it is, how and for which models it is asked, and whether it is left alone now.
//! Never: a redirect followed, a key that is not marked as secret, or a model that the operator did not list.

use std::collections::HashSet;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use switchboard_runtime::outbound::{self, Client};

use crate::{
    ConfigError,
    failure::{Failure, causes},
    model::Model,
    refusal::{self, Said},
    rests::Rests,
    settings::{LimitField, Settings},
};

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("switchboard/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

/// How many models that are not listed are remembered, so that each is told of once.
const MOST_NOTED: usize = 64;

/// One provider.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub name: String,
    /// The one that it is asked for, unless another is wished.
    pub model: Model,
    pub limit_field: LimitField,
    pub rests: Rests,
    /// Others that may be wished.
    listed: Vec<Model>,
    unlisted: Mutex<HashSet<String>>,
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
        let wrong = |reason: &str| ConfigError::Provider {
            name: settings.name.clone(),
            reason: reason.to_owned(),
        };
        let base = settings.endpoint.to_string();
        let uri = format!("{}/chat/completions", base.trim_end_matches('/'));
        let uri = uri
            .parse()
            .map_err(|_| wrong("its endpoint must be a URL below which there are paths"))?;
        let mut headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, JSON),
            (header::ACCEPT, EVENTS),
            (header::USER_AGENT, AGENT),
        ]);
        if let Some(key) = &settings.key {
            let bearer = outbound::bearer(key.expose_secret().trim())
                .map_err(|_| wrong("its key must be of characters that a header may have"))?;
            headers.insert(header::AUTHORIZATION, bearer);
        }
        Ok(Self {
            name: settings.name,
            model: Model::new(settings.model),
            limit_field: settings.limit_field,
            rests: Rests::default(),
            listed: settings.models.into_iter().map(Model::new).collect(),
            unlisted: Mutex::default(),
            uri,
            headers,
            key: settings.key,
            client,
        })
    }

    /// Asks, and waits for the beginning of the answer.
    pub(crate) async fn send(&self, body: Bytes) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let answer = outbound::begin(&self.client, request).await;
        answer.map_err(|error| {
            Failure::unavailable(format!("it does not answer: {}", causes(&error)))
        })
    }

    /// What it says, as it may be repeated.
    pub(crate) fn clean(&self, said: Said) -> Said {
        said.cleaned(self.key.as_ref())
    }

    /// The model of this name, when the operator listed it; else the provider's own.
    pub(crate) fn model_called(&self, name: &str) -> &Model {
        let mut models = std::iter::once(&self.model).chain(&self.listed);
        models.find(|model| model.name == name).unwrap_or_else(|| {
            let name = refusal::clean(name, None);
            if self.note_unlisted(&name) {
                tracing::info!(
                    provider.name = self.name,
                    model.name = name,
                    "a model is wished that is not listed for this provider; its own is asked"
                );
            }
            &self.model
        })
    }

    /// Whether nobody wished for this one before, as far as is remembered.
    fn note_unlisted(&self, name: &str) -> bool {
        let mut unlisted = self.unlisted.lock();
        unlisted.len() < MOST_NOTED && unlisted.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Listed, Prices};
    use switchboard_runtime::outbound;

    fn listed(name: &str, price: f64) -> Listed {
        Listed {
            name: name.to_owned(),
            prices: Prices {
                prompt: price,
                completion: price,
            },
        }
    }

    fn endpoint(base: &'static str, key: &str) -> Result<Endpoint, ConfigError> {
        let settings = Settings {
            name: "a".to_owned(),
            endpoint: Uri::from_static(base),
            model: listed("m", 1.0),
            models: vec![listed("n", 2.0)],
            key: Some(key.into()),
            limit_field: LimitField::MaxTokens,
        };
        Endpoint::new(settings, outbound::client(true).unwrap())
    }

    #[test]
    fn it_is_asked_below_its_base() {
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
    fn its_key_is_shown_nowhere() {
        let one = endpoint("http://a", " sk-secret\n").unwrap();
        assert_eq!(one.headers[header::AUTHORIZATION], "Bearer sk-secret");
        assert!(!format!("{one:?}").contains("sk-secret"));
        let said = one.clean(Said::new("wrong sk-secret".to_owned(), None));
        assert_eq!(said.message, "wrong (the key)");
        let error = endpoint("http://a", "sk-\nsecret").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn only_what_is_listed_is_asked_and_at_its_own_price() {
        let one = endpoint("http://a", "k").unwrap();
        for (wished, expected, price) in [("m", "m", 1.0), ("n", "n", 2.0), ("o", "m", 1.0)] {
            let model = one.model_called(wished);
            let found = (model.name.as_str(), model.prices.prompt);
            assert_eq!(found, (expected, price), "{wished}");
        }
    }

    #[test]
    fn what_is_not_listed_is_told_of_once_and_not_without_end() {
        let one = endpoint("http://a", "k").unwrap();
        assert!(one.note_unlisted("o"));
        assert!(!one.note_unlisted("o"));
        let noted = (0..1_000).filter(|number| one.note_unlisted(&number.to_string()));
        assert_eq!(noted.count(), MOST_NOTED - 1);
    }
}
