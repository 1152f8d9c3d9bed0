//! RFC 9457 problem documents: the one shape in which an HTTP error leaves the process.
//! Never: a source error's text in one, since a problem is read by whoever called.

mod body;
mod parts;

use axum::{
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use body::too_large;
pub use body::{Json, RawBody, parse, read_whole, too_large as body_too_large};
pub use parts::{Path, Query};

/// What a caller is told when a request did not do what it asked for.
#[derive(Debug)]
pub struct Problem {
    /// The status of the response, repeated in the document.
    pub status: StatusCode,
    /// What the kind of problem is called in machines' words; `type` is `/problems/<slug>`.
    pub slug: &'static str,
    /// What the kind of problem is called in people's words.
    pub title: &'static str,
    /// One sentence about this occurrence: what was wrong and what would be right.
    pub detail: String,
    /// Further members of the document.
    pub extra: Map<String, Value>,
    /// Further headers of the response.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem without further members or headers.
    #[must_use]
    pub fn new(
        status: StatusCode,
        slug: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            slug,
            title,
            detail: detail.into(),
            extra: Map::new(),
            headers: Vec::new(),
        }
    }

    /// A parameter of the query does not do: 400.
    #[must_use]
    pub fn invalid_query(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_query",
            "Invalid query",
            detail,
        )
    }

    /// The problem with one more member; a value that is no JSON becomes `null`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.extra.insert(key.to_owned(), value);
        self
    }

    /// The problem with one more header; a value that no header can carry is left out.
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

    /// The document itself, for those who store or embed it.
    #[must_use]
    pub fn document(&self) -> Vec<u8> {
        let document = Document {
            kind: format!("/problems/{}", self.slug),
            title: self.title,
            status: self.status.as_u16(),
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
        *response.status_mut() = self.status;
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

/// The fallback of every router: no such path.
pub async fn not_found(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "Not found",
        format!("There is nothing at {}.", uri.path()),
    )
}

/// The fallback of every route: no such method. The router itself adds `Allow`.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "Method not allowed",
        format!(
            "{} does not take {method}; the Allow header lists what it takes.",
            uri.path()
        ),
    )
}

/// Our own mistake; what it was stays in the log.
#[must_use]
pub fn internal() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "Internal error",
        "The request failed through a mistake of ours; the log of the node has the reason.",
    )
}

/// A record could not be asked, so that `failed`. The detail says what that means while it is away; all else is our own
/// fault. `report` is for the log alone.
#[must_use]
pub fn record_failed(is_away: bool, report: &str, failed: &str, detail: &str) -> Problem {
    if !is_away {
        tracing::error!(error = report, "{failed}");
        return internal();
    }
    tracing::warn!(error = report, "{failed}");
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "store_unavailable",
        "Record unavailable",
        detail,
    )
    .header(header::RETRY_AFTER, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_problem_carries_its_members_and_headers() {
        let response = Problem::new(StatusCode::CONFLICT, "offline", "Device offline", "No.")
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
