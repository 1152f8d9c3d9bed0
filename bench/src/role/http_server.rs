//! An HTTP server without devices, on a multi-threaded runtime like the gateway.

use std::net::SocketAddr;

use axum::{Router, serve::ListenerExt as _};
use clap::Args;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
};

use super::write_reply;
use crate::reply::Reply;

/// Listen address of the server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `HOST:PORT`
    #[arg(long)]
    listen: SocketAddr,
}

/// Serves until stdin reaches end of input.
pub(super) fn run(options: &Options, router: fn() -> Router) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(options, router));
    runtime.shutdown_background();
    outcome
}

async fn serve(options: &Options, router: fn() -> Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(options.listen).await?;
    let listener = listener.tap_io(|stream| {
        // The option fails only if the client has already disconnected.
        let _ = stream.set_nodelay(true);
    });
    write_reply(&Reply::default())?;
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        served = axum::serve(listener, router()) => Ok(served?),
        ended = commands.next_line() => Ok(ended.map(drop)?),
    }
}
