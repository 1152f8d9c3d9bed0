//! What is remembered of a call under an idempotency key, so that it is never made twice.
//! Never: a caller's key in the clear, or its params.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use switchboard_protocol::id::CallId;

use super::{Attempt, reply::Reply, request::CallRequest};

/// After the deadline this much may pass until an outcome is on record; then it never will be.
const SETTLING_MS: u64 = 2_000;

/// A call, from its reservation to its outcome.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    fingerprint: String,
    pub(super) call_id: CallId,
    begun_unix_ms: u64,
    deadline_unix_ms: u64,
    done: Option<Done>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Done {
    status: u16,
    body: Box<RawValue>,
}

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

impl Record {
    /// The record of a call that is about to be made.
    pub(super) fn begun(attempt: &Attempt) -> Self {
        let now = unix_ms();
        let timeout = u64::try_from(attempt.request.timeout.as_millis()).unwrap_or(u64::MAX);
        Self {
            fingerprint: fingerprint(&attempt.request),
            call_id: attempt.id,
            begun_unix_ms: now,
            deadline_unix_ms: now.saturating_add(timeout),
            done: None,
        }
    }

    /// The record with the call's outcome.
    ///
    /// # Errors
    /// When the reply is no JSON, which no reply of ours is.
    pub(super) fn over(self, reply: &Reply) -> Result<Self, serde_json::Error> {
        let body = serde_json::from_slice(&reply.body)?;
        Ok(Self {
            done: Some(Done {
                status: reply.status.as_u16(),
                body,
            }),
            ..self
        })
    }

    pub(super) fn to_bytes(&self) -> Result<Bytes, serde_json::Error> {
        serde_json::to_vec(self).map(Bytes::from)
    }

    /// How a request with the same key stands to this record now.
    pub(super) fn standing(self, request: &CallRequest) -> Standing {
        self.standing_at(request, unix_ms())
    }

    fn standing_at(self, request: &CallRequest, now_unix_ms: u64) -> Standing {
        if self.fingerprint != fingerprint(request) {
            return Standing::Reused;
        }
        match self.done {
            Some(done) => Standing::Over(done.into()),
            None if now_unix_ms <= self.deadline_unix_ms.saturating_add(SETTLING_MS) => {
                Standing::UnderWay
            }
            None => {
                let elapsed = now_unix_ms.saturating_sub(self.begun_unix_ms);
                Standing::Over(Reply::lost(self.call_id, Duration::from_millis(elapsed)))
            }
        }
    }
}

impl From<Done> for Reply {
    fn from(done: Done) -> Self {
        Self {
            status: StatusCode::from_u16(done.status).unwrap_or(StatusCode::BAD_GATEWAY),
            body: Bytes::from(Box::<str>::from(done.body).into_boxed_bytes()),
        }
    }
}

/// Two requests are the same when they would be sent the same; the device is part of the record's name.
fn fingerprint(request: &CallRequest) -> String {
    let mut hash = Sha256::new();
    hash.update(request.timeout.as_millis().to_be_bytes());
    // A length before each part, so that no two pairs of parts run into the same bytes.
    for part in [request.service.as_bytes(), &request.params] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::{DeviceKey, OrgId};
    use uuid::Uuid;

    use super::*;

    fn request(service: &str, params: &'static str) -> CallRequest {
        CallRequest {
            service: service.into(),
            params: Bytes::from_static(params.as_bytes()),
            timeout: Duration::from_secs(1),
        }
    }

    fn record() -> Record {
        let record = Record::begun(&Attempt {
            id: CallId::from_uuid(Uuid::from_u128(7)),
            device: DeviceKey {
                org: OrgId::from_uuid(Uuid::from_u128(1)),
                device: "toy-1".parse().unwrap(),
            },
            request: request("wave", "{}"),
            started: std::time::Instant::now(),
        });
        serde_json::from_slice(&record.to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn a_call_is_under_way_until_it_cannot_be_any_more() {
        let deadline = record().deadline_unix_ms;
        let same = request("wave", "{}");
        assert_eq!(
            record().standing_at(&same, deadline + SETTLING_MS),
            Standing::UnderWay
        );
        let mut late = record();
        late.deadline_unix_ms = deadline;
        match late.standing_at(&same, deadline + SETTLING_MS + 1) {
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
        let stored = record().over(&reply).unwrap().to_bytes().unwrap();
        let record: Record = serde_json::from_slice(&stored).unwrap();
        assert_eq!(
            record.standing(&request("wave", "{}")),
            Standing::Over(reply)
        );
    }

    #[test]
    fn another_request_is_told_from_the_same() {
        fn check(other: &CallRequest) {
            assert_eq!(record().standing(other), Standing::Reused, "{other:?}");
        }
        check(&request("wave", "{ }"));
        check(&request("wav", "e{}"));
        check(&CallRequest {
            timeout: Duration::from_secs(2),
            ..request("wave", "{}")
        });
    }
}
