//! The bytes of pictures in responses, limited by a budget.
//!
//! Invariant: the bytes of a picture are reserved before it is read, and until its response is
//! sent.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use rmcp::{ErrorData, RoleServer, service::RequestContext};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::budget::{Budget, Budgets, Kind, Owner};
use switchboard_store::ObjectKey;
use tokio::time::Instant;

use crate::{
    Gateway,
    mcp::transport::reservation::{Reservation, exhausted},
};

/// How long a response waits until others are sent.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The stored size of the pictures in all responses of a node: encoded as Base64 and JSON, a picture
/// takes a multiple until its client has read it. One organisation may hold half of it: clients
/// decide how slowly they read.
pub(in crate::mcp) struct PictureBudget(Budget);

impl PictureBudget {
    pub(in crate::mcp) fn new(capacity_bytes: usize, budgets: &Budgets) -> Self {
        let share = (capacity_bytes / 2).max(1);
        Self(budgets.bytes("mcp_pictures", capacity_bytes, Kind::Held { share }))
    }

    /// Reserves bytes for the response to a request, waiting if necessary.
    pub(in crate::mcp) async fn reserve(
        &self,
        org: OrgId,
        bytes: u64,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if bytes == 0 {
            return Ok(());
        }
        let share = self.0.share();
        let bytes = usize::try_from(bytes).map_or(share, |bytes| bytes.min(share));
        let deadline = Instant::now() + RESERVE_TIMEOUT;
        let permit = self
            .0
            .acquire(Owner::Org(org.uuid()), bytes, deadline)
            .await;
        Reservation::add(context, permit.map_err(exhausted)?)
    }
}

/// The bytes of a picture as Base64. They must have been reserved.
pub(in crate::mcp) async fn read_base64(
    gateway: &Gateway,
    key: &ObjectKey,
) -> Result<String, ErrorData> {
    Ok(BASE64_STANDARD.encode(read(gateway, key).await?))
}

async fn read(gateway: &Gateway, key: &ObjectKey) -> Result<Bytes, ErrorData> {
    let Some(objects) = gateway.store.objects() else {
        let detail = "this gateway has no object store; its operator must set --objects or SWITCHBOARD_OBJECTS as for the control plane";
        return Err(ErrorData::internal_error(detail, None));
    };
    objects.get(key).await.map_err(|error| {
        tracing::error!(
            %error,
            cause = std::error::Error::source(&error).map(tracing::field::display),
            object.key = %key,
            "a picture could not be read"
        );
        ErrorData::internal_error("the picture cannot be read at the moment", None)
    })
}
