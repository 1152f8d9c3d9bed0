//! A name for a client of the revisions with a handshake, so that it can take a request back: these clients cancel in
//! a request of its own, which any node may get.
//! Never: anything kept for a session; a call's id is made of its name and the request's id, wherever that is done.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use switchboard_protocol::id::{CallId, DeviceKey};
use uuid::Uuid;

use super::access::{Reach, Visit};
use crate::Gateway;

/// Carries the name. (MCP 2025-11-25, basic/transports, session management.)
pub(super) const HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Longer than any name given here.
const LONGEST: usize = 64;

/// The name of a session, as its client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session(Box<str>);

/// Which device the calls under way are on, where the endpoint does not say.
#[derive(Debug, Default)]
pub(super) struct Whereabouts(Mutex<HashMap<CallId, DeviceKey>>);

/// Strikes a call out when it has ended.
pub(super) struct Noted<'a> {
    whereabouts: &'a Whereabouts,
    call: CallId,
}

/// What has to be done beside answering.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Errand {
    None,
    /// The answer gets a name for the session that begins.
    Begin,
    /// The client does not want this request answered any more.
    TakeBack(serde_json::Value),
}

#[derive(Deserialize)]
struct Message {
    method: String,
    #[serde(default)]
    params: serde_json::Value,
}

impl Session {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let name = headers.get(HEADER)?.to_str().ok()?;
        (1..=LONGEST)
            .contains(&name.len())
            .then(|| Self(name.into()))
    }

    /// A name that nobody can guess.
    pub(super) fn begin() -> (HeaderName, HeaderValue) {
        let name = Uuid::new_v4().simple().to_string();
        let value = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static(""));
        (HEADER, value)
    }

    /// The id of the call that a request of this session makes.
    pub(super) fn call_id(&self, request: &serde_json::Value) -> CallId {
        let mut hash = Sha256::new();
        hash.update(self.0.len().to_be_bytes());
        hash.update(self.0.as_bytes());
        hash.update(request.to_string());
        let mut bytes = [0; 16];
        bytes
            .iter_mut()
            .zip(hash.finalize())
            .for_each(|(byte, hashed)| *byte = hashed);
        CallId::from_uuid(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl Errand {
    /// Looks for the two messages that matter, and parses no other.
    pub(super) fn of(body: &[u8]) -> Self {
        let suspected = memmem::find(body, b"\"initialize\"").is_some()
            || memmem::find(body, b"notifications/cancelled").is_some();
        if !suspected {
            return Self::None;
        }
        match serde_json::from_slice::<Message>(body) {
            Ok(message) if message.method == "initialize" => Self::Begin,
            Ok(mut message) if message.method == "notifications/cancelled" => {
                let request = message.params.get_mut("requestId");
                request.map_or(Self::None, |request| Self::TakeBack(request.take()))
            }
            _ => Self::None,
        }
    }
}

impl Whereabouts {
    pub(super) fn note(&self, call: CallId, device: &DeviceKey) -> Noted<'_> {
        self.0.lock().insert(call, device.clone());
        Noted {
            whereabouts: self,
            call,
        }
    }

    fn of(&self, call: CallId) -> Option<DeviceKey> {
        self.0.lock().get(&call).cloned()
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.whereabouts.0.lock().remove(&self.call);
    }
}

/// Takes a request back, on whichever node it is.
pub(super) async fn take_back(
    gateway: &Gateway,
    visit: &Visit,
    session: &Session,
    request: &serde_json::Value,
) {
    let call = session.call_id(request);
    let device = match &visit.reach {
        Reach::Device(device) => Some(device.clone()),
        Reach::All => gateway.mcp.whereabouts.of(call),
    };
    let Some(device) = device else {
        return;
    };
    if let Err(error) = gateway.bus.withdraw(&device, call).await {
        tracing::warn!(%error, call.id = %call, "a call could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_two_messages_matter() {
        fn check(body: &str, errand: Errand) {
            assert_eq!(Errand::of(body.as_bytes()), errand, "{body}");
        }
        check(r#"{"method":"initialize","params":{}}"#, Errand::Begin);
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#;
        check(cancelled, Errand::TakeBack(json!(7)));
        check(
            r#"{"method":"tools/call","params":{"name":"initialize"}}"#,
            Errand::None,
        );
        check(r#"{"method":"tools/list"}"#, Errand::None);
        check(
            r#"{"method":"notifications/cancelled","params":[]}"#,
            Errand::None,
        );
        check("\"initialize\"", Errand::None);
    }

    #[test]
    fn a_call_is_told_apart_by_session_and_request() {
        let named = |name: &str| Session(name.into());
        let id = named("a").call_id(&json!(1));
        assert_eq!(id, named("a").call_id(&json!(1)));
        assert_ne!(id, named("a").call_id(&json!("1")));
        assert_ne!(id, named("b").call_id(&json!(1)));
    }
}
