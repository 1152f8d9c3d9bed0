//! HTTP/2 clients, well-behaved and misbehaving, over real sockets.

use axum::http::{Request, Response};
use bytes::Bytes;
use h2::{RecvStream, SendStream, client::SendRequest};

use super::{
    shares::{ATTACKER, KIB, OTHER, Shares, limits, org_name, serve_shares},
    *,
};

const GOAWAY: u8 = 7;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client on one connection.
struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    /// The client answers pings while this runs.
    tasks: Shutdown,
    /// Makes the client stop to read and write.
    pause: Arc<Notify>,
    paused: Arc<Notify>,
}

type Answer = h2::client::ResponseFuture;

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    async fn start(socket: TcpStream) -> Self {
        // What a stream does not read keeps no other one from its response.
        let (requests, connection) = h2::client::Builder::new()
            .initial_connection_window_size(1 << 30)
            .handshake(socket)
            .await
            .unwrap();
        let (tasks, pause, paused) = (Shutdown::new(), Arc::default(), Arc::default());
        let (wanted, reached): (Arc<Notify>, Arc<Notify>) =
            (Arc::clone(&pause), Arc::clone(&paused));
        let connection = async move {
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = wanted.notified() => {
                    reached.notify_one();
                    std::future::pending().await
                }
            }
        };
        Self {
            requests,
            connection: tasks.spawn(connection),
            tasks,
            pause,
            paused,
        }
    }

    async fn ready(&mut self) {
        let ready = self.requests.clone().ready();
        self.requests = timeout(LONG_TIMEOUT, ready).await.unwrap().unwrap();
    }

    async fn send(&mut self, request: Request<()>, ends: bool) -> (Answer, SendStream<Bytes>) {
        self.ready().await;
        self.requests.send_request(request, ends).unwrap()
    }

    async fn get(&mut self, path: &str, org: Option<u128>) -> Answer {
        self.send(request("GET", path, org), true).await.0
    }

    /// Whether the connection has closed by itself.
    async fn closes(&mut self) -> bool {
        timeout(LONG_TIMEOUT, &mut self.connection).await.is_ok()
    }
}

fn request(method: &str, path: &str, org: Option<u128>) -> Request<()> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://x{path}"));
    if let Some(org) = org {
        request = request.header("x-org", org.to_string());
    }
    request.body(()).unwrap()
}

async fn response(answer: Answer) -> Response<RecvStream> {
    timeout(LONG_TIMEOUT, answer).await.unwrap().unwrap()
}

/// Reads the body, and lets the server send more.
async fn body(mut stream: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = timeout(LONG_TIMEOUT, stream.data()).await.unwrap() {
        let data = data?;
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    Ok(body)
}

async fn status_and_body(answer: Answer) -> (u16, String) {
    let response = response(answer).await;
    let status = response.status().as_u16();
    let body = body(response.into_body()).await.unwrap();
    (status, String::from_utf8(body).unwrap())
}

impl Shares {
    async fn http2(&self, from: &str) -> Client {
        Client::start(self.send(from, b"").await).await
    }
}

/// A frame as its bytes.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// `GET path` on a stream.
fn get(stream: u32, path: &str) -> Vec<u8> {
    // GET, http, and literal values for the path and the authority.
    let length = u8::try_from(path.len()).unwrap();
    let block = [&[0x82, 0x86, 0x04, length], path.as_bytes(), b"\x41\x01x"].concat();
    frame(HEADERS, 0b101, stream, &block)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// What a client sends first.
fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()
}

/// The payloads of the frames of one kind.
fn frames(bytes: &[u8], kind: u8) -> Vec<Vec<u8>> {
    let (mut rest, mut found) = (bytes, Vec::new());
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, after)) = after.split_at_checked(length) else {
            break;
        };
        if head[3] == kind {
            found.push(payload.to_vec());
        }
        rest = after;
    }
    found
}

