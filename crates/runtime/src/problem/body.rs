//! Extractors for request bodies. The JSON extractor is strict, and its rejections locate the
//! error.

use std::error::Error;

use axum::{
    RequestExt,
    body::{Body, HttpBody as _},
    extract::{FromRequest, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::{Problem, ProblemKind, mismatch::mismatch};
use crate::{
    budget::Exhausted,
    http::{BodyTimeout, BodyTooLarge},
};

/// A JSON body. Every rejection is a specific [`Problem`]:
///
/// | status | slug | when |
/// |---|---|---|
/// | 400 | `empty_body` | the body is empty |
/// | 400 | `malformed_json` | the body is not JSON; names line and column |
/// | 400 | `incomplete_body` | the connection closed before the end of the body |
/// | 408 | `body_timeout` | the body did not arrive in time |
/// | 413 | `body_too_large` | the body exceeds the size limit |
/// | 415 | `unsupported_media_type` | the Content-Type is not JSON |
/// | 422 | `invalid_body` | the JSON does not match the schema; `errors` locates the error |
/// | 429 | `overloaded` | the budget for bodies is exhausted |
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        require_json(request.headers())?;
        let RawBody(bytes) = RawBody::from_request(request, &()).await?;
        parse_json(&bytes).map(Self)
    }
}

/// A complete body of any type. Rejects incomplete, late and oversized bodies like [`Json`].
#[derive(Debug, Clone)]
pub struct RawBody(pub Bytes);

impl<S: Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (_, body) = read_body(request).await?;
        Ok(Self(body))
    }
}

/// Reads the complete body of a request, like [`RawBody`], and returns it with the request's head.
///
/// # Errors
/// When the body is incomplete, late or too large.
pub async fn read_body(request: Request) -> Result<(Parts, Bytes), Problem> {
    let (head, body) = request.with_limited_body().into_parts();
    let body = collect(body).await;
    Ok((head, body.map_err(|error| unreadable_body(&error))?))
}

/// Collects a body in one buffer. A frame may be a small part of a large read buffer, so it is
/// copied and dropped, unless it is the whole body.
async fn collect(mut body: Body) -> Result<Bytes, axum::Error> {
    let declared = body.size_hint().exact();
    let declared = declared.and_then(|bytes| usize::try_from(bytes).ok());
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if whole.is_empty() {
            if declared == Some(data.len()) {
                return Ok(data);
            }
            whole.reserve(declared.unwrap_or_default());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let declared = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    if declared.is_some_and(is_json) {
        return Ok(());
    }
    let detail = match declared {
        Some(other) => format!("The body is declared as {other}; it must be application/json."),
        None => "The body must be declared with Content-Type: application/json.".to_owned(),
    };
    Err(Problem::new(ProblemKind::UnsupportedMediaType, detail))
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Parses a complete body like [`Json`].
///
/// # Errors
/// When the body is empty, not JSON, or does not match the schema.
pub fn parse_json<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(
            ProblemKind::EmptyBody,
            "A JSON body is required, and the body is empty.",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Data => locate::<T>(bytes, &error),
        Category::Io | Category::Syntax | Category::Eof => malformed(&error),
    })
}

fn malformed(error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let detail = if error.is_eof() {
        format!("The body ends before its JSON is complete, in line {line}, column {column}.")
    } else {
        format!("The body is not JSON: line {line}, column {column} is not expected.")
    };
    Problem::new(ProblemKind::MalformedJson, detail)
        .with("line", line)
        .with("column", column)
}

/// Parses a second time to find the path of the error; only invalid bodies pay for it.
fn locate<T: DeserializeOwned>(bytes: &Bytes, first: &serde_json::Error) -> Problem {
    let mut source = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut source) {
        Err(error) => mismatch("", error.path(), error.inner()),
        Ok(_) => malformed(first),
    }
}

/// Maps the error that ended the body of a request early to its problem.
#[must_use]
pub fn unreadable_body(error: &(dyn Error + 'static)) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(BodyTooLarge { limit }) = error.downcast_ref() {
            return body_too_large(*limit, None).header(header::CONNECTION, "close");
        }
        // Of a router that another server serves.
        if error.is::<LengthLimitError>() {
            let detail = "The body exceeds the size limit of this path.";
            return Problem::new(ProblemKind::BodyTooLarge, detail);
        }
        if let Some(BodyTimeout(within)) = error.downcast_ref() {
            return Problem::new(
                ProblemKind::BodyTimeout,
                format!(
                    "The whole body must arrive within {} s.",
                    within.as_secs_f64()
                ),
            )
            .header(header::CONNECTION, "close");
        }
        if let Some(exhausted) = error.downcast_ref::<Exhausted>() {
            // The rest of the body will not be read.
            return Problem::from(*exhausted).header(header::CONNECTION, "close");
        }
        cause = error.source();
    }
    Problem::new(
        ProblemKind::IncompleteBody,
        "The connection closed before the end of the body.",
    )
}

