//! Connections over HTTP: authentication decides which ones can be replaced, and to whom bodies are
//! charged; networks take turns with lookups of keys.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use secrecy::ExposeSecret;
use switchboard_identity::ApiKeySecret;
use switchboard_test_support::eventually::eventually_true;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::test_gateway::{TEST_TIMEOUT, TestGateway};

const CONNECTIONS: usize = 4;
const STRANGER: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const INVENTED_KEYS: usize = 300;
/// The default maximum of the pool.
const DATABASE_CONNECTIONS: u8 = 10;
const TOOLS_LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Sends a request on a connection that stays open, and returns the status.
async fn status(socket: &mut TcpStream, key: &ApiKeySecret, line: &str, body: &str) -> String {
    let key = key.expose_secret();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    let read = timeout(TEST_TIMEOUT, socket.read_exact(&mut head)).await;
    read.unwrap().unwrap();
    // The next read begins with the next response.
    let mut rest = vec![0; 64 * 1024];
    let read = timeout(TEST_TIMEOUT, socket.read(&mut rest)).await;
    read.unwrap().unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[tokio::test]
async fn authenticated_connection_outlives_silent_ones() {
    let flag = format!("--http-connections={CONNECTIONS}");
    for (line, body) in [("GET /v1/devices", ""), ("POST /mcp", TOOLS_LIST)] {
        let gateway = TestGateway::with_flags(&[&flag]).await;
        let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
        assert_eq!(status(&mut socket, &gateway.key, line, body).await, "200");
        let mut silent = Vec::new();
        for _ in 0..4 * CONNECTIONS {
            silent.push(TcpStream::connect(gateway.address()).await.unwrap());
        }
        let closed = timeout(TEST_TIMEOUT, silent[0].read(&mut [0; 1])).await;
        assert!(!matches!(closed.unwrap(), Ok(1..)));
        assert_eq!(status(&mut socket, &gateway.key, line, body).await, "200");
    }
}

async fn connect_from(gateway: &TestGateway, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(format!("{address}:0").parse().unwrap())
        .unwrap();
    let server = gateway.address().parse().unwrap();
    socket.connect(server).await.unwrap()
}

/// Opens all connections of the pool. While one is opened, the others serve hundreds of lookups.
async fn open_database_connections(gateway: &TestGateway) {
    let lookups = (0..DATABASE_CONNECTIONS).map(|number| {
        let store = gateway.store.clone();
        async move { store.api_key_by_hash(&[number; 32]).await.unwrap() }
    });
    JoinSet::from_iter(lookups).join_all().await;
}

#[tokio::test]
async fn invented_keys_of_one_network_do_not_delay_the_first_use_of_a_key() {
    let gateway = TestGateway::start().await;
    let lookups = |is_reached: fn(usize, usize) -> bool| {
        let reports = gateway.budgets.report();
        let report = reports.iter().find(|report| report.budget == "key_lookups");
        report.is_some_and(|report| is_reached(report.used, report.waiting))
    };
    open_database_connections(&gateway).await;
    let lock = gateway.database.lock("api_keys").await.unwrap();
    let rejected = Arc::new(AtomicUsize::new(0));
    let mut strangers = JoinSet::new();
    for _ in 0..INVENTED_KEYS {
        let mut socket = connect_from(&gateway, STRANGER).await;
        let rejected = Arc::clone(&rejected);
        strangers.spawn(async move {
            // It has a valid checksum.
            let key = ApiKeySecret::generate();
            assert_eq!(
                status(&mut socket, &key, "GET /v1/devices", "").await,
                "401"
            );
            rejected.fetch_add(1, Relaxed);
        });
    }
    eventually_true("a lookup or a wait for each invented key", || {
        lookups(|used, waiting| used + waiting == INVENTED_KEYS)
    })
    .await;
    let mut socket = connect_from(&gateway, OTHER).await;
    // It is refused as soon as its key is known: a list would take longer than many lookups.
    let first_use = async {
        let status = status(&mut socket, &gateway.key, "GET /v1/devices?limit=x", "").await;
        (status, rejected.load(Relaxed))
    };
    let release = async {
        eventually_true("the real key waits as well", || {
            lookups(|used, waiting| used + waiting == INVENTED_KEYS + 1)
        })
        .await;
        lock.release().await.unwrap();
    };
    let ((first_use, rejected_before), ()) = tokio::join!(first_use, release);
    assert_eq!(first_use, "400");
    assert!(
        rejected_before < INVENTED_KEYS / 2,
        "the real key waited for {rejected_before} invented ones"
    );
    while let Some(stranger) = strangers.join_next().await {
        stranger.unwrap();
    }
}
