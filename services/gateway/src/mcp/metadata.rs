//! What an MCP client needs to know before it has a token. (RFC 9728.)
//! Never: anything about a device, which only those with a token may learn.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap};
use http::{Uri, header, uri::Authority};
use serde::Serialize;
use switchboard_protocol::access::Scope;

use crate::{Gateway, config::Config};

/// Where the document of a resource lies: this, and then the resource's own path.
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What the metadata say of every endpoint here.
pub(crate) struct Publication {
    public_url: Option<Box<str>>,
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
    pub(crate) fn new(config: &Config) -> Self {
        let public_url = config.public_url.as_ref();
        Self {
            public_url: public_url.map(|url| url.to_string().trim_end_matches('/').into()),
            authorization_servers: config.mcp_authorization_servers.clone(),
        }
    }

    /// Where the client finds this server: as configured, else as the client itself called it.
    fn base(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.to_string();
        }
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        let host = host.as_ref().map_or("localhost", Authority::as_str);
        format!("http://{host}")
    }

    /// Where the document about the resource at `path` is.
    pub(super) fn document_url(&self, headers: &HeaderMap, path: &str) -> String {
        format!("{}{WELL_KNOWN}{path}", self.base(headers))
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
    Json(Metadata {
        resource: format!("{}{path}", publication.base(&headers)),
        authorization_servers: publication.authorization_servers.clone(),
        bearer_methods_supported: ["header"],
        scopes_supported: [Scope::Call, Scope::Read],
        resource_name: "Switchboard",
    })
}
