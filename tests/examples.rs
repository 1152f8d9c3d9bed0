//! The programs of `examples/` against a running system, as their readers run them.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use switchboard_test_support::{
    child::ChildGuard, data_folder::DataFolder, switchboard::executable,
};

/// How long the device may take to connect and register.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(30);

/// A program of `examples/`; cargo builds them together with the tests.
fn example(name: &str) -> Command {
    let mut command = Command::new(executable().with_file_name("examples").join(name));
    command.stdin(Stdio::null());
    command
}

#[test]
fn caller_invokes_device() {
    let folder = DataFolder::new();
    let system = folder.up();
    let token = folder.run(&["token", "--device", "toy-1"]);
    let token = String::from_utf8(token.stdout).unwrap();
    let mut device = example("device");
    device.args([system.address("device_addr").as_str(), token.trim()]);
    let _device = ChildGuard::from(device.spawn().unwrap());

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
