//! Relay of list changes from the gateway to the client.
//!
//! Invariant: after an interruption, the client receives a change notification, because it may have
//! missed one.

use std::{sync::Arc, time::Duration};

use rand::RngExt as _;
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::Gateway;

/// Maximum delay between two attempts.
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(2);

/// Time that the first list waits for the notification stream.
pub(super) const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Relays notifications until the output closes, and reconnects when the gateway restarts.
/// `subscribed` becomes true when the stream is open or known to be unavailable.
pub(super) async fn relay_changes(
    gateway: Arc<Gateway>,
    out: mpsc::Sender<String>,
    subscribed: watch::Sender<bool>,
) {
    let started = Instant::now();
    let mut was_disconnected = false;
    loop {
        let opened = gateway.listen().await;
        let missed =
            was_disconnected || (!*subscribed.borrow() && started.elapsed() >= SUBSCRIBE_TIMEOUT);
        subscribed.send_replace(true);
        match opened {
            Ok(mut events) => {
                if missed && out.send(list_changed()).await.is_err() {
                    return;
                }
                tracing::debug!("subscribed to changes of the gateway");
                while let Ok(Some(event)) = events.next().await {
                    if out
                        .send(super::message::to_single_line(&event.data))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
                tracing::warn!("lost the connection to the gateway; reconnecting");
            }
            Err(error) => tracing::debug!(%error, "cannot subscribe to changes of the gateway"),
        }
        was_disconnected = true;
        let pause = MAX_RETRY_BACKOFF.mul_f64(rand::rng().random());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = out.closed() => return,
        }
    }
}

fn list_changed() -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).to_string()
}
