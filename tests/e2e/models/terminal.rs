//! `switchboard chat --npc`: an NPC in the terminal.
//! Never: a word held back until the answer is whole.

use std::{process::Stdio, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    provider::{Asked, Provider},
    site::{Site, Stage},
    turns::time_service,
};

const SOON: Duration = Duration::from_secs(20);

impl Site {
    /// `switchboard chat --npc …` against this system.
    fn terminal(&self, npc: &str, more: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .args(["chat", "--npc", npc])
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

/// How it ended, and what it printed.
async fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = timeout(SOON, child.wait_with_output()).await;
    let output = output.expect("an end in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn one_question_is_answered_word_by_word() {
    let mut stage = Stage::set(1, &[]).await;
    let npc = stage.site.npc(&json!({"name": "Bello"}), &["toy-1"]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    let mut terminal = stage.site.terminal(&npc, &["--say", "What time is it?"]);
    let asked = stage.provider.asked().await;
    assert_eq!(asked.question(), "What time is it?");
    asked.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = toy.is_called().await;
    toy.gives(&id, json!("14:30")).await;
    let mut asked = stage.provider.asked().await;
    asked.says("It is").await;
    let mut first = [0; 5];
    let read = terminal.stdout.as_mut().unwrap().read_exact(&mut first);
    timeout(SOON, read)
        .await
        .expect("words before the end")
        .unwrap();
    assert_eq!(&first, b"It is");
    asked.says(" 14:30.").await;
    asked.ends("stop").await;
    let (code, out, err) = ended(terminal).await;
    assert_eq!((code, out.as_str()), (Some(0), " 14:30.\n"), "{err}");
    assert!(err.contains("(get_current_time on toy-1)"), "{err}");
}

/// Says how much it knows.
async fn counts(asked: Asked) {
    let before = asked.messages().len() / 2 - 1;
    let words = format!("{} after {before}", asked.question());
    asked.replies(&words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_one_conversation() {
    let stage = Stage::set_with(Provider::scripted(counts).await, 0, &[]).await;
    let npc = stage.site.npc(&json!({"name": "Bello"}), &[]).await;
    let mut terminal = stage.site.terminal(&npc, &[]);
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
    // What cannot be said is an error of the command.
    let nobody = "npc_01a1ffa60cf27538a99b353c9b320b0c";
    let (code, out, err) = ended(stage.site.terminal(nobody, &["--say", "Hello"])).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains(nobody), "{err}");
    let (code, ..) = ended(stage.site.terminal("toy-1", &["--say", "Hello"])).await;
    assert_eq!(code, Some(64));
}
