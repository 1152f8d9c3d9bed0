//! Services with a key, and an endpoint of webhooks: they reject requests and repeat the key.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

/// A complete reply of a language model.
const REPLY: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\
                     \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// The path of the provider of voices, whose trainings fail.
pub(super) const VOICES: &str = "/voices";

/// The path, headers and body of each request.
type Requests = Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>;

pub(super) struct Services {
    pub(super) url: String,
    requests: Requests,
    _server: JoinSet<()>,
}

impl Services {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Requests::default();
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&requests));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            requests,
            _server: server,
        }
    }

    pub(super) fn count(&self, path: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(of, ..)| of == path).count()
    }

    /// What a path has received.
    pub(super) fn received(&self, path: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let requests = requests.iter().filter(|(of, ..)| of == path);
        requests
            .map(|(_, headers, body)| format!("{headers:?} {}", String::from_utf8_lossy(body)))
            .collect()
    }
}

/// Answers the first request for a completion, and rejects all others with the key that it has.
async fn answer(
    State(requests): State<Requests>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get(header::AUTHORIZATION).cloned();
    let is_first = {
        let mut requests = requests.lock().unwrap();
        requests.push((uri.path().to_owned(), headers, body));
        requests
            .iter()
            .filter(|(path, ..)| *path == uri.path())
            .count()
            == 1
    };
    if is_first && uri.path().ends_with("/completions") {
        return ([(header::CONTENT_TYPE, "text/event-stream")], REPLY).into_response();
    }
    let key = key
        .as_ref()
        .and_then(|key| key.to_str().ok())
        .unwrap_or_default();
    let key = key.trim_start_matches("Bearer ");
    let half = &key[..key.len() / 2];
    let message = format!("Incorrect API key provided: {key}. It begins with {half}***.");
    if uri.path() == VOICES {
        let failed = json!({"id": "v-1", "state": "failed", "error": {"detail": message}});
        return Json(failed).into_response();
    }
    let body = json!({"error": {"message": message, "code": "invalid_api_key"}});
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}
