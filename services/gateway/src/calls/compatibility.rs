//! Compatibility tests of the digests under which calls are stored with an idempotency key.
//!
//! A caller repeats a request at a node of another release and gets the stored answer.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use chrono::DateTime;
use switchboard_identity::{Caller, Credential};
use switchboard_protocol::id::{ApiKeyId, DeviceKey, OrgId, TokenId};
use switchboard_store::Expiry;
use switchboard_test_support::snapshot;
use uuid::Uuid;

use super::{
    idempotency::{IdempotencyKey, fingerprint},
    mode::Mode,
    request::CallRequest,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn digests_of_calls_are_unchanged() {
    let request = CallRequest {
        service: "wave".into(),
        params: Bytes::from_static(b"{\"a\":1}"),
        input: Bytes::from_static(b"{}"),
        timeout: Duration::from_millis(1500),
    };
    let wait = Duration::from_secs(60);
    let modes = [
        ("sync", Mode::Sync),
        ("async", Mode::Async),
        ("queued-for", Mode::Queued(Expiry::In(wait))),
        (
            "queued-until",
            Mode::Queued(Expiry::At(DateTime::UNIX_EPOCH)),
        ),
    ];
    let digests = modes
        .iter()
        .map(|(name, mode)| (*name, fingerprint(&request, mode)));
    let digests = digests.map(|(name, digest)| format!("request {name} {}", hex(&digest)));
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", HeaderValue::from_static("key-1"));
    let key = IdempotencyKey::from_headers(&headers).unwrap().unwrap();
    let org = OrgId::from_uuid(Uuid::from_u128(7));
    let device = DeviceKey {
        org,
        device: "toy-1".parse().unwrap(),
    };
    let credentials = [
        Credential::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(8))),
        Credential::AccessToken {
            id: TokenId::from_uuid(Uuid::from_u128(9)),
            subject: "client:a".parse().unwrap(),
        },
    ];
    let keys = credentials.map(|credential| {
        let holder = credential.caller_name();
        let caller = Caller {
            org,
            scopes: "call".parse().unwrap(),
            restrictions: None,
            labelled: None,
            credential,
        };
        format!("key {holder} {}", hex(&key.scoped(&caller, &device).hash))
    });
    snapshot::check("call-digests.txt", digests.chain(keys));
}
