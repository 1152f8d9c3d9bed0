//! Recordings: none unless the organisation switches them on, and from the second message then.

use std::{path::Path, time::Duration};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, SeqFormat, TaskId, encode};
use switchboard_test_support::eventually::eventually;
use tokio::time::interval;

use crate::{
    cluster::TestCluster,
    device::Device,
    provider::Provider,
    speech::RECORDING,
    system::{ChatFixture, TestSystem},
    turns::task,
};

const STORED_TIMEOUT: Duration = Duration::from_secs(30);
/// 60 ms at 16 kHz.
const FRAME_BYTES: usize = 1_920;

/// A device with a microphone, whose answers are text.
async fn device_with_microphone(cluster: &TestCluster) -> Device {
    let token = cluster.device_token("toy-1").await;
    let mut device = Device::dial(&cluster.edges[0].address("device_addr")).await;
    let audio =
        json!({"in": {"codec": "pcm_s16le", "rate": 16_000, "frame_ms": 60}, "listen": "manual"});
    let hello = json!({"token": token, "client": {"name": "test", "version": "1", "audio": audio}});
    device.send(Kind::Auth, &hello.to_string()).await;
    let accepted = device.next(Kind::Auth).await.json();
    assert_eq!(accepted["data"]["success"], true, "{accepted}");
    device
}

impl Device {
    /// Says something, and receives the answer.
    async fn say(&mut self, task: TaskId) {
        let audio = std::fs::read(RECORDING).unwrap();
        let mut ticks = interval(Duration::from_millis(60));
        let mut frame = Vec::new();
        let mut seq = 0;
        for piece in audio.chunks(FRAME_BYTES) {
            ticks.tick().await;
            frame.clear();
            encode(&mut frame, Kind::Audio, task, seq, SeqFormat::Plain, piece);
            self.send_bytes(&frame).await;
            seq += 1;
        }
        frame.clear();
        encode(&mut frame, Kind::End, task, seq, SeqFormat::Plain, b"");
        self.send_bytes(&frame).await;
        let answer = self.next(Kind::Text).await;
        assert_eq!(answer.payload, b"Hi.");
        self.next(Kind::End).await;
    }
}

impl TestSystem {
    async fn set_recording(&self, is_on: bool) {
        let url = format!("{}/v1/org", self.settings);
        let request = self.http.patch(url).bearer_auth(&self.key);
        let request = request.header("content-type", "application/merge-patch+json");
        let request = request.header("if-match", "*");
        let body = json!({"record_speech": is_on}).to_string();
        let changed = request.body(body).send().await.unwrap();
        assert_eq!(changed.status(), StatusCode::OK);
    }

    async fn recordings(&self, key: &str) -> Vec<Value> {
        let url = format!("{}/v1/recordings?device_id=toy-1", self.settings);
        let page = self.http.get(url).bearer_auth(key).send().await.unwrap();
        let page: Value = page.json().await.unwrap();
        page["recordings"].as_array().unwrap().clone()
    }
}

fn stored_objects(folder: &Path) -> usize {
    let owners = std::fs::read_dir(folder.join("recordings"));
    let owners = owners.into_iter().flatten();
    owners
        .map(|owner| std::fs::read_dir(owner.unwrap().path()).unwrap().count())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn speech_is_recorded_while_the_organisation_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("recognize.sh");
    std::fs::write(&script, "cat > /dev/null; echo hello").unwrap();
    let objects = folder.path().join("objects");
    let url = format!("file://{}", objects.display());
    let recognizer = format!("sh {}", script.display());
    let settings = [
        ("SWITCHBOARD_STT_KIND", "command"),
        ("SWITCHBOARD_STT_ENDPOINT", &recognizer),
        ("SWITCHBOARD_OBJECTS", &url),
    ];
    let cluster = TestCluster::start_with(1, &settings).await;
    let provider = Provider::scripted(|request| request.reply("Hi.")).await;
    let fixture = ChatFixture::with_cluster(cluster, provider, &[("SWITCHBOARD_OBJECTS", &url)]);
    let (system, cluster) = (&fixture.system, &fixture.cluster);
    let mut device = device_with_microphone(cluster).await;
    for number in 1..=2 {
        device.say(task(number)).await;
    }
    system.turns_ended("answered", 2).await;
    assert!(system.recordings(&system.key).await.is_empty());
    assert_eq!(stored_objects(&objects), 0);

    system.set_recording(true).await;
    // The answer to the first of them switches it on.
    for number in 3..=4 {
        device.say(task(number)).await;
    }
    let listed = async || system.recordings(&system.key).await;
    let listed = eventually(STORED_TIMEOUT, listed, |listed| !listed.is_empty()).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!((1_000..=3_000).contains(&listed[0]["duration_ms"].as_u64().unwrap()));
    let path = format!("/v1/recordings/{}", listed[0]["id"].as_str().unwrap());
    let content = format!("{}{path}/content", system.settings);
    let file = system.http.get(&content).bearer_auth(&system.key).send();
    let file = file.await.unwrap().bytes().await.unwrap();
    assert!(file.starts_with(b"OggS") && file.windows(8).any(|part| part == b"OpusHead"));
    let other = cluster.another_org("Others").await;
    assert!(system.recordings(&other.key).await.is_empty());
    let foreign = system.http.get(&content).bearer_auth(&other.key).send();
    assert_eq!(foreign.await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(stored_objects(&objects), 1);

    // The edge does not know yet that it is off again; the last answer said on.
    system.set_recording(false).await;
    device.say(task(5)).await;
    system
        .metric("switchboard_chat_recordings_total{outcome=\"switched_off\"} 1\n")
        .await;
    device.say(task(6)).await;
    system.turns_ended("answered", 6).await;
    assert_eq!(system.recordings(&system.key).await, listed);
    let (status, _) = system.ask(Method::DELETE, &path, &Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(system.recordings(&system.key).await.is_empty());
    assert_eq!(stored_objects(&objects), 0);
    system
        .metric("switchboard_chat_recordings_total{outcome=\"stored\"} 1\n")
        .await;
}
