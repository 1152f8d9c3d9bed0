//! A local HTTP proxy that adds a credential, because the suite cannot send one. It passes everything
//! else unchanged, including `Host`, `Origin` and streams. Each client connection has its own
//! connection to the gateway, so that closing one closes the other.

use std::{
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
};

use anyhow::Context as _;
use http::{HeaderValue, Request, header};
use hyper::{body::Incoming, client::conn::http1 as client, server::conn::http1 as server};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::JoinSet,
};

/// Bound but not serving: the gateway needs the address before it starts.
pub(super) struct HeaderProxy {
    listener: TcpListener,
    address: SocketAddr,
}

impl HeaderProxy {
    pub(super) async fn bind() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The `Origin` of a page at this address.
    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The MCP endpoint of a device, through the proxy.
    pub(super) fn url(&self, device: &str) -> String {
        format!("{}/mcp/devices/{device}", self.origin())
    }

    /// Forwards requests to the gateway with this key until it is dropped.
    pub(super) fn serve(
        self,
        gateway: SocketAddr,
        key: &str,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
        let mut credential = HeaderValue::from_str(&format!("Bearer {key}"))?;
        credential.set_sensitive(true);
        Ok(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = self.listener.accept() => {
                        let (stream, _) = accepted.context("the proxy takes no connection")?;
                        connections.spawn(relay(stream, gateway, credential.clone()));
                    }
                    // Either side may close its connection at any time.
                    Some(_) = connections.join_next() => {}
                }
            }
        })
    }
}

/// Serves one client connection over one gateway connection of the same lifetime.
async fn relay(
    stream: TcpStream,
    gateway: SocketAddr,
    credential: HeaderValue,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let onward = TcpStream::connect(gateway).await?;
    onward.set_nodelay(true)?;
    let (sender, onward) = client::handshake(TokioIo::new(onward)).await?;
    let sender = Mutex::new(sender);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        pass_on(&sender, &credential, request)
    });
    let mut inward = pin!(
        server::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        ended = &mut inward => return Ok(ended?),
        // Forward the bytes that the gateway has already sent.
        _ = onward => inward.as_mut().graceful_shutdown(),
    }
    Ok(inward.await?)
}

async fn pass_on(
    sender: &Mutex<client::SendRequest<Incoming>>,
    credential: &HeaderValue,
    mut request: Request<Incoming>,
) -> hyper::Result<hyper::Response<Incoming>> {
    let headers = request.headers_mut();
    headers.insert(header::AUTHORIZATION, credential.clone());
    let mut sender = sender.lock().await;
    sender.ready().await?;
    sender.send_request(request).await
}
