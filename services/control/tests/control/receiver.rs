//! Endpoints that webhooks lead to: real HTTP servers, which note what comes and answer as they are told.

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
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::installation::eventually;

/// How a receiver answers.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Status(u16),
    Redirect(String),
    /// Never.
    Silence,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether the specification's own library takes it as signed with this secret.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let verifier = Webhook::new(secret).unwrap();
        verifier.verify(self.body.as_bytes(), &self.headers).is_ok()
    }
}

#[derive(Default)]
struct Desk {
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<VecDeque<Answer>>,
}

/// An endpoint; it is gone when this value is.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) port: u16,
    desk: Arc<Desk>,
    _server: JoinSet<()>,
}

impl Receiver {
    /// One that answers 204 but for these.
    pub(crate) async fn start(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::serve(
            listener,
            format!("http://{address}/hook?a=b"),
            address,
            answers,
        )
    }

    /// The same over TLS, and the certificate by which it is known.
    pub(crate) async fn start_tls() -> (Self, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let url = format!("https://localhost:{}/hook", address.port());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let receiver = Self::serve(TlsListener { tcp, acceptor }, url, address, &[]);
        (receiver, made.cert.pem())
    }

    fn serve<L>(listener: L, url: String, address: SocketAddr, answers: &[Answer]) -> Self
    where
        L: Listener<Addr = SocketAddr>,
    {
        let desk = Arc::new(Desk {
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

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.desk.seen.lock().unwrap().clone()
    }

    /// Everything that has come, once so many have.
    pub(crate) async fn received(&self, count: usize) -> Vec<Seen> {
        eventually(&format!("{count} deliveries came"), async || {
            Some(self.seen()).filter(|seen| seen.len() >= count)
        })
        .await
    }

    /// The document of a webhook that leads here.
    pub(crate) fn webhook(&self, events: &[&str]) -> Value {
        json!({"url": self.url, "events": events})
    }
}

async fn receive(
    State(desk): State<Arc<Desk>>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let path = uri.to_string();
    desk.seen.lock().unwrap().push(Seen {
        path,
        headers,
        body,
    });
    let answer = desk.answers.lock().unwrap().pop_front();
    match answer.unwrap_or(Answer::Status(204)) {
        Answer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Redirect(to) => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response()
        }
        Answer::Silence => std::future::pending().await,
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
            // Who does not trust the certificate goes away.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
