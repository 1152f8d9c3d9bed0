//! `GET /v1/orgs` and `PATCH /v1/orgs/{id}`: the operator lists and suspends organisations.
//!
//! Invariant: a suspension is in PostgreSQL before its request is answered.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    paging::{Cursor, Limit, List, Paging},
    problem::{Json, Path, Query},
};
use switchboard_store::{Org, Owner};
use utoipa::ToSchema;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireOperator},
        error::ControlError,
        response::JsonResponse,
    },
};

/// A change of an organisation by the operator.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrgChange {
    /// Whether all credentials of the organisation are refused, and its connections closed.
    #[schema(example = true)]
    suspended: bool,
}

/// An organisation, as the operator sees it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OrgSummary {
    /// Unique identifier.
    org_id: OrgId,
    /// Display name.
    #[schema(example = "Toy factory", max_length = 100)]
    name: String,
    /// Whether all credentials of the organisation are refused.
    #[schema(example = true)]
    suspended: bool,
    /// Time of the suspension (RFC 3339); null if it is not suspended.
    #[schema(example = json!(null))]
    suspended_at: Option<DateTime<Utc>>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Orgs {
    /// Oldest first.
    #[schema(max_items = 200)]
    orgs: Vec<OrgSummary>,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

impl From<Org> for OrgSummary {
    fn from(org: Org) -> Self {
        Self {
            org_id: org.id,
            name: org.settings.name,
            suspended: org.suspended_at.is_some(),
            suspended_at: org.suspended_at,
            created_at: org.created_at,
        }
    }
}

/// Lists all organisations.
#[utoipa::path(
    get, path = "/v1/orgs", tag = "Organisations", operation_id = "listOrgs",
    params(Paging),
    responses((status = 200, body = Orgs, description = "A page of organisations")),
    security(("operator" = [])),
    extensions(("x-problems" = json!(["operator_only", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireOperator: RequireOperator,
    Query(paging): Query<Paging>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::new("/v1/orgs", Owner::Installation);
    let after = list.position(paging.cursor)?;
    let found = control.store.orgs(after, limit.fetch_count()).await?;
    let (orgs, next_cursor) = limit.page(found, |org| list.cursor(org.id));
    Ok(JsonResponse::ok(&Orgs {
        orgs: orgs.into_iter().map(OrgSummary::from).collect(),
        next_cursor,
    }))
}

/// Suspends an organisation, or lifts its suspension.
///
/// All nodes refuse its credentials within seconds, and close its connections.
#[utoipa::path(
    patch, path = "/v1/orgs/{id}", tag = "Organisations", operation_id = "updateOrgSuspension",
    params(("id" = OrgId, Path, description = "The organisation")),
    request_body(content = OrgChange),
    responses((status = 200, body = OrgSummary, description = "The organisation")),
    security(("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "store_unavailable"]))),
)]
pub(crate) async fn suspend(
    RequireOperator: RequireOperator,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    Json(OrgChange { suspended }): Json<OrgChange>,
) -> Result<JsonResponse, ControlError> {
    let not_found = || ControlError::not_found("organisation", &id);
    let org: OrgId = id.parse().map_err(|_| not_found())?;
    let changed = control.store.set_suspended(org, suspended).await?;
    let changed = changed.ok_or_else(not_found)?;
    if suspended {
        tracing::warn!(org.id = %org, "organisation suspended");
    } else {
        tracing::warn!(org.id = %org, "suspension of an organisation lifted");
    }
    control.publish_suspended_orgs().await;
    Ok(JsonResponse::ok(&OrgSummary::from(changed)))
}

impl Control {
    /// Publishes the suspended organisations to all nodes. They are already stored, so a failure
    /// only delays them until the key publisher runs again; the request has succeeded.
    async fn publish_suspended_orgs(&self) {
        let orgs = match self.store.suspended_orgs().await {
            Ok(orgs) => orgs,
            Err(error) => {
                tracing::warn!(
                    error = error.report(),
                    "the suspended organisations cannot be read; the key publisher sends them within seconds"
                );
                return;
            }
        };
        if let Err(error) = self.bus.publish_suspended_orgs(&orgs).await {
            tracing::warn!(%error, "the suspended organisations cannot be published; the key publisher sends them within seconds");
        }
    }
}
