//! Approvals as responses have them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_protocol::schema::Digest;
use switchboard_store::{Approval, ModelApproval};
use utoipa::ToSchema;

/// The approvals of a device's services.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approvals {
    /// Whether models call only approved services.
    #[schema(inline)]
    pub(super) policy: ModelApproval,
    /// The services that the device declares, in byte order of their names.
    #[schema(max_items = 128)]
    pub(super) items: Vec<ServiceApproval>,
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
    /// What a model sees of it, and what its calls are checked against: `description`, `parameters`, `output` and
    /// `annotations`, as far as the device declares them.
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
