//! A caller as it sees itself.

use chrono::{DateTime, Utc};
use serde::Serialize;
use switchboard_identity::{Caller, Credential};
use switchboard_protocol::{
    id::{DeviceId, OrgId},
    label::DeviceLabel,
    token::{Scope, ServicePattern},
};
use utoipa::ToSchema;

use crate::{
    Control,
    http::{auth::Identity, error::ControlError},
    resources::tokens::scope_list,
};

/// Who a caller is.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// The organisation of the caller; null for the operator.
    org_id: Option<OrgId>,
    /// Display name of the organisation; null for the operator.
    #[schema(max_length = 100, example = "Toy factory")]
    org_name: Option<String>,
    /// The credential.
    actor: ActorView,
    /// What the credential may do; empty for the operator.
    #[schema(max_items = 5, example = json!(["call", "read"]))]
    scopes: Vec<Scope>,
    /// What restricts the credential beside its scopes.
    restrictions: RestrictionsView,
    /// When the session, the key or the token ends at the latest (RFC 3339); null if it does not.
    #[schema(example = "2026-01-02T15:04:05Z")]
    expires_at: Option<DateTime<Utc>>,
    /// Whether the caller is the operator.
    #[schema(example = false)]
    is_operator: bool,
    /// The port that devices dial, on the host of this API.
    #[schema(minimum = 1, example = 7700)]
    device_port: u16,
}

/// The kind of a credential.
#[derive(Serialize, ToSchema)]
#[schema(example = "api_key")]
#[serde(rename_all = "snake_case")]
pub(crate) enum ActorKind {
    /// An API key.
    ApiKey,
    /// An access token.
    AccessToken,
    /// The operator key.
    Operator,
}

/// A credential, as the audit log names it.
#[derive(Serialize, ToSchema)]
#[schema(as = Actor)]
pub(crate) struct ActorView {
    /// The kind of the credential.
    kind: ActorKind,
    /// Unique identifier of the key or the token; null for the operator.
    #[schema(max_length = 64, example = "key_0198f0a3c2de7d3f9d3a0f6f6a1b2c3d")]
    id: Option<String>,
    /// The name of the key, or the subject of the token.
    #[schema(max_length = 100, example = "backend")]
    name: String,
}

/// What restricts a credential; null permits everything.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = Restrictions)]
pub(crate) struct RestrictionsView {
    /// The beginning of the ids of the devices that it reaches.
    #[schema(value_type = Option<String>, max_length = 64, example = "toy-")]
    device_prefix: Option<DeviceId>,
    /// The label of the devices that it reaches.
    #[schema(value_type = Option<DeviceLabel>, required = true)]
    device_label: Option<DeviceLabel>,
    /// The services that it reaches.
    #[schema(max_items = 32, example = json!(["wave", "led.*"]))]
    services: Option<Vec<ServicePattern>>,
}

impl Control {
    /// The view of a caller whose session or token ends then, in Unix seconds.
    pub(super) async fn session_view(
        &self,
        identity: &Identity,
        ends_at: Option<u64>,
    ) -> Result<SessionView, ControlError> {
        let ends_at = ends_at.and_then(|at| DateTime::from_timestamp(i64::try_from(at).ok()?, 0));
        let Identity::Caller(caller) = identity else {
            return Ok(SessionView {
                org_id: None,
                org_name: None,
                actor: ActorView {
                    kind: ActorKind::Operator,
                    id: None,
                    name: "operator".to_owned(),
                },
                scopes: Vec::new(),
                restrictions: RestrictionsView::default(),
                expires_at: ends_at,
                is_operator: true,
                device_port: self.device_port,
            });
        };
        let (actor, expires_at) = self.actor(caller).await?;
        let restrictions = caller.restrictions.as_deref().cloned().unwrap_or_default();
        Ok(SessionView {
            org_id: Some(caller.org),
            org_name: Some(self.org(caller.org).await?.settings.name),
            actor,
            scopes: scope_list(caller.scopes),
            restrictions: RestrictionsView {
                device_prefix: restrictions.device_prefix,
                device_label: restrictions.device_label,
                services: restrictions.services,
            },
            expires_at: expires_at.into_iter().chain(ends_at).min(),
            is_operator: false,
            device_port: self.device_port,
        })
    }

    /// The credential of a caller, and the expiry of a key.
    async fn actor(
        &self,
        caller: &Caller,
    ) -> Result<(ActorView, Option<DateTime<Utc>>), ControlError> {
        match &caller.credential {
            Credential::ApiKey(id) => {
                let key = self.store.api_key(caller.org, *id).await?;
                let (name, expires_at) = key
                    .map(|key| (key.name, key.limits.expires_at))
                    .unwrap_or_default();
                let actor = ActorView {
                    kind: ActorKind::ApiKey,
                    id: Some(id.to_string()),
                    name,
                };
                Ok((actor, expires_at))
            }
            Credential::AccessToken { id, subject } => {
                let actor = ActorView {
                    kind: ActorKind::AccessToken,
                    id: Some(id.to_string()),
                    name: subject.to_string(),
                };
                Ok((actor, None))
            }
        }
    }
}
