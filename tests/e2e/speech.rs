//! Spoken dialogues over two edges: human speech, a recogniser and a synthesiser that no part of this
//! project wrote.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use switchboard_speech::{Config, ProviderKind, Speech, Words};
use switchboard_test_support::{eventually::eventually, switchboard::executable};
use tokio::time::timeout;

use crate::{clients::installed, cluster::TestCluster, system::start_chat};

const SERVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/speech/serve");
/// Includes the start of the recogniser and of the voice, which load their models.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// One dialogue: the recording, its recognition on a busy machine, and the answer.
const DIALOGUE_TIMEOUT: Duration = Duration::from_secs(60);
/// A person says "go forward ten meters".
pub const RECORDING: &str = "/usr/share/pocketsphinx/test/data/goforward.raw";

/// The recogniser and the voice of `deploy/speech/serve`. Dropping it stops both.
struct Speakers {
    process: Child,
    recognizer: String,
    voice: String,
}

impl Drop for Speakers {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let stopped = Command::new("kill").arg(pid).status();
        assert!(stopped.expect("kill").success());
        self.process.wait().expect("a child of this process");
    }
}

impl Speakers {
    async fn start() -> Self {
        let [recognizer, voice] = [(); 2].map(|()| {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            port.local_addr().unwrap()
        });
        let folder = installed("speech/bin/python");
        let process = Command::new(SERVE)
            .env("SPEECH_FOLDER", folder.ancestors().nth(2).unwrap())
            .env("SPEECH_STT_PORT", recognizer.port().to_string())
            .env("SPEECH_TTS_PORT", voice.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("deploy/speech/serve");
        for address in [recognizer, voice] {
            let connected = async || tokio::net::TcpStream::connect(address).await.is_ok();
            eventually(START_TIMEOUT, connected, |connected| *connected).await;
        }
        Self {
            process,
            recognizer: recognizer.to_string(),
            voice: voice.to_string(),
        }
    }

    fn settings(&self) -> [(&'static str, &str); 4] {
        [
            ("SWITCHBOARD_STT_KIND", "wyoming"),
            ("SWITCHBOARD_STT_ENDPOINT", &self.recognizer),
            ("SWITCHBOARD_TTS_KIND", "wyoming"),
            ("SWITCHBOARD_TTS_ENDPOINT", &self.voice),
        ]
    }
}

/// What a device prints in a dialogue: events with their texts.
pub async fn dialogue(
    cluster: &TestCluster,
    edge: usize,
    arguments: &[&str],
) -> Vec<(String, String)> {
    let token = cluster.device_token(&format!("robot-{edge}")).await;
    let device = tokio::process::Command::new(executable())
        .args([
            "device",
            "--addr",
            &cluster.edges[edge].address("device_addr"),
        ])
        .args(["--token", &token])
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let ended = timeout(DIALOGUE_TIMEOUT, device)
        .await
        .expect("it ends")
        .unwrap();
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{log}");
    let printed = String::from_utf8(ended.stdout).unwrap();
    let events = printed.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        (text("event"), text("text"))
    });
    events.collect()
}

/// The words of a WAV file with 16 kHz or more, recognised by the same server.
async fn words(speakers: &Speakers, file: &Path) -> String {
    let config = Config {
        stt_kind: Some(ProviderKind::Wyoming),
        stt_endpoint: Some(speakers.recognizer.clone()),
        ..Config::default()
    };
    let speech = Speech::from_config(&config, &prometheus::Registry::new()).unwrap();
    let reader = hound::WavReader::open(file).unwrap();
    let rate = reader.spec().sample_rate;
    let pcm: Vec<i16> = reader.into_samples().map(Result::unwrap).collect();
    let mut resampler = switchboard_voice::Resampler::new(rate, switchboard_voice::RATE);
    let mut converted = Vec::new();
    resampler.convert(&pcm, &mut converted);
    resampler.finish(&mut converted);
    let mut recognition = speech.recognizers.unwrap().begin(Some("en".to_owned()));
    recognition.push(&converted);
    recognition.finish();
    loop {
        if let Words::Final(words) = recognition.next().await.unwrap() {
            return words.to_lowercase();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spoken_command_is_executed_and_answered_aloud() {
    let speakers = Speakers::start().await;
    let cluster = TestCluster::start_with(2, &speakers.settings()).await;
    let _chat = start_chat(&cluster, &[]);
    let folder = tempfile::tempdir().unwrap();
    let services = folder.path().join("services.json");
    let distance = json!({"type": "object", "properties": {"meters": {"type": "integer"}}, "required": ["meters"]});
    let service = json!({"services": {"go_forward": {
        "description": "Go forward by meters", "parameters": distance,
        "command": ["sh", "-c", "cat > /dev/null; echo arrived at the kitchen"],
    }}});
    std::fs::write(&services, service.to_string()).unwrap();
    for (edge, listen) in ["auto", "manual"].into_iter().enumerate() {
        let answer = folder.path().join(format!("answer-{edge}.wav"));
        let arguments = [
            "--services",
            services.to_str().unwrap(),
            "--mic",
            RECORDING,
            "--speaker",
            answer.to_str().unwrap(),
            "--listen",
            listen,
        ];
        let events = dialogue(&cluster, edge, &arguments).await;
        let (heard, says): (Vec<_>, Vec<_>) =
            events.iter().partition(|(event, _)| event == "heard");
        let heard: Vec<String> = heard.iter().map(|(_, text)| text.to_lowercase()).collect();
        assert_eq!(heard.len(), 1, "{events:?}");
        assert!(heard[0].contains("go forward"), "{heard:?}");
        let says: String = says.iter().map(|(_, text)| text.as_str()).collect();
        assert!(says.contains("arrived at the kitchen"), "{says}");
        let spoken = words(&speakers, &answer).await;
        assert!(spoken.contains("kitchen"), "{spoken}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_recognition_the_device_is_told_aloud() {
    let cluster = TestCluster::start(1).await;
    let _chat = start_chat(&cluster, &[]);
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer.wav");
    let arguments = ["--mic", RECORDING, "--speaker", answer.to_str().unwrap()];
    let events = dialogue(&cluster, 0, &arguments).await;
    let says: Vec<&str> = events.iter().map(|(_, text)| text.as_str()).collect();
    assert!(
        says[0].starts_with("No speech recognition is configured"),
        "{events:?}"
    );
    let speakers = Speakers::start().await;
    let spoken = words(&speakers, &answer).await;
    assert!(spoken.contains("recognition"), "{spoken}");
}
