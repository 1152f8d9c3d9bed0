//! The protocol revisions that an endpoint serves, and the revision of a request.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use rmcp::{RoleServer, model::ProtocolVersion, service::RequestContext};

/// The header that names the revision. (MCP, basic/transports.)
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The supported revisions, oldest first.
const SUPPORTED: [ProtocolVersion; 3] = [
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

pub(in crate::mcp) const fn supported() -> Cow<'static, [ProtocolVersion]> {
    Cow::Borrowed(&SUPPORTED)
}

/// Whether a request belongs to the stateless revision, which has no handshake: each request
/// carries its revision and capabilities.
pub(in crate::mcp) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// As [`is_stateless`], by the headers of the request.
pub(in crate::mcp) fn is_stateless_head(headers: &HeaderMap) -> bool {
    headers
        .get(VERSION_HEADER)
        .and_then(|version| version.to_str().ok())
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}
