//! Whom deliveries trust to be who they say: the authorities that the operator names, or the platform's.
//! Never: an empty list, by which nobody would be trusted.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, pem::PemObject};
use switchboard_runtime::outbound;
use tokio_rustls::TlsConnector;

/// Who vouches for webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities(pub(super) Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads a PEM file.
    ///
    /// # Errors
    /// When no certificate can be read from it.
    pub fn read(file: &str) -> Result<Self, String> {
        let chain = CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| format!("no certificate can be read from it: {error}"))?;
        if chain.is_empty() {
            return Err("there is no certificate in it".to_owned());
        }
        Ok(Self(chain))
    }
}

/// What speaks TLS, and trusts these or the platform's.
pub(super) fn connector(authorities: Option<&Authorities>) -> Result<TlsConnector, String> {
    let trusted = authorities.map(|authorities| authorities.0.clone());
    let config = outbound::tls(trusted).map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}
