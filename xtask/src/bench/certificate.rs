//! A certificate for one run, as files that an edge and its devices read.
//! Never: a key that outlives the run's folder.

use std::{fs, path::Path};

use anyhow::Context as _;
use uuid::Uuid;

/// The name that it is of.
pub(crate) const HOST: &str = "localhost";

/// Where both files are.
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Certificate {
    /// Makes one that signs itself.
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let name = Uuid::new_v4().simple();
        let file = |kind: &str, content: String| {
            let path = folder.join(format!("{name}-{kind}.pem"));
            fs::write(&path, content)?;
            let path = path.into_os_string().into_string().ok();
            path.context("a folder with a plain name")
        };
        Ok(Self {
            chain: file("certificate", made.cert.pem())?,
            key: file("key", made.signing_key.serialize_pem())?,
        })
    }
}
