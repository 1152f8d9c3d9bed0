//! A call's outcome as an HTTP response.
//! Never: a device's result parsed; its bytes are put where they belong.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use switchboard_bus::Answer;
use switchboard_protocol::{
    id::CallId,
    outcome::{Delivered, Outcome, Refusal},
};
use switchboard_runtime::problem::Problem;

/// Status and JSON body; everything but 200 is a problem document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn to_call(id: CallId, answer: &Answer, elapsed: Duration) -> Self {
        match answer.outcome {
            Outcome::Succeeded | Outcome::Failed => Self {
                status: StatusCode::OK,
                body: result(id, answer, elapsed),
            },
            outcome => {
                let refusal = answer.refusal().unwrap_or_else(|| unexplained(outcome));
                problem(id, (outcome, answer.delivered), refusal, elapsed)
            }
        }
    }

    /// What was lost is never tried again, so a later request learns no more than this.
    pub(super) fn lost(id: CallId, elapsed: Duration) -> Self {
        let refusal = Refusal {
            detail: "Nothing has been heard of this call since it was sent; it is not made again."
                .to_owned(),
            errors: Vec::new(),
        };
        problem(id, (Outcome::Lost, Delivered::Unknown), refusal, elapsed)
    }

    /// The one case of `overloaded` that is 413: waiting would not help.
    pub(super) fn params_too_large(id: CallId, detail: String, elapsed: Duration) -> Self {
        let refusal = Refusal {
            detail,
            errors: Vec::new(),
        };
        let document = document(id, (Outcome::Overloaded, Delivered::No), refusal, elapsed);
        Self::of(Problem {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            ..document
        })
    }

    fn of(problem: Problem) -> Self {
        Self {
            status: problem.status,
            body: problem.document().into(),
        }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let media_type = match self.status {
            StatusCode::OK => "application/json",
            _ => "application/problem+json",
        };
        let mut response = (self.status, self.body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn result(id: CallId, answer: &Answer, elapsed: Duration) -> Bytes {
    let head = format!(
        r#"{{"call_id":"{id}","outcome":"{}","delivered":"{}","result":"#,
        answer.outcome.as_str(),
        answer.delivered.as_str(),
    );
    let tail = format!(r#","elapsed_ms":{}}}"#, milliseconds(elapsed));
    [head.as_bytes(), &answer.body, tail.as_bytes()]
        .concat()
        .into()
}

/// To the microsecond, so with three decimals at most.
pub(crate) fn milliseconds(elapsed: Duration) -> f64 {
    elapsed.as_micros() as f64 / 1_000.0
}

fn problem(
    id: CallId,
    outcome: (Outcome, Delivered),
    refusal: Refusal,
    elapsed: Duration,
) -> Reply {
    Reply::of(document(id, outcome, refusal, elapsed))
}

fn document(
    id: CallId,
    (outcome, delivered): (Outcome, Delivered),
    refusal: Refusal,
    elapsed: Duration,
) -> Problem {
    let problem = Problem::new(
        status(outcome),
        outcome.as_str(),
        title(outcome),
        refusal.detail,
    )
    .with("call_id", id)
    .with("outcome", outcome)
    .with("delivered", delivered)
    .with("elapsed_ms", milliseconds(elapsed));
    match outcome {
        Outcome::Invalid => problem.with("errors", refusal.errors),
        _ => problem,
    }
}

fn status(outcome: Outcome) -> StatusCode {
    match outcome {
        Outcome::Succeeded | Outcome::Failed => StatusCode::OK,
        Outcome::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Outcome::UnknownDevice | Outcome::UnknownService => StatusCode::NOT_FOUND,
        Outcome::Offline => StatusCode::CONFLICT,
        // Only calls that nobody waits for expire, so this is never an answer's status.
        Outcome::Expired => StatusCode::GONE,
        Outcome::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        // 499 has no name in the registry, but is what proxies call a client that went away.
        Outcome::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
        Outcome::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Outcome::Lost => StatusCode::BAD_GATEWAY,
    }
}

const fn title(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "Call succeeded",
        Outcome::Failed => "Call failed",
        Outcome::Invalid => "Params do not match the schema",
        Outcome::UnknownDevice => "Unknown device",
        Outcome::UnknownService => "Unknown service",
        Outcome::Offline => "Device offline",
        Outcome::Overloaded => "Overloaded",
        Outcome::Cancelled => "Call cancelled",
        Outcome::TimedOut => "Call timed out",
        Outcome::Lost => "Call lost",
        Outcome::Expired => "Call expired",
    }
}

/// Stands in where whoever refused gave no reason.
pub(super) fn unexplained(outcome: Outcome) -> Refusal {
    let detail = match outcome {
        Outcome::Invalid => "The params do not match the schema that the device registered.",
        Outcome::UnknownDevice => "There is no such device in this organisation.",
        Outcome::UnknownService => "The device has not registered such a service.",
        Outcome::Offline => "The device is not connected.",
        Outcome::Overloaded => "Too much is under way for this device; try again later.",
        Outcome::Cancelled => "The call was cancelled.",
        Outcome::TimedOut => "The device did not answer in time; it may have acted.",
        Outcome::Lost => {
            "The connection failed after the call was sent; the device may have acted."
        }
        Outcome::Expired => "The device did not come in time; it never saw the call.",
        Outcome::Succeeded | Outcome::Failed => "The device answered.",
    };
    Refusal {
        detail: detail.to_owned(),
        errors: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use switchboard_protocol::outcome::Violation;
    use uuid::Uuid;

    use super::*;

    const ELAPSED: Duration = Duration::from_nanos(12_345_678);

    fn id() -> CallId {
        CallId::from_uuid(Uuid::from_u128(7))
    }

    #[test]
    fn every_outcome_has_its_status() {
        fn check(outcome: Outcome, expected: u16) {
            let body = match outcome {
                Outcome::Succeeded | Outcome::Failed => Bytes::from_static(b"{}"),
                _ => Bytes::new(),
            };
            let answer = Answer {
                outcome,
                delivered: outcome.delivered(),
                body,
            };
            let reply = Reply::to_call(id(), &answer, ELAPSED);
            assert_eq!(reply.status.as_u16(), expected, "{outcome:?}");
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(body["outcome"], outcome.as_str());
            assert_eq!(body["delivered"], json!(outcome.delivered()));
            assert_eq!(body["call_id"], json!(id()));
            assert_eq!(body["elapsed_ms"], 12.345);
        }
        check(Outcome::Succeeded, 200);
        check(Outcome::Failed, 200);
        check(Outcome::Invalid, 422);
        check(Outcome::UnknownDevice, 404);
        check(Outcome::UnknownService, 404);
        check(Outcome::Offline, 409);
        check(Outcome::Overloaded, 429);
        check(Outcome::Cancelled, 499);
        check(Outcome::TimedOut, 504);
        check(Outcome::Lost, 502);
        check(Outcome::Expired, 410);
    }

    #[test]
    fn a_result_is_passed_on_byte_by_byte() {
        let body =
            Bytes::from_static("{ \"success\" : true, \"data\":1.50e0, \"说\":\"好\" }".as_bytes());
        let answer = Answer {
            outcome: Outcome::Succeeded,
            delivered: Delivered::Yes,
            body,
        };
        let reply = Reply::to_call(id(), &answer, ELAPSED);
        let expected = format!(
            "{{\"call_id\":\"{}\",\"outcome\":\"succeeded\",\"delivered\":\"yes\",\"result\":{},\"elapsed_ms\":12.345}}",
            id(),
            std::str::from_utf8(&answer.body).unwrap()
        );
        assert_eq!(reply.body, expected.as_bytes());
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let refusal = Refusal {
            detail: "The params do not match.".to_owned(),
            errors: vec![Violation {
                pointer: "/speed".to_owned(),
                detail: "too fast".to_owned(),
            }],
        };
        let body = serde_json::to_vec(&refusal).unwrap().into();
        let answer = Answer {
            outcome: Outcome::Invalid,
            delivered: Delivered::No,
            body,
        };
        let reply = Reply::to_call(id(), &answer, ELAPSED);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body["type"], "/problems/invalid");
        assert_eq!(body["detail"], "The params do not match.");
        assert_eq!(
            body["errors"],
            json!([{"pointer": "/speed", "detail": "too fast"}])
        );
    }

    #[test]
    fn too_large_is_not_a_matter_of_waiting() {
        let reply = Reply::params_too_large(id(), "Too large.".to_owned(), ELAPSED);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status.as_u16(), &body["status"]), (413, &json!(413)));
        assert_eq!(
            (&body["outcome"], &body["delivered"]),
            (&json!("overloaded"), &json!("no"))
        );
        assert!(
            !reply
                .into_response()
                .headers()
                .contains_key(header::RETRY_AFTER)
        );
    }
}
