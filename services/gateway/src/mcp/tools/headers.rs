//! Parameters that clients repeat in headers, so that proxies can route by them. A tool's schema
//! marks them with `x-mcp-header`. (MCP 2026-07-28, basic/transports.)
//!
//! Invariant: a call is made only if its headers agree with its body.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName};
use rmcp::{ErrorData, model::JsonObject};
use serde_json::Value;

const KEYWORD: &str = "x-mcp-header";
const HEADER_PREFIX: &str = "mcp-param-";
/// Encloses a value that is not plain text.
const BASE64_MARKERS: (&str, &str) = ("=?base64?", "?=");

/// The marked parameters of one tool.
#[derive(Debug, Default)]
pub(in crate::mcp) struct ParamHeaders(Box<[ParamHeader]>);

#[derive(Debug)]
struct ParamHeader {
    /// Names of members, starting at the arguments.
    path: Box<[Box<str>]>,
    header: HeaderName,
}

impl ParamHeaders {
    /// Finds marked parameters along `properties`. Elsewhere the keyword has no meaning.
    pub(super) fn new(schema: &JsonObject) -> Self {
        let mut found = Vec::new();
        let mut schemas: Vec<(Vec<Box<str>>, &JsonObject)> = vec![(Vec::new(), schema)];
        while let Some((path, schema)) = schemas.pop() {
            let Some(Value::Object(properties)) = schema.get("properties") else {
                continue;
            };
            for (name, property) in properties {
                let Value::Object(property) = property else {
                    continue;
                };
                let mut path = path.clone();
                path.push(Box::from(name.as_str()));
                if let Some(header) = property.get(KEYWORD).and_then(header_name) {
                    let path = path.clone().into();
                    found.push(ParamHeader { path, header });
                }
                schemas.push((path, property));
            }
        }
        Self(found.into())
    }

    pub(in crate::mcp) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares the headers of a request with the arguments in its body, a JSON object.
    pub(super) fn check(&self, arguments: &[u8], headers: &HeaderMap) -> Result<(), ErrorData> {
        if self.is_empty() {
            return Ok(());
        }
        let arguments = serde_json::from_slice::<JsonObject>(arguments).ok();
        let arguments = arguments.as_ref();
        let mismatches = self
            .0
            .iter()
            .filter_map(|parameter| parameter.mismatch(arguments, headers));
        match mismatches.into_iter().next() {
            Some(mismatch) => Err(ErrorData::header_mismatch(mismatch, None)),
            None => Ok(()),
        }
    }
}

impl ParamHeader {
    fn mismatch(&self, arguments: Option<&JsonObject>, headers: &HeaderMap) -> Option<String> {
        let Self { path, header } = self;
        let mut sent = headers.get_all(header).iter();
        let (first, second) = (sent.next(), sent.next());
        if second.is_some() {
            return Some(format!("the header {header} occurs more than once"));
        }
        let expected = self.argument(arguments);
        let parameter = path.join(".");
        match (first, expected) {
            (None, None) => None,
            (None, Some(_)) => Some(format!(
                "the header {header} is missing; it must repeat the argument {parameter:?}"
            )),
            (Some(_), None) => Some(format!(
                "the header {header} has a value, but the argument {parameter:?} has none"
            )),
            (Some(value), Some(expected)) => match value.to_str().ok().and_then(decode) {
                None => Some(format!(
                    "the header {header} is neither plain text nor `=?base64?…?=`"
                )),
                Some(value) if *value != *expected => Some(format!(
                    "the header {header} differs from the argument {parameter:?}"
                )),
                Some(_) => None,
            },
        }
    }

    /// The argument as a header value. `None` if it is absent or not a scalar.
    fn argument<'a>(&self, arguments: Option<&'a JsonObject>) -> Option<Cow<'a, str>> {
        let (first, rest) = self.path.split_first()?;
        let first = arguments?.get(&**first)?;
        let value = rest
            .iter()
            .try_fold(first, |value, name| value.get(&**name))?;
        match value {
            Value::String(text) => Some(text.into()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string().into()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

fn header_name(keyword: &Value) -> Option<HeaderName> {
    let name = keyword.as_str().filter(|name| !name.is_empty())?;
    HeaderName::from_bytes(format!("{HEADER_PREFIX}{name}").as_bytes()).ok()
}

fn decode(value: &str) -> Option<Cow<'_, str>> {
    let wrapped = value
        .strip_prefix(BASE64_MARKERS.0)
        .and_then(|rest| rest.strip_suffix(BASE64_MARKERS.1));
    let Some(inner) = wrapped else {
        return Some(value.into());
    };
    let bytes = BASE64_STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn headers_agree_with_the_arguments() {
        let headers = ParamHeaders::new(&object(json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "at": {"properties": {"port": {"type": "integer", "x-mcp-header": "Port"}}},
            "list": {"items": {"type": "string", "x-mcp-header": "Item"}},
            "none": {"type": "string", "x-mcp-header": "not a token"},
        }})));
        let check = |arguments: Value, sent: &[(&'static str, &str)], expected: Option<&str>| {
            let mut map = HeaderMap::new();
            for (name, value) in sent {
                map.append(*name, HeaderValue::from_str(value).unwrap());
            }
            let found = headers.check(arguments.to_string().as_bytes(), &map).err();
            match (&found, expected) {
                (None, None) => {}
                (Some(error), Some(part)) => {
                    assert!(error.message.contains(part), "{error:?}");
                    assert_eq!(error.code.0, -32020);
                }
                _ => panic!("{arguments} with {sent:?}: {found:?}"),
            }
        };
        let (region, port) = ("mcp-param-region", "mcp-param-port");
        check(json!({}), &[], None);
        check(
            json!({"region": null, "list": ["a"], "none": "a"}),
            &[],
            None,
        );
        check(json!({"region": "eu"}), &[(region, "eu")], None);
        check(
            json!({"region": "Grüße"}),
            &[(region, "=?base64?R3LDvMOfZQ==?=")],
            None,
        );
        check(
            json!({"region": "=?base64?eA=="}),
            &[(region, "=?base64?eA==")],
            None,
        );
        check(json!({"at": {"port": 80}}), &[(port, "80")], None);
        check(json!({"region": "eu"}), &[], Some("is missing"));
        check(json!({}), &[(region, "eu")], Some("has none"));
        check(json!({"region": "eu"}), &[(region, "us")], Some("differs"));
        check(
            json!({"region": "x"}),
            &[(region, "=?base64?eA?=")],
            Some("neither"),
        );
        check(
            json!({"region": "x"}),
            &[(region, "=?base64?e!==?=")],
            Some("neither"),
        );
        check(
            json!({"region": "eu"}),
            &[(region, "eu"), (region, "eu")],
            Some("more than once"),
        );
        check(
            json!({"at": {"port": 80}}),
            &[(port, "81")],
            Some("at.port"),
        );
    }
}
