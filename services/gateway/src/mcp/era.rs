//! The two revisions that one endpoint serves, and how a request tells which it is of.
//! Never: a session; both are served without one.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use rmcp::{RoleServer, model::ProtocolVersion, service::RequestContext};

/// Names the revision of a request. (MCP, basic/transports.)
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The revisions served here, oldest first.
const SERVED: [ProtocolVersion; 3] = [
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

pub(super) const fn served() -> Cow<'static, [ProtocolVersion]> {
    Cow::Borrowed(&SERVED)
}

/// Whether a request brings its revision and capabilities along, instead of a handshake before it.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// The same of a request that has headers only.
pub(super) fn is_modern_head(headers: &HeaderMap) -> bool {
    headers
        .get(VERSION_HEADER)
        .and_then(|version| version.to_str().ok())
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}
