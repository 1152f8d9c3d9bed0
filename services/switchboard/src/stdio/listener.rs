//! What changes at the gateway, told to the client for as long as it is there.
//! Never: silence about a change that may have been missed.

use std::{sync::Arc, time::Duration};

use rand::RngExt as _;
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::Gateway;

/// Between two attempts, at most.
const PAUSE: Duration = Duration::from_secs(2);

/// For so long the first list waits until changes of it would be told.
pub(super) const AT_ONCE: Duration = Duration::from_secs(2);

/// Follows the gateway until nobody reads any more, over all its restarts; says when what changes is told, or is not for now.
pub(super) async fn follow(
    gateway: Arc<Gateway>,
    out: mpsc::Sender<String>,
    followed: watch::Sender<bool>,
) {
    let began = Instant::now();
    let mut was_away = false;
    loop {
        let listening = gateway.listen().await;
        let missed = was_away || (!*followed.borrow() && began.elapsed() >= AT_ONCE);
        followed.send_replace(true);
        match listening {
            Ok(mut events) => {
                if missed && out.send(list_changed()).await.is_err() {
                    return;
                }
                tracing::debug!("the gateway tells what changes");
                while let Ok(Some(event)) = events.next().await {
                    if out
                        .send(super::message::on_one_line(&event.data))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
                tracing::warn!("the gateway has gone; waiting until it is back");
            }
            Err(error) => tracing::debug!(%error, "the gateway does not tell what changes"),
        }
        was_away = true;
        let pause = PAUSE.mul_f64(rand::rng().random());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = out.closed() => return,
        }
    }
}

fn list_changed() -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).to_string()
}
