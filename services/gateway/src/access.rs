//! Who may do what: each route names its scope by the extractor it takes.
//! Never: a body read for a caller who may not send one.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use switchboard_identity::Caller;
use switchboard_protocol::access::Scope;
use switchboard_runtime::problem::Problem;

use crate::Gateway;

/// A caller with the scope `call`.
pub(crate) struct MayCall(pub(crate) Caller);

/// A caller with the scope `read`.
pub(crate) struct MayRead(pub(crate) Caller);

impl FromRequestParts<Arc<Gateway>> for MayCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Gateway>) -> Result<Self, Problem> {
        admit(parts, state, Scope::Call).await.map(Self)
    }
}

impl FromRequestParts<Arc<Gateway>> for MayRead {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Gateway>) -> Result<Self, Problem> {
        admit(parts, state, Scope::Read).await.map(Self)
    }
}

async fn admit(parts: &Parts, gateway: &Gateway, scope: Scope) -> Result<Caller, Problem> {
    let caller = gateway.authenticator.authenticate(&parts.headers).await?;
    caller.require(scope)?;
    gateway.rates.admit_caller(&caller)?;
    Ok(caller)
}
