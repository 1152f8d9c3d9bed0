//! Extractors for path and query parameters whose rejections are problems.

use axum::{
    extract::{self, FromRequestParts, path::ErrorKind, rejection::PathRejection},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::{
    Problem, ProblemKind, internal,
    mismatch::{quoted_after, reason},
};

/// Path parameters. Rejects with 404: nothing has an id that does not parse.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match extract::Path::from_request_parts(parts, state).await {
            Ok(extract::Path(value)) => Ok(Self(value)),
            Err(PathRejection::FailedToDeserializePathParams(refused)) => Err(Problem::new(
                ProblemKind::NotFound,
                unparsed(parts.uri.path(), refused.kind()),
            )),
            // The route lacks parameters that its handler extracts: an internal error.
            Err(_) => Err(internal()),
        }
    }
}

/// Query parameters; rejects with 400 `invalid_query`.
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match extract::Query::from_request_parts(parts, state).await {
            Ok(extract::Query(value)) => Ok(Self(value)),
            Err(refused) => Err(Problem::invalid_query(invalid_query(&refused.body_text()))),
        }
    }
}

fn unparsed(path: &str, kind: &ErrorKind) -> String {
    let (ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message)) = kind else {
        return format!("There is nothing at {path}: a part of it is no valid id.");
    };
    format!("There is nothing at {path}: {message}.")
}

/// Explains a message of the form `…: parameter: reason`.
fn invalid_query(message: &str) -> String {
    let message = message
        .rsplit_once("query string: ")
        .map_or(message, |(_, rest)| rest);
    if let Some(name) = quoted_after(message, "missing field ") {
        return format!("The query parameter `{name}` is required.");
    }
    let Some((name, message)) = message.split_once(": ") else {
        return format!("The query {}.", reason(message));
    };
    let reason = match message {
        "invalid digit found in string" => "must be an integer of at least 0".to_owned(),
        "cannot parse integer from empty string" => "must not be empty".to_owned(),
        "number too large to fit in target type" => "is too large".to_owned(),
        "provided string was not `true` or `false`" => "must be `true` or `false`".to_owned(),
        other => reason(other),
    };
    format!("The query parameter `{name}` {reason}.")
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, http::Request, response::IntoResponse, routing::get};
    use serde::Deserialize;
    use tower::ServiceExt;

    use super::*;
    use crate::problem::{method_not_allowed, not_found};

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Page {
        limit: u8,
    }

    #[tokio::test]
    async fn every_rejection_is_a_problem() {
        async fn handler(Path(id): Path<u8>, Query(page): Query<Page>) -> impl IntoResponse {
            format!("{id} {}", page.limit)
        }
        async fn check(request: (&str, &str), status: u16, part: &str) {
            let router = Router::new()
                .route("/things/{id}", get(handler))
                .method_not_allowed_fallback(method_not_allowed)
                .fallback(not_found);
            let (method, uri) = request;
            let request = Request::builder().method(method).uri(uri);
            let response = router
                .oneshot(request.body(Body::empty()).unwrap())
                .await
                .unwrap();
            assert_eq!(response.status().as_u16(), status, "{uri}");
            let body = axum::body::to_bytes(response.into_body(), 4096)
                .await
                .unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(body.contains(part), "{uri}: {body}");
        }
        check(("GET", "/things/1?limit=2"), 200, "1 2").await;
        check(("GET", "/things/x?limit=2"), 404, "/problems/not_found").await;
        check(
            ("GET", "/things/1?limit=999"),
            400,
            "The query parameter `limit` is too large.",
        )
        .await;
        check(
            ("GET", "/things/1?limit=-1"),
            400,
            "an integer of at least 0",
        )
        .await;
        check(
            ("GET", "/things/1"),
            400,
            "The query parameter `limit` is required.",
        )
        .await;
        check(
            ("GET", "/things/1?limit=1&lmit=2"),
            400,
            "The query parameter `lmit` is not known; expected `limit`.",
        )
        .await;
        check(("POST", "/things/1"), 405, "/problems/method_not_allowed").await;
        check(("GET", "/other"), 404, "There is nothing at /other.").await;
    }
}
