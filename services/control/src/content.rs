//! Bytes out of the object store as an answer: their hash is their tag, and a part of them can be asked for (RFC 9110).
//! Never: bytes read for a caller who has them, or shown as something else than they are.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use switchboard_runtime::problem::Problem;
use switchboard_store::{ObjectKey, Objects};

use crate::error::ControlError;

/// Bytes that can be asked for.
pub(crate) struct Content<'a> {
    /// Of the bytes.
    pub(crate) sha256: String,
    /// What they are.
    pub(crate) mime_type: &'a str,
    /// How long a caller may keep them.
    pub(crate) cache: &'static str,
    /// Where they are.
    pub(crate) key: ObjectKey,
}

impl Content<'_> {
    /// All of them, the part that is asked for, or none for a caller who has them.
    pub(crate) async fn answer(
        self,
        headers: &HeaderMap,
        objects: &Objects,
    ) -> Result<Response, ControlError> {
        let tag = format!("\"{}\"", self.sha256);
        let fixed = [
            (header::CACHE_CONTROL, self.cache.to_owned()),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
            (header::ETAG, tag.clone()),
        ];
        if has_them(headers, &tag) {
            return Ok((StatusCode::NOT_MODIFIED, fixed).into_response());
        }
        let bytes = objects.get(&self.key).await?;
        let mime_type = HeaderValue::from_str(self.mime_type)
            .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
        let kind = [(header::CONTENT_TYPE, mime_type)];
        let wanted = sent(headers, &header::RANGE);
        // A part of other bytes is of no use: then all of these are sent.
        let same = sent(headers, &header::IF_RANGE).is_none_or(|seen| seen == tag);
        let Some((first, last)) = part(wanted.filter(|_| same), &bytes)? else {
            return Ok((fixed, kind, bytes).into_response());
        };
        let range = format!("bytes {first}-{last}/{}", bytes.len());
        let range = [(header::CONTENT_RANGE, range)];
        let bytes = bytes.slice(first..=last);
        Ok((StatusCode::PARTIAL_CONTENT, fixed, kind, range, bytes).into_response())
    }
}

/// Whether the caller has these bytes already (RFC 9110, 13.1.2): tags are compared weakly, and `*` is any.
fn has_them(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter();
    lists.filter_map(|list| list.to_str().ok()).any(|list| {
        let mut tags = list.split(',').map(str::trim);
        tags.any(|seen| seen == "*" || seen.strip_prefix("W/").unwrap_or(seen) == tag)
    })
}

fn sent<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The first and the last byte that are asked for; nothing when all are, or more than one part is.
fn part(wanted: Option<&str>, bytes: &Bytes) -> Result<Option<(usize, usize)>, Problem> {
    let parsed = wanted.and_then(|wanted| http_range_header::parse_range_header(wanted).ok());
    let Some(parsed) = parsed.filter(|parsed| parsed.ranges.len() == 1) else {
        return Ok(None);
    };
    let length = bytes.len();
    let ranges = parsed.validate(u64::try_from(length).unwrap_or(u64::MAX));
    let range = ranges.ok().and_then(|ranges| ranges.into_iter().next());
    let place = |place: u64| usize::try_from(place).ok().filter(|place| *place < length);
    let found = range.and_then(|range| Some((place(*range.start())?, place(*range.end())?)));
    found.map(Some).ok_or_else(|| unsatisfiable(length))
}

fn unsatisfiable(length: usize) -> Problem {
    Problem::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "range_not_satisfiable",
        "Range not satisfiable",
        format!("There are {length} bytes, and Range asks for others."),
    )
    .header(header::CONTENT_RANGE, format!("bytes */{length}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_bytes_is_not_sent_them() {
        fn check(seen: &str, expected: bool) {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_str(seen).unwrap());
            assert_eq!(has_them(&headers, "\"a\""), expected, "{seen}");
        }
        check("\"a\"", true);
        check("W/\"a\"", true);
        check("\"b\", \"a\"", true);
        check("*", true);
        check("\"b\"", false);
        check("a", false);
    }

    #[test]
    fn a_part_is_what_was_asked_for() {
        fn check(wanted: &str, expected: Result<Option<(usize, usize)>, u16>) {
            let bytes = Bytes::from_static(&[7; 100]);
            let found = part(Some(wanted), &bytes).map_err(|problem| problem.status.as_u16());
            assert_eq!(found, expected, "{wanted}");
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
