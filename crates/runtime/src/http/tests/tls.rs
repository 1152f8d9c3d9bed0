//! HTTP over TLS: the version is negotiated.

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, ServerName},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

/// A server with a certificate, and the configuration of a client that trusts it.
fn secure(limits: HttpLimits) -> (TestServer, ClientConfig) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusted)
        .with_no_client_auth();
    (open_with(limits, Some(Arc::new(server))), client)
}

async fn connect(
    server: &TestServer,
    config: &ClientConfig,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    let mut config = config.clone();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from("localhost").unwrap();
    let socket = server.connect().await;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, socket);
    timeout(LONG_TIMEOUT, connected).await.unwrap().unwrap()
}

#[tokio::test]
async fn version_of_http_is_negotiated() {
    let (server, config) = secure(HttpLimits::default());
    let stream = connect(&server, &config, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = server.shutdown.spawn(connection);
    let request = axum::http::Request::get("https://localhost/none");
    let (answer, _) = requests
        .send_request(request.body(()).unwrap(), true)
        .unwrap();
    let answer = timeout(LONG_TIMEOUT, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 404);
    connection.abort();

    for protocols in [&["http/1.1"][..], &[]] {
        let mut stream = connect(&server, &config, protocols).await;
        let request = b"GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        let read = timeout(LONG_TIMEOUT, stream.read_to_string(&mut answer)).await;
        read.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
}

#[tokio::test]
async fn slow_handshake_closes_connection() {
    let (server, _) = secure(short_limits());
    rest(&mut server.connect().await).await;
    // The head of a record whose content does not come.
    let mut slow = server.connect().await;
    slow.write_all(&[22, 3, 1, 1, 0]).await.unwrap();
    rest(&mut slow).await;
}
