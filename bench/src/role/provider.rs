//! Fake providers that run in the process of a caller, so that times are measured with one clock.

use std::net::SocketAddr;

use axum::{Router, serve::ListenerExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// Serves HTTP until the returned set is dropped.
pub(super) async fn serve(listen: SocketAddr, router: Router) -> anyhow::Result<JoinSet<()>> {
    let listener = TcpListener::bind(listen).await?.tap_io(|connection| {
        // Otherwise Nagle's algorithm may delay the first chunk until an acknowledgement.
        let _ = connection.set_nodelay(true);
    });
    let mut provider = JoinSet::new();
    provider.spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("the fake provider failed: {error}");
        }
    });
    Ok(provider)
}

/// One event of a streamed chat completion.
pub(super) fn event(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "fake-model", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

/// The events after the last text of a completion.
pub(super) fn last_events() -> String {
    format!("{}data: [DONE]\n\n", event(&json!({}), Some("stop")))
}
