//! Tells the bus what a connection's turns need, one thing after the other: a turn to be handed
//! over, an answer that is not wanted, a device that has gone.
//! Never: a task that outlives what is under way on its connection.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use tracing::{debug, warn};

use crate::{
    edge::Edge,
    link::{Errand, Link},
};

/// Runs errands until nothing is under way on the connection.
pub(crate) async fn run(edge: Arc<Edge>, link: Arc<Link>) {
    let patience = Duration::from_millis(edge.config.turn_patience_ms);
    loop {
        let (errand, ended) = link.next_errand(patience);
        edge.count_turns(&ended);
        match errand {
            Errand::Begin {
                serial,
                task,
                words,
            } => {
                let (device, epoch) = (&link.key, link.epoch);
                if let Err(error) = edge.bus.begin_turn(device, epoch, task.0, words).await {
                    warn!(device.id = %device.device, org.id = %device.org, %error,
                        "a turn could not be handed over");
                    link.refused(serial);
                }
            }
            Errand::Stop(task) => tell(&edge, &link, Some(task.0)).await,
            Errand::Wait(left, changed) => {
                // Either way there may be something to do.
                let _ = timeout(left, changed.notified()).await;
            }
            Errand::Leave { is_awaited: true } => return tell(&edge, &link, None).await,
            Errand::Leave { is_awaited: false } => {
                return edge.bus.forget_turns(&link.key, link.epoch);
            }
            Errand::Done => return,
        }
    }
}

/// Says that answers are not wanted any more: one, or all because the connection is gone.
async fn tell(edge: &Edge, link: &Link, task: Option<[u8; 8]>) {
    let stopped = edge.bus.stop_turns(&link.key, link.epoch, task).await;
    if let Err(error) = stopped {
        debug!(device.id = %link.key.device, org.id = %link.key.org, %error,
            "an answer that is not wanted could not be stopped");
    }
}
