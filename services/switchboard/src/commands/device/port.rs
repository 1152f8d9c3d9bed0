//! The device port that a device connects to.

use std::sync::Arc;

use tokio_rustls::TlsConnector;

use crate::{api::ApiArguments, device::Address, exit::Failure, tls};

/// Default ports of an edge.
const PLAIN_PORT: u16 = 7700;
const TLS_PORT: u16 = 7701;

/// The device port to connect to.
#[derive(Debug, clap::Args)]
pub(crate) struct PortArguments {
    /// Address of the device port. Default: that of the running `up`, or port 7700 (7701 with
    /// --tls) of the API's host
    #[arg(long, env, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// Connect to the device port over TLS
    #[arg(long, env)]
    tls: bool,
}

impl PortArguments {
    /// Returns the address, by default that of the API.
    ///
    /// # Errors
    /// When neither is known, or the certificate authorities cannot be read.
    pub(crate) fn address(&self, api: &ApiArguments) -> Result<Address, Failure> {
        let tls = match self.tls {
            true => Some(TlsConnector::from(Arc::new(tls::client_config(
                api.tls_ca.as_deref(),
            )?))),
            false => None,
        };
        let port = if self.tls { TLS_PORT } else { PLAIN_PORT };
        let running = || {
            if api.url.is_some() || self.tls || api.context()?.is_some() {
                return Ok::<_, Failure>(None);
            }
            Ok(api
                .data
                .instance()?
                .and_then(|instance| instance.device_addr))
        };
        let host_and_port = match &self.addr {
            Some(addr) => addr.clone(),
            None => match running()? {
                Some(addr) => addr,
                None => format!("{}:{port}", api.connect()?.host()),
            },
        };
        Ok(Address { host_and_port, tls })
    }
}
