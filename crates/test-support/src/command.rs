//! A command that runs to its end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

/// Runs a command with this input. Returns its stdout, or its stderr if `code` is not 0, without the
/// white space at the end. Panics if it exits with another code than `code`.
pub fn printed(command: &mut Command, input: &str, code: i32) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads no input may have exited.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(stdout), text(stderr));
    assert_eq!(status.code(), Some(code), "{command:?}: {out}{err}");
    let text = if code == 0 { out } else { err };
    text.trim_end().to_owned()
}
