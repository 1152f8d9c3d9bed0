//! Attacks on an edge.

use std::{path::Path, sync::Arc, thread, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind as FrameKind, SeqFormat, TaskId, encode, encode_stream};
use switchboard_test_support::{certificates::Authority, eventually::eventually};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    super::{Service, Takes, Target, sized},
    LARGE_BYTES, call_forever, devices, large_services, open,
};
use crate::{
    cluster::{TestCluster, echo_services},
    device::Device,
};

/// Unauthenticated connections stay open while the attack is measured.
const AUTH_TIMEOUT: (&str, &str) = ("SWITCHBOARD_DEVICE_AUTH_TIMEOUT_MS", "60000");
/// What the edge charges for a TLS session before AUTH.
const TLS_SESSION_BYTES: usize = 24 * 1024;
const MIB: usize = 1024 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Registrations of a device that the edge accepts at once, and its interval for further ones.
const REGISTER_BURST: usize = 10;
const REGISTER_INTERVAL: Duration = Duration::from_secs(1);
/// Characters of the longest text for which the pattern of an attack is accepted, nearly.
const COSTLY_CHARS: usize = 700;
/// The maximum number of calls of a device in flight.
const CALLS_IN_FLIGHT: usize = 64;
/// What a device that floods an edge sends at a time.
const FLOOD_BYTES: usize = 256 * 1024;
/// Frames of audio until its seq begins anew, and the samples of each.
const AUDIO_FRAMES: usize = 10_000;
const AUDIO_FRAME_BYTES: usize = 400;
/// Events of devices that exceed their rate.
const DROPPED_EVENTS: &str = "switchboard_edge_notes_total{kind=\"event_dropped\"}";
/// Between two looks for calls that have ended.
const REFILL_INTERVAL: Duration = Duration::from_millis(500);

