//! Responses with the bytes of an object: their hash is the entity tag, and ranges
//! are supported (RFC 9110).
//!
//! Invariant: browsers do not guess another media type (`nosniff`).

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::{ObjectKey, Objects};

use super::error::ControlError;

/// An object to send.
pub(crate) struct Content<'a> {
    /// The hash of the bytes.
    pub(crate) sha256: String,
    /// The media type.
    pub(crate) mime_type: &'a str,
    /// The value of `Cache-Control`.
    pub(crate) cache_control: &'static str,
    /// The key in the object store.
    pub(crate) key: ObjectKey,
}

impl Content<'_> {
    /// Responds with all bytes, the requested range, or 304 if the client has them.
    pub(crate) async fn respond(
        self,
        headers: &HeaderMap,
        objects: &Objects,
    ) -> Result<Response, ControlError> {
        let tag = format!("\"{}\"", self.sha256);
        let fixed = [
            (header::CACHE_CONTROL, self.cache_control.to_owned()),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
            (header::ETAG, tag.clone()),
        ];
        if is_cached(headers, &tag) {
            return Ok((StatusCode::NOT_MODIFIED, fixed).into_response());
        }
        let bytes = objects.get(&self.key).await?;
        let mime_type = HeaderValue::from_str(self.mime_type)
            .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
        let content_type = [(header::CONTENT_TYPE, mime_type)];
        let range = header_str(headers, &header::RANGE);
        // A client with parts of other bytes gets all bytes.
        let is_current = header_str(headers, &header::IF_RANGE).is_none_or(|etag| etag == tag);
        let Some((first, last)) = parse_range(range.filter(|_| is_current), &bytes)? else {
            return Ok((fixed, content_type, bytes).into_response());
        };
        let range = format!("bytes {first}-{last}/{}", bytes.len());
        let range = [(header::CONTENT_RANGE, range)];
        let bytes = bytes.slice(first..=last);
        Ok((
            StatusCode::PARTIAL_CONTENT,
            fixed,
            content_type,
            range,
            bytes,
        )
            .into_response())
    }
}

/// Whether `If-None-Match` has this tag (RFC 9110, 13.1.2). Tags are compared weakly;
/// `*` matches any.
fn is_cached(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter();
    lists.filter_map(|list| list.to_str().ok()).any(|list| {
        let mut tags = list.split(',').map(str::trim);
        tags.any(|etag| etag == "*" || etag.strip_prefix("W/").unwrap_or(etag) == tag)
    })
}

fn header_str<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The first and the last byte of the range. `None` for all bytes; more than one range is ignored.
fn parse_range(range: Option<&str>, bytes: &Bytes) -> Result<Option<(usize, usize)>, Problem> {
    let parsed = range.and_then(|range| http_range_header::parse_range_header(range).ok());
    let Some(parsed) = parsed.filter(|parsed| parsed.ranges.len() == 1) else {
        return Ok(None);
    };
    let length = bytes.len();
    let ranges = parsed.validate(u64::try_from(length).unwrap_or(u64::MAX));
    let range = ranges.ok().and_then(|ranges| ranges.into_iter().next());
    let index = |index: u64| usize::try_from(index).ok().filter(|index| *index < length);
    let found = range.and_then(|range| Some((index(*range.start())?, index(*range.end())?)));
    found.map(Some).ok_or_else(|| unsatisfiable(length))
}

fn unsatisfiable(length: usize) -> Problem {
    Problem::new(
        ProblemKind::RangeNotSatisfiable,
        format!("The content has {length} bytes; Range is outside of them."),
    )
    .header(header::CONTENT_RANGE, format!("bytes */{length}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_bytes_are_not_sent() {
        fn check(etag: &str, expected: bool) {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_str(etag).unwrap());
            assert_eq!(is_cached(&headers, "\"a\""), expected, "{etag}");
        }
        check("\"a\"", true);
        check("W/\"a\"", true);
        check("\"b\", \"a\"", true);
        check("*", true);
        check("\"b\"", false);
        check("a", false);
    }

    #[test]
    fn range_is_parsed() {
        fn check(range: &str, expected: Result<Option<(usize, usize)>, u16>) {
            let bytes = Bytes::from_static(&[7; 100]);
            let found =
                parse_range(Some(range), &bytes).map_err(|problem| problem.status().as_u16());
            assert_eq!(found, expected, "{range}");
        }
        check("bytes=0-9", Ok(Some((0, 9))));
        check("bytes=90-", Ok(Some((90, 99))));
        check("bytes=-1", Ok(Some((99, 99))));
        check("bytes=90-1000", Ok(Some((90, 99))));
        check("bytes=0-0,5-6", Ok(None));
        check("lines=0-9", Ok(None));
        check("bytes=a-b", Ok(None));
        check("", Ok(None));
        check("bytes=100-", Err(416));
        check("bytes=9-1", Err(416));
    }
}
