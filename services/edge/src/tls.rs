//! TLS for the device port: a certificate and key from PEM files, TLS 1.3 only.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ServerConfig, server::NoServerSessionStorage};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or has no such PEM section.
    #[error("cannot read {what} from {}", path.display())]
    Pem {
        /// The section that was expected.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// rustls does not accept the certificate and key.
    #[error("the certificate and its key cannot be used together")]
    Unusable(#[from] rustls::Error),
}

/// Builds the configuration of the TLS listener: TLS 1.3, no client certificates, no session
/// tickets. A device stays connected, so resumption would cost memory and save little.
///
/// # Errors
/// When a file is not usable, or the certificate and the key do not belong together.
pub fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = |what, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { what, path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(pem("a certificate chain", certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(pem("a private key", key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
