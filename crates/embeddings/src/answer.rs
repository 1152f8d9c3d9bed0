//! What an endpoint answers, read strictly: a vector for each text, all alike, of length one.
//! Never: a vector that cannot be compared with others.

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use std::time::Duration;

use crate::EmbedError;

/// How long to leave an endpoint alone that says "too much" and not for how long.
const BREATH: Duration = Duration::from_secs(5);
/// The longest that one is left alone, whatever it says.
const LONGEST_BREATH: Duration = Duration::from_secs(300);
/// How much of a refusal is repeated, in characters.
const QUOTED: usize = 200;

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: usize,
    embedding: Vec<f32>,
}

/// The vectors of so many texts, in their order.
pub(crate) fn read(body: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
    let unusable = |reason: String| EmbedError::Unusable(reason);
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| unusable(format!("it is no list of embeddings: {error}")))?;
    if answer.data.len() != texts {
        let sent = answer.data.len();
        return Err(unusable(format!(
            "it has {sent} embeddings of {texts} texts"
        )));
    }
    let mut found = answer.data;
    found.sort_unstable_by_key(|embedding| embedding.index);
    if found
        .iter()
        .enumerate()
        .any(|(place, one)| one.index != place)
    {
        return Err(unusable("it has two embeddings of one text".to_owned()));
    }
    let vectors: Vec<_> = found.into_iter().map(|one| one.embedding).collect();
    let length = vectors.first().map_or(0, Vec::len);
    if length == 0 || vectors.iter().any(|vector| vector.len() != length) {
        return Err(unusable("its embeddings are not of one length".to_owned()));
    }
    vectors.into_iter().map(unit).collect()
}

/// The same direction with length one: what is stored in half precision must not be too large for it.
fn unit(mut vector: Vec<f32>) -> Result<Vec<f32>, EmbedError> {
    let squares: f64 = vector.iter().map(|number| f64::from(*number).powi(2)).sum();
    let length = squares.sqrt();
    if !length.is_normal() {
        return Err(EmbedError::Unusable(
            "an embedding points nowhere".to_owned(),
        ));
    }
    for number in &mut vector {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most 1, and fewer digits are enough"
        )]
        let shorter = (f64::from(*number) / length) as f32;
        *number = shorter;
    }
    Ok(vector)
}

/// Why there are no embeddings, by an answer that is not 200.
pub(crate) fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> EmbedError {
    let said: String = String::from_utf8_lossy(body).chars().take(QUOTED).collect();
    let reason = format!("it answers {status}: {}", said.escape_debug());
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => EmbedError::Busy {
            after: breath(headers),
        },
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => EmbedError::Refused(reason),
        _ => EmbedError::Unusable(reason),
    }
}

fn breath(headers: &HeaderMap) -> Duration {
    let said = headers.get(header::RETRY_AFTER);
    let seconds = said.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(BREATH, |seconds| {
        Duration::from_secs(seconds).min(LONGEST_BREATH)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_in_the_order_of_their_texts() {
        let body =
            br#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}],"usage":{}}"#;
        let expected = vec![vec![0.6, 0.8], vec![0.0, 1.0]];
        assert_eq!(read(body, 2).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_compared_is_no_answer() {
        fn check(body: &str, texts: usize) {
            let read = read(body.as_bytes(), texts);
            assert!(matches!(read, Err(EmbedError::Unusable(_))), "{body}");
        }
        check("", 1);
        check("{}", 1);
        check(r#"{"data":[]}"#, 1);
        check(r#"{"data":[{"index":0,"embedding":[]}]}"#, 1);
        check(r#"{"data":[{"index":0,"embedding":[0,0]}]}"#, 1);
        check(r#"{"data":[{"index":1,"embedding":[1]}]}"#, 1);
        check(r#"{"data":[{"index":0,"embedding":[1e39]}]}"#, 1);
        check(r#"{"data":[{"index":0,"embedding":["1"]}]}"#, 1);
        let alike = r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#;
        check(alike, 2);
        let lengths = r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#;
        check(lengths, 2);
    }

    #[test]
    fn an_endpoint_is_left_alone_for_as_long_as_it_says() {
        fn check(said: Option<&str>, expected: u64) {
            let mut headers = HeaderMap::new();
            if let Some(said) = said {
                headers.insert(header::RETRY_AFTER, said.parse().unwrap());
            }
            assert_eq!(breath(&headers), Duration::from_secs(expected), "{said:?}");
        }
        check(Some("7"), 7);
        check(Some("0"), 0);
        check(Some("99999"), 300);
        check(Some("Fri, 31 Dec 1999 23:59:59 GMT"), 5);
        check(None, 5);
    }
}
