//! Parses responses of the endpoint strictly.
//! Invariant: all vectors of a response have the same dimensions and length one.

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use std::time::Duration;
use switchboard_runtime::outbound;

use crate::EmbedError;

/// Pause after a response without a `Retry-After` header that is valid.
const DEFAULT_BACKOFF: Duration = Duration::from_secs(5);
/// Maximum pause, whatever the endpoint requests.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Characters of an error message in a log.
const MAX_QUOTED_CHARS: usize = 200;

#[derive(Deserialize)]
struct EmbeddingList {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: usize,
    embedding: Vec<f32>,
}

/// The vectors for this number of texts, in order.
pub(crate) fn parse(body: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
    let invalid = |reason: String| EmbedError::Invalid(reason);
    let list: EmbeddingList = serde_json::from_slice(body)
        .map_err(|error| invalid(format!("not a list of embeddings: {error}")))?;
    if list.data.len() != texts {
        let sent = list.data.len();
        return Err(invalid(format!("{sent} embeddings for {texts} texts")));
    }
    let mut found = list.data;
    found.sort_unstable_by_key(|embedding| embedding.index);
    if found
        .iter()
        .enumerate()
        .any(|(place, one)| one.index != place)
    {
        return Err(invalid("two embeddings for one text".to_owned()));
    }
    let vectors: Vec<_> = found.into_iter().map(|one| one.embedding).collect();
    let length = vectors.first().map_or(0, Vec::len);
    if length == 0 || vectors.iter().any(|vector| vector.len() != length) {
        return Err(invalid(
            "the embeddings have different dimensions".to_owned(),
        ));
    }
    vectors.into_iter().map(normalize).collect()
}

/// Scales a vector to length one. Stored in half precision, larger numbers would overflow.
fn normalize(mut vector: Vec<f32>) -> Result<Vec<f32>, EmbedError> {
    let squares: f64 = vector.iter().map(|number| f64::from(*number).powi(2)).sum();
    let length = squares.sqrt();
    if !length.is_normal() {
        return Err(EmbedError::Invalid(
            "an embedding has length zero or infinity".to_owned(),
        ));
    }
    for number in &mut vector {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most 1; seven digits are enough"
        )]
        let scaled = (f64::from(*number) / length) as f32;
        *number = scaled;
    }
    Ok(vector)
}

/// The error of a response with another status than 200, without the key of the request.
pub(crate) fn error(status: StatusCode, headers: &HeaderMap, body: &[u8], key: &str) -> EmbedError {
    let message: String = String::from_utf8_lossy(body)
        .chars()
        .take(MAX_QUOTED_CHARS)
        .collect();
    let message = outbound::redact(&message, key);
    let reason = format!("status {status}: {}", message.escape_debug());
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => EmbedError::Busy {
            after: retry_after(headers),
        },
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => EmbedError::Rejected(reason),
        _ => EmbedError::Invalid(reason),
    }
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let value = headers.get(header::RETRY_AFTER);
    let seconds = value.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(DEFAULT_BACKOFF, |seconds| {
        Duration::from_secs(seconds).min(MAX_BACKOFF)
    })
}

#[cfg(test)]
mod tests;
