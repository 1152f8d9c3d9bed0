//! Devices that connect to one of two edges, and to the other one when it asks them to leave.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use clap::{Args, ValueEnum};
use tokio::{task::JoinSet, time::sleep};

use super::{
    fleet::Fleet,
    wire_devices::{self, WireDevice, WireFleet},
};

const DIAL_BACKOFF: Duration = Duration::from_millis(50);

/// Two edges, and how devices move between them.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    #[command(flatten)]
    first: wire_devices::Options,
    /// `HOST:PORT` of the other edge
    #[arg(long)]
    other_address: SocketAddr,
    /// When devices connect to the other edge
    #[arg(long)]
    moves: Moves,
}

/// When a device connects to the other edge. Until its connection closes, it answers calls there.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Moves {
    /// After the `retry_after_ms` of GOAWAY
    Waits,
    /// When the edge has closed the connection
    AfterClose,
    /// At GOAWAY
    BeforeClose,
}

/// Devices of both edges: those with even numbers connect to the first one.
pub(super) struct RollingFleet(Rc<Edges>);

struct Edges {
    fleets: [WireFleet; 2],
    moves: Moves,
}

/// A device and the edge that it is connected to.
pub(super) struct RollingDevice {
    edges: Rc<Edges>,
    index: u32,
    edge: usize,
    device: WireDevice,
}

impl RollingFleet {
    pub(super) fn new(options: Options) -> anyhow::Result<Self> {
        let mut other = options.first.clone();
        other.address = options.other_address;
        Ok(Self(Rc::new(Edges {
            fleets: [WireFleet::new(options.first)?, WireFleet::new(other)?],
            moves: options.moves,
        })))
    }
}

impl Fleet for RollingFleet {
    type Device = RollingDevice;

    async fn dial(&self, index: u32) -> anyhow::Result<RollingDevice> {
        let edge = usize::from(index % 2 == 1);
        Ok(RollingDevice {
            edges: Rc::clone(&self.0),
            index,
            edge,
            device: self.0.fleets[edge].dial(index).await?,
        })
    }

    async fn serve(mut current: RollingDevice) -> anyhow::Result<()> {
        let mut former = JoinSet::new();
        loop {
            let goaway = current.device.answer_until_goaway().await;
            let moves = current.edges.moves;
            let wait = match (goaway, moves) {
                (Ok(goaway), Moves::Waits) => Duration::from_millis(goaway.retry_after_ms.into()),
                _ => Duration::ZERO,
            };
            former.spawn_local(answer_until_closed(current.device));
            if matches!(moves, Moves::AfterClose) {
                while former.join_next().await.is_some() {}
            }
            sleep(wait).await;
            (current.edge, current.device) =
                current.edges.dial_from(current.edge, current.index).await;
        }
    }
}

async fn answer_until_closed(mut device: WireDevice) {
    while device.answer_until_goaway().await.is_ok() {}
}

impl Edges {
    /// Connects to the edge other than `edge`, and to `edge` if that fails, until one accepts.
    async fn dial_from(&self, edge: usize, index: u32) -> (usize, WireDevice) {
        let mut next = 1 - edge;
        loop {
            match self.fleets[next].dial(index).await {
                Ok(device) => return (next, device),
                Err(_) => sleep(DIAL_BACKOFF).await,
            }
            next = 1 - next;
        }
    }
}
