//! Opening a TCP port, and saying what to do when that is not possible.
//! Never: a port opened before the configuration as a whole was found good.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections the kernel holds for us until they are accepted; a reconnect storm fits.
const BACKLOG: i32 = 4096;

/// Binds `HOST:PORT`; port 0 takes any free one. Reusable at once after a restart.
///
/// # Errors
/// When the address is not `HOST:PORT`, is taken or is not ours to take; the text names the address and the remedy.
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
            "the address is taken; stop the process that holds it, or listen elsewhere (port 0 takes any free port)".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "that is not permitted; choose a port from 1024 upwards, or grant the right to lower ones".to_owned()
        }
        io::ErrorKind::InvalidInput => "it is not HOST:PORT, such as 127.0.0.1:8080".to_owned(),
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; 0.0.0.0 stands for all it has".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_name_the_address_and_the_remedy() {
        fn check(addr: &str, part: &str) {
            let text = listen(addr).unwrap_err().to_string();
            assert!(text.contains(addr) && text.contains(part), "{text}");
        }
        let taken = listen("127.0.0.1:0").unwrap();
        check(
            &taken.local_addr().unwrap().to_string(),
            "port 0 takes any free port",
        );
        check("127.0.0.1", "HOST:PORT");
        check("127.0.0.1:http", "HOST:PORT");
        check("192.0.2.1:0", "no such address");
    }
}
