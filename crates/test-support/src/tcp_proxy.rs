//! A TCP proxy for one test: a network between two processes, which can fail without a word.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::sleep,
};

const BUFFER_BYTES: usize = 16 * 1024;

/// Forwards connections to a server, until a test cuts them.
///
/// In a black hole a connection stays open and forwards nothing: no bytes, and no end of it, no FIN
/// and no RST. As TCP does, it forwards both when the hole ends. A connection that begins in a hole
/// reaches the server after it.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    /// That of new connections.
    generation: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

/// What a black hole swallows, as seen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    FromServer,
    /// Everything.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Pass,
    BlackHole(Direction),
    /// A black hole for the connections that are older than this generation.
    BlackHoleBefore(u64),
    /// A connection is in a black hole from the command on that contains this text.
    BlackHoleFrom(&'static str),
    /// Everything is forwarded this much later.
    Delay(Duration),
    /// Connections are closed, new ones immediately.
    Closed,
}

/// One direction of a connection.
struct Flow {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
    direction: Direction,
    generation: u64,
    /// The text of [`Mode::BlackHoleFrom`] was sent.
    is_cut: bool,
}

impl TcpProxy {
    /// Starts a proxy to a server, which need not run yet.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let (mode, current) = watch::channel(Mode::Pass);
        let generation = Arc::new(AtomicU64::new(0));
        let generations = Arc::clone(&generation);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a listening socket");
                let generation = generations.load(Ordering::Relaxed);
                connections.spawn(relay(client, server, current.clone(), generation));
            }
        });
        Self {
            address,
            mode,
            generation,
            _tasks: tasks,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a Redis server behind it.
    #[must_use]
    pub fn redis_url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Forwards everything, also what was held back.
    pub fn pass(&self) {
        self.mode.send_replace(Mode::Pass);
    }

    /// Forwards nothing in this direction, and opens no connection to the server.
    pub fn black_hole(&self, direction: Direction) {
        self.mode.send_replace(Mode::BlackHole(direction));
    }

    /// Forwards nothing on the connections that exist. New ones work.
    pub fn black_hole_existing(&self) {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.mode.send_replace(Mode::BlackHoleBefore(generation));
    }

    /// Forwards nothing to the server from the command on that contains this text.
    pub fn black_hole_from(&self, text: &'static str) {
        self.mode.send_replace(Mode::BlackHoleFrom(text));
    }

    /// Forwards everything this much later.
    pub fn delay(&self, by: Duration) {
        self.mode.send_replace(Mode::Delay(by));
    }

    /// Closes all connections, and each new one immediately.
    pub fn close(&self) {
        self.mode.send_replace(Mode::Closed);
    }
}

/// Forwards one connection until it ends in both directions, or is closed.
async fn relay(
    client: TcpStream,
    server: SocketAddr,
    mode: watch::Receiver<Mode>,
    generation: u64,
) {
    let forward = async {
        let mut opens = mode.clone();
        let is_open = |mode: &Mode| !matches!(mode, Mode::BlackHole(_));
        if opens.wait_for(is_open).await.is_err() {
            return;
        }
        // The client sees a server that is away as one that closes the connection.
        let Ok(server) = TcpStream::connect(server).await else {
            return;
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let flow = |from, to, direction| Flow {
            from,
            to,
            mode: mode.clone(),
            direction,
            generation,
            is_cut: false,
        };
        tokio::join!(
            flow(from_client, to_server, Direction::ToServer).forward(),
            flow(from_server, to_client, Direction::FromServer).forward(),
        );
    };
    let mut ends = mode.clone();
    tokio::select! {
        () = forward => {}
        _ = ends.wait_for(|mode| *mode == Mode::Closed) => {}
    }
}

impl Flow {
    /// Forwards bytes, and then their end.
    async fn forward(mut self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = self.from.read(&mut buffer).await.unwrap_or_default();
            let bytes = &buffer[..count];
            if let Mode::BlackHoleFrom(text) = *self.mode.borrow() {
                let mut parts = bytes.windows(text.len());
                self.is_cut |= parts.any(|part| part == text.as_bytes());
            }
            let (direction, generation, is_cut) = (self.direction, self.generation, self.is_cut);
            let forwards = |mode: &Mode| match *mode {
                Mode::Pass | Mode::Delay(_) | Mode::Closed => true,
                Mode::BlackHole(Direction::Both) => false,
                Mode::BlackHole(hole) => hole != direction,
                Mode::BlackHoleBefore(before) => generation >= before,
                Mode::BlackHoleFrom(_) => !is_cut,
            };
            let Ok(passing) = self.mode.wait_for(forwards).await.map(|mode| *mode) else {
                return;
            };
            if let Mode::Delay(by) = passing {
                sleep(by).await;
            }
            // The end of the other direction is that of its sender.
            if count == 0 || self.to.write_all(bytes).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// How long nothing may arrive.
    const SILENCE_WINDOW: Duration = Duration::from_millis(50);
    const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

    /// A server, and a proxy to it.
    async fn start() -> (TcpListener, TcpProxy) {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = TcpProxy::start(server.local_addr().expect("bound")).await;
        (server, proxy)
    }

    /// The sides of a connection through a proxy.
    async fn connect(server: &TcpListener, proxy: &TcpProxy) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(proxy.address()).await.expect("a proxy");
        let (server, _) = server.accept().await.expect("a connection");
        (client, server)
    }

    async fn send(from: &mut TcpStream) {
        from.write_all(b"x").await.expect("an open connection");
        from.shutdown().await.expect("an open connection");
    }

    /// Checks that a byte and the end of the connection arrive, or that nothing does.
    async fn check_arrival(to: &mut TcpStream, arrives: bool) {
        let mut bytes = Vec::new();
        let within = if arrives {
            ARRIVAL_TIMEOUT
        } else {
            SILENCE_WINDOW
        };
        let end = timeout(within, to.read_to_end(&mut bytes)).await;
        assert_eq!(end.is_ok(), arrives);
        assert_eq!(bytes == b"x", arrives);
    }

    #[tokio::test]
    async fn black_hole_of_existing_connections_swallows_none_that_begins_later() {
        let (server, proxy) = start().await;
        let (mut first, mut first_server) = connect(&server, &proxy).await;
        proxy.black_hole_existing();
        let (mut second, mut second_server) = connect(&server, &proxy).await;
        // Once more, after which the second one exists as well.
        proxy.black_hole_existing();
        let (mut third, mut third_server) = connect(&server, &proxy).await;
        for (client, server, arrives) in [
            (&mut first, &mut first_server, false),
            (&mut second, &mut second_server, false),
            (&mut third, &mut third_server, true),
        ] {
            send(client).await;
            check_arrival(server, arrives).await;
        }
    }

    #[tokio::test]
    async fn black_hole_holds_back_bytes_and_ends_in_its_direction() {
        for (direction, to_server, from_server) in [
            (Direction::ToServer, false, true),
            (Direction::FromServer, true, false),
            (Direction::Both, false, false),
        ] {
            let (server, proxy) = start().await;
            let (mut client, mut server) = connect(&server, &proxy).await;
            proxy.black_hole(direction);
            send(&mut client).await;
            send(&mut server).await;
            check_arrival(&mut server, to_server).await;
            check_arrival(&mut client, from_server).await;
            proxy.pass();
            for (to, arrived) in [(&mut server, to_server), (&mut client, from_server)] {
                if !arrived {
                    check_arrival(to, true).await;
                }
            }
        }
    }
}
