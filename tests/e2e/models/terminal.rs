//! `switchboard talk`: an NPC in the terminal, with streamed answers.

use std::{process::Stdio, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    provider::{Provider, ProviderRequest},
    system::{ChatFixture, TestSystem},
    turns::time_service,
};

const OUTPUT_TIMEOUT: Duration = Duration::from_secs(20);

impl TestSystem {
    /// Starts `switchboard talk --npc …` against this system.
    fn terminal(&self, npc: &str, more: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .args(["talk", "--npc", npc])
            .args(more)
            .env("SWITCHBOARD_URL", &self.talk)
            .env("SWITCHBOARD_API_KEY", &self.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }
}

/// The exit code, stdout and stderr.
async fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = timeout(OUTPUT_TIMEOUT, child.wait_with_output()).await;
    let output = output.expect("an end in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn single_message_is_answered_as_stream() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let npc = fixture
        .system
        .npc(&json!({"name": "Bello"}), &["toy-1"])
        .await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    let mut terminal = fixture
        .system
        .terminal(&npc, &["--say", "What time is it?"]);
    let request = fixture.provider.next_request().await;
    assert_eq!(request.user_message(), "What time is it?");
    request.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = device.receive_call().await;
    device.send_result(&id, json!("14:30")).await;
    let mut request = fixture.provider.next_request().await;
    request.send_text("It is").await;
    let mut first = [0; 5];
    let read = terminal.stdout.as_mut().unwrap().read_exact(&mut first);
    timeout(OUTPUT_TIMEOUT, read)
        .await
        .expect("words before the end")
        .unwrap();
    assert_eq!(&first, b"It is");
    request.send_text(" 14:30.").await;
    request.finish("stop").await;
    let (code, out, err) = ended(terminal).await;
    assert_eq!((code, out.as_str()), (Some(0), " 14:30.\n"), "{err}");
    assert!(err.contains("(get_current_time on toy-1)"), "{err}");
}

/// Replies with the number of messages in the prompt.
async fn counts(request: ProviderRequest) {
    let before = request.messages().len() / 2 - 1;
    let text = format!("{} after {before}", request.user_message());
    request.reply(&text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_lines_form_one_conversation() {
    let fixture = ChatFixture::start_with(Provider::scripted(counts).await, 0, &[]).await;
    let npc = fixture.system.npc(&json!({"name": "Bello"}), &[]).await;
    let mut terminal = fixture.system.terminal(&npc, &[]);
    let mut lines = terminal.stdin.take().unwrap();
    lines
        .write_all("one\n\n 二\nthree".as_bytes())
        .await
        .unwrap();
    drop(lines);
    let (code, out, err) = ended(terminal).await;
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "one after 0\n 二 after 1\nthree after 2\n"),
        "{err}"
    );
    // A message that cannot be sent is an error of the command.
    let nobody = "npc_01a1ffa60cf27538a99b353c9b320b0c";
    let (code, out, err) = ended(fixture.system.terminal(nobody, &["--say", "Hello"])).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains(nobody), "{err}");
    // A name is looked up where the settings are, which is not this address.
    let (code, out, err) = ended(fixture.system.terminal("toy-1", &["--say", "Hello"])).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("/v1/npcs"), "{err}");
}
