//! Which responses are accepted.

use super::*;

#[test]
fn vectors_are_in_the_order_of_the_texts() {
    let body =
        br#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}],"usage":{}}"#;
    let expected = vec![vec![0.6, 0.8], vec![0.0, 1.0]];
    assert_eq!(parse(body, 2).unwrap(), expected);
}

#[test]
fn incomparable_vectors_are_invalid() {
    fn check(body: &str, texts: usize) {
        let parsed = parse(body.as_bytes(), texts);
        assert!(matches!(parsed, Err(EmbedError::Invalid(_))), "{body}");
    }
    check("", 1);
    check("{}", 1);
    check(r#"{"data":[]}"#, 1);
    check(r#"{"data":[{"index":0,"embedding":[]}]}"#, 1);
    check(r#"{"data":[{"index":0,"embedding":[0,0]}]}"#, 1);
    check(r#"{"data":[{"index":1,"embedding":[1]}]}"#, 1);
    check(r#"{"data":[{"index":0,"embedding":[1e39]}]}"#, 1);
    check(r#"{"data":[{"index":0,"embedding":["1"]}]}"#, 1);
    let duplicate = r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#;
    check(duplicate, 2);
    let lengths = r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#;
    check(lengths, 2);
}

#[test]
fn retry_after_is_parsed_and_bounded() {
    fn check(value: Option<&str>, expected: u64) {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
        }
        assert_eq!(
            retry_after(&headers),
            Duration::from_secs(expected),
            "{value:?}"
        );
    }
    check(Some("7"), 7);
    check(Some("0"), 0);
    check(Some("99999"), 300);
    check(Some("Fri, 31 Dec 1999 23:59:59 GMT"), 5);
    check(None, 5);
}
