//! Approvals as responses have them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{ApprovalId, DeviceId},
    schema::Digest,
};
use switchboard_runtime::{
    paging::{Cursor, JsonElements},
    problem::{Problem, internal},
};
use switchboard_store::{Approval, ModelApproval};
use utoipa::ToSchema;

/// The approvals of a device's services.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approvals {
    /// Whether models call only approved services.
    pub(super) policy: ModelApproval,
    /// The services that the device declares, in byte order of their names.
    #[schema(max_items = 128, value_type = Vec<ServiceApproval>)]
    pub(super) items: JsonElements,
}

/// A page of approvals.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OrgApprovals)]
pub(crate) struct ApprovalPage {
    /// The approvals, oldest first.
    #[schema(max_items = 200, value_type = Vec<ApprovalView>)]
    pub(super) items: JsonElements,
    /// `cursor` of the next page; null on the last page.
    pub(super) next_cursor: Option<Cursor>,
}

/// An approval of the organisation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OrgApproval)]
pub(crate) struct ApprovalView {
    /// Its ID.
    id: ApprovalId,
    /// Name of the service.
    #[schema(max_length = 128, example = "wave")]
    service: String,
    /// The device that it is for; null if it counts for all devices that declare the same.
    device_id: Option<DeviceId>,
    /// Digest of the service that was approved.
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$", example = "e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67")]
    #[serde(serialize_with = "text")]
    digest: Digest,
    /// When (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    at: DateTime<Utc>,
    /// The API key, or the subject of the access token.
    #[schema(max_length = 255, example = "key_0123456789abcdef0123456789abcdef")]
    by: String,
}

impl From<Approval> for ApprovalView {
    fn from(approval: Approval) -> Self {
        Self {
            id: approval.id,
            service: approval.service,
            device_id: approval.device,
            digest: approval.digest,
            at: approval.approved_at,
            by: approval.approved_by,
        }
    }
}

/// A service that the device declares, and what was approved of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServiceApproval {
    /// Name of the service.
    #[schema(max_length = 128, example = "wave")]
    pub(super) service: String,
    #[schema(inline)]
    pub(super) state: ApprovalState,
    /// Digest of the service as it is: of its name and of the members below.
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$", example = "e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67")]
    #[serde(serialize_with = "text")]
    pub(super) digest: Digest,
    // What a model sees of it, and what its calls are checked against, as far as the device declares it.
    #[serde(flatten)]
    #[schema(inline)]
    pub(super) definition: Definition,
    /// What was approved last. Where it differs from the above, models do not call the service.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approved: Option<Approved>,
}

/// Whether models may call a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = "approved")]
pub(crate) enum ApprovalState {
    /// It is approved as it is.
    Approved,
    /// It was never approved.
    Unapproved,
    /// Something else was approved under this name.
    Changed,
}

/// What was approved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approved {
    /// ID of the approval, by which it is revoked.
    pub(super) id: ApprovalId,
    /// Its digest.
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$", example = "e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67")]
    #[serde(serialize_with = "text")]
    pub(super) digest: Digest,
    #[serde(flatten)]
    #[schema(inline)]
    pub(super) definition: Definition,
    /// When (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    pub(super) at: DateTime<Utc>,
    /// The API key, or the subject of the access token.
    #[schema(max_length = 255, example = "key_0123456789abcdef0123456789abcdef")]
    pub(super) by: String,
    #[schema(inline)]
    pub(super) applies_to: AppliesTo,
}

/// The members of a definition that an approval covers.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub(super) struct Definition {
    /// Description of the service.
    #[schema(value_type = String, required = false, max_length = 4096, example = "Waves")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<Box<RawValue>>,
    /// JSON schema of its params.
    #[schema(value_type = Object, required = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parameters: Option<Box<RawValue>>,
    /// JSON schema of its data.
    #[schema(value_type = Object, required = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Box<RawValue>>,
    /// Its annotations, which models do not see.
    #[schema(value_type = Object, required = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<Box<RawValue>>,
}

impl Definition {
    /// Reads these members of a definition.
    pub(super) fn parse(definition: &RawValue) -> Result<Self, Problem> {
        serde_json::from_str(definition.get()).map_err(|_| internal())
    }
}

impl TryFrom<Approval> for Approved {
    type Error = Problem;

    fn try_from(approval: Approval) -> Result<Self, Problem> {
        let definition = approval.definition.as_deref().map(Definition::parse);
        Ok(Self {
            id: approval.id,
            digest: approval.digest,
            definition: definition.transpose()?.unwrap_or_default(),
            at: approval.approved_at,
            by: approval.approved_by,
            applies_to: match approval.device {
                Some(_) => AppliesTo::Device,
                None => AppliesTo::Organisation,
            },
        })
    }
}

/// The devices that an approval is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = "device")]
pub(super) enum AppliesTo {
    /// This one.
    Device,
    /// All of the organisation that declare the same.
    Organisation,
}

/// A service to approve.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApproval {
    /// The digest of the service that was read before.
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67e3d2dec0fcf9de67"
    )]
    pub(super) digest: String,
    #[schema(inline)]
    pub(super) applies_to: AppliesTo,
}

fn text<S: serde::Serializer>(digest: &Digest, target: S) -> Result<S::Ok, S::Error> {
    target.collect_str(digest)
}

pub(super) fn state(approved: Option<&Approval>, declared: Digest) -> ApprovalState {
    match approved {
        Some(approved) if approved.digest == declared => ApprovalState::Approved,
        Some(_) => ApprovalState::Changed,
        None => ApprovalState::Unapproved,
    }
}
