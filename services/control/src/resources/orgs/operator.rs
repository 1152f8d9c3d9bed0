//! `GET /v1/orgs` and `PATCH /v1/orgs/{id}`: the operator lists organisations, suspends them and
//! sets their quotas.
//!
//! Invariant: a change is in PostgreSQL before its request is answered.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Json, Path, Problem, Query, child_pointer},
    quota::{Limits, Quota},
};
use switchboard_store::{Org, Owner, SuspendedOrgs};
use utoipa::ToSchema;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireOperator},
        error::ControlError,
        response::JsonResponse,
    },
};

/// A change of an organisation by the operator. At least one member; what is missing stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrgChange {
    /// Whether all credentials of the organisation are refused, and its connections closed.
    #[schema(example = true)]
    suspended: Option<bool>,
    /// Quotas by name. 0 is unlimited, null is the default of the installation; others stay.
    #[schema(value_type = Option<BTreeMap<Quota, Option<f64>>>, example = json!({"api_keys": 100, "turns_per_day": null}))]
    quotas: Option<BTreeMap<String, Option<f64>>>,
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
    /// The quotas that the operator set in place of the defaults; 0 is unlimited.
    #[schema(value_type = BTreeMap<Quota, f64>, example = json!({"api_keys": 100}))]
    quotas: BTreeMap<Quota, Number>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Orgs {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<OrgSummary>)]
    orgs: JsonElements,
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
            quotas: numbers(&org.quotas),
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
    extensions(("x-problems" = json!(["operator_only", "overloaded", "store_unavailable"]))),
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
    let (orgs, next_cursor) = limit.json_page(found, |org| list.cursor(org.id), OrgSummary::from);
    Ok(JsonResponse::page(
        &control,
        Owner::Installation,
        &Orgs { orgs, next_cursor },
    )?)
}

/// Suspends an organisation or lifts its suspension, and sets its quotas.
///
/// All nodes refuse the credentials of a suspended organisation within seconds, and close its
/// connections. Quotas are in force within seconds; what exceeds them stays.
#[utoipa::path(
    patch, path = "/v1/orgs/{id}", tag = "Organisations", operation_id = "updateOrgAsOperator",
    params(("id" = OrgId, Path, description = "The organisation")),
    request_body(content = OrgChange),
    responses((status = 200, body = OrgSummary, description = "The organisation")),
    security(("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "store_unavailable"]))),
)]
pub(crate) async fn update(
    RequireOperator: RequireOperator,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    Json(change): Json<OrgChange>,
) -> Result<JsonResponse, ControlError> {
    let not_found = || ControlError::not_found("organisation", &id);
    let org: OrgId = id.parse().map_err(|_| not_found())?;
    if change.suspended.is_none() && change.quotas.is_none() {
        let detail = "The body must have `suspended`, `quotas` or both.";
        return Err(Problem::invalid_body("", detail).into());
    }
    let quotas = change.quotas.map(|quotas| amounts(&quotas)).transpose()?;
    let mut changed = None;
    if let Some(suspended) = change.suspended {
        let org_suspended = control.store.set_suspended(org, suspended).await?;
        changed = Some(org_suspended.ok_or_else(not_found)?);
        if suspended {
            tracing::warn!(org.id = %org, "organisation suspended");
        } else {
            tracing::warn!(org.id = %org, "suspension of an organisation lifted");
        }
        control.publish_suspended_orgs().await;
    }
    if let Some(quotas) = quotas {
        let org_with_quotas = control.store.set_quotas(org, &quotas).await?;
        changed = Some(org_with_quotas.ok_or_else(not_found)?);
        tracing::warn!(org.id = %org, ?quotas, "quotas of an organisation set");
        control.publish_quotas().await;
    }
    let changed = changed.ok_or_else(not_found)?;
    control.setting_changed(org.into(), "org", org);
    Ok(JsonResponse::ok(&OrgSummary::from(changed)))
}

/// Quotas as they are counted. An error names the invalid one.
fn amounts(
    quotas: &BTreeMap<String, Option<f64>>,
) -> Result<BTreeMap<Quota, Option<u64>>, Problem> {
    let amount = |(name, number): (&String, &Option<f64>)| {
        let pointer = child_pointer("/quotas", name);
        let invalid =
            |reason: String| Problem::invalid_body(&pointer, format!("`{pointer}` {reason}."));
        let quota = Quota::ALL.into_iter().find(|quota| quota.as_str() == name);
        let quota = quota.ok_or_else(|| {
            let names = Quota::ALL.map(Quota::as_str).join(", ");
            invalid(format!("is not a quota; quotas are {names}"))
        })?;
        let amount = number.map(|number| quota.from_number(number)).transpose();
        let amount =
            amount.map_err(|reason| invalid(format!("{reason}, and null is the default")))?;
        Ok((quota, amount))
    };
    quotas.iter().map(amount).collect()
}

/// Quotas as users read them.
fn numbers(limits: &Limits) -> BTreeMap<Quota, Number> {
    let number = |(quota, amount): (&Quota, &u64)| (*quota, quota.to_number(*amount));
    limits.0.iter().map(number).collect()
}

impl Control {
    /// Publishes the suspended organisations to all nodes. They are already stored, so a failure
    /// only delays them until the key publisher runs again; the request has succeeded.
    async fn publish_suspended_orgs(&self) {
        let suspended = match self.store.suspended_orgs().await {
            Ok(suspended) => suspended,
            Err(error) => {
                tracing::warn!(
                    error = error.report(),
                    "the suspended organisations cannot be read; the key publisher sends them within seconds"
                );
                return;
            }
        };
        let SuspendedOrgs { orgs, version } = suspended;
        if let Err(error) = self.bus.publish_suspended_orgs(&orgs, version).await {
            tracing::warn!(%error, "the suspended organisations cannot be published; the key publisher sends them within seconds");
        }
    }
}
