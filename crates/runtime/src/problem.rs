//! RFC 9457 problem documents, the form of every HTTP error that leaves the process.
//!
//! Invariant: a problem never contains the text of a source error, because callers read it.

mod body;
mod kind;
mod mismatch;
mod parts;

use std::future::{Ready, ready};

use axum::{
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use body::{Json, RawBody, body_too_large, parse_json, read_body, unreadable_body};
pub use kind::ProblemKind;
pub use mismatch::{child_pointer, mismatch};
pub use parts::{Path, Query};

/// An error response: a problem document and further headers.
#[derive(Debug)]
pub struct Problem {
    /// Type, status and title.
    pub kind: ProblemKind,
    /// One sentence about this occurrence: what is wrong and what would be accepted.
    pub detail: String,
    /// Further members of the document.
    pub extra: Map<String, Value>,
    /// Further headers of the response.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Creates a problem without further members or headers.
    #[must_use]
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            extra: Map::new(),
            headers: Vec::new(),
        }
    }

    /// Creates a 400 problem for an invalid query parameter.
    #[must_use]
    pub fn invalid_query(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::InvalidQuery, detail)
    }

    /// Creates a 422 problem for the value at a pointer (RFC 6901) in the body.
    #[must_use]
    pub fn invalid_body(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::InvalidBody, detail).at(pointer)
    }

    /// Names the place in the body, a pointer (RFC 6901), that the detail is about.
    #[must_use]
    pub fn at(self, pointer: impl Into<String>) -> Self {
        let errors = json!([{"pointer": pointer.into(), "detail": self.detail}]);
        self.with("errors", errors)
    }

    /// The place in the body, if the problem names one.
    #[must_use]
    pub fn pointer(&self) -> Option<&str> {
        self.extra.get("errors")?.pointer("/0/pointer")?.as_str()
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// Returns the last segment of the document's `type`.
    #[must_use]
    pub const fn slug(&self) -> &'static str {
        self.kind.slug()
    }

    /// Adds a member. A value that cannot be serialised becomes `null`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.extra.insert(key.to_owned(), value);
        self
    }

    /// Adds a header. A value that is not a valid header value is omitted.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers pass literals and numbers"
    )]
    pub fn header(mut self, name: HeaderName, value: impl ToString) -> Self {
        if let Ok(value) = HeaderValue::from_str(&value.to_string()) {
            self.headers.push((name, value));
        }
        self
    }

    /// Serialises the document, for callers that store or embed it.
    #[must_use]
    pub fn document(&self) -> Vec<u8> {
        let document = Document {
            kind: format!("/problems/{}", self.kind.slug()),
            title: self.kind.title(),
            status: self.status().as_u16(),
            detail: &self.detail,
            extra: &self.extra,
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.document().into_response();
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        response
    }
}

/// Fallback of a router for paths without a route.
pub async fn not_found(uri: Uri) -> Problem {
    Problem::new(
        ProblemKind::NotFound,
        format!("There is nothing at {}.", uri.path()),
    )
}

/// The same for a service, whose name the caller reads: another one may have the path.
pub fn not_found_in(service: &'static str) -> impl Fn(Uri) -> Ready<Problem> + Clone {
    move |uri| {
        let path = uri.path();
        ready(Problem::new(
            ProblemKind::NotFound,
            format!("There is nothing at {path} of `switchboard {service}`."),
        ))
    }
}

/// Fallback of a router for methods without a handler. The router adds the `Allow` header.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        ProblemKind::MethodNotAllowed,
        format!(
            "{} does not support {method}; the Allow header lists the supported methods.",
            uri.path()
        ),
    )
}

/// Creates a 500 problem. The caller logs the cause.
#[must_use]
pub fn internal() -> Problem {
    Problem::new(
        ProblemKind::Internal,
        "The request failed because of an internal error; the node's log has the cause.",
    )
}

/// Logs a failed database operation and returns its problem: 503 with `detail` when the database is
/// unavailable, otherwise 500. `failed` is the log message; `report` appears only in the log.
#[must_use]
pub fn store_failed(is_unavailable: bool, report: &str, failed: &str, detail: &str) -> Problem {
    if !is_unavailable {
        tracing::error!(error = report, "{failed}");
        return internal();
    }
    tracing::warn!(error = report, "{failed}");
    Problem::new(ProblemKind::StoreUnavailable, detail).header(header::RETRY_AFTER, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn problem_has_its_members_and_headers() {
        let response = Problem::new(ProblemKind::DeviceOffline, "No.")
            .with("delivered", "no")
            .header(header::RETRY_AFTER, 1)
            .header(header::RETRY_AFTER, "not\na header")
            .into_response();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(
            response
                .headers()
                .get_all(header::RETRY_AFTER)
                .iter()
                .count(),
            1
        );
        let body = axum::body::to_bytes(response.into_body(), 4096)
            .await
            .unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&body).unwrap(),
            serde_json::json!({
                "type": "/problems/offline", "title": "Device offline", "status": 409,
                "detail": "No.", "delivered": "no",
            })
        );
    }
}