/// Everything until the server closes the connection.
async fn bytes_until_closed(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset also ends it.
    let read = timeout(LONG_TIMEOUT, socket.read_to_end(&mut bytes)).await;
    let _ = read.expect("the server closes the connection");
    bytes
}

#[tokio::test]
async fn many_streams_of_one_connection_are_answered() {
    let server = serve_shares(limits());
    let mut client = server.http2(OTHER).await;
    let mut answers = Vec::new();
    for _ in 0..30 {
        let (answer, mut upload) = client.send(request("POST", "/org", Some(1)), false).await;
        upload.send_data(vec![b'a'; 40 * KIB].into(), true).unwrap();
        answers.push((answer, 40 * KIB));
        answers.push((client.get("/bytes/300000", None).await, 300_000));
        answers.push((client.get("/open", None).await, 4));
    }
    for (answer, bytes) in answers {
        let (status, body) = status_and_body(answer).await;
        assert_eq!((status, body.len()), (200, bytes));
    }
    assert_eq!(client.requests.current_max_send_streams(), 100);
    // A connection of HTTP/2 has four slots.
    server.wait_for("http_connections", &org_name(1), 4).await;
    server.wait_for("http_bodies", &org_name(1), 0).await;
    drop(client);
    server.wait_for("http_connections", &org_name(1), 0).await;
}

