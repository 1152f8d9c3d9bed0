//! Sessions of the revisions with a handshake, whose clients cancel a request with another one.
//!
//! The cancellation may reach any node, so no session is stored. The cancel key of a call is
//! derived from the caller, the endpoint, the session ID and the request ID.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use switchboard_bus::CancelKey;
use uuid::Uuid;

use super::{auth::ClientContext, binding::Binding, protocol_version::is_stateless_head};
use crate::Gateway;

/// Carries the session ID. (MCP 2025-11-25, basic/transports, session management.)
pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// More than any session ID issued here.
const MAX_ID_LEN: usize = 64;

/// The ID of a session, as its client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) struct SessionId(Box<str>);

/// The requests in flight on this gateway whose clients have sessions.
#[derive(Debug, Default)]
pub(in crate::mcp) struct InFlightRequests(Mutex<HashSet<CancelKey>>);

/// A request in flight, until this is dropped.
pub(in crate::mcp) struct InFlightRequest<'a> {
    requests: &'a InFlightRequests,
    cancel_key: CancelKey,
}

/// What a message does beside being answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionAction {
    None,
    /// Starts a session: the response carries its ID.
    Start,
    /// Cancels the request with this ID.
    Cancel(Value),
}

#[derive(Deserialize)]
struct Message {
    method: String,
    #[serde(default)]
    params: Value,
}

impl SessionId {
    /// The stateless revision has no sessions and ignores the header.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        if is_stateless_head(headers) {
            return None;
        }
        let id = headers.get(SESSION_HEADER)?.to_str().ok()?;
        (1..=MAX_ID_LEN)
            .contains(&id.len())
            .then(|| Self(id.into()))
    }

    /// The header with a new, unguessable ID.
    pub(super) fn generate() -> (HeaderName, HeaderValue) {
        let id = Uuid::new_v4().simple().to_string();
        let value = HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static(""));
        (SESSION_HEADER, value)
    }

    /// The key by which the same caller can cancel a request of this session, at the same
    /// endpoint.
    pub(in crate::mcp) fn cancel_key(&self, client: &ClientContext, request: &Value) -> CancelKey {
        let request = request.to_string();
        let binding = Binding::new(client, "session", &self.0, request.as_bytes());
        // A cancel key is the first half of the digest.
        CancelKey(binding.digest().first_chunk().copied().unwrap_or_default())
    }
}

impl SessionAction {
    /// Parses only messages that contain one of the two method names.
    pub(super) fn parse(body: &[u8]) -> Self {
        let candidate = memmem::find(body, b"\"initialize\"").is_some()
            || memmem::find(body, b"notifications/cancelled").is_some();
        if !candidate {
            return Self::None;
        }
        match serde_json::from_slice::<Message>(body) {
            Ok(message) if message.method == "initialize" => Self::Start,
            Ok(mut message) if message.method == "notifications/cancelled" => {
                let request = message.params.get_mut("requestId");
                request.map_or(Self::None, |request| Self::Cancel(request.take()))
            }
            _ => Self::None,
        }
    }
}

impl InFlightRequests {
    /// Begins a request. `None` if one with the same session and ID is in flight.
    pub(in crate::mcp) fn begin(&self, cancel_key: CancelKey) -> Option<InFlightRequest<'_>> {
        let inserted = self.0.lock().insert(cancel_key);
        inserted.then_some(InFlightRequest {
            requests: self,
            cancel_key,
        })
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().remove(&self.cancel_key);
    }
}

/// Cancels a request, whichever node it is on.
pub(super) async fn cancel(
    gateway: &Gateway,
    client: &ClientContext,
    session: &SessionId,
    request: &Value,
) {
    let cancel_key = session.cancel_key(client, request);
    if let Err(error) = gateway.bus.cancel_call(cancel_key).await {
        tracing::warn!(%error, "a call could not be cancelled");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchboard_identity::{Caller, Credential};
    use switchboard_protocol::{
        id::{ApiKeyId, DeviceKey, OrgId},
        token::Scopes,
    };

    use super::*;
    use crate::mcp::transport::auth::Endpoint;

    #[test]
    fn only_initialize_and_cancelled_are_parsed() {
        fn check(body: &str, action: SessionAction) {
            assert_eq!(SessionAction::parse(body.as_bytes()), action, "{body}");
        }
        check(
            r#"{"method":"initialize","params":{}}"#,
            SessionAction::Start,
        );
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#;
        check(cancelled, SessionAction::Cancel(json!(7)));
        check(
            r#"{"method":"tools/call","params":{"name":"initialize"}}"#,
            SessionAction::None,
        );
        check(r#"{"method":"tools/list"}"#, SessionAction::None);
        check(
            r#"{"method":"notifications/cancelled","params":[]}"#,
            SessionAction::None,
        );
        check("\"initialize\"", SessionAction::None);
    }

    #[test]
    fn cancel_key_depends_on_caller_and_request() {
        let (org, other) = (OrgId::from_uuid(Uuid::nil()), OrgId::from_uuid(Uuid::max()));
        let key = |n| Credential::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(n)));
        let at = |device: &str| {
            let device = device.parse().unwrap();
            Endpoint::Device(DeviceKey { org, device })
        };
        let cancel_key = |org, credential, endpoint, session: &str, request| {
            let scopes = Scopes::default();
            let caller = Caller {
                org,
                credential,
                restrictions: None,
                labelled: None,
                scopes,
            };
            SessionId(session.into()).cancel_key(&ClientContext { caller, endpoint }, &request)
        };
        let all = [
            cancel_key(org, key(1), Endpoint::All, "a", json!(1)),
            cancel_key(org, key(1), Endpoint::All, "a", json!("1")),
            cancel_key(org, key(1), Endpoint::All, "b", json!(1)),
            cancel_key(org, key(1), at("toy-1"), "a", json!(1)),
            cancel_key(org, key(1), at("toy-2"), "a", json!(1)),
            cancel_key(org, key(2), Endpoint::All, "a", json!(1)),
            cancel_key(other, key(1), Endpoint::All, "a", json!(1)),
        ];
        assert_eq!(
            all[0],
            cancel_key(org, key(1), Endpoint::All, "a", json!(1))
        );
        assert_eq!(HashSet::from(all).len(), all.len());
    }

    #[test]
    fn request_id_is_reserved_until_dropped() {
        let requests = InFlightRequests::default();
        let cancel_key = CancelKey([1; 16]);
        let request = requests.begin(cancel_key);
        assert!(request.is_some() && requests.begin(cancel_key).is_none());
        drop(request);
        assert!(requests.begin(cancel_key).is_some());
        assert!(requests.0.lock().is_empty());
    }
}
