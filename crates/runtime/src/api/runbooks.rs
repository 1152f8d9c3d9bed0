//! The runbooks at `/runbooks/NAME`, where alerts lead: those of the version that runs.

use axum::{
    Router,
    extract::Path,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};

use crate::problem::{Problem, ProblemKind};

/// The text of the list of runbooks.
const LIST: &str = include_str!("../../../../docs/runbooks/README.md");

/// Names and texts.
macro_rules! pages {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../docs/runbooks/", $name, ".md")))),+]
    };
}

const PAGES: &[(&str, &str)] = pages![
    "absent",
    "auth-failures",
    "bus-backlog",
    "bus-down",
    "bus-dropping",
    "bus-flapping",
    "bus-malformed",
    "bus-slow",
    "calls-burn",
    "chat-failing",
    "conversations-dropped",
    "devices-burn",
    "devices-gone",
    "edge-out-of-resources",
    "edge-shedding",
    "facts-lag",
    "facts-lost",
    "facts-waiting",
    "key-set-refused",
    "latency-burn",
    "provider-failing",
    "requests-burn",
    "service-gone",
    "speech-provider-failing",
    "store-failing",
    "store-slow",
    "target-down",
    "trust-unpublished",
    "turns-unanswered",
    "usage-lost",
    "versions-mixed",
    "voice-late",
    "voice-slow",
    "webhooks-dropped",
    "webhooks-pending",
];

pub(super) fn routes() -> Router {
    Router::new()
        .route("/runbooks/", get(|| async { text(LIST) }))
        .route("/runbooks/{name}", get(page))
}

/// Pages link to each other by file name.
async fn page(Path(name): Path<String>) -> Response {
    let name = name.strip_suffix(".md").unwrap_or(&name);
    match PAGES.iter().find(|(page, _)| *page == name) {
        Some((_, page)) => text(page),
        None => {
            let detail = "There is no such runbook; /runbooks/ lists all.";
            Problem::new(ProblemKind::NotFound, detail).into_response()
        }
    }
}

/// Markdown, which browsers show as it is.
fn text(markdown: &'static str) -> Response {
    (
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        markdown,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use axum::{
        body::{Body, to_bytes},
        http::{Request, StatusCode},
    };
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn every_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks");
        let get = async |path: String| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = routes().oneshot(request).await.unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), 1024 * 1024).await.unwrap();
            (status, String::from_utf8(body.into()).unwrap())
        };
        for file in fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            let name = file.file_name().into_string().unwrap();
            if name == "README.md" {
                assert_eq!(get("/runbooks/".to_owned()).await, (StatusCode::OK, text));
                continue;
            }
            for name in [&*name, name.trim_end_matches(".md")] {
                let served = get(format!("/runbooks/{name}")).await;
                assert_eq!(served, (StatusCode::OK, text.clone()), "{name}");
            }
        }
        let (status, problem) = get("/runbooks/other".to_owned()).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(problem.contains("/runbooks/ lists all"), "{problem}");
    }
}