fn device_address(cluster: &TestCluster) -> String {
    cluster.edges[0].address("device_addr")
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_device_connections_leave_the_port_open() {
    let slots = sized(64, 16_384);
    let setting = (
        "SWITCHBOARD_DEVICE_MAX_UNAUTHENTICATED",
        &*slots.to_string(),
    );
    let target = Target::start(Service::Edge, &[setting, AUTH_TIMEOUT]).await;
    let cluster = &target.cluster;
    let attack = async {
        let silent = open(&device_address(cluster), slots * 9 / 8, b"").await;
        (silent, cluster.echo(0, "newcomer").await)
    };
    target
        .measure(
            "silent device connections",
            Takes::All("device_unauthenticated"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_organisation_leave_room_for_others() {
    let setting = (
        "SWITCHBOARD_DEVICE_MAX_CONNECTIONS",
        &*sized(100, 2_000).to_string(),
    );
    let target = Target::start(Service::Edge, &[setting]).await;
    let cluster = &target.cluster;
    let attack = async {
        let mut connected = Vec::new();
        while let Some(device) = try_connect(cluster, connected.len()).await {
            connected.push(device);
        }
        let newcomer = cluster.another_org("Newcomer").await;
        let mut device = cluster.device_of(&newcomer, "newcomer").await;
        device.register(&echo_services()).await;
        let served = device.serve();
        let body = json!({"service": "echo", "params": {"text": "welcome"}});
        let (status, answer) = cluster.call_as(&newcomer, "newcomer", &body).await;
        assert_eq!(answer["outcome"], "succeeded", "{status}: {answer}");
        (connected, served)
    };
    target
        .measure(
            "device connections",
            Takes::Share("device_connections"),
            attack,
        )
        .await;
}

/// Connects a device of the first organisation. Returns `None` if it is refused.
async fn try_connect(cluster: &TestCluster, number: usize) -> Option<Device> {
    let token = cluster.device_token(&format!("noisy-{number}")).await;
    let mut device = Device::dial(&device_address(cluster)).await;
    let hello = json!({"token": token});
    device.send(FrameKind::Auth, &hello.to_string()).await;
    let answer = device.receive().await?;
    (answer.kind == FrameKind::Auth).then_some(device)
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_tls_handshakes_leave_memory_to_others() {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let sessions = sized(64, 2_730);
    let settings = [
        ("SWITCHBOARD_TLS_LISTEN", "127.0.0.1:0"),
        (
            "SWITCHBOARD_TLS_CERT",
            certificate.certificate.to_str().unwrap(),
        ),
        ("SWITCHBOARD_TLS_KEY", certificate.key.to_str().unwrap()),
        (
            "SWITCHBOARD_DEVICE_TLS_HANDSHAKE_BYTES",
            &(sessions * TLS_SESSION_BYTES).to_string(),
        ),
        AUTH_TIMEOUT,
    ];
    let target = Target::start(Service::Edge, &settings).await;
    let address = target.cluster.edges[0].address("tls_addr");
    let attack = async {
        // The head of a record, and the first bytes of a ClientHello.
        let hello = b"\x16\x03\x01\x02\x00\x01\x00";
        let unfinished = open(&address, sessions * 2, hello).await;
        (
            unfinished,
            shake_hands(&address, &certificate.authority).await,
        )
    };
    target
        .measure(
            "unfinished TLS handshakes",
            Takes::Share("tls_handshakes"),
            attack,
        )
        .await;
}

/// Completes a handshake from another network than the attacker's.
async fn shake_hands(address: &str, authority: &Path) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let completed = timeout(HANDSHAKE_TIMEOUT, handshake).await;
    completed.expect("a handshake in time").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_frames_leave_memory_to_others() {
    let bytes = (sized(4, 64) * MIB).to_string();
    let setting = ("SWITCHBOARD_DEVICE_INCOMPLETE_FRAME_BYTES", &*bytes);
    let target = Target::start(Service::Edge, &[setting]).await;
    let frame = [&b"##START\x10mcp000010000"[..], &vec![b' '; 255 * 1024]].concat();
    let attack = async {
        let mut devices = devices(&target.cluster, sized(16, 1_500)).await;
        for device in &mut devices {
            device.send_bytes(&frame).await;
        }
        devices
    };
    target
        .measure("unfinished frames", Takes::Share("device_frames"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_services_leave_memory_to_others() {
    let bytes = (sized(4, 128) * MIB).to_string();
    let settings = [
        ("SWITCHBOARD_SCHEMA_MAX_COMPILED_BYTES", &*bytes),
        // Otherwise the directory has no room for the texts of these services.
        ("SWITCHBOARD_REGISTRATION_BYTES_PER_ORG", &*bytes),
    ];
    let target = Target::start(Service::Edge, &settings).await;
    let attack = async {
        let mut devices = devices(&target.cluster, sized(16, 400)).await;
        for (number, device) in devices.iter_mut().enumerate() {
            // Those above the share are refused.
            device.try_register(&large_services(number)).await;
        }
        devices
    };
    target
        .measure("large services", Takes::Share("compiled_schemas"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_patterns_leave_processors_to_others() {
    let target = Target::start(Service::Edge, &[]).await;
    let cluster = &target.cluster;
    let services = |max_length: usize| {
        let text = json!({
            "type": "string", "pattern": "(?:a?){900}a{900}c", "maxLength": max_length
        });
        let parameters = json!({"type": "object", "properties": {"text": text}});
        json!({"match": {"description": "Matches.", "parameters": parameters}}).to_string()
    };
    // A device has one call checked at a time; together they use all that is there for checks.
    let count = thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let attack = async {
        let mut devices = devices(cluster, count).await;
        let refused = devices[0].try_register(&services(10 * COSTLY_CHARS)).await;
        assert_eq!(refused["success"], false, "{refused}");
        for device in &mut devices {
            device.register(&services(COSTLY_CHARS)).await;
        }
        let text = "a".repeat(COSTLY_CHARS);
        let body = json!({"service": "match", "params": {"text": text}, "timeout_ms": 1_000});
        let device = |number| format!("noisy-{}", number % count);
        let calling = call_forever(cluster, sized(4 * count, 64), device, &body);
        await_waiting(&target, "validation_jobs").await;
        (calling, devices)
    };
    target
        .measure("checks of patterns", Takes::All("validation_jobs"), attack)
        .await;
}

/// Services whose schemas take long to compile.
fn heavy_services(seed: usize) -> String {
    let service = |number: usize| {
        let property = |index: usize| {
            let pattern = format!("^.{{1,120}}x{seed}-{number}-{index}$");
            (
                format!("p{index}"),
                json!({"type": "string", "pattern": pattern}),
            )
        };
        let properties: serde_json::Map<String, Value> = (0..16).map(property).collect();
        let parameters = json!({"type": "object", "properties": properties});
        (
            format!("s{number}"),
            json!({"description": "Heavy.", "parameters": parameters}),
        )
    };
    // Unoptimised and on a busy machine, all of them take seconds.
    let all: serde_json::Map<String, Value> = (0..sized(2, 8)).map(service).collect();
    Value::Object(all).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_leave_processors_and_memory_to_others() {
    let target = Target::start(Service::Edge, &[]).await;
    let cluster = &target.cluster;
    let newcomer = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut registering = JoinSet::new();
        for (number, device) in devices(cluster, sized(4, 50)).await.into_iter().enumerate() {
            registering.spawn(register_forever(device, number));
        }
        await_waiting(&target, "compile_jobs").await;
        let mut device = cluster.device_of(&newcomer, "newcomer").await;
        device.register(&plain_services()).await;
        (registering, device)
    };
    target
        .measure("registrations", Takes::All("compile_jobs"), attack)
        .await;
}

/// Registers other services again and again, as often as a device may.
async fn register_forever(mut device: Device, number: usize) {
    let mut ticks = interval(REGISTER_INTERVAL);
    for round in 0.. {
        if round >= REGISTER_BURST {
            ticks.tick().await;
        }
        // Those above a rate are refused.
        let services = heavy_services(number * 10_000 + round);
        device.try_register(&services).await;
    }
}

/// A few services with ordinary schemas, which no other device has.
fn plain_services() -> String {
    let service = |name: &str| {
        let schema = json!({"type": "object", "properties": {
            name: {"type": "string", "pattern": "^[a-z]{1,8}$", "maxLength": 8},
            "level": {"type": "integer", "minimum": 0, "maximum": 9},
        }});
        (
            name.to_owned(),
            json!({"description": "Plain.", "parameters": schema}),
        )
    };
    let all = ["turn", "show", "play", "stop"].map(service);
    Value::Object(all.into_iter().collect()).to_string()
}

/// Waits until a request waits for a budget of the edge.
async fn await_waiting(target: &Target, name: &str) {
    let url = format!("{}/debug/budgets", target.process().address("admin_url"));
    let waiting = async || {
        let report: Value = reqwest::get(&url).await.unwrap().json().await.unwrap();
        let mut budgets = report.as_array().unwrap().iter();
        let budget = budgets.find(|budget| budget["budget"] == name).unwrap();
        budget["waiting"].as_u64().unwrap()
    };
    eventually(HANDSHAKE_TIMEOUT, waiting, |waiting| *waiting > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_calls_leave_memory_to_others() {
    let settings = [
        (
            "SWITCHBOARD_DEVICE_MESSAGES_BYTES",
            &*(sized(4, 64) * MIB).to_string(),
        ),
        // The devices stay connected while the attack is measured.
        ("SWITCHBOARD_DEVICE_WRITE_STALL_MS", "60000"),
        // As with many gateways: the sockets of the devices take some megabytes each.
        ("SWITCHBOARD_HTTP_BODIES_BYTES", "1073741824"),
    ];
    let target = Target::start(Service::Edge, &settings).await;
    let cluster = &target.cluster;
    let attack = async {
        let mut unread = devices(cluster, sized(2, 16)).await;
        let mut calling = JoinSet::new();
        for (number, device) in unread.iter_mut().enumerate() {
            let services = json!({"store": {"description": "Stores."}});
            device.register(&services.to_string()).await;
            calling.spawn(fill_with_calls(cluster, &format!("noisy-{number}")));
        }
        (unread, calling)
    };
    target
        .measure(
            "calls that are not read",
            Takes::Share("device_messages"),
            attack,
        )
        .await;
}

/// Keeps as many large calls of a device in flight as it may have: those that end are replaced, all
/// at the same time.
fn fill_with_calls(cluster: &TestCluster, device: &str) -> impl Future<Output = ()> + use<> {
    let url = cluster.url(&format!("/v1/devices/{device}/calls"));
    let params = json!({"text": "x".repeat(LARGE_BYTES)});
    let body = json!({"service": "store", "params": params, "timeout_ms": 60_000});
    let call = cluster.http.post(url).bearer_auth(&cluster.org.key);
    let call = call.json(&body);
    async move {
        let mut in_flight = JoinSet::new();
        let mut ticks = interval(REFILL_INTERVAL);
        loop {
            ticks.tick().await;
            while in_flight.try_join_next().is_some() {}
            while in_flight.len() < CALLS_IN_FLIGHT {
                in_flight.spawn(call.try_clone().unwrap().send());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_leave_the_processors_to_others() {
    let target = Target::start(Service::Edge, &[]).await;
    let mut frame = Vec::new();
    let event = br#"{"name": "button"}"#;
    let (task, format) = (TaskId::MCP, SeqFormat::Plain);
    encode(&mut frame, FrameKind::Event, task, 0, format, event);
    let frames: Arc<[u8]> = frame.repeat(FLOOD_BYTES / frame.len()).into();
    let attack = async {
        let mut flooding = JoinSet::new();
        for mut device in devices(&target.cluster, sized(8, 40)).await {
            let frames = Arc::clone(&frames);
            flooding.spawn(async move {
                loop {
                    device.send_bytes(&frames).await;
                }
            });
        }
        flooding
    };
    target
        .measure("floods of frames", Takes::Rate(DROPPED_EVENTS), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_audio_leave_conversations_and_processors_to_others() {
    let sessions = sized(16, 48);
    let setting = ("SWITCHBOARD_VOICE_MAX_SESSIONS", &*sessions.to_string());
    let target = Target::start(Service::Edge, &[setting]).await;
    let cluster = &target.cluster;
    let mut audio = Vec::new();
    // The seq of the last frame is 9999, so the next one is 0.
    let samples = vec![0x55; AUDIO_FRAMES * AUDIO_FRAME_BYTES];
    let task = TaskId(*b"audio001");
    let next = encode_stream(
        &mut audio,
        FrameKind::Audio,
        task,
        0,
        &samples,
        AUDIO_FRAME_BYTES,
    );
    assert_eq!(next, Ok(0));
    let audio: Arc<[u8]> = audio.into();
    let attack = async {
        let mut flooding = JoinSet::new();
        // Twice the share: the others are refused.
        for number in 0..sessions / 2 {
            let subject = format!("device:noisy-{number}");
            let token = cluster.token(&cluster.org, &subject, &["device"]).await;
            let format = json!({"codec": "pcm_s16le", "rate": 48_000});
            let client = json!({
                "name": "test", "version": "1", "audio": {"in": format, "listen": "realtime"},
            });
            let hello = json!({"token": token["access_token"], "client": client});
            let mut device = Device::dial(&device_address(cluster)).await;
            device.send(FrameKind::Auth, &hello.to_string()).await;
            let welcome = device.receive().await.unwrap().json();
            assert!(welcome["data"]["audio"].is_object(), "{welcome}");
            let audio = Arc::clone(&audio);
            flooding.spawn(async move {
                loop {
                    device.send_bytes(&audio).await;
                }
            });
        }
        flooding
    };
    target
        .measure("floods of audio", Takes::Share("voice_sessions"), attack)
        .await;
}
