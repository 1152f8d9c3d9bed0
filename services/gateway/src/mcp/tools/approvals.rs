//! Which tools an organisation has approved, where it requires approvals.

use std::sync::Arc;

use rmcp::ErrorData;
use switchboard_identity::ApprovedServices;
use switchboard_protocol::id::{DeviceKey, OrgId};

use super::toolset::ServiceTool;
use crate::Gateway;

/// What the organisation has approved; `None` if it requires no approvals.
pub(super) async fn of(
    gateway: &Gateway,
    org: OrgId,
) -> Result<Option<Arc<ApprovedServices>>, ErrorData> {
    let approved = gateway.authenticator.approvals().of(org).await;
    approved.map_err(|error| {
        tracing::warn!(
            %error,
            cause = std::error::Error::source(&error).map(tracing::field::display),
            "the approvals of an organisation could not be read"
        );
        ErrorData::internal_error(
            format!("{error} at the moment; nothing was sent, and a retry is safe"),
            None,
        )
    })
}

/// Whether a tool may be listed.
pub(super) fn permits(
    approved: Option<&ApprovedServices>,
    device: &DeviceKey,
    tool: &ServiceTool,
) -> bool {
    approved.is_none_or(|approved| approved.permit(device, &tool.digest))
}
