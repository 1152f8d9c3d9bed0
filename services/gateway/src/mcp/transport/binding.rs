//! Binds a value to one caller, endpoint and request, so that it is valid for no other.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use switchboard_identity::Caller;

use super::auth::ClientContext;

/// The caller, the endpoint and the request.
pub(in crate::mcp) struct Binding<'a> {
    client: &'a ClientContext,
    method: &'static str,
    name: &'a str,
    arguments: &'a [u8],
}

impl<'a> Binding<'a> {
    /// `arguments` is JSON; its formatting does not matter.
    pub(in crate::mcp) const fn new(
        client: &'a ClientContext,
        method: &'static str,
        name: &'a str,
        arguments: &'a [u8],
    ) -> Self {
        Self {
            client,
            method,
            name,
            arguments,
        }
    }

    /// Computed on demand, because most requests do not need it.
    pub(in crate::mcp) fn digest(&self) -> [u8; 32] {
        let Caller {
            org, credential, ..
        } = &self.client.caller;
        let arguments = serde_json::from_slice::<Value>(self.arguments);
        let arguments = arguments.unwrap_or_default().to_string();
        let mut hash = Sha256::new();
        // The length before each part makes the encoding unambiguous.
        for part in [
            org.to_string().as_bytes(),
            credential.caller_name().as_bytes(),
            self.client.endpoint.name().as_bytes(),
            self.method.as_bytes(),
            self.name.as_bytes(),
            arguments.as_bytes(),
        ] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}
