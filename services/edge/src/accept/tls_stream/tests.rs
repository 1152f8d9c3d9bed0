//! A TLS session against that of another library: records in pieces, and more than a socket accepts.

use std::io::Write as _;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ClientConfig, ConnectionTrafficSecrets, RootCertStore};
use rustls_pki_types::PrivateKeyDer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::yield_now,
};
use tokio_rustls::{TlsConnector, client};

use super::*;

async fn connect() -> (TlsStream, client::TlsStream<TcpStream>) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accept = async {
        let (tcp, _) = listener.accept().await.unwrap();
        TlsStream::accept(Arc::new(config), tcp).await.unwrap()
    };
    let connect = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = "localhost".try_into().unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        connector.connect(name, tcp).await.unwrap()
    };
    tokio::join!(accept, connect)
}

/// The bytes that an idle connection owns besides its session.
fn owned_bytes(stream: &TlsStream) -> usize {
    let session = &stream.session;
    let buffers = [&session.received, &session.plaintext, &session.unsent];
    buffers.iter().map(|buffer| buffer.capacity()).sum()
}

#[tokio::test]
async fn records_are_read_however_they_arrive_and_nothing_is_kept() {
    let (mut server, client) = connect().await;
    let (mut tcp, mut session) = client.into_inner();
    assert_eq!(owned_bytes(&server), 0);
    let mut records = Vec::new();
    for text in ["one", "two", "three"] {
        session.writer().write_all(text.as_bytes()).unwrap();
        // Further records are encrypted with other keys.
        session.refresh_traffic_keys().unwrap();
        while session.wants_write() {
            session.write_tls(&mut records).unwrap();
        }
    }
    let send = async {
        for byte in records {
            tcp.write_all(&[byte]).await.unwrap();
            yield_now().await;
        }
    };
    let mut read = [0; 11];
    let receive = async {
        // A reader with less room than a record.
        for part in read.chunks_mut(2) {
            server.read_exact(part).await.unwrap();
        }
    };
    tokio::join!(send, receive);
    assert_eq!(&read, b"onetwothree");
    server.write_all(b"four").await.unwrap();
    server.flush().await.unwrap();
    assert_eq!(owned_bytes(&server), 0);
}

#[tokio::test]
async fn more_than_the_socket_accepts_is_sent() {
    let (mut server, mut client) = connect().await;
    let sent = vec![b'x'; 8 << 20];
    let mut received = vec![0; sent.len()];
    let send = async {
        server.write_all(&sent).await.unwrap();
        server.flush().await.unwrap();
    };
    let (_, read) = tokio::join!(send, client.read_exact(&mut received));
    assert_eq!((read.unwrap(), &received), (sent.len(), &sent));
    assert_eq!(owned_bytes(&server), 0);
    let (closed, end) = tokio::join!(server.shutdown(), client.read(&mut received));
    closed.unwrap();
    assert_eq!(end.unwrap(), 0);
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut received).await.unwrap(), 0);
}

/// A record of a handshake message's fragment, which no client of a library sends.
fn fragment(secrets: &ConnectionTrafficSecrets, sequence: u64, fragment: &[u8]) -> Vec<u8> {
    const HANDSHAKE: u8 = 22;
    let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
        panic!("another cipher suite");
    };
    let mut sealed = [fragment, &[HANDSHAKE]].concat();
    // Padding.
    sealed.resize(16 * 1024, 0);
    let length = u16::try_from(sealed.len() + AES_256_GCM.tag_len()).unwrap();
    let [high, low] = length.to_be_bytes();
    let header = [23, 3, 3, high, low];
    let mut nonce = <[u8; 12]>::try_from(iv.as_ref()).unwrap();
    for (byte, number) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= number;
    }
    let nonce = Nonce::assume_unique_for_key(nonce);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
    key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed)
        .unwrap();
    [&header[..], &sealed].concat()
}

#[tokio::test]
async fn fragments_of_a_handshake_message_are_not_collected() {
    let (mut server, client) = connect().await;
    let (mut tcp, session) = client.into_inner();
    let (first, secrets) = session.dangerous_extract_secrets().unwrap().tx;
    let send = async {
        // A KeyUpdate that claims to have 65,535 bytes.
        let begin = [24, 0, 0xff, 0xff];
        let mut sequence = first;
        let mut record = fragment(&secrets, sequence, &begin);
        while tcp.write_all(&record).await.is_ok() {
            sequence += 1;
            record = fragment(&secrets, sequence, &[0]);
        }
    };
    let receive = async {
        let refused = server.read(&mut [0]).await.unwrap_err();
        let owned = owned_bytes(&server);
        drop(server);
        (refused, owned)
    };
    let ((), (refused, owned)) = tokio::join!(send, receive);
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    assert!(owned <= 4 * records::MAX_RECORD_BYTES, "{owned} bytes");
}
