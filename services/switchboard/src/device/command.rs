//! Services implemented by a program: parameters on stdin, data on stdout, errors on stderr. The
//! program is started without a shell, and with few variables of the environment.

use std::{env, ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process,
    time::timeout,
};

use crate::shell;

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
    /// When the definition has no valid command, its program does not exist or is not executable, or
    /// the environment is not a list of names.
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
            let reason = describe_missing(&name, env::var_os("PATH").unwrap_or_default());
            format!("the service `{service}` cannot run `{name}`: {reason}")
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

/// Why there is no program of this name, which is a path or is in a folder of `path`.
fn describe_missing(name: &str, path: OsString) -> String {
    let is_path = name.contains('/');
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let candidates = match is_path {
        true => vec![PathBuf::from(name)],
        false => folders.iter().map(|folder| folder.join(name)).collect(),
    };
    if let Some(file) = candidates.iter().find(|file| file.is_file()) {
        let (shown, quoted) = (file.display(), shell::quote_path(file));
        return format!("{shown} is not executable: run `chmod +x {quoted}`");
    }
    if is_path {
        return match candidates.iter().any(|file| file.is_dir()) {
            true => "this is a folder".to_owned(),
            false => "there is no such file".to_owned(),
        };
    }
    let folders: Vec<_> = folders
        .iter()
        .map(|one| one.display().to_string())
        .collect();
    format!(
        "there is no such program in the folders of PATH: {}",
        folders.join(", ")
    )
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn missing_program_differs_from_one_that_is_not_executable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a tool");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let shown = file.display();
        let check = |name: &str, expected: &str| {
            let path = env::join_paths([Path::new("/no/such"), folder.path()]).unwrap();
            assert_eq!(describe_missing(name, path), expected);
        };
        let inert = format!("{shown} is not executable: run `chmod +x '{shown}'`");
        check("a tool", &inert);
        check(&shown.to_string(), &inert);
        check(&folder.path().display().to_string(), "this is a folder");
        check("/no/such/program", "there is no such file");
        let folder = folder.path().display();
        let nowhere = "there is no such program in the folders of PATH: /no/such, ";
        check("no-such-program", &format!("{nowhere}{folder}"));
    }
}
