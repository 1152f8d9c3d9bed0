//! Spoken conversations: what the system adds to the times of its providers, and what a conversation
//! costs. The toys and the providers are one process.

use super::{
    control_plane::ControlPlane,
    environment::BenchEnv,
    report::Report,
    server::free_address,
    subject::{Subject, run_rounds},
    system::start_edge,
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

/// Measures each figure with an installation of its own.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    for (name, figure, delays, conversations) in ROWS {
        let mut subjects = [subject(bench, name, figure, delays).await?];
        for count in conversations {
            let measured = run_rounds(&mut subjects, *count, bench.options).await?;
            report.voice.extend(measured);
        }
    }
    Ok(())
}

/// Path: toy → edge → recognition → Redis → chat → model → Redis → edge → synthesis → toy.
async fn subject(
    bench: &BenchEnv<'_>,
    name: &'static str,
    figure: &str,
    delays: [&str; 3],
) -> anyhow::Result<Subject> {
    let plane = ControlPlane::start(bench).await?;
    let providers = free_address()?.to_string();
    let endpoint = format!("http://{providers}/v1");
    let [limit, turns] = [["--voice-max-sessions", "512"], ["--chat-turns", "512"]];
    let speech = [
        ["--device-listen", "127.0.0.1:0"],
        ["--stt-kind", "openai"],
        ["--stt-endpoint", &endpoint],
        ["--stt-model", "fake-model"],
        ["--tts-kind", "openai"],
        ["--tts-endpoint", &endpoint],
        ["--tts-model", "fake-model"],
        ["--tts-voice", "fake-voice"],
        // All conversations are of one organisation, which has a quarter.
        limit,
    ];
    let edge = start_edge(
        bench,
        &plane.stores.redis,
        speech.as_flattened(),
        "device_addr",
    )
    .await?;
    let model = [
        ["--completions-endpoint", &endpoint],
        ["--completions-model", "fake-model"],
        turns,
    ];
    let chat = plane.stores.serve(bench, "chat", model.as_flattened());
    let chat = chat.await?;
    let (address, token_url) = (
        edge.address.to_string(),
        format!("http://{}/v1/tokens", plane.control.address),
    );
    let caller = [
        &[
            "voice-caller",
            "--listen",
            &providers,
            "--recording",
            RECORDING,
        ][..],
        &["--figure", figure, "--delays"],
        &delays,
        &["--address", &address, "--token-url", &token_url],
        &["--api-key", &plane.api_key],
    ];
    let caller = bench.worker(&caller.concat()).await?;
    Ok(Subject {
        name,
        caller,
        devices: None,
        servers: [vec![("chat", chat.process)], plane.servers(&edge)].concat(),
        counts_caller: false,
        counts_devices: false,
    })
}
