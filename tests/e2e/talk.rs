//! `switchboard talk --voice` with programs that record a person and keep what they play, and devices
//! whose message ends with the recording.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use switchboard_test_support::{
    data_folder::DataFolder, eventually::eventually, switchboard::Program,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

/// The longest recording, its recognition on a busy machine, and the answer.
const DIALOGUE_TIMEOUT: Duration = Duration::from_secs(60);
/// A person says "go forward ten meters".
const RECORDING: &str = "/usr/share/pocketsphinx/test/data/goforward.raw";

/// A system in one process, and a machine with programs for sound.
struct Machine {
    folder: DataFolder,
    up: Program,
    programs: TempDir,
}

impl Machine {
    /// Starts `up` with a recogniser that has understood a question.
    fn start(more: &[&str]) -> Self {
        let programs = tempfile::tempdir().unwrap();
        let recognizer = script(
            &programs,
            "recognize",
            "cat > /dev/null; echo what time is it",
        );
        let recognizer = recognizer.to_str().unwrap();
        let settings = ["--stt-kind", "command", "--stt-endpoint", recognizer];
        let folder = DataFolder::new();
        let arguments = [&settings, more].concat();
        let up = Program::start(&folder.up_arguments(&arguments), &[]);
        let created = folder.run(&["npcs", "create", r#"{"name": "Bello"}"#]);
        assert!(created.status.success(), "{created:?}");
        Self {
            folder,
            up,
            programs,
        }
    }

    /// Installs a recorder that writes what the commands print, and a player that keeps the samples.
    fn install(&self, commands: &str) {
        let pid = self.programs.path().join("pid");
        let record = format!("echo $$ > {}; {commands}", pid.display());
        script(&self.programs, "arecord", &record);
        let played = self.programs.path().join("played");
        let play = format!("exec cat >> {}", played.display());
        script(&self.programs, "aplay", &play);
    }

    fn talk(&self, more: &[&str]) -> tokio::process::Child {
        let mut command = self.folder.command(&["talk", "--voice"]);
        let path = format!("{}:/usr/bin:/bin", self.programs.path().display());
        command.args(more).env("PATH", path).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true).spawn().unwrap()
    }

    fn assert_played(&self) {
        let played = fs::read(self.programs.path().join("played")).unwrap();
        // A second, at 24 kHz.
        assert!(played.len() > 48_000, "{} bytes", played.len());
        assert!(played.iter().any(|byte| *byte != 0));
    }

    fn assert_recorder_is_reaped(&self) {
        let pid = fs::read_to_string(self.programs.path().join("pid")).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
    }
}

fn script(folder: &TempDir, name: &str, commands: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

async fn ended(child: tokio::process::Child) -> (Option<i32>, String, String) {
    let output = timeout(DIALOGUE_TIMEOUT, child.wait_with_output()).await;
    let output = output.expect("an end in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn assert_question_is_answered(printed: &str) {
    let (heard, answer) = printed.split_once('\n').unwrap_or_default();
    assert_eq!(heard, "> what time is it", "{printed}");
    assert!(answer.to_lowercase().contains("it is"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn question_at_the_machine_is_answered_aloud_by_the_npc() {
    let machine = Machine::start(&[]);
    machine.install(&format!("exec cat {RECORDING}"));
    let (code, printed, log) = ended(machine.talk(&[])).await;
    assert_eq!(code, Some(0), "{log}");
    assert_question_is_answered(&printed);
    machine.assert_played();
    machine.assert_recorder_is_reaped();
    let npcs = machine.folder.run(&["npcs", "list"]);
    let npcs = String::from_utf8(npcs.stdout).unwrap();
    assert_eq!(npcs.matches("\ttalk-").count(), 1, "{npcs}");
    // The device is known now, and the message ends with Enter.
    let three = format!("cat {RECORDING} {RECORDING} {RECORDING}");
    let done = machine.programs.path().join("done");
    machine.install(&format!(
        "{three}; : > {}; exec cat /dev/zero",
        done.display()
    ));
    let mut talk = machine.talk(&["--listen", "manual"]);
    eventually(DIALOGUE_TIMEOUT, async || done.exists(), |done| *done).await;
    talk.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
    let (code, printed, log) = ended(talk).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("is now a device of"), "{log}");
    assert_question_is_answered(&printed);
    machine.assert_recorder_is_reaped();
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_outlasts_silence_and_ends_with_ctrl_c() {
    let machine = Machine::start(&[]);
    // The server stops listening after 15 s.
    let silence = "head -c 515200 /dev/zero";
    machine.install(&format!("{silence}; exec cat {RECORDING} /dev/zero"));
    let mut talk = machine.talk(&[]);
    let mut lines = BufReader::new(talk.stdout.take().unwrap()).lines();
    let mut printed = String::new();
    for _ in 0..2 {
        let line = timeout(DIALOGUE_TIMEOUT, lines.next_line()).await;
        printed += &(line.expect("a line in time").unwrap().unwrap_or_default() + "\n");
    }
    assert_question_is_answered(&printed);
    let pid = Pid::from_raw(talk.id().unwrap().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let (code, _, log) = ended(talk).await;
    assert_eq!(code, Some(0), "{log}");
    machine.assert_recorder_is_reaped();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_failing_programs_are_explained() {
    let (folder, empty) = (DataFolder::new(), tempfile::tempdir().unwrap());
    let mut command = folder.command(&["talk", "--voice"]);
    let output = command.env("PATH", empty.path()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{log}");
    assert!(log.contains("pw-record, parecord, arecord, rec"), "{log}");
    assert!(log.contains("apt-get install alsa-utils"), "{log}");
    let machine = Machine::start(&[]);
    machine.install("echo no card >&2; exit 3");
    let (code, _, log) = ended(machine.talk(&[])).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("no card"), "{log}");
    assert!(log.contains("arecord ended with exit status: 3"), "{log}");
}

/// Runs a device whose message ends with the recording.
async fn manual(folder: &DataFolder) -> Output {
    let device = folder.command(&["device", "--mic", RECORDING, "--listen", "manual"]);
    let mut device = tokio::process::Command::from(device);
    // Without a speaker, answers are text.
    let speaker = Path::new(folder.path()).join("answer.wav");
    let device = device.arg("--speaker").arg(speaker).kill_on_drop(true);
    let ended = timeout(DIALOGUE_TIMEOUT, device.output()).await;
    ended.expect("an end in time").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_message_fails_and_notice_is_spoken_to_its_end() {
    // One organisation has a quarter of them.
    let machine = Machine::start(&["--voice-max-sessions", "4"]);
    let mut first: Command = machine
        .folder
        .command(&["device", "--id", "first", "--mic", "-"]);
    first.stdin(fs::File::open("/dev/zero").unwrap());
    let mut first = tokio::process::Command::from(first);
    let _first = first.kill_on_drop(true).spawn().unwrap();
    let metrics = format!("{}/metrics", machine.up.address("admin_url"));
    let metrics = async || {
        let response = reqwest::get(&metrics).await.unwrap();
        response.text().await.unwrap()
    };
    let is_open = |metrics: &String| metrics.contains("switchboard_voice_sessions 1");
    eventually(DIALOGUE_TIMEOUT, metrics, is_open).await;
    let refused = manual(&machine.folder).await;
    let log = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{log}");
    assert!(log.contains("refused the conversation"), "{log}");
    // Without recognition, the answer follows the problem.
    let folder = DataFolder::new();
    let _up = folder.up();
    let answered = manual(&folder).await;
    let printed = String::from_utf8_lossy(&answered.stdout);
    assert_eq!(answered.status.code(), Some(0), "{answered:?}");
    assert!(printed.contains("The operator sets"), "{answered:?}");
}
