//! `POST /v1/orgs`: an organisation and its first API key.
//! Never: for anybody but the operator.

use axum::response::Response;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    access::Scope,
    id::{ApiKeyId, OrgId},
};
use switchboard_runtime::problem::Json;
use switchboard_store::Owner;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    access::{Acting, Operator},
    api_keys,
    error::ControlError,
    label::Label,
    once::{Made, Once},
};

/// An organisation about to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrg {
    /// What people call it.
    name: Label,
}

/// An organisation just made. The secret is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedOrg {
    /// The organisation.
    org_id: OrgId,
    /// What people call it.
    name: Label,
    /// The secret of its first API key, which has all scopes.
    #[schema(
        pattern = "^sb_[A-Za-z0-9_-]{43}$",
        example = "sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
    )]
    api_key: String,
    /// The id of that key.
    api_key_id: ApiKeyId,
}

/// Makes an organisation and its first API key.
#[utoipa::path(
    post, path = "/v1/orgs", tag = "Organisations", operation_id = "createOrg",
    request_body(content = NewOrg),
    responses((status = 201, body = CreatedOrg, description = "It is made; the secret is shown this once", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "operator_only", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Operator: Operator,
    Acting(control): Acting,
    Once(ticket, Json(NewOrg { name })): Once<Json<NewOrg>>,
) -> Result<Response, ControlError> {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let secret = ApiKeySecret::generate();
    let first_key = api_keys::new_key("first key", &secret, Scope::ALL.into_iter().collect());
    let mut creation = ticket.begin(&control.store, Owner::Installation).await?;
    creation.create_org(org, name.as_str(), &first_key).await?;
    let created = CreatedOrg {
        org_id: org,
        name,
        api_key: secret.expose_secret().to_owned(),
        api_key_id: first_key.id,
    };
    let response = ticket
        .commit(creation, Made::new(&created).secret())
        .await?;
    tracing::info!(org.id = %org, "an organisation was created");
    Ok(response)
}
