//! What the record of a call under an idempotency key means for another request with that key.
//! Never: a caller's key in the clear, or its params.

use std::time::Duration;

use axum::http::StatusCode;
use sha2::{Digest, Sha256};
use switchboard_store::{Expiry, RememberedCall, SETTLING, StoredOutcome};

use super::{mode::Mode, reply::Reply, request::CallRequest};

/// What a record means for another request with the same key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is another call: its fingerprint differs.
    Reused,
    /// Its outcome is not known yet.
    UnderWay,
    /// This is its outcome.
    Over(Reply),
}

impl Standing {
    /// How a request stands to the call that has its key.
    pub(super) fn of(call: RememberedCall, request: &CallRequest) -> Self {
        if call.fingerprint != fingerprint(request, &Mode::Sync) {
            return Self::Reused;
        }
        match call.outcome {
            Some(outcome) => Self::Over(outcome.into()),
            None if call.read_at <= call.deadline + SETTLING => Self::UnderWay,
            None => {
                let elapsed = (call.read_at - call.created_at).to_std();
                Self::Over(Reply::lost(call.id, elapsed.unwrap_or(Duration::ZERO)))
            }
        }
    }
}

impl From<StoredOutcome> for Reply {
    fn from(outcome: StoredOutcome) -> Self {
        Self {
            status: StatusCode::from_u16(outcome.status).unwrap_or(StatusCode::BAD_GATEWAY),
            body: outcome.body.into(),
        }
    }
}

impl From<Reply> for StoredOutcome {
    fn from(reply: Reply) -> Self {
        Self {
            status: reply.status.as_u16(),
            body: reply.body.into(),
        }
    }
}

/// Two requests are the same when they would be sent the same; the device is part of the key.
pub(super) fn fingerprint(request: &CallRequest, mode: &Mode) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(request.timeout.as_millis().to_be_bytes());
    // A length before each part, so that no two pairs of parts run into the same bytes.
    for part in [request.service.as_bytes(), &request.params, &request.input] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    match mode {
        Mode::Sync => {}
        Mode::Async => hash.update(b"async"),
        Mode::Queued(Expiry::At(at)) => {
            hash.update(format!("queued until {}", at.timestamp_micros()))
        }
        Mode::Queued(Expiry::In(wait)) => hash.update(format!("queued for {}", wait.as_millis())),
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use chrono::{DateTime, TimeDelta};
    use switchboard_protocol::id::CallId;
    use uuid::Uuid;

    use super::*;

    fn request(service: &str, params: &'static str) -> CallRequest {
        CallRequest {
            service: service.into(),
            params: Bytes::from_static(params.as_bytes()),
            input: Bytes::new(),
            timeout: Duration::from_secs(1),
        }
    }

    fn call_read(after_deadline: TimeDelta) -> RememberedCall {
        let created_at = DateTime::UNIX_EPOCH;
        let deadline = created_at + TimeDelta::seconds(1);
        RememberedCall {
            id: CallId::from_uuid(Uuid::from_u128(7)),
            fingerprint: fingerprint(&request("wave", "{}"), &Mode::Sync).to_vec(),
            created_at,
            deadline,
            read_at: deadline + after_deadline,
            outcome: None,
        }
    }

    #[test]
    fn a_call_is_under_way_until_it_cannot_be_any_more() {
        let same = request("wave", "{}");
        let settling = TimeDelta::from_std(SETTLING).unwrap();
        assert_eq!(Standing::of(call_read(settling), &same), Standing::UnderWay);
        let late = call_read(settling + TimeDelta::microseconds(1));
        match Standing::of(late, &same) {
            Standing::Over(reply) => assert_eq!(reply.status.as_u16(), 502),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_outcome_is_given_again_as_it_was() {
        let body = Bytes::from_static(b"{\"result\": {\"success\":true , \"data\":1.0}}");
        let reply = Reply {
            status: StatusCode::OK,
            body,
        };
        let call = RememberedCall {
            outcome: Some(reply.clone().into()),
            ..call_read(TimeDelta::days(1))
        };
        assert_eq!(
            Standing::of(call, &request("wave", "{}")),
            Standing::Over(reply)
        );
    }

    #[test]
    fn another_request_is_told_from_the_same() {
        fn check(other: &CallRequest) {
            let standing = Standing::of(call_read(TimeDelta::zero()), other);
            assert_eq!(standing, Standing::Reused, "{other:?}");
        }
        check(&request("wave", "{ }"));
        check(&request("wav", "e{}"));
        check(&CallRequest {
            timeout: Duration::from_secs(2),
            ..request("wave", "{}")
        });
    }

    #[test]
    fn another_mode_is_another_request() {
        let wait = Duration::from_secs(60);
        let modes = [
            Mode::Sync,
            Mode::Async,
            Mode::Queued(Expiry::In(wait)),
            Mode::Queued(Expiry::In(wait * 2)),
            Mode::Queued(Expiry::At(DateTime::UNIX_EPOCH)),
        ];
        let same = request("wave", "{}");
        let prints: std::collections::HashSet<_> =
            modes.iter().map(|mode| fingerprint(&same, mode)).collect();
        assert_eq!(prints.len(), modes.len());
    }
}
