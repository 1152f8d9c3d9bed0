//! The certificate authorities for webhooks: those of the operator, or those of the system.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, pem::PemObject};
use switchboard_runtime::outbound;
use tokio_rustls::TlsConnector;

/// Certificate authorities for webhooks. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities(pub(super) Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads a PEM file.
    ///
    /// # Errors
    /// When the file has no certificate, or an invalid one.
    pub fn read(file: &str) -> Result<Self, String> {
        let chain = CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| format!("invalid PEM file: {error}"))?;
        if chain.is_empty() {
            return Err("the file has no certificate".to_owned());
        }
        Ok(Self(chain))
    }
}

/// A TLS connector that trusts these authorities, or those of the system.
pub(super) fn connector(authorities: Option<&Authorities>) -> Result<TlsConnector, String> {
    let trusted = authorities.map(|authorities| authorities.0.clone());
    let config = outbound::tls_config(trusted).map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}
