//! Requests through a trusted proxy are charged to the networks of its clients.

use super::{
    shares::{ATTACKER, KIB, OTHER, Shares, limits, serve_shares, status},
    *,
};

/// The address of the proxy.
const PROXY: &str = OTHER;
const FIRST: &str = "192.0.2.1";
const SECOND: &str = "192.0.2.2";

fn behind_proxy(limits: HttpLimits) -> Shares {
    serve_shares(HttpLimits {
        trusted_proxies: vec![format!("{PROXY}/32").parse().unwrap()],
        ..limits
    })
}

/// An upload without a credential, as the proxy forwards it. Its body is not sent.
fn upload(client: &str, header: &str, bytes: usize) -> Vec<u8> {
    // The client has sent the first address.
    format!(
        "POST /anonymous HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.9, {client}\r\n\
         {header}Content-Length: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

#[tokio::test]
async fn forwarded_address_of_a_trusted_proxy_is_the_client() {
    let server = behind_proxy(limits());
    let caller = async |from: &str, forwarded: &str| {
        let request =
            format!("GET /caller HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{forwarded}\r\n");
        let answer = rest(&mut server.send(from, request.as_bytes()).await).await;
        answer.rsplit("\r\n").next().unwrap().to_owned()
    };
    let forwarded = format!("X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: {FIRST}\r\n");
    assert_eq!(caller(PROXY, &forwarded).await, FIRST);
    assert_eq!(caller(ATTACKER, &forwarded).await, ATTACKER);
    let ipv6 = "X-Forwarded-For: 2001:db8:1:2:3::4\r\n";
    assert_eq!(caller(PROXY, ipv6).await, "2001:db8:1:2::/64");
    assert!(caller(PROXY, "").await.starts_with("proxied_"));
}

#[tokio::test]
async fn requests_of_one_connection_are_charged_to_their_clients() {
    let server = behind_proxy(limits());
    let mut socket = server.send(PROXY, &upload(FIRST, "", 20 * KIB)).await;
    server.wait_for("http_bodies", FIRST, 20 * KIB).await;
    socket.write_all(&vec![b'x'; 20 * KIB]).await.unwrap();
    assert_eq!(status(&mut socket).await, "200");
    let second = upload(SECOND, "", 20 * KIB);
    socket.write_all(&second).await.unwrap();
    server.wait_for("http_bodies", SECOND, 20 * KIB).await;
    server.wait_for("http_bodies", FIRST, 0).await;
}

#[tokio::test]
async fn bodies_of_one_client_leave_room_for_others_of_its_proxy() {
    let server = behind_proxy(HttpLimits {
        body_bytes: 256 * KIB,
        bodies_bytes: 1024 * KIB,
        ..limits()
    });
    let mut unfinished = Vec::new();
    for _ in 0..2 {
        unfinished.push(server.send(PROXY, &upload(FIRST, "", 120 * KIB)).await);
    }
    server.wait_for("http_bodies", FIRST, 240 * KIB).await;
    let refused = upload(FIRST, "", 120 * KIB);
    assert_eq!(server.status(PROXY, &refused).await, "429");
    let mut other = upload(SECOND, "", 120 * KIB);
    other.extend(vec![b'x'; 120 * KIB]);
    assert_eq!(server.status(PROXY, &other).await, "200");
}

#[tokio::test]
async fn heads_of_one_client_leave_room_for_others_of_its_proxy() {
    let server = behind_proxy(HttpLimits {
        heads_bytes: 256 * KIB,
        ..limits()
    });
    let large = format!("a: {}\r\n", "x".repeat(8 * KIB));
    let mut unanswered = Vec::new();
    for _ in 0..4 {
        unanswered.push(server.send(PROXY, &upload(FIRST, &large, 3)).await);
    }
    server.wait_for("http_heads", FIRST, 64 * KIB).await;
    let mut refused = server.send(PROXY, &upload(FIRST, &large, 3)).await;
    let answer = rest(&mut refused).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains(r#""budget":"http_heads""#), "{answer}");
    let other = [&upload(SECOND, &large, 3)[..], b"abc"].concat();
    assert_eq!(server.status(PROXY, &other).await, "200");
    unanswered[0].write_all(b"abc").await.unwrap();
    assert_eq!(status(&mut unanswered[0]).await, "200");
    server.wait_for("http_heads", FIRST, 48 * KIB).await;
}