/// Creates the problem for a body over the size limit, both in bytes. The length of a body is unknown
/// when it was not declared.
#[must_use]
pub fn body_too_large(limit: usize, length: Option<u64>) -> Problem {
    let detail = match length {
        Some(length) => format!("The body has {length} bytes; at most {limit} bytes are accepted."),
        None => format!("The body is longer than {limit} bytes, which is the maximum."),
    };
    Problem::new(ProblemKind::BodyTooLarge, detail).with("limit", limit)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the test only needs the shape")]
    struct Order {
        name: String,
        lines: Vec<Line>,
        raw: Option<Box<RawValue>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the test only needs the shape")]
    struct Line {
        count: u8,
    }

    async fn problem(content_type: &str, body: impl Into<Body>) -> Problem {
        let request = Request::builder()
            .header(header::CONTENT_TYPE, content_type)
            .body(body.into())
            .unwrap();
        Json::<Order>::from_request(request, &()).await.unwrap_err()
    }

    #[tokio::test]
    async fn rejection_locates_and_explains_the_error() {
        async fn check(body: &str, status: u16, slug: &str, pointer: Option<&str>, part: &str) {
            let problem = problem("application/json", body.to_owned()).await;
            assert_eq!(
                (problem.status().as_u16(), problem.slug()),
                (status, slug),
                "{body}"
            );
            assert_eq!(problem.pointer(), pointer, "{body}");
            assert!(problem.detail.contains(part), "{body}: {}", problem.detail);
        }
        check("", 400, "empty_body", None, "the body is empty").await;
        check(
            "{\n  \"name\": }",
            400,
            "malformed_json",
            None,
            "line 2, column 11",
        )
        .await;
        check(
            "{",
            400,
            "malformed_json",
            None,
            "ends before its JSON is complete, in line 1, column 1",
        )
        .await;
        check("\"\u{7}\"", 400, "malformed_json", None, "line 1, column 2").await;
        check(
            "{\"name\":\"a\",\"lines\":[]} x",
            400,
            "malformed_json",
            None,
            "line 1, column 25",
        )
        .await;
        check("[1]", 422, "invalid_body", Some("/0"), "must be a string").await;
        check(
            "{\"name\":1,\"lines\":[]}",
            422,
            "invalid_body",
            Some("/name"),
            "number",
        )
        .await;
        let deep = "{\"name\":\"a\",\"raw\":{\"x\":[1]},\"lines\":[{\"count\":1},{\"count\":-1}]}";
        check(deep, 422, "invalid_body", Some("/lines/1/count"), "-1").await;
        let unknown = "{\"name\":\"a\",\"lines\":[],\"liens\":[]}";
        check(unknown, 422, "invalid_body", Some("/liens"), "not known").await;
        check(
            "{\"name\":\"a\"}",
            422,
            "invalid_body",
            Some("/lines"),
            "`/lines` is required",
        )
        .await;
    }

    #[tokio::test]
    async fn body_must_be_declared_as_json() {
        async fn check(content_type: &str, status: u16) {
            let problem = problem(content_type, "{").await;
            assert_eq!(problem.status().as_u16(), status, "{content_type}");
        }
        check("application/json; charset=utf-8", 400).await;
        check("Application/JSON", 400).await;
        check("application/merge-patch+json", 400).await;
        check("text/plain", 415).await;
        check("application/x-www-form-urlencoded", 415).await;
        check("", 415).await;
    }

    #[tokio::test]
    async fn body_is_collected_in_one_buffer() {
        let whole = Bytes::from_static(b"whole");
        let collected = collect(Body::from(whole.clone())).await.unwrap();
        assert_eq!(collected.as_ptr(), whole.as_ptr());
        let frames = [Ok::<_, axum::Error>("in "), Ok("two frames")];
        let body = Body::from_stream(futures_util::stream::iter(frames));
        assert_eq!(collect(body).await.unwrap(), "in two frames");
    }

    #[tokio::test]
    async fn body_over_limit_is_rejected() {
        let body = vec![b' '; 2 * 1024 * 1024 + 1];
        let problem = problem("application/json", body).await;
        assert_eq!(
            (problem.status().as_u16(), problem.slug()),
            (413, "body_too_large")
        );
    }
}
