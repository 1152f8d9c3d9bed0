//! HTTP servers for webhooks, which record requests and send configured responses.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    serve::Listener,
};
use http::{HeaderMap, StatusCode, Uri, header};
use rustls::{ServerConfig, crypto::ring};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use switchboard_test_support::eventually::eventually_some;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The response of a receiver.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Status(u16),
    Redirect(String),
    /// No response.
    Silence,
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether the library of the specification accepts the signature with this secret.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let verifier = Webhook::new(secret).unwrap();
        verifier.verify(self.body.as_bytes(), &self.headers).is_ok()
    }
}

#[derive(Default)]
struct ReceiverState {
    seen: Mutex<Vec<ReceivedRequest>>,
    answers: Mutex<VecDeque<Reply>>,
}

/// A running endpoint; dropping it stops it.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) port: u16,
    desk: Arc<ReceiverState>,
    _server: JoinSet<()>,
}

impl Receiver {
    /// Starts a receiver with these responses, then 204.
    pub(crate) async fn start(answers: &[Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::serve(
            listener,
            format!("http://{address}/hook?a=b"),
            address,
            answers,
        )
    }

    /// Like `start`, over TLS. Returns the certificate, too.
    pub(crate) async fn start_tls() -> (Self, String) {
        let generated = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = generated.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![generated.cert.der().clone()], key)
            .unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let url = format!("https://localhost:{}/hook", address.port());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let receiver = Self::serve(TlsListener { tcp, acceptor }, url, address, &[]);
        (receiver, generated.cert.pem())
    }

    fn serve<L>(listener: L, url: String, address: SocketAddr, answers: &[Reply]) -> Self
    where
        L: Listener<Addr = SocketAddr>,
    {
        let desk = Arc::new(ReceiverState {
            seen: Mutex::default(),
            answers: Mutex::new(answers.iter().cloned().collect()),
        });
        let router = Router::new()
            .fallback(receive)
            .with_state(Arc::clone(&desk));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            port: address.port(),
            desk,
            _server: server,
        }
    }

    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.desk.seen.lock().unwrap().clone()
    }

    /// Waits for this number of requests. Returns all of them.
    pub(crate) async fn received(&self, count: usize) -> Vec<ReceivedRequest> {
        eventually_some(&format!("{count} deliveries"), async || {
            Some(self.seen()).filter(|seen| seen.len() >= count)
        })
        .await
    }

    /// The request body for a webhook at this receiver.
    pub(crate) fn webhook(&self, events: &[&str]) -> Value {
        json!({"url": self.url, "events": events})
    }
}

async fn receive(
    State(desk): State<Arc<ReceiverState>>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let path = uri.to_string();
    desk.seen.lock().unwrap().push(ReceivedRequest {
        path,
        headers,
        body,
    });
    let answer = desk.answers.lock().unwrap().pop_front();
    match answer.unwrap_or(Reply::Status(204)) {
        Reply::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Reply::Redirect(to) => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response()
        }
        Reply::Silence => std::future::pending().await,
    }
}

struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            // A client that does not trust the certificate disconnects.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
