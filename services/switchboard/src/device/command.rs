//! A service that is a program: parameters on stdin, data on stdout, the reason of a failure on stderr.
//! Never: a shell, a secret of ours in its environment, more output than fits into a result.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process,
    time::timeout,
};

/// How long a command may run unless its service says otherwise: as long as a call lasts.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// The most it may write to stdout: what a result may hold.
const MAX_DATA_BYTES: u64 = 256 * 1024;
/// How much of stderr its caller is told.
const MAX_ERROR_BYTES: u64 = 4 * 1024;
/// What a command does not inherit.
const SECRETS: [&str; 4] = [
    "SWITCHBOARD_API_KEY",
    "SWITCHBOARD_TOKEN",
    "DATABASE_URL",
    "REDIS_URL",
];

/// A program with its arguments.
pub(super) struct Command {
    program: String,
    arguments: Vec<String>,
    limit: Duration,
}

impl Command {
    /// Takes the command out of a definition, which is what remains to be registered.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn take_from(service: &str, definition: &mut Value) -> Result<Self, String> {
        let missing = || {
            format!(
                "the service `{service}` has no `command`, which is a list [\"PROGRAM\",\"ARGUMENT\",…] of texts"
            )
        };
        let object = definition.as_object_mut().ok_or_else(missing)?;
        let command = object.remove("command").ok_or_else(missing)?;
        let mut words: Vec<String> = serde_json::from_value(command).map_err(|_| missing())?;
        if words.is_empty() {
            return Err(missing());
        }
        let limit_ms = object
            .get("timeout_ms")
            .and_then(Value::as_u64)
            .unwrap_or(DEFAULT_TIMEOUT_MS);
        let program = words.remove(0);
        Ok(Self {
            program,
            arguments: words,
            limit: Duration::from_millis(limit_ms),
        })
    }

    /// Runs it once; the error is what the caller is told.
    pub(super) async fn run(&self, params: &RawValue) -> Result<Box<RawValue>, String> {
        timeout(self.limit, self.run_to_end(params))
            .await
            .unwrap_or_else(|_| {
                Err(format!(
                    "the command took longer than {} ms",
                    self.limit.as_millis()
                ))
            })
    }

    async fn run_to_end(&self, params: &RawValue) -> Result<Box<RawValue>, String> {
        let mut command = process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for name in SECRETS {
            command.env_remove(name);
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", self.program))?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(format!("{} has no pipes", self.program));
        };
        let feed = async move {
            // A program that does not read its parameters closes the pipe early, which is fine.
            let _ = stdin.write_all(params.get().as_bytes()).await;
        };
        let ((), data, error) = tokio::join!(
            feed,
            read(stdout, MAX_DATA_BYTES),
            read(stderr, MAX_ERROR_BYTES)
        );
        let status = child
            .wait()
            .await
            .map_err(|error| format!("{} was lost: {error}", self.program))?;
        if !status.success() {
            let said = error.0.trim().to_owned();
            return Err(if said.is_empty() {
                format!("the command ended with {status}")
            } else {
                said
            });
        }
        let (text, complete) = data;
        if !complete {
            return Err(format!(
                "the command wrote more than {MAX_DATA_BYTES} bytes"
            ));
        }
        as_json(&text)
    }
}

/// At most `limit` bytes, and whether that was all; the rest is read and dropped.
async fn read(mut stream: impl AsyncRead + Unpin, limit: u64) -> (String, bool) {
    let mut bytes = Vec::new();
    // A pipe that breaks ends what was written; the exit status tells whether that is a failure.
    let _ = (&mut stream).take(limit).read_to_end(&mut bytes).await;
    let rest = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    (
        String::from_utf8_lossy(&bytes).into_owned(),
        rest.is_ok_and(|rest| rest == 0),
    )
}

/// JSON as it is, anything else as a text.
fn as_json(text: &str) -> Result<Box<RawValue>, String> {
    let text = text.trim();
    serde_json::from_str(text)
        .or_else(|_| serde_json::value::to_raw_value(text))
        .map_err(|error| error.to_string())
}
