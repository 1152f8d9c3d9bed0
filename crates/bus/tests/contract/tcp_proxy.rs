//! A proxy in front of Redis that can stop forwarding.

use std::{net::SocketAddr, time::Duration};

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

pub struct TcpProxy {
    addr: SocketAddr,
    mode: watch::Sender<ProxyMode>,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum ProxyMode {
    Pass,
    /// Connections older than this generation forward nothing.
    DropExisting(u64),
    DropAll,
    /// A connection forwards nothing from the command on that contains this text.
    DropFrom(&'static str),
    /// Everything is forwarded this much later.
    Delay(Duration),
}

impl TcpProxy {
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (mode, current) = watch::channel(ProxyMode::Pass);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut streams = JoinSet::new();
            let mut generation = 0;
            loop {
                let (near, _) = listener.accept().await.unwrap();
                if let ProxyMode::DropExisting(before) = *current.borrow() {
                    generation = before;
                }
                let far = TcpStream::connect(to).await.unwrap();
                let (near, far) = (near.into_split(), far.into_split());
                streams.spawn(forward(near.0, far.1, current.clone(), generation));
                streams.spawn(forward(far.0, near.1, current.clone(), generation));
            }
        });
        Self {
            addr,
            mode,
            _tasks: tasks,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    pub fn drop_all(&self) {
        self.mode.send_replace(ProxyMode::DropAll);
    }

    pub fn pass(&self) {
        self.mode.send_replace(ProxyMode::Pass);
    }

    pub fn drop_existing(&self) {
        self.mode.send_replace(ProxyMode::DropExisting(1));
    }

    pub fn drop_from(&self, text: &'static str) {
        self.mode.send_replace(ProxyMode::DropFrom(text));
    }

    pub fn delay(&self, by: Duration) {
        self.mode.send_replace(ProxyMode::Delay(by));
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<ProxyMode>,
    generation: u64,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut is_cut = false;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..count];
        if let ProxyMode::DropFrom(text) = *mode.borrow() {
            let length = text.len();
            is_cut |= bytes.windows(length).any(|part| part == text.as_bytes());
        }
        let forwards = |mode: &ProxyMode| match *mode {
            ProxyMode::Pass | ProxyMode::Delay(_) => true,
            ProxyMode::DropExisting(before) => generation >= before,
            ProxyMode::DropAll => false,
            ProxyMode::DropFrom(_) => !is_cut,
        };
        let passing = mode.wait_for(|mode| forwards(mode)).await;
        let Ok(passing) = passing.map(|mode| *mode) else {
            return;
        };
        if let ProxyMode::Delay(by) = passing {
            sleep(by).await;
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