#[tokio::test]
async fn preface_in_pieces_begins_http2() {
    let server = open(HttpLimits::default());
    let mut socket = server.connect().await;
    socket.set_nodelay(true).unwrap();
    for byte in opening() {
        socket.write_all(&[byte]).await.unwrap();
    }
    let mut head = [0; 9];
    let read = timeout(LONG_TIMEOUT, socket.read_exact(&mut head)).await;
    read.unwrap().unwrap();
    assert_eq!(head[3], SETTINGS);
    // What begins like it is a request of HTTP/1.1.
    let mut other = server.send("PR").await;
    other
        .write_all(b"OPFIND /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    assert!(rest(&mut other).await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn streams_take_slots_of_their_network() {
    let server = serve_shares(HttpLimits {
        connections: 48,
        ..limits()
    });
    let mut client = server.http2(ATTACKER).await;
    let mut unfinished = Vec::new();
    for _ in 0..6 {
        let request = request("POST", "/anonymous", None);
        unfinished.push(client.send(request, false).await);
    }
    // Four of the connection, and two of each stream beyond two: their bodies may be large.
    server.wait_for("http_connections", ATTACKER, 12).await;
    let (status, problem) = status_and_body(client.get("/open", None).await).await;
    assert_eq!(status, 429, "{problem}");
    assert!(
        problem.contains(r#""budget":"http_connections""#),
        "{problem}"
    );
    let mut other = server.http2(OTHER).await;
    let answer = other.get("/open", None).await;
    assert_eq!(status_and_body(answer).await.0, 200);
    for (answer, mut upload) in unfinished {
        upload.send_data(Bytes::from_static(b"abc"), true).unwrap();
        assert_eq!(status_and_body(answer).await, (200, "3".to_owned()));
    }
    server.wait_for("http_connections", ATTACKER, 4).await;
}

#[tokio::test]
async fn connection_without_room_for_its_slots_receives_503() {
    // Connections with requests in flight leave three slots, or none.
    for busy in [13, 16] {
        let server = serve_shares(HttpLimits {
            connections: 16,
            ..limits()
        });
        let mut listening = Vec::new();
        for number in 0..busy {
            listening.push(server.listening(number / 4).await);
        }
        let mut client = server.http2(OTHER).await;
        let (status, problem) = status_and_body(client.get("/open", None).await).await;
        assert_eq!(status, 503, "{busy} busy: {problem}");
        assert!(client.closes().await);
    }
}

#[tokio::test]
async fn flood_of_resets_in_one_piece_closes_its_connection() {
    let server = serve_shares(limits());
    let mut flood = opening();
    for stream in (1..4_000).step_by(2) {
        flood.extend(get(stream, "/open"));
        flood.extend(reset(stream));
    }
    let mut other = server.http2(OTHER).await;
    let mut socket = server.send(ATTACKER, &flood).await;
    let received = bytes_until_closed(&mut socket).await;
    let goaways = frames(&received, GOAWAY);
    assert_eq!(goaways.len(), 1);
    // ENHANCE_YOUR_CALM
    assert_eq!(goaways[0][4..8], 11_u32.to_be_bytes());
    let answer = other.get("/open", None).await;
    assert_eq!(status_and_body(answer).await.0, 200);
}

#[tokio::test]
async fn client_that_resets_each_request_is_closed() {
    let mut server = open(HttpLimits::default());
    let mut socket = server.connect().await;
    socket.write_all(&opening()).await.unwrap();
    // It does not confirm the first GOAWAY, which leaves room for requests that were on their way.
    for number in 0..200 {
        let stream = 2 * number + 1;
        socket.write_all(&get(stream, "/wait")).await.unwrap();
        assert_eq!(server.event().await, "entered");
        socket.write_all(&reset(stream)).await.unwrap();
        assert_eq!(server.event().await, "dropped");
    }
    let received = bytes_until_closed(&mut socket).await;
    assert_eq!(frames(&received, GOAWAY).len(), 1);
    let other = server.send("GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(rest(&mut other.await).await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn idle_client_and_slow_head_are_closed() {
    let server = open(short_limits());
    let mut client = Client::start(server.connect().await).await;
    let answer = client.get("/none", None).await;
    assert_eq!(status_and_body(answer).await.0, 404);
    assert!(client.closes().await);
    // Not even a preface.
    rest(&mut server.send("PRI * HTTP/2.0\r\n").await).await;
    // A head without its end, from a client that answers no ping.
    let mut socket = server.connect().await;
    let mut slow = opening();
    slow.extend(frame(HEADERS, 1, 1, &[0x82]));
    socket.write_all(&slow).await.unwrap();
    bytes_until_closed(&mut socket).await;
}

#[tokio::test]
async fn slow_head_beside_a_request_is_closed() {
    let mut server = open(short_limits());
    let mut socket = server.connect().await;
    let mut slow = opening();
    slow.extend(get(1, "/wait"));
    slow.extend(frame(HEADERS, 1, 3, &[0x82]));
    socket.write_all(&slow).await.unwrap();
    assert_eq!(server.event().await, "entered");
    bytes_until_closed(&mut socket).await;
    assert_eq!(server.event().await, "dropped");
}

#[tokio::test]
async fn head_above_16_kib_returns_431() {
    let server = serve_shares(limits());
    let mut client = server.http2(OTHER).await;
    let mut large = request("GET", "/open", None);
    let value = "x".repeat(17 * KIB).parse().unwrap();
    large.headers_mut().insert("a", value);
    let answer = client.send(large, true).await.0;
    assert_eq!(response(answer).await.status(), 431);
    let answer = client.get("/open", None).await;
    assert_eq!(status_and_body(answer).await.0, 200);
}

#[tokio::test]
async fn body_over_limit_returns_413_and_its_connection_stays() {
    let server = open(HttpLimits {
        body_bytes: 100,
        ..HttpLimits::default()
    });
    let mut client = Client::start(server.connect().await).await;
    let mut declared = request("POST", "/echo", None);
    let headers = declared.headers_mut();
    headers.insert("content-length", "5000000".parse().unwrap());
    headers.insert("content-type", "application/json".parse().unwrap());
    let (answer, _upload) = client.send(declared, false).await;
    let (status, problem) = status_and_body(answer).await;
    assert_eq!(status, 413, "{problem}");
    assert!(problem.contains("The body has 5000000 bytes; at most 100 bytes"));
    let mut unknown = request("POST", "/echo", None);
    let json = "application/json".parse().unwrap();
    unknown.headers_mut().insert("content-type", json);
    let (answer, mut upload) = client.send(unknown, false).await;
    upload.send_data(vec![b'x'; 5_000].into(), false).unwrap();
    let (status, problem) = status_and_body(answer).await;
    assert_eq!(status, 413, "{problem}");
    let answer = client.get("/none", None).await;
    let (status, problem) = status_and_body(answer).await;
    assert_eq!(status, 404);
    // As over HTTP/1.1, the path only.
    assert!(problem.contains("There is nothing at /none."), "{problem}");
}

#[tokio::test]
async fn stream_that_is_not_read_is_reset_alone() {
    let server = open(HttpLimits {
        write_timeout: SHORT_TIMEOUT,
        ..HttpLimits::default()
    });
    let mut client = Client::start(server.connect().await).await;
    let mut unread = response(client.get("/big", None).await).await.into_body();
    let ended = async {
        // What the window of the stream allows, and no more.
        while let Some(data) = unread.data().await {
            if data.is_err() {
                return true;
            }
        }
        false
    };
    assert!(timeout(LONG_TIMEOUT, ended).await.unwrap(), "it is reset");
    let answer = client.get("/none", None).await;
    assert_eq!(status_and_body(answer).await.0, 404);
}

#[tokio::test]
async fn response_that_is_not_read_loses_its_room_to_another_one() {
    let server = serve_shares(limits());
    let mut client = server.http2(ATTACKER).await;
    // The organisation may hold two.
    let mut unread = Vec::new();
    for count in 1..=2 {
        let answer = client.get("/large", Some(1)).await;
        unread.push(response(answer).await.into_body());
        let held = count * 8 * KIB * KIB;
        server.wait_for("http_responses", &org_name(1), held).await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    let (status, third) = status_and_body(client.get("/large", Some(1)).await).await;
    assert_eq!((status, third.len()), (200, 8 * KIB * KIB));
    let mut complete = 0;
    for stream in unread {
        complete += usize::from(body(stream).await.is_ok());
    }
    assert_eq!(complete, 1);
    server.wait_for("http_responses", &org_name(1), 0).await;
}

#[tokio::test]
async fn client_that_leaves_drops_its_handlers() {
    let mut server = open(HttpLimits::default());
    let mut client = Client::start(server.connect().await).await;
    let _answers = (
        client.get("/wait", None).await,
        client.get("/wait", None).await,
    );
    for event in ["entered", "entered"] {
        assert_eq!(server.event().await, event);
    }
    drop(client);
    for event in ["dropped", "dropped"] {
        assert_eq!(server.event().await, event);
    }
}

#[tokio::test]
async fn drain_sends_goaway_and_finishes_streams() {
    let mut server = open(HttpLimits::default());
    let mut client = Client::start(server.connect().await).await;
    let mut idle = Client::start(server.connect().await).await;
    let answer = client.get("/slow", None).await;
    assert_eq!(server.event().await, "entered");
    server.shutdown.drain();
    assert!(idle.closes().await);
    // After GOAWAY the client opens no stream.
    let refused = async {
        while client.requests.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG_TIMEOUT, refused).await.expect("GOAWAY");
    server.finish.notify_one();
    assert_eq!(status_and_body(answer).await, (200, "done".to_owned()));
    timeout(LONG_TIMEOUT, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(client.closes().await && client.tasks.tasks() == 0);
}

#[tokio::test]
async fn drain_does_not_wait_for_clients_that_answer_no_ping() {
    let mut server = open(HttpLimits::default());
    let mut client = Client::start(server.connect().await).await;
    let answer = client.get("/none", None).await;
    assert_eq!(status_and_body(answer).await.0, 404);
    // Its socket stays open, and is not read.
    client.pause.notify_one();
    client.paused.notified().await;
    server.drains().await;
}

#[tokio::test]
async fn stop_aborts_streams_in_progress() {
    let mut server = open(HttpLimits::default());
    let mut client = Client::start(server.connect().await).await;
    let _answer = client.get("/wait", None).await;
    assert_eq!(server.event().await, "entered");
    server.shutdown.stop();
    timeout(LONG_TIMEOUT, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(server.event().await, "dropped");
}
