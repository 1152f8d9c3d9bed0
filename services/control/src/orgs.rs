//! `POST /v1/orgs`: an organisation and its first API key.
//! Never: for anybody but the operator.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    access::Scope,
    id::{ApiKeyId, OrgId},
};
use switchboard_runtime::problem::Json;
use uuid::Uuid;

use crate::{Control, access::Operator, api_keys, error::ControlError, label::Label};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrg {
    name: Label,
}

/// An organisation just made. The secret is shown this once.
#[derive(Serialize)]
pub(crate) struct CreatedOrg {
    org_id: OrgId,
    name: Label,
    api_key: String,
    api_key_id: ApiKeyId,
}

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Operator: Operator,
    Json(NewOrg { name }): Json<NewOrg>,
) -> Result<(StatusCode, axum::Json<CreatedOrg>), ControlError> {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let secret = ApiKeySecret::generate();
    let first_key = api_keys::new_key("first key", &secret, Scope::ALL.into_iter().collect());
    control
        .store
        .create_org(org, name.as_str(), &first_key)
        .await?;
    tracing::info!(org.id = %org, "an organisation was created");
    let created = CreatedOrg {
        org_id: org,
        name,
        api_key: secret.expose_secret().to_owned(),
        api_key_id: first_key.id,
    };
    Ok((StatusCode::CREATED, axum::Json(created)))
}
