//! What the response to a request holds of budgets until its client has read it.

use std::sync::Arc;

use axum::{body::HttpBody as _, response::Response};
use http::request::Parts;
use parking_lot::Mutex;
use rmcp::{ErrorData, RoleServer, model::ErrorCode, service::RequestContext};
use serde::Serialize;
use serde_json::json;
use switchboard_runtime::{
    budget::{Exhausted, Owner, Permit, RETRY_AFTER},
    problem::Problem,
    response_budget::{hold_until_sent, json_bytes},
};

use super::auth::ClientContext;
use crate::Gateway;

/// The error of a request that can succeed when it is repeated later.
pub(in crate::mcp) const OVERLOADED: ErrorCode = ErrorCode(-32_000);

/// The permits of the response to one request. Travels in the request's extensions.
#[derive(Debug, Clone, Default)]
pub(in crate::mcp) struct Reservation(Arc<Mutex<Permits>>);

#[derive(Debug, Default)]
struct Permits {
    /// Of the content that the response is made of.
    content: Vec<Permit>,
    /// Of a page with all that it is made of. Its response is smaller.
    page: Option<Permit>,
}

impl Reservation {
    /// Holds a permit until the response to this request is sent.
    pub(in crate::mcp) fn add(
        context: &RequestContext<RoleServer>,
        permit: Permit,
    ) -> Result<(), ErrorData> {
        Self::of(context)?.0.lock().content.push(permit);
        Ok(())
    }

    /// The same for a page. When it is serialised, the permit shrinks to the response.
    pub(in crate::mcp) fn add_page(
        context: &RequestContext<RoleServer>,
        permit: Permit,
    ) -> Result<(), ErrorData> {
        Self::of(context)?.0.lock().page = Some(permit);
        Ok(())
    }

    fn of(context: &RequestContext<RoleServer>) -> Result<&Self, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let reservation = parts.and_then(|parts| parts.extensions.get::<Self>());
        reservation.ok_or_else(|| ErrorData::internal_error("the request was not admitted", None))
    }

    /// Returns the permits when the response is sent or its client has disconnected.
    pub(super) async fn hold_until_sent(&self, response: Response) -> Result<Response, Problem> {
        let Permits {
            content: mut permits,
            page,
        } = std::mem::take(&mut *self.0.lock());
        if let Some(mut page) = page {
            if let Some(bytes) = response.body().size_hint().exact() {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                page.shrink(page.amount().saturating_sub(bytes));
            }
            permits.push(page);
        }
        if permits.is_empty() {
            return Ok(response);
        }
        hold_until_sent(response, permits).await
    }
}

/// Reserves the bytes of a page of a list, before it is serialised.
pub(in crate::mcp) fn reserve_page(
    gateway: &Gateway,
    client: &ClientContext,
    items: &impl Serialize,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    let owner = Owner::Org(client.caller.org.uuid());
    let permit = gateway.responses.reserve(owner, json_bytes(items));
    match permit.map_err(exhausted)? {
        Some(permit) => Reservation::add(context, permit),
        None => Ok(()),
    }
}

/// The error of a request without room in a budget: what the problem of an HTTP request contains.
pub(in crate::mcp) fn exhausted(exhausted: Exhausted) -> ErrorData {
    let data = json!({
        "budget": exhausted.budget, "retry_after_ms": RETRY_AFTER.as_millis(),
    });
    ErrorData::new(OVERLOADED, Problem::from(exhausted).detail, Some(data))
}
