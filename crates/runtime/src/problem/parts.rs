//! Extractors for path and query parameters whose rejections are problems.

use axum::{
    extract::{self, FromRequestParts, rejection::PathRejection},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::{Problem, ProblemKind, internal};

/// Path parameters; rejects with 422 `invalid_path`.
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
                ProblemKind::InvalidPath,
                format!("{}.", refused.body_text()),
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
            Err(refused) => Err(Problem::invalid_query(format!("{}.", refused.body_text()))),
        }
    }
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
        check(("GET", "/things/x?limit=2"), 422, "/problems/invalid_path").await;
        check(("GET", "/things/1?limit=999"), 400, "limit").await;
        check(
            ("GET", "/things/1?limit=1&lmit=2"),
            400,
            "unknown field `lmit`",
        )
        .await;
        check(("POST", "/things/1"), 405, "/problems/method_not_allowed").await;
        check(("GET", "/other"), 404, "There is nothing at /other.").await;
    }
}
