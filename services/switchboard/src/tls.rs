//! TLS certificates: those of the device port, and the authorities trusted by clients. The device
//! port accepts TLS 1.3 only.

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

/// Settings of the TLS port for devices.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TlsArguments {
    /// Address of the TLS port for devices, which opens if --tls-cert and --tls-key are given
    #[arg(long, env, default_value = "0.0.0.0:7701", value_name = "HOST:PORT")]
    tls_listen: String,
    /// PEM file with the certificate chain of the TLS port
    #[arg(long, env, requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the TLS port
    #[arg(long, env, requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl TlsArguments {
    /// Binds the TLS port if a certificate is configured.
    ///
    /// # Errors
    /// When the certificate or key is not usable, or the address is in use.
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

/// Creates a configuration that trusts the certificates in `authority`, or those of the system if
/// `None`.
///
/// # Errors
/// When there is no certificate to trust.
pub(crate) fn client_config(authority: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let trusted = match authority {
        Some(file) => certificates(file).context("--tls-ca")?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    if trusted.is_empty() {
        bail!("no certificate authority is trusted: set one with --tls-ca FILE");
    }
    outbound::tls_config(Some(trusted)).context("TLS is not available")
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let unreadable = || format!("cannot read a certificate from {}", file.display());
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(unreadable)?;
    if chain.is_empty() {
        bail!(unreadable());
    }
    Ok(chain)
}
