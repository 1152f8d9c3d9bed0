//! A name for a client of the revisions with a handshake, so that it can take a request back: these clients cancel in
//! a request of its own, which any node may get.
//! Never: anything kept for a session; what a call can be taken back by is made of who asks, the session's name and the
//! request's id, wherever that is done.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use switchboard_bus::Handle;
use uuid::Uuid;

use super::{access::Visit, binding::Binding, era};
use crate::Gateway;

/// Carries the name. (MCP 2025-11-25, basic/transports, session management.)
pub(super) const HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Longer than any name given here.
const LONGEST: usize = 64;

/// The name of a session, as its client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session(Box<str>);

/// The requests of sessions that this gateway is at. What another is at, it does not know.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashSet<Handle>>);

/// Strikes a request out when it has ended.
pub(super) struct Begun<'a> {
    under_way: &'a UnderWay,
    pub(super) handle: Handle,
}

/// What has to be done beside answering.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Errand {
    None,
    /// The answer gets a name for the session that begins.
    Begin,
    /// The client does not want this request answered any more.
    TakeBack(Value),
}

#[derive(Deserialize)]
struct Message {
    method: String,
    #[serde(default)]
    params: Value,
}

impl Session {
    /// The newest revision knows no sessions: what its clients send here means nothing.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if era::is_modern_head(headers) {
            return None;
        }
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

    /// What a request of this session can be taken back by: by its own sender, at the endpoint that it was sent to.
    pub(super) fn handle(&self, visit: &Visit, request: &Value) -> Handle {
        let request = request.to_string();
        let binding = Binding::new(visit, "session", &self.0, request.as_bytes());
        // Half of it is enough, and never missing.
        Handle(binding.digest().first_chunk().copied().unwrap_or_default())
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

impl UnderWay {
    /// Begins a request; `None` when one of the same session and id is under way.
    pub(super) fn begin(&self, handle: Handle) -> Option<Begun<'_>> {
        let begun = self.0.lock().insert(handle);
        begun.then_some(Begun {
            under_way: self,
            handle,
        })
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.under_way.0.lock().remove(&self.handle);
    }
}

/// Takes a request back, on whichever node it is.
pub(super) async fn take_back(
    gateway: &Gateway,
    visit: &Visit,
    session: &Session,
    request: &Value,
) {
    let handle = session.handle(visit, request);
    if let Err(error) = gateway.bus.withdraw(handle).await {
        tracing::warn!(%error, "a call could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchboard_identity::{Caller, Credential};
    use switchboard_protocol::{
        access::Scopes,
        id::{ApiKeyId, DeviceKey, OrgId},
    };

    use super::*;
    use crate::mcp::access::Reach;

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
    fn a_request_is_told_apart_by_all_that_it_belongs_to() {
        let (org, other) = (OrgId::from_uuid(Uuid::nil()), OrgId::from_uuid(Uuid::max()));
        let key = |n| Credential::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(n)));
        let at = |device: &str| {
            let device = device.parse().unwrap();
            Reach::Device(DeviceKey { org, device })
        };
        let handle = |org, credential, reach, session: &str, request| {
            let scopes = Scopes::default();
            let caller = Caller {
                org,
                credential,
                scopes,
            };
            Session(session.into()).handle(&Visit { caller, reach }, &request)
        };
        let all = [
            handle(org, key(1), Reach::All, "a", json!(1)),
            handle(org, key(1), Reach::All, "a", json!("1")),
            handle(org, key(1), Reach::All, "b", json!(1)),
            handle(org, key(1), at("toy-1"), "a", json!(1)),
            handle(org, key(1), at("toy-2"), "a", json!(1)),
            handle(org, key(2), Reach::All, "a", json!(1)),
            handle(other, key(1), Reach::All, "a", json!(1)),
        ];
        assert_eq!(all[0], handle(org, key(1), Reach::All, "a", json!(1)));
        assert_eq!(HashSet::from(all).len(), all.len());
    }

    #[test]
    fn a_request_is_under_way_once_until_it_has_ended() {
        let under_way = UnderWay::default();
        let handle = Handle([1; 16]);
        let begun = under_way.begin(handle);
        assert!(begun.is_some() && under_way.begin(handle).is_none());
        drop(begun);
        assert!(under_way.begin(handle).is_some());
        assert!(under_way.0.lock().is_empty());
    }
}
