//! The gate in front of every MCP endpoint: who is asking, for what, and how often.
//! Never: a request body looked at before its sender is known.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, header};
use switchboard_identity::Caller;
use switchboard_protocol::{access::Scope, id::DeviceKey};
use switchboard_runtime::problem::Problem;
use switchboard_store::Npc;

use super::knowledge::Readable;
use crate::Gateway;

/// Who may come in, kept with the request for whoever answers it.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) caller: Caller,
    pub(super) reach: Reach,
}

/// What one endpoint offers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reach {
    /// One device.
    Device(DeviceKey),
    /// All devices of the caller's organisation.
    All,
    /// One NPC as it was when the request came.
    Npc(Arc<Npc>),
}

impl Reach {
    /// Names the endpoint, always the same whatever its NPC has become.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Npc(npc) => format!("Npc({}, {})", npc.org, npc.id),
            Self::Device(_) | Self::All => format!("{self:?}"),
        }
    }
}

impl Visit {
    /// Which prompts and resources it sees: none without the scope `read`.
    pub(super) fn reads(&self) -> Option<Readable<'_>> {
        let may = self.caller.scopes.contains(Scope::Read);
        may.then_some(match &self.reach {
            Reach::Device(_) | Reach::All => Readable::Of(self.caller.org),
            Reach::Npc(npc) => Readable::OfNpc(npc),
        })
    }
}

/// Lets callers with the scope `call` pass, as often as their rate allows, whatever the method. Which host is named and
/// which page asks is looked at first, so that neither a credential nor a body is touched for those that may not.
pub(super) async fn admit(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    gateway.mcp.sites.check(request.uri(), request.headers())?;
    let caller = match authorize(&gateway, request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return Err(with_metadata(&gateway, &request, problem)),
    };
    gateway.rates.admit_caller(&caller)?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

async fn authorize(gateway: &Gateway, headers: &HeaderMap) -> Result<Caller, Problem> {
    let caller = gateway.authenticator.authenticate(headers).await?;
    caller.require(Scope::Call)?;
    Ok(caller)
}

/// Says in the challenge where a client learns how to get a token. (RFC 9728, section 5.1.)
fn with_metadata(gateway: &Gateway, request: &Request, mut problem: Problem) -> Problem {
    let publication = &gateway.mcp.publication;
    let document = publication.document_url(request.uri(), request.headers());
    for (name, value) in &mut problem.headers {
        if *name != header::WWW_AUTHENTICATE {
            continue;
        }
        let Ok(challenge) = value.to_str() else {
            continue;
        };
        let separator = if challenge.contains(' ') { "," } else { "" };
        let challenge = format!("{challenge}{separator} resource_metadata=\"{document}\"");
        if let Ok(challenge) = challenge.parse() {
            *value = challenge;
        }
    }
    problem
}
