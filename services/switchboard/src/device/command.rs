//! Services implemented by a program: parameters on stdin, data on stdout, errors on stderr. The
//! program is started without a shell, and with few variables of the environment.

use std::{env, path::PathBuf, process::Stdio, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process,
    time::timeout,
};

/// Default timeout of a command, equal to that of a call.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Maximum size of stdout, the limit of a result.
const MAX_DATA_BYTES: u64 = 256 * 1024;
/// Maximum size of stderr that is returned to the caller.
const MAX_ERROR_BYTES: u64 = 4 * 1024;
/// Environment variables that every command inherits. All others may be secrets.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ"];

/// A program with its arguments.
pub(super) struct Command {
    program: PathBuf,
    arguments: Vec<String>,
    /// Further environment variables that it inherits.
    inherited: Vec<String>,
    limit: Duration,
}

impl Command {
    /// Removes the command and its environment from a service definition; the rest is registered.
    ///
    /// # Errors
    /// When the definition has no valid command, its program does not exist, or the environment is not
    /// a list of names.
    pub(super) fn take_from(service: &str, definition: &mut Value) -> Result<Self, String> {
        let missing = || {
            format!(
                "the service `{service}` has no `command`, which is a list [\"PROGRAM\",\"ARGUMENT\",…] of strings"
            )
        };
        let object = definition.as_object_mut().ok_or_else(missing)?;
        let command = object.remove("command").ok_or_else(missing)?;
        let mut text: Vec<String> = serde_json::from_value(command).map_err(|_| missing())?;
        if text.is_empty() {
            return Err(missing());
        }
        let inherited = object.remove("env").map_or(Ok(Vec::new()), |env| {
            let names: Option<Vec<String>> = serde_json::from_value(env).ok();
            names
                .filter(|names| names.iter().all(|name| is_variable(name)))
                .ok_or_else(|| {
                    format!(
                        "`env` of the service `{service}` is not a list [\"NAME\",…] of environment variables, whose names have letters, digits and `_` and begin with no digit"
                    )
                })
        })?;
        let limit_ms = object
            .get("timeout_ms")
            .and_then(Value::as_u64)
            .unwrap_or(DEFAULT_TIMEOUT_MS);
        let name = text.remove(0);
        let program = which::which(&name).map_err(|_| {
            format!(
                "the service `{service}` cannot run `{name}`: there is no such program, neither at this path nor in a folder of PATH"
            )
        })?;
        Ok(Self {
            program,
            arguments: text,
            inherited,
            limit: Duration::from_millis(limit_ms),
        })
    }

    /// Runs the command; the error is for the caller.
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
            .kill_on_drop(true)
            .env_clear();
        let further = self.inherited.iter().map(String::as_str);
        for name in INHERITED.into_iter().chain(further) {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(format!("{} has no pipes", self.program.display()));
        };
        let feed = async move {
            // Fails if the program does not read its parameters, which is allowed.
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
            .map_err(|error| format!("cannot wait for {}: {error}", self.program.display()))?;
        if !status.success() {
            let stderr = error.0.trim().to_owned();
            return Err(if stderr.is_empty() {
                format!("the command ended with {status}")
            } else {
                stderr
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

/// Whether an environment variable can have this name.
fn is_variable(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = name.bytes();
    let first = bytes.next();
    first.is_some_and(|byte| is_part(byte) && !byte.is_ascii_digit()) && bytes.all(is_part)
}

/// Reads at most `limit` bytes and discards the rest; also returns whether that was everything.
async fn read(mut stream: impl AsyncRead + Unpin, limit: u64) -> (String, bool) {
    let mut bytes = Vec::new();
    // A broken pipe ends the output; the exit status shows whether the program failed.
    let _ = (&mut stream).take(limit).read_to_end(&mut bytes).await;
    let rest = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    (
        String::from_utf8_lossy(&bytes).into_owned(),
        rest.is_ok_and(|rest| rest == 0),
    )
}

/// Returns JSON unmodified, other text as a JSON string.
fn as_json(text: &str) -> Result<Box<RawValue>, String> {
    let text = text.trim();
    serde_json::from_str(text)
        .or_else(|_| serde_json::value::to_raw_value(text))
        .map_err(|error| error.to_string())
}
