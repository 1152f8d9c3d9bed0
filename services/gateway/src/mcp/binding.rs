//! What belongs to one sender and one purpose: nobody else can make the same, and nobody can for something else.
//! Never: two parts that run into the same bytes as two others.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use switchboard_identity::Caller;

use super::access::Visit;

/// Who asks, at which endpoint, and for what.
pub(super) struct Binding<'a> {
    visit: &'a Visit,
    method: &'static str,
    name: &'a str,
    rest: &'a [u8],
}

impl<'a> Binding<'a> {
    /// Of a request of this sender: its method, what it names, and what else it says, as JSON however it is spelt.
    pub(super) const fn new(
        visit: &'a Visit,
        method: &'static str,
        name: &'a str,
        rest: &'a [u8],
    ) -> Self {
        Self {
            visit,
            method,
            name,
            rest,
        }
    }

    /// The same for the same only. Worked out when it is asked for: most requests need none.
    pub(super) fn digest(&self) -> [u8; 32] {
        let Caller {
            org, credential, ..
        } = &self.visit.caller;
        let rest = serde_json::from_slice::<Value>(self.rest);
        let rest = rest.unwrap_or_default().to_string();
        let mut hash = Sha256::new();
        // A length before each part, so that no two lists of parts run into the same bytes.
        for part in [
            org.to_string().as_bytes(),
            credential.holder().as_bytes(),
            self.visit.reach.place().as_bytes(),
            self.method.as_bytes(),
            self.name.as_bytes(),
            rest.as_bytes(),
        ] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}
