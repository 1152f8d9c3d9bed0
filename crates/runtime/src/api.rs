//! The OpenAPI 3.1 document of the API and its page. The page loads nothing from other hosts, and
//! limits come from the code that enforces them.

mod operation;
#[cfg(feature = "api-page")]
mod page;
mod problems;
mod root;
mod runbooks;
mod schemas;

use axum::{
    Router,
    http::{Method, header},
    routing::{MethodFilter, get},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

use crate::problem::ProblemKind;

/// Path of the document.
const DOCUMENT: &str = "/openapi.json";
/// Path of the human-readable page.
const PAGE: &str = "/docs";
const DESCRIPTION: &str = "List and call devices, and manage the settings of agents. Errors are problem documents \
                           (RFC 9457); `type` identifies the error, and each status lists its possible types.";

/// An OpenAPI document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document(Value);

impl Document {
    /// Creates the document of some routes. `kinds` are the problem kinds that these routes can
    /// name, besides those of every route.
    ///
    /// An operation lists the kinds it can return in `x-problems`. `x-idempotent` adds the
    /// Idempotency-Key header, `x-if-match` the If-Match header, each with its problems.
    #[must_use]
    pub fn new(openapi: OpenApi, kinds: &[ProblemKind]) -> Self {
        let mut document = serde_json::to_value(openapi).unwrap_or_default();
        document["openapi"] = json!("3.1.0");
        document["info"] = json!({
            "title": "Switchboard", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        });
        document["servers"] = json!([{"url": "/", "description": "The server of this document"}]);
        schemas::finish(&mut document["components"]["schemas"]);
        document["components"]["schemas"]["Problem"] = problems::schema();
        document["components"]["parameters"] = operation::parameters();
        document["components"]["securitySchemes"] = json!({
            "credential": {"type": "http", "scheme": "bearer", "description":
                "An API key (`sb_…`) or an access token of an organisation, with the listed scopes."},
            "operator": {"type": "http", "scheme": "bearer", "description":
                "The operator key of the installation."},
        });
        operation::finish(&mut document, kinds);
        let problems = problems::schemas(&document);
        extend(&mut document["components"]["schemas"], problems);
        Self(document)
    }

    /// Adds the routes of another document.
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

    /// Describes the tags that group the operations.
    #[must_use]
    pub fn tagged(mut self, tags: &[(&str, &str)]) -> Self {
        let tags = tags.iter();
        let tags: Vec<_> = tags
            .map(|(name, description)| json!({"name": name, "description": description}))
            .collect();
        self.0["tags"] = tags.into();
        self
    }

    /// Adds keywords to the schema at a path within a schema: `/tags/*` is the elements of the
    /// member `tags`.
    #[must_use]
    pub fn limited(mut self, schema: &str, place: &str, limits: &Value) -> Self {
        if let Some(limits) = limits.as_object() {
            schemas::limit(&mut self.0["components"]["schemas"], schema, place, limits);
        }
        self
    }

    /// Forbids members that a schema, or one that it contains, does not define.
    #[must_use]
    pub fn closed(mut self, schema: &str) -> Self {
        schemas::close(&mut self.0["components"]["schemas"], schema);
        self
    }

    /// Adds the merge patch schema (RFC 7396) of a schema.
    #[must_use]
    pub fn with_patch(mut self, patch: &str, of: &str) -> Self {
        schemas::add_patch(&mut self.0["components"]["schemas"], patch, of);
        self
    }

    /// Returns the document as JSON.
    #[must_use]
    pub const fn as_json(&self) -> &Value {
        &self.0
    }

    /// Returns the paths of the document, in the syntax of routes, each with its methods.
    pub fn paths(&self) -> impl Iterator<Item = (&str, MethodFilter)> {
        let paths = self.0["paths"].as_object();
        paths.into_iter().flatten().filter_map(|(path, item)| {
            let methods = item.as_object()?.keys();
            let methods = methods.filter_map(|name| name.to_ascii_uppercase().parse().ok());
            let methods = methods.filter_map(|method: Method| MethodFilter::try_from(method).ok());
            Some((path.as_str(), methods.reduce(MethodFilter::or)?))
        })
    }

    /// Returns the routes of the document and its page, of `/`, which leads to both and names the
    /// service, and of the runbooks.
    pub fn routes(&self, service: &'static str) -> Router {
        let json = Bytes::from(self.0.to_string());
        let document = get(move || {
            let json = json.clone();
            async move { ([(header::CONTENT_TYPE, "application/json")], json) }
        });
        page::routes()
            .merge(root::routes(service))
            .merge(runbooks::routes())
            .route(DOCUMENT, document)
            .method_not_allowed_fallback(crate::problem::method_not_allowed)
    }
}

#[cfg(not(feature = "api-page"))]
mod page {
    //! Answers that this build has no page.

    use axum::{Router, routing::get};

    const TEXT: &str = "This build has no page of the API; start Switchboard with `./up --release` for it. \
                        The OpenAPI document is at /openapi.json.\n";

    pub(super) fn routes() -> Router {
        Router::new().route(super::PAGE, get(|| async { TEXT }))
    }
}

fn extend(target: &mut Value, members: Map<String, Value>) {
    match target {
        Value::Object(own) => own.extend(members),
        other => *other = Value::Object(members),
    }
}
