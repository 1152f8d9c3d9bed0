//! The programs of `examples/` against a running system, as their readers run them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/data_folder.rs"]
mod data_folder;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "e2e/program.rs"]
mod program;

use data_folder::Folder;

/// How long the device may take to connect and register.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(30);

/// A program of `examples/`; cargo builds them together with the tests.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let mut command = Command::new(profile.join("examples").join(name));
    command.stdin(Stdio::null());
    command
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }
}

#[test]
fn caller_invokes_device() {
    let folder = Folder::new();
    let system = folder.up();
    let token = Command::new(env!("CARGO_BIN_EXE_switchboard"))
        .args(["token", "--device", "toy-1", "--data-dir", folder.path()])
        .env_remove("DATABASE_URL")
        .output()
        .unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let mut device = example("device");
    device.args([system.address("device_addr").as_str(), token.trim()]);
    let _device = Running(device.spawn().unwrap());

    let deadline = Instant::now() + REGISTRATION_TIMEOUT;
    loop {
        let (url, key) = (system.address("http_url"), system.address("api_key"));
        let output = example("caller")
            .args([url.as_str(), key.as_str(), "toy-1", "wave"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        if answer["outcome"] == "succeeded" {
            assert_eq!(answer["result"]["success"], true);
            return;
        }
        assert!(Instant::now() < deadline, "the last answer: {text}");
    }
}
