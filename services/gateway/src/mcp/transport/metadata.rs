//! Protected resource metadata, which directs MCP clients to the authorization servers. (RFC 9728.)
//!
//! Invariant: it is public, so it does not depend on which devices exist.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap};
use http::Uri;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;
use switchboard_protocol::token::Scope;

use super::host_policy::HostPolicy;
use crate::{Gateway, config::Config};

/// The path of a document is this, followed by the path of its resource.
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Characters that are percent-encoded in the path of a URI (RFC 3986, section 3.3). `%` is not
/// among them, so that encoded paths stay as they are.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The settings that the metadata of all endpoints share.
pub(in crate::mcp) struct MetadataSource {
    public_url: Option<Box<str>>,
    host_policy: Arc<HostPolicy>,
    authorization_servers: Vec<String>,
}

/// The metadata document. (RFC 9728, section 2.)
#[derive(Serialize)]
pub(super) struct Metadata {
    resource: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorization_servers: Vec<String>,
    bearer_methods_supported: [&'static str; 1],
    scopes_supported: [Scope; 2],
    resource_name: &'static str,
}

impl MetadataSource {
    pub(in crate::mcp) fn new(config: &Config, host_policy: &Arc<HostPolicy>) -> Self {
        let public_url = config.public_url.as_ref();
        Self {
            public_url: public_url.map(|url| url.to_string().trim_end_matches('/').into()),
            host_policy: Arc::clone(host_policy),
            authorization_servers: config.mcp_authorization_servers.clone(),
        }
    }

    /// The base URL of this server: as configured, otherwise as the client addressed it.
    fn base(&self, uri: &Uri, headers: &HeaderMap) -> String {
        match &self.public_url {
            Some(url) => url.to_string(),
            None => format!("http://{}", self.host_policy.host_for(uri, headers)),
        }
    }

    /// The URL of the document for the resource at this URI. It contains no quotes.
    pub(super) fn document_url(&self, uri: &Uri, headers: &HeaderMap) -> String {
        let path = utf8_percent_encode(uri.path(), NOT_IN_PATHS);
        format!("{}{WELL_KNOWN}{path}", self.base(uri, headers))
    }
}

/// `GET /.well-known/oauth-protected-resource/…`.
pub(super) async fn get(
    State(gateway): State<Arc<Gateway>>,
    uri: Uri,
    headers: HeaderMap,
) -> Json<Metadata> {
    let source = &gateway.mcp.metadata;
    let path = uri.path().strip_prefix(WELL_KNOWN).unwrap_or_default();
    let path = utf8_percent_encode(path, NOT_IN_PATHS);
    Json(Metadata {
        resource: format!("{}{path}", source.base(&uri, &headers)),
        authorization_servers: source.authorization_servers.clone(),
        bearer_methods_supported: ["header"],
        scopes_supported: [Scope::Call, Scope::Read],
        resource_name: "Switchboard",
    })
}
