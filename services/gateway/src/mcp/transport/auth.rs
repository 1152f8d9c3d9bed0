//! Admission of requests to the MCP endpoints: host, origin, caller, scope and rate.
//!
//! Invariant: the body of a request is not read before its caller is admitted.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{Extensions, HeaderMap, header};
use switchboard_identity::Caller;
use switchboard_protocol::{id::DeviceKey, token::Scope};
use switchboard_runtime::problem::Problem;
use switchboard_store::Npc;

use crate::{Gateway, mcp::readable::ReadScope};

/// The caller of a request and the endpoint it addresses. Travels in the request's extensions.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct ClientContext {
    pub(in crate::mcp) caller: Caller,
    pub(in crate::mcp) endpoint: Endpoint,
}

/// What an endpoint serves.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::mcp) enum Endpoint {
    Device(DeviceKey),
    /// All devices of the caller's organisation.
    All,
    /// One NPC, as it was when the request arrived.
    Npc(Arc<Npc>),
}

impl Endpoint {
    /// A stable name, which does not depend on the settings of an NPC.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Npc(npc) => format!("Npc({}, {})", npc.org, npc.id),
            Self::Device(_) | Self::All => format!("{self:?}"),
        }
    }
}

impl ClientContext {
    /// The prompts and resources that the caller can read. `None` without the scope `read`.
    pub(in crate::mcp) fn readable(&self) -> Option<ReadScope<'_>> {
        let can_read = self.caller.scopes.contains(Scope::Read);
        can_read.then_some(match &self.endpoint {
            Endpoint::Device(_) | Endpoint::All => ReadScope::Org(self.caller.org),
            Endpoint::Npc(npc) => ReadScope::Npc(npc),
        })
    }
}

/// Admits callers with the scope `call` within their rate limit, for every method. The host and
/// the origin are checked first, so that a refused page learns nothing about a credential.
pub(super) async fn admit(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let host_policy = &gateway.mcp.host_policy;
    host_policy.check(request.uri(), request.headers())?;
    let caller = match authorize(&gateway, request.headers(), request.extensions()).await {
        Ok(caller) => caller,
        Err(problem) => return Err(with_metadata_url(&gateway, &request, problem)),
    };
    gateway.rate_limits.admit_caller(&caller)?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

async fn authorize(
    gateway: &Gateway,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<Caller, Problem> {
    let caller = gateway
        .authenticator
        .authenticate(headers, extensions)
        .await?;
    caller.require(Scope::Call)?;
    Ok(caller)
}

/// Adds the URL of the endpoint's metadata to the challenge. (RFC 9728, section 5.1.)
fn with_metadata_url(gateway: &Gateway, request: &Request, mut problem: Problem) -> Problem {
    let metadata = &gateway.mcp.metadata;
    let url = metadata.document_url(request.uri(), request.headers());
    for (name, value) in &mut problem.headers {
        if *name != header::WWW_AUTHENTICATE {
            continue;
        }
        let Ok(challenge) = value.to_str() else {
            continue;
        };
        let separator = if challenge.contains(' ') { "," } else { "" };
        let challenge = format!("{challenge}{separator} resource_metadata=\"{url}\"");
        if let Ok(challenge) = challenge.parse() {
            *value = challenge;
        }
    }
    problem
}
