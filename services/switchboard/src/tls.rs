//! Certificates: ours for devices that dial in over TLS, and those we trust when we dial out.
//! Never: a protocol older than TLS 1.3 on the device port, a connection with nothing verified.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::net::TcpListener;

use switchboard_runtime::outbound;

use crate::{exit::Failure, process};

/// The TLS port for devices.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TlsArguments {
    /// Where devices dial in over TLS, once --tls-cert and --tls-key are given
    #[arg(
        long,
        env = "SWITCHBOARD_TLS_LISTEN",
        default_value = "0.0.0.0:7701",
        value_name = "HOST:PORT"
    )]
    tls_listen: String,
    /// Certificate chain of the TLS port, a PEM file
    #[arg(
        long,
        env = "SWITCHBOARD_TLS_CERT",
        requires = "tls_key",
        value_name = "FILE"
    )]
    tls_cert: Option<PathBuf>,
    /// Private key of the TLS port, a PEM file
    #[arg(
        long,
        env = "SWITCHBOARD_TLS_KEY",
        requires = "tls_cert",
        value_name = "FILE"
    )]
    tls_key: Option<PathBuf>,
}

impl TlsArguments {
    /// Binds the TLS port if there is a certificate for it.
    ///
    /// # Errors
    /// When the certificate or key cannot be used, or the address is taken.
    pub(crate) fn listen(&self) -> Result<Option<(TcpListener, Arc<ServerConfig>)>, Failure> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let config = switchboard_edge::tls::server_config(cert, key).map_err(|error| {
            Failure::usage(format!(
                "--tls-cert, --tls-key: {:#}",
                anyhow::Error::from(error)
            ))
        })?;
        Ok(Some((
            process::listen("--tls-listen", &self.tls_listen)?,
            config,
        )))
    }
}

/// Trusts the certificates in `authority`, or those that the system trusts.
///
/// # Errors
/// When the file has no certificate, or the system none to trust.
pub(crate) fn client_config(authority: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let trusted = match authority {
        Some(file) => certificates(file).context("--tls-ca")?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    if trusted.is_empty() {
        bail!("there is no certificate authority to trust: name one with --tls-ca FILE");
    }
    outbound::tls(Some(trusted)).context("TLS is not available")
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let unreadable = || format!("no certificate can be read from {}", file.display());
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(unreadable)?;
    if chain.is_empty() {
        bail!(unreadable());
    }
    Ok(chain)
}
