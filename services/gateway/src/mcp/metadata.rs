//! What an MCP client needs to know before it has a token. (RFC 9728.)
//! Never: anything about a device, which only those with a token may learn.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap};
use http::Uri;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;
use switchboard_protocol::access::Scope;

use super::sites::Sites;
use crate::{Gateway, config::Config};

/// Where the document of a resource lies: this, and then the resource's own path.
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What no path of a URI has as it is (RFC 3986, section 3.3); what is encoded already stays so.
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

/// What the metadata say of every endpoint here.
pub(crate) struct Publication {
    public_url: Option<Box<str>>,
    sites: Arc<Sites>,
    authorization_servers: Vec<String>,
}

/// The document. (RFC 9728, section 2.)
#[derive(Serialize)]
pub(crate) struct Metadata {
    resource: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorization_servers: Vec<String>,
    bearer_methods_supported: [&'static str; 1],
    scopes_supported: [Scope; 2],
    resource_name: &'static str,
}

impl Publication {
    pub(crate) fn new(config: &Config, sites: &Arc<Sites>) -> Self {
        let public_url = config.public_url.as_ref();
        Self {
            public_url: public_url.map(|url| url.to_string().trim_end_matches('/').into()),
            sites: Arc::clone(sites),
            authorization_servers: config.mcp_authorization_servers.clone(),
        }
    }

    /// Where the client finds this server: as configured, else as the client itself called it.
    fn base(&self, uri: &Uri, headers: &HeaderMap) -> String {
        match &self.public_url {
            Some(url) => url.to_string(),
            None => format!("http://{}", self.sites.host_for(uri, headers)),
        }
    }

    /// Where the document about the resource at this URI is; nothing in it can end a quoted string.
    pub(super) fn document_url(&self, uri: &Uri, headers: &HeaderMap) -> String {
        let path = utf8_percent_encode(uri.path(), NOT_IN_PATHS);
        format!("{}{WELL_KNOWN}{path}", self.base(uri, headers))
    }
}

/// `GET /.well-known/oauth-protected-resource/…`.
pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    uri: Uri,
    headers: HeaderMap,
) -> Json<Metadata> {
    let publication = &gateway.mcp.publication;
    let path = uri.path().strip_prefix(WELL_KNOWN).unwrap_or_default();
    let path = utf8_percent_encode(path, NOT_IN_PATHS);
    Json(Metadata {
        resource: format!("{}{path}", publication.base(&uri, &headers)),
        authorization_servers: publication.authorization_servers.clone(),
        bearer_methods_supported: ["header"],
        scopes_supported: [Scope::Call, Scope::Read],
        resource_name: "Switchboard",
    })
}
