//! What the parts of a request report when they are invalid.

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
