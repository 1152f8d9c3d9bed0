//! Extractors for path and query parameters whose rejections are problems.

use axum::{
    extract::{self, FromRequestParts, path::ErrorKind, rejection::PathRejection},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::{
    Problem, ProblemKind, internal,
    mismatch::{quoted_after, reason},
};

/// Path parameters. Rejects with 404: nothing has an id that does not parse.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match extract::Path::from_request_parts(parts, state).await {
            Ok(extract::Path(value)) => Ok(Self(value)),
            Err(PathRejection::FailedToDeserializePathParams(refused)) => Err(Problem::new(
                ProblemKind::NotFound,
                unparsed(parts.uri.path(), refused.kind()),
            )),
            // The route lacks parameters that its handler extracts: an internal error.
            Err(_) => Err(internal()),
        }
    }
}

/// Query parameters; rejects with 400 `invalid_query`.
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match extract::Query::from_request_parts(parts, state).await {
            Ok(extract::Query(value)) => Ok(Self(value)),
            Err(refused) => Err(Problem::invalid_query(invalid_query(&refused.body_text()))),
        }
    }
}

fn unparsed(path: &str, kind: &ErrorKind) -> String {
    let (ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message)) = kind else {
        return format!("There is nothing at {path}: a part of it is no valid id.");
    };
    format!("There is nothing at {path}: {message}.")
}

/// Explains a message of the form `…: parameter: reason`.
fn invalid_query(message: &str) -> String {
    let message = message
        .rsplit_once("query string: ")
        .map_or(message, |(_, rest)| rest);
    if let Some(name) = quoted_after(message, "missing field ") {
        return format!("The query parameter `{name}` is required.");
    }
    let Some((name, message)) = message.split_once(": ") else {
        return format!("The query {}.", reason(message));
    };
    let reason = match message {
        "invalid digit found in string" => "must be an integer of at least 0".to_owned(),
        "cannot parse integer from empty string" => "must not be empty".to_owned(),
        "number too large to fit in target type" => "is too large".to_owned(),
        "provided string was not `true` or `false`" => "must be `true` or `false`".to_owned(),
        other => reason(other),
    };
    format!("The query parameter `{name}` {reason}.")
}

#[cfg(test)]
mod tests;
