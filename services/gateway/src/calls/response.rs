//! The outcome of a synchronous call as an HTTP response.
//!
//! Invariant: a device's result is not parsed; its bytes are copied into the body.

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
use switchboard_runtime::problem::{Problem, ProblemKind};

/// Status and JSON body. The body is a problem document unless the status is 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallResponse {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl CallResponse {
    pub(super) fn new(id: CallId, answer: &Answer, elapsed: Duration) -> Self {
        match answer.outcome {
            Outcome::Succeeded | Outcome::Failed => Self {
                status: StatusCode::OK,
                body: result(id, answer, elapsed),
            },
            outcome => {
                let refusal = answer.refusal().unwrap_or_else(|| default_refusal(outcome));
                problem(id, (outcome, answer.delivered), refusal, elapsed)
            }
        }
    }

    /// The response under an idempotency key whose call has no outcome.
    pub(super) fn lost(id: CallId, elapsed: Duration) -> Self {
        let refusal = Refusal {
            detail: "No outcome arrived after the call was sent; it is not sent again.".to_owned(),
            errors: Vec::new(),
        };
        problem(id, (Outcome::Lost, Delivered::Unknown), refusal, elapsed)
    }

    /// The one case of `overloaded` with status 413: a retry would fail as well.
    pub(super) fn params_too_large(id: CallId, detail: String, elapsed: Duration) -> Self {
        let refusal = Refusal {
            detail,
            errors: Vec::new(),
        };
        let document = document(id, (Outcome::Overloaded, Delivered::No), refusal, elapsed);
        Self::from_problem(Problem {
            kind: ProblemKind::ParamsTooLarge,
            ..document
        })
    }

    pub(super) fn from_problem(problem: Problem) -> Self {
        Self {
            status: problem.status(),
            body: problem.document().into(),
        }
    }
}

impl IntoResponse for CallResponse {
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
    let mark = if answer.result_valid {
        ""
    } else {
        r#","result_valid":false"#
    };
    let tail = format!(r#"{mark},"elapsed_ms":{}}}"#, milliseconds(elapsed));
    [head.as_bytes(), &answer.body, tail.as_bytes()]
        .concat()
        .into()
}

/// Milliseconds with microsecond precision, so with at most three decimals.
pub(crate) fn milliseconds(elapsed: Duration) -> f64 {
    elapsed.as_micros() as f64 / 1_000.0
}

fn problem(
    id: CallId,
    outcome: (Outcome, Delivered),
    refusal: Refusal,
    elapsed: Duration,
) -> CallResponse {
    CallResponse::from_problem(document(id, outcome, refusal, elapsed))
}

fn document(
    id: CallId,
    (outcome, delivered): (Outcome, Delivered),
    refusal: Refusal,
    elapsed: Duration,
) -> Problem {
    let problem = Problem::new(problem_kind(outcome), refusal.detail)
        .with("call_id", id)
        .with("outcome", outcome)
        .with("delivered", delivered)
        .with("elapsed_ms", milliseconds(elapsed));
    match outcome {
        Outcome::Invalid => problem.with("errors", refusal.errors),
        _ => problem,
    }
}

/// The kind of problem that reports an outcome. Success and failure are results, not problems.
const fn problem_kind(outcome: Outcome) -> ProblemKind {
    match outcome {
        Outcome::Succeeded | Outcome::Failed => ProblemKind::Internal,
        Outcome::Invalid => ProblemKind::InvalidParams,
        Outcome::UnknownDevice => ProblemKind::UnknownDevice,
        Outcome::UnknownService => ProblemKind::UnknownService,
        Outcome::Offline => ProblemKind::DeviceOffline,
        Outcome::Overloaded => ProblemKind::Overloaded,
        Outcome::Cancelled => ProblemKind::CallCancelled,
        Outcome::TimedOut => ProblemKind::CallTimedOut,
        Outcome::Lost => ProblemKind::CallLost,
        Outcome::Expired => ProblemKind::CallExpired,
    }
}

/// The reason for an outcome without a result, if the refusing side gave none.
pub(super) fn default_refusal(outcome: Outcome) -> Refusal {
    let detail = match outcome {
        Outcome::Invalid => "The params do not match the schema that the device registered.",
        Outcome::UnknownDevice => "There is no such device in this organisation.",
        Outcome::UnknownService => "The device has not registered such a service.",
        Outcome::Offline => "The device is not connected.",
        Outcome::Overloaded => "Too many calls are in flight for this device; try again later.",
        Outcome::Cancelled => "The call was cancelled.",
        Outcome::TimedOut => "The device did not answer in time; it may have executed the call.",
        Outcome::Lost => {
            "The connection failed after the call was sent; the device may have executed it."
        }
        Outcome::Expired => "The device did not connect in time; it did not receive the call.",
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

    fn elapsed() -> Duration {
        Duration::from_nanos(12_345_678)
    }

    fn id() -> CallId {
        CallId::from_uuid(Uuid::from_u128(7))
    }

    #[test]
    fn outcome_has_its_status() {
        fn check(outcome: Outcome, expected: u16) {
            let body = match outcome {
                Outcome::Succeeded | Outcome::Failed => Bytes::from_static(b"{}"),
                _ => Bytes::new(),
            };
            let answer = Answer {
                outcome,
                delivered: outcome.delivered(),
                body,
                result_valid: true,
            };
            let response = CallResponse::new(id(), &answer, elapsed());
            assert_eq!(response.status.as_u16(), expected, "{outcome:?}");
            let body: Value = serde_json::from_slice(&response.body).unwrap();
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
        check(Outcome::Cancelled, 409);
        check(Outcome::TimedOut, 504);
        check(Outcome::Lost, 502);
        check(Outcome::Expired, 410);
    }

    #[test]
    fn result_is_copied_byte_for_byte() {
        let body =
            Bytes::from_static("{ \"success\" : true, \"data\":1.50e0, \"说\":\"好\" }".as_bytes());
        let answer = Answer {
            outcome: Outcome::Succeeded,
            delivered: Delivered::Yes,
            body,
            result_valid: true,
        };
        let mismatch = Answer {
            result_valid: false,
            ..answer.clone()
        };
        for (answer, mark) in [(answer, ""), (mismatch, r#","result_valid":false"#)] {
            let response = CallResponse::new(id(), &answer, elapsed());
            let expected = format!(
                "{{\"call_id\":\"{}\",\"outcome\":\"succeeded\",\"delivered\":\"yes\",\"result\":{}{mark},\"elapsed_ms\":12.345}}",
                id(),
                std::str::from_utf8(&answer.body).unwrap()
            );
            assert_eq!(response.body, expected.as_bytes());
        }
    }

    #[test]
    fn invalid_params_list_their_violations() {
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
            result_valid: true,
        };
        let response = CallResponse::new(id(), &answer, elapsed());
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(body["type"], "/problems/invalid");
        assert_eq!(body["detail"], "The params do not match.");
        assert_eq!(
            body["errors"],
            json!([{"pointer": "/speed", "detail": "too fast"}])
        );
    }

    #[test]
    fn too_large_params_have_no_retry_after() {
        let response = CallResponse::params_too_large(id(), "Too large.".to_owned(), elapsed());
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(
            (response.status.as_u16(), &body["status"]),
            (413, &json!(413))
        );
        assert_eq!(
            (&body["outcome"], &body["delivered"]),
            (&json!("overloaded"), &json!("no"))
        );
        assert!(
            !response
                .into_response()
                .headers()
                .contains_key(header::RETRY_AFTER)
        );
    }
}
