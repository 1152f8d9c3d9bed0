//! What the response to a request holds of budgets until its client has read it.

use std::sync::Arc;

use axum::response::Response;
use http::request::Parts;
use parking_lot::Mutex;
use rmcp::{ErrorData, RoleServer, service::RequestContext};
use serde::Serialize;
use switchboard_runtime::{
    budget::{Owner, Permit},
    problem::Problem,
    response_budget::{hold_until_sent, json_bytes},
};

use super::auth::ClientContext;
use crate::Gateway;

/// The permits of the response to one request. Travels in the request's extensions.
#[derive(Debug, Clone, Default)]
pub(in crate::mcp) struct Reservation(Arc<Mutex<Vec<Permit>>>);

impl Reservation {
    /// Holds a permit until the response to this request is sent.
    pub(in crate::mcp) fn add(
        context: &RequestContext<RoleServer>,
        permit: Permit,
    ) -> Result<(), ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let reservation = parts.and_then(|parts| parts.extensions.get::<Self>());
        reservation
            .ok_or_else(|| ErrorData::internal_error("the request was not admitted", None))?
            .0
            .lock()
            .push(permit);
        Ok(())
    }

    /// Returns the permits when the response is sent or its client has disconnected.
    pub(super) async fn hold_until_sent(&self, response: Response) -> Result<Response, Problem> {
        let permits = std::mem::take(&mut *self.0.lock());
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
    let permit = permit.map_err(|_| {
        let detail = "too many large lists are being read at the moment; retry later";
        ErrorData::internal_error(detail, None)
    })?;
    match permit {
        Some(permit) => Reservation::add(context, permit),
        None => Ok(()),
    }
}
