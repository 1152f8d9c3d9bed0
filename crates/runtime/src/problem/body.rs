//! The strict JSON body: what is not exactly what was asked for is refused, and the refusal says where and why.
//! Never: a guess, a default for a wrong type, or an unknown field passed over.

use std::error::Error;

use axum::{
    RequestExt,
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::Problem;
use crate::http::BodyTimeout;

/// A JSON body. Every rejection is a precise [`Problem`]:
///
/// | status | slug | when |
/// |---|---|---|
/// | 400 | `empty_body` | nothing was sent |
/// | 400 | `malformed_json` | no JSON; names line and column |
/// | 400 | `incomplete_body` | the body broke off |
/// | 408 | `body_timeout` | the body did not arrive in time |
/// | 413 | `body_too_large` | more bytes than the server takes |
/// | 415 | `unsupported_media_type` | not declared as JSON |
/// | 422 | `invalid_body` | JSON of another shape; `field` names the place |
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        require_json(request.headers())?;
        let RawBody(bytes) = RawBody::from_request(request, &()).await?;
        parse(&bytes).map(Self)
    }
}

/// A whole body, whatever it is; refused as [`Json`] refuses one that broke off, is late or too large.
#[derive(Debug, Clone)]
pub struct RawBody(pub Bytes);

impl<S: Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (_, body) = read_whole(request).await?;
        Ok(Self(body))
    }
}

/// A request's head, and its whole body as [`RawBody`] reads it.
///
/// # Errors
/// When the body broke off, is late or too large.
pub async fn read_whole(request: Request) -> Result<(Parts, Bytes), Problem> {
    let (head, body) = request.with_limited_body().into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| unreadable(&error))?;
    Ok((head, body.to_bytes()))
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
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "Unsupported media type",
        detail,
    ))
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// A whole body as the JSON that [`Json`] reads.
///
/// # Errors
/// As there.
pub fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "empty_body",
            "Empty body",
            "A JSON body is required, and nothing was sent.",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Data => mismatch::<T>(bytes, &error),
        Category::Io | Category::Syntax | Category::Eof => malformed(&error),
    })
}

fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "malformed_json",
        "Malformed JSON",
        format!("The body is not JSON: {error}."),
    )
    .with("line", error.line())
    .with("column", error.column())
}

/// Parses once more to learn the path; only those who send a wrong body pay for it.
fn mismatch<T: DeserializeOwned>(bytes: &Bytes, first: &serde_json::Error) -> Problem {
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let field = match serde_path_to_error::deserialize::<_, T>(&mut source) {
        Err(error) => error.path().to_string(),
        Ok(_) => ".".to_owned(),
    };
    let reason = first.to_string();
    let detail = match field.as_str() {
        "." => format!("The body does not fit: {reason}."),
        _ => format!("`{field}` does not fit: {reason}."),
    };
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "invalid_body",
        "Invalid body",
        detail,
    )
    .with("field", field)
}

/// Names what stopped a body from being read to its end.
fn unreadable(error: &(dyn Error + 'static)) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        if let Some(BodyTimeout(within)) = error.downcast_ref() {
            return Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                "Body too slow",
                format!(
                    "The whole body must arrive within {} s.",
                    within.as_secs_f64()
                ),
            )
            .header(header::CONNECTION, "close");
        }
        cause = error.source();
    }
    Problem::new(
        StatusCode::BAD_REQUEST,
        "incomplete_body",
        "Incomplete body",
        "The body broke off before its end.",
    )
}

/// The answer to a body over the limit.
#[must_use]
pub fn too_large() -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        "Body too large",
        "The body has more bytes than this server takes.",
    )
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Order {
        name: String,
        lines: Vec<Line>,
        raw: Option<Box<RawValue>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
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
    async fn refusals_say_where_and_why() {
        async fn check(body: &str, status: u16, slug: &str, field: Option<&str>, part: &str) {
            let problem = problem("application/json", body.to_owned()).await;
            assert_eq!(
                (problem.status.as_u16(), problem.slug),
                (status, slug),
                "{body}"
            );
            assert_eq!(
                problem.extra.get("field").and_then(|v| v.as_str()),
                field,
                "{body}"
            );
            assert!(problem.detail.contains(part), "{body}: {}", problem.detail);
        }
        check("", 400, "empty_body", None, "nothing was sent").await;
        check(
            "{\n  \"name\": }",
            400,
            "malformed_json",
            None,
            "line 2 column 11",
        )
        .await;
        check("{", 400, "malformed_json", None, "line 1 column 1").await;
        check(
            "\"\u{7}\"",
            400,
            "malformed_json",
            None,
            "control character",
        )
        .await;
        check(
            "{\"name\":\"a\",\"lines\":[]} x",
            400,
            "malformed_json",
            None,
            "trailing",
        )
        .await;
        check("[1]", 422, "invalid_body", Some("[0]"), "invalid type").await;
        check(
            "{\"name\":1,\"lines\":[]}",
            422,
            "invalid_body",
            Some("name"),
            "integer",
        )
        .await;
        let deep = "{\"name\":\"a\",\"raw\":{\"x\":[1]},\"lines\":[{\"count\":1},{\"count\":-1}]}";
        check(deep, 422, "invalid_body", Some("lines[1].count"), "-1").await;
        let unknown = "{\"name\":\"a\",\"lines\":[],\"liens\":[]}";
        check(unknown, 422, "invalid_body", Some("liens"), "unknown field").await;
        check(
            "{\"name\":\"a\"}",
            422,
            "invalid_body",
            Some("."),
            "missing field `lines`",
        )
        .await;
    }

    #[tokio::test]
    async fn only_declared_json_is_read() {
        async fn check(content_type: &str, status: u16) {
            let problem = problem(content_type, "{").await;
            assert_eq!(problem.status.as_u16(), status, "{content_type}");
        }
        check("application/json; charset=utf-8", 400).await;
        check("Application/JSON", 400).await;
        check("application/merge-patch+json", 400).await;
        check("text/plain", 415).await;
        check("application/x-www-form-urlencoded", 415).await;
        check("", 415).await;
    }

    #[tokio::test]
    async fn too_much_is_refused() {
        let body = vec![b' '; 2 * 1024 * 1024 + 1];
        let problem = problem("application/json", body).await;
        assert_eq!(
            (problem.status.as_u16(), problem.slug),
            (413, "body_too_large")
        );
    }
}
