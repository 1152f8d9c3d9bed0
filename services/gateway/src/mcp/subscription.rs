//! `subscriptions/listen`: a client hears what changes in what its endpoint offers.
//! Never: a notification that the client did not ask for.

use std::sync::Arc;

use rmcp::service::SubscriptionContext;

use super::{
    access::Visit,
    changes::{Change, Changes},
};
use crate::Gateway;

/// Tells the client until it leaves or this node stops.
pub(super) async fn run(gateway: &Arc<Gateway>, visit: &Visit, context: &SubscriptionContext) {
    let mut changes = Changes::follow(gateway, visit).await;
    let (accepted, sink) = (context.accepted(), context.sink());
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = context.cancelled() => return,
            () = gateway.mcp.shutdown.draining() => return,
        };
        let told = match change {
            Change::Tools if accepted.tools_list_changed == Some(true) => {
                sink.notify_tool_list_changed().await
            }
            Change::Tools => Ok(()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a listener has gone");
            return;
        }
    }
}
