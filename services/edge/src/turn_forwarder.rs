//! Forwards the turns of one connection to the bus, one action at a time.

use std::{sync::Arc, time::Duration, time::Instant};

use tokio::time::timeout;
use tracing::{debug, warn};

use crate::{
    edge::Edge,
    handle::{BusAction, ConnectionHandle},
};

/// Carries out [`BusAction`]s until the connection has no open turn. At most one forwarder runs
/// per connection, so the bus sees its actions in order.
pub(crate) async fn run(edge: Arc<Edge>, handle: Arc<ConnectionHandle>) {
    let reply_timeout = Duration::from_millis(edge.config.turn_patience_ms);
    loop {
        let action = handle.edit_turns(&edge, |turns| {
            turns.next_action(Instant::now(), reply_timeout)
        });
        match action.unwrap_or(BusAction::Exit) {
            BusAction::Enqueue {
                serial,
                task,
                mut message,
            } => {
                message.locale = handle.locale();
                message.registration = handle.registration().map(|services| services.digest);
                let (device, epoch) = (&handle.key, handle.epoch);
                if let Err(error) = edge.bus.enqueue_turn(device, epoch, task.0, message).await {
                    warn!(device.id = %device.device, org.id = %device.org, %error,
                        "turn could not be queued on the bus");
                    handle.update_turns(&edge, |turns| turns.fail(serial));
                }
            }
            BusAction::Cancel(task) => {
                // Wakes the connection: a reply that takes too long has a sentence to send.
                handle.update_turns(&edge, |_| ());
                cancel(&edge, &handle, Some(task.0)).await;
            }
            BusAction::CancelAll => return cancel(&edge, &handle, None).await,
            BusAction::Discard => return edge.bus.discard_turns(&handle.key, handle.epoch),
            BusAction::Wait(left, changed) => {
                // After a change as well as after the timeout there may be an action.
                let _ = timeout(left, changed.notified()).await;
            }
            BusAction::Exit => return,
        }
    }
}

/// Cancels the reply on one task, or all replies of the connection.
async fn cancel(edge: &Edge, handle: &ConnectionHandle, task: Option<[u8; 8]>) {
    let stopped = edge.bus.cancel_turns(&handle.key, handle.epoch, task).await;
    if let Err(error) = stopped {
        debug!(device.id = %handle.key.device, org.id = %handle.key.org, %error,
            "reply could not be cancelled on the bus");
    }
}
