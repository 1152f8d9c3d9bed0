//! `subscriptions/listen`: a client hears what changes in what its endpoint offers.
//! Never: a notification that the client did not ask for.

use std::sync::Arc;

use rmcp::service::{SubscriptionContext, SubscriptionSendError};

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
            Change::Prompts if accepted.prompts_list_changed == Some(true) => {
                sink.notify_prompt_list_changed().await
            }
            Change::Resources(uri) => tell_resources(context, uri).await,
            Change::Tools | Change::Prompts => Ok(()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a listener has gone");
            return;
        }
    }
}

/// Tells that the list changed, and that a resource did which the client follows; without a URI each of them may have.
async fn tell_resources(
    context: &SubscriptionContext,
    uri: Option<Box<str>>,
) -> Result<(), SubscriptionSendError> {
    let (accepted, sink) = (context.accepted(), context.sink());
    if accepted.resources_list_changed == Some(true) {
        sink.notify_resource_list_changed().await?;
    }
    let followed = accepted.resource_subscriptions.iter().flatten();
    for followed in followed.filter(|followed| uri.as_ref().is_none_or(|uri| **uri == ***followed))
    {
        sink.notify_resource_updated(followed.as_str()).await?;
    }
    Ok(())
}
