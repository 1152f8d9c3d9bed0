//! The API as a document (OpenAPI 3.1), finished from what the routes' code says of itself, and its page for people.
//! Never: a page that loads anything from another host, or a limit written here by hand.

mod operation;
mod problems;
mod schemas;

use axum::{
    Router,
    http::{HeaderValue, header},
    routing::get,
};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

pub use problems::ProblemKind;

/// Where programs read the document.
const DOCUMENT: &str = "/openapi.json";
/// Where people do.
const PAGE: &str = "/docs";
/// What the page may load: what this process serves.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                      img-src 'self' data:; font-src 'self'; connect-src 'self'; frame-ancestors 'none'";
const DESCRIPTION: &str = "Call devices, see who is there, and set up what agents use. Errors are problem documents \
                           (RFC 9457); their `type` says what happened, and each status lists the types it can have.";

/// An OpenAPI document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document(Value);

impl Document {
    /// The document of some routes, and the kinds of problems that they name beside those that every route has.
    ///
    /// An operation says with `x-problems` which kinds it answers with. `x-idempotent` stands for an Idempotency-Key,
    /// `x-if-match` for If-Match, each with the problems that come with it.
    #[must_use]
    pub fn new(openapi: OpenApi, kinds: &[ProblemKind]) -> Self {
        let mut document = serde_json::to_value(openapi).unwrap_or_default();
        document["openapi"] = json!("3.1.0");
        document["info"] = json!({
            "title": "Switchboard", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        });
        document["servers"] =
            json!([{"url": "/", "description": "The server that this was read from"}]);
        schemas::finish(&mut document["components"]["schemas"]);
        document["components"]["schemas"]["Problem"] = problems::schema();
        document["components"]["parameters"] = operation::parameters();
        document["components"]["securitySchemes"] = json!({
            "credential": {"type": "http", "scheme": "bearer", "description":
                "An API key (`sb_…`) or an access token of an organisation. The scopes that it needs are named."},
            "operator": {"type": "http", "scheme": "bearer", "description":
                "The operator key of the installation."},
        });
        operation::finish(&mut document, kinds);
        Self(document)
    }

    /// This document with another's routes.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        let Value::Object(other) = other.0 else {
            return self;
        };
        for (name, theirs) in other {
            match (name.as_str(), theirs) {
                ("paths", Value::Object(paths)) => extend(&mut self.0["paths"], paths),
                ("components", Value::Object(components)) => {
                    for (kind, members) in components {
                        if let Value::Object(members) = members {
                            extend(&mut self.0["components"][&kind], members);
                        }
                    }
                }
                ("tags", Value::Array(tags)) => {
                    if let Some(own) = self.0["tags"].as_array_mut() {
                        own.extend(tags);
                    }
                }
                _ => {}
            }
        }
        self
    }

    /// Names what the operations are grouped by.
    #[must_use]
    pub fn tagged(mut self, tags: &[(&str, &str)]) -> Self {
        let tags = tags.iter();
        let tags: Vec<_> = tags
            .map(|(name, description)| json!({"name": name, "description": description}))
            .collect();
        self.0["tags"] = tags.into();
        self
    }

    /// Adds keywords to the schema at a place in a schema: `/tags/*` are the elements of the member `tags`.
    #[must_use]
    pub fn limited(mut self, schema: &str, place: &str, limits: &Value) -> Self {
        if let Some(limits) = limits.as_object() {
            schemas::limit(&mut self.0["components"]["schemas"], schema, place, limits);
        }
        self
    }

    /// Says that a schema, and what it consists of, has no other members than those that are named.
    #[must_use]
    pub fn closed(mut self, schema: &str) -> Self {
        schemas::close(&mut self.0["components"]["schemas"], schema);
        self
    }

    /// Adds the schema of a merge patch (RFC 7396) to the schema of what it patches.
    #[must_use]
    pub fn with_patch(mut self, patch: &str, of: &str) -> Self {
        schemas::add_patch(&mut self.0["components"]["schemas"], patch, of);
        self
    }

    /// The document as JSON.
    #[must_use]
    pub const fn as_json(&self) -> &Value {
        &self.0
    }

    /// The routes under which the document is read, by programs and by people.
    pub fn routes(&self) -> Router {
        let json = Bytes::from(self.0.to_string());
        let document = get(move || {
            let json = json.clone();
            async move { ([(header::CONTENT_TYPE, "application/json")], json) }
        });
        let page = SwaggerUi::new(PAGE).config(
            Config::from(DOCUMENT)
                .validator_url("none")
                .persist_authorization(false),
        );
        let policy = SetResponseHeaderLayer::overriding(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(POLICY),
        );
        Router::from(page)
            .layer(policy)
            .route(DOCUMENT, document)
            .method_not_allowed_fallback(crate::problem::method_not_allowed)
    }
}

fn extend(target: &mut Value, members: Map<String, Value>) {
    match target {
        Value::Object(own) => own.extend(members),
        other => *other = Value::Object(members),
    }
}
