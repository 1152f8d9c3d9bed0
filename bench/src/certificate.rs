//! A self-signed certificate for one run, as files in the temporary folder of the run.

use std::{fs, path::Path};

use anyhow::Context as _;
use uuid::Uuid;

/// The host name in the certificate.
pub(crate) const HOST: &str = "localhost";

/// Paths of the certificate chain and its private key.
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Certificate {
    /// Creates a self-signed certificate.
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Self> {
        let certified = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let name = Uuid::new_v4().simple();
        let file = |kind: &str, content: String| {
            let path = folder.join(format!("{name}-{kind}.pem"));
            fs::write(&path, content)?;
            let path = path.into_os_string().into_string().ok();
            path.context("folder name is not valid UTF-8")
        };
        Ok(Self {
            chain: file("certificate", certified.cert.pem())?,
            key: file("key", certified.signing_key.serialize_pem())?,
        })
    }
}
