//! What clients have not read yet, and connections that are replaced while they send a request.

use uuid::Uuid;

use super::{
    shares::{ATTACKER, KIB, ORG_1, OTHER, Shares, limits, org_name, serve_shares, status},
    *,
};
use crate::{
    budget::{Budgets, Owner},
    http::active_request::ActiveRequest,
    response_budget::READ_TIMEOUT,
};

/// A page of this size is what one organisation may hold.
const PAGE_BYTES: usize = 16 * KIB * KIB;

fn page(org: u128) -> Vec<u8> {
    format!("GET /page HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n\r\n").into_bytes()
}

/// Four organisations hold everything with a page each, which they do not read.
async fn unread_pages(server: &Shares) -> Vec<TcpStream> {
    let mut pages = Vec::new();
    for org in 1..=4 {
        pages.push(server.send(ATTACKER, &page(org)).await);
        server
            .wait_for("http_responses", &org_name(org), PAGE_BYTES)
            .await;
    }
    pages
}

/// The bytes of a response until the connection closes, or until `limit` of them.
async fn read_up_to(mut socket: TcpStream, limit: usize) -> usize {
    let (mut count, mut buffer) = (0, vec![0; 64 * KIB]);
    while count < limit {
        let read = timeout(LONG_TIMEOUT, socket.read(&mut buffer)).await;
        match read.expect("bytes, or the end") {
            Ok(0) | Err(_) => break,
            Ok(bytes) => count += bytes,
        }
    }
    count
}

#[tokio::test]
async fn admitted_page_is_sent_when_the_budget_is_exhausted() {
    let server = serve_shares(limits());
    for page in unread_pages(&server).await {
        let count = read_up_to(page, PAGE_BYTES).await;
        assert!(count >= PAGE_BYTES, "cut off after {count} bytes");
    }
    for org in 1..=4 {
        server.wait_for("http_responses", &org_name(org), 0).await;
    }
}

#[tokio::test]
async fn page_that_is_not_read_in_time_leaves_room_for_others() {
    let server = serve_shares(HttpLimits {
        // Only the time of the page ends.
        write_timeout: READ_TIMEOUT * 10,
        ..limits()
    });
    let pages = unread_pages(&server).await;
    assert_eq!(server.status(OTHER, &page(5)).await, "429");
    tokio::time::pause();
    tokio::time::advance(READ_TIMEOUT).await;
    tokio::time::resume();
    for org in 1..=4 {
        server.wait_for("http_responses", &org_name(org), 0).await;
    }
    assert_eq!(server.status(OTHER, &page(5)).await, "200");
    for page in pages {
        let count = read_up_to(page, usize::MAX).await;
        assert!(count < PAGE_BYTES, "{count} bytes were sent");
    }
}

#[test]
fn pieces_that_are_charged_at_the_same_time_replace_each_other() {
    let budgets = Budgets::new(&prometheus::Registry::new()).unwrap();
    let clients = client::Clients::new(&limits(), &budgets);
    std::thread::scope(|scope| {
        for org in 0..8 {
            let clients = &clients;
            scope.spawn(move || {
                let owner = Owner::Org(Uuid::from_u128(org));
                for _ in 0..2_000 {
                    let client = clients.admit([127, 0, 0, 1].into()).unwrap();
                    let mut request = axum::http::Request::new(String::new());
                    let (in_flight, _) = ActiveRequest::begin(&client, &mut request);
                    let charge = in_flight.request().charge_response(owner, PAGE_BYTES);
                    assert!(charge.unwrap().is_some());
                }
            });
        }
    });
}

#[tokio::test]
async fn replaced_connection_answers_the_request_that_has_arrived() {
    for _ in 0..20 {
        let server = serve_shares(HttpLimits {
            connections: 4,
            ..limits()
        });
        let mut idle = Vec::new();
        for org in 1..=4 {
            idle.push(server.idle(org).await);
        }
        // Both arrive before the server runs: the oldest idle connection loses its place.
        let newcomer = std::net::TcpStream::connect(server.addr).unwrap();
        assert_eq!(idle[0].try_write(ORG_1).unwrap(), ORG_1.len());
        assert_eq!(status(&mut idle[0]).await, "200");
        drop(newcomer);
    }
}

#[tokio::test]
async fn caller_of_a_later_request_is_the_organisation_of_its_connection() {
    let server = serve_shares(limits());
    let request = b"GET /caller HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let first = rest(&mut server.send(OTHER, request).await).await;
    assert!(first.ends_with(OTHER), "{first}");
    let mut known = server.idle(1).await;
    known.write_all(request).await.unwrap();
    let later = rest(&mut known).await;
    assert!(later.ends_with(&org_name(1)), "{later}");
}
