//! The attacks, by the process that is attacked. Each takes as much as its peer may have, and holds
//! it or goes on until it is dropped.

mod chat;
mod control;
mod edge;
mod gateway;
mod mcp;

use std::net::SocketAddr;

use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};
use switchboard_test_support::switchboard::Program;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use crate::{
    cluster::{Org, TestCluster},
    device::Device,
};

/// Connections that are opened at the same time.
const DIALS_AT_ONCE: usize = 64;

/// Futures that run at the same time. More connections of one network would replace each other.
const REQUESTS_AT_ONCE: usize = 1_000;
/// Size of params and services that are close to their limits.
const LARGE_BYTES: usize = 240_000;
const DESCRIPTION_BYTES: usize = 4_000;

fn http_address(program: &Program) -> String {
    let url = program.address("http_url");
    url.trim_start_matches("http://").to_owned()
}

/// Receive buffer of a connection that does not read. With a larger one, the kernels of both sides
/// take megabytes of responses.
const UNREAD_BYTES: u32 = 4 * 1024;

/// Opens connections that send these bytes, and then nothing. They do not read.
async fn open(address: &str, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let address: SocketAddr = address.parse().unwrap();
    let mut streams = Vec::with_capacity(count);
    while streams.len() < count {
        let dials = (0..DIALS_AT_ONCE.min(count - streams.len())).map(async |_| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(UNREAD_BYTES).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            // The server may refuse the bytes and close.
            let _ = stream.write_all(bytes).await;
            stream
        });
        streams.extend(at_once(dials).await);
    }
    streams
}

/// Runs futures at the same time, up to [`REQUESTS_AT_ONCE`].
async fn at_once<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let all = stream::iter(futures).buffer_unordered(REQUESTS_AT_ONCE);
    all.collect().await
}

/// Connects devices of the first organisation.
async fn devices(cluster: &TestCluster, count: usize) -> Vec<Device> {
    let mut devices = Vec::with_capacity(count);
    for number in 0..count {
        let id = format!("noisy-{number}");
        devices.push(cluster.device_of(&cluster.org, &id).await);
    }
    devices
}

/// Services of a device with [`LARGE_BYTES`], which differ by the seed.
fn large_services(seed: usize) -> String {
    let service = |number: usize| {
        let description = format!("{seed:x>DESCRIPTION_BYTES$}");
        (format!("s{number}"), json!({"description": description}))
    };
    let count = LARGE_BYTES / DESCRIPTION_BYTES;
    let services: Map<String, Value> = (0..count).map(service).collect();
    Value::Object(services).to_string()
}

/// The request of an organisation, without a body.
fn get(org: &Org, address: &str, path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n{headers}\r\n",
        org.key
    )
}

/// A request of an organisation that lacks the end of its body, which is as large as a call may be.
fn unfinished_body(org: &Org, path: &str) -> String {
    let (declared, sent) = (1024 * 1024 - 1, 1024 * 1024 - 1024);
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {declared}\r\n\r\n{}",
        org.key,
        " ".repeat(sent)
    )
}

/// Sends a request again and again. Refused requests are repeated.
async fn ask_forever(request: reqwest::RequestBuilder) {
    while let Some(request) = request.try_clone() {
        request.send().await.unwrap().bytes().await.unwrap();
    }
}

/// Calls again and again from this many tasks. Refused calls are repeated as well.
fn call_forever(
    cluster: &TestCluster,
    tasks: usize,
    device: impl Fn(usize) -> String,
    body: &Value,
) -> JoinSet<()> {
    let mut calling = JoinSet::new();
    for number in 0..tasks {
        let url = cluster.url(&format!("/v1/devices/{}/calls", device(number)));
        let call = cluster.http.post(url).bearer_auth(&cluster.org.key);
        let call = call.json(body);
        calling.spawn(async move {
            while let Some(call) = call.try_clone() {
                call.send().await.unwrap().bytes().await.unwrap();
            }
        });
    }
    calling
}
