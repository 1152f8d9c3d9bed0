//! TLS certificates: those of the device port and of the HTTP port, and the authorities trusted by
//! clients. Both ports accept TLS 1.3 only.

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

use switchboard_runtime::{http::HttpListeners, outbound};

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

/// Settings of the TLS port for HTTP.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "HTTP")]
#[group(skip)]
pub(crate) struct HttpTlsArguments {
    /// Address of the TLS port for HTTP, which opens if --http-tls-cert and --http-tls-key are given.
    /// It offers HTTP/2 and HTTP/1.1
    #[arg(long, env, default_value = "0.0.0.0:8443", value_name = "HOST:PORT")]
    http_tls_listen: String,
    /// PEM file with the certificate chain of the TLS port for HTTP
    #[arg(long, env, requires = "http_tls_key", value_name = "FILE")]
    http_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the TLS port for HTTP
    #[arg(long, env, requires = "http_tls_cert", value_name = "FILE")]
    http_tls_key: Option<PathBuf>,
}

type TlsListener = (TcpListener, Arc<ServerConfig>);

impl TlsArguments {
    /// Binds the TLS port if a certificate is configured.
    ///
    /// # Errors
    /// When the certificate or key is not usable, or the address is in use.
    pub(crate) fn listen(&self) -> Result<Option<TlsListener>, Failure> {
        let files = (&self.tls_cert, &self.tls_key);
        listen("tls", files, &self.tls_listen)
    }
}

impl HttpTlsArguments {
    /// Adds the TLS port to the listener without TLS, if a certificate is configured.
    ///
    /// # Errors
    /// As [`TlsArguments::listen`].
    pub(crate) fn listen(&self, plain: TcpListener) -> Result<HttpListeners, Failure> {
        let files = (&self.http_tls_cert, &self.http_tls_key);
        let tls = listen("http-tls", files, &self.http_tls_listen)?;
        Ok(HttpListeners { plain, tls })
    }
}

/// Binds a TLS port, whose flags begin with `--{prefix}`.
fn listen(
    prefix: &str,
    files: (&Option<PathBuf>, &Option<PathBuf>),
    address: &str,
) -> Result<Option<TlsListener>, Failure> {
    let (Some(cert), Some(key)) = files else {
        return Ok(None);
    };
    let config = switchboard_edge::tls::server_config(cert, key).map_err(|error| {
        Failure::usage(format!(
            "--{prefix}-cert, --{prefix}-key: {:#}",
            anyhow::Error::from(error)
        ))
    })?;
    let listener = process::listen(&format!("--{prefix}-listen"), address)?;
    Ok(Some((listener, config)))
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
