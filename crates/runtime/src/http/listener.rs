//! TCP listeners, with errors that name the remedy.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Accept queue of the kernel; large enough for a reconnect storm.
const BACKLOG: i32 = 4096;

/// The listeners of an HTTP port: one without TLS, and if there is a certificate one with it.
#[derive(Debug)]
pub struct HttpListeners {
    /// Without TLS.
    pub plain: TcpListener,
    /// With TLS. The server offers HTTP/2 and HTTP/1.1 (ALPN), in this order.
    pub tls: Option<(TcpListener, Arc<ServerConfig>)>,
}

impl From<TcpListener> for HttpListeners {
    fn from(plain: TcpListener) -> Self {
        Self { plain, tls: None }
    }
}

/// Binds `HOST:PORT`; port 0 selects a free port. The port can be rebound immediately after a
/// restart.
///
/// # Errors
/// When the address is malformed, in use or not permitted. The text names the address and the
/// remedy.
pub fn listen(addr: &str) -> io::Result<TcpListener> {
    let explain = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on {addr}: {}", remedy(&error)),
        )
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addr.to_socket_addrs().map_err(explain)? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(explain(last))
}

/// Offers both versions of HTTP.
pub(super) fn tls_acceptor(config: Arc<ServerConfig>) -> TlsAcceptor {
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn remedy(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the address is in use; stop the process that uses it, or choose another address (port 0 selects a free port)".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; choose a port above 1023, or grant the right to bind lower ones".to_owned()
        }
        io::ErrorKind::InvalidInput => "expected HOST:PORT, such as 127.0.0.1:8080".to_owned(),
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; 0.0.0.0 listens on all of its addresses".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn error_names_address_and_remedy() {
        fn check(addr: &str, part: &str) {
            let text = listen(addr).unwrap_err().to_string();
            assert!(text.contains(addr) && text.contains(part), "{text}");
        }
        let in_use = listen("127.0.0.1:0").unwrap();
        check(
            &in_use.local_addr().unwrap().to_string(),
            "port 0 selects a free port",
        );
        check("127.0.0.1", "HOST:PORT");
        check("127.0.0.1:http", "HOST:PORT");
        check("192.0.2.1:0", "no such address");
    }
}
