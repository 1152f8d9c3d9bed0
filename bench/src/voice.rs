//! Spoken conversations: what the system adds to the times of its providers, and what a conversation
//! costs. The toys and the providers are one process.

use std::sync::Arc;

use serde::Serialize;
use switchboard_test_support::process::Process;

use super::{
    chat::{Endpoints, ProviderAddress},
    control_plane::ControlPlane,
    environment::BenchEnv,
    report::Report,
    subject::{Subject, run_rounds},
    system::start_edge,
    usage::Usage as _,
};

/// Row names in the report.
pub(crate) const FIRST_AUDIO: &str = "Switchboard, an answer's first audio";
const FIRST_AUDIO_LATER: &str = "the same, providers of 800 ms";
pub(crate) const LATEST_FRAME: &str = "an answer's latest frame";
pub(crate) const STOP: &str = "an interrupted answer's end";
/// A person says "go forward ten meters".
const RECORDING: &str = "/usr/share/pocketsphinx/test/data/goforward.raw";

/// Numbers of conversations at a time, by figure.
const ROWS: [(&str, &str, [&str; 3], &[u32]); 4] = [
    (FIRST_AUDIO, "first-audio", ["0"; 3], &[1, 50, 100]),
    (
        FIRST_AUDIO_LATER,
        "first-audio",
        ["300", "300", "200"],
        &[50],
    ),
    (LATEST_FRAME, "latest-frame", ["0"; 3], &[100]),
    (STOP, "stop", ["0"; 3], &[1, 50]),
];

/// Streams whose costs are measured. One operation is 2 s of each.
const STREAMS: [(&str, &str); 3] = [
    ("2 s of listening to silence", "listening"),
    ("2 s of listening to speech", "talking"),
    ("2 s of speaking", "speaking"),
];
const STREAM_COUNT: u32 = 50;

/// Memory of the edge for each stream.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StreamMemory {
    pub(crate) subject: &'static str,
    pub(crate) streams: u32,
    pub(crate) bytes_each: f64,
}

impl StreamMemory {
    /// The row of the report.
    pub(crate) fn row(&self) -> [String; 8] {
        let mut row: [String; 8] = Default::default();
        row[0] = format!("{}, memory", self.subject);
        row[1] = format!("{} in flight", self.streams);
        row[6] = format!("{:.0} bytes each", self.bytes_each);
        row
    }
}

/// Measures each figure with an installation of its own.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    for (name, figure, delays, conversations) in ROWS {
        let (subject, _) = subject(bench, name, figure, delays).await?;
        let mut subjects = [subject];
        for count in conversations {
            let measured = run_rounds(&mut subjects, *count, bench.options).await?;
            report.voice.extend(measured);
        }
    }
    for (name, figure) in STREAMS {
        let (subject, edge) = subject(bench, name, figure, ["0"; 3]).await?;
        let mut subjects = [subject];
        // What is allocated once is allocated then.
        run_rounds(&mut subjects, 1, bench.options).await?;
        let before = edge.anonymous_bytes()?;
        let measured = run_rounds(&mut subjects, STREAM_COUNT, bench.options).await?;
        let grown = edge.anonymous_bytes()?.saturating_sub(before);
        report.voice.extend(measured);
        report.streams.push(StreamMemory {
            subject: name,
            streams: STREAM_COUNT,
            bytes_each: grown as f64 / f64::from(STREAM_COUNT - 1),
        });
    }
    Ok(())
}

/// An installation, and its edge. Path: toy → edge → recognition → Redis → chat → model → Redis → edge → synthesis → toy.
async fn subject(
    bench: &BenchEnv<'_>,
    name: &'static str,
    figure: &str,
    delays: [&str; 3],
) -> anyhow::Result<(Subject, Arc<Process>)> {
    let plane = ControlPlane::start(bench).await?;
    let provider = ProviderAddress::new()?;
    let speech = [
        ["--device-listen", "127.0.0.1:0"],
        // All conversations are of one organisation, which has a quarter.
        ["--voice-max-sessions", "512"],
        ["--stt-kind", "openai"],
        ["--stt-endpoint", &provider.endpoint],
        ["--stt-model", "fake-model"],
        ["--tts-kind", "openai"],
        ["--tts-endpoint", &provider.endpoint],
        ["--tts-model", "fake-model"],
        ["--tts-voice", "fake-voice"],
    ];
    let redis = &plane.stores.redis;
    let edge = start_edge(bench, redis, speech.as_flattened(), "device_addr").await?;
    let model = provider.arguments();
    let chat = plane.stores.serve(bench, "chat", &model).await?;
    let endpoints = Endpoints {
        devices: edge.address.to_string(),
        control: plane.control.address.to_string(),
        api_key: plane.api_key.clone(),
    };
    let role = ["voice-caller", "--recording", RECORDING, "--figure", figure];
    let role = [&role[..], &["--delays"], &delays].concat();
    let subject = Subject {
        name,
        caller: endpoints.caller(bench, &role, &provider).await?,
        devices: None,
        servers: [vec![("chat", chat.process)], plane.servers(&edge)].concat(),
        counts_caller: false,
        counts_devices: false,
    };
    Ok((subject, edge.process))
}
