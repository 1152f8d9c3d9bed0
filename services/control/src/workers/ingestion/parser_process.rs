//! The parent's side of the child process that parses a document: sends the document, receives the
//! chunks, and kills the process at its deadline.
//!
//! Memory holds a few parts and one chunk at most. The time of the object store does
//! not count against the document.

use std::{
    os::unix::process::ExitStatusExt,
    pin::pin,
    process::Stdio,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use switchboard_store::{BookFault, BookJob, NewChunk, ObjectError, ObjectKey, Objects};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{chunks::Chunk, text::fault};

/// The hidden subcommand of this program that parses a document.
const SUBCOMMAND: &str = "read-skills-book";
/// How long the process may take to receive the document, and then to parse it.
const PARSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of parts that are fetched ahead.
const PARTS_AHEAD: usize = 4;
/// How long a chunk may take, which the process has already parsed.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a line of its output.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// The first line of the output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Header {
    /// The chunks follow.
    Chunks {
        count: i32,
        /// The hash of all chunks.
        sha256: Vec<u8>,
    },
    /// The document cannot be parsed.
    Fault(BookFault),
}

/// Why a document was not parsed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParserError {
    /// The document cannot be parsed; a retry fails, too.
    #[error("{}", .0.detail)]
    Fault(BookFault),
    /// The document cannot be fetched.
    #[error("the object store failed")]
    Objects(#[from] ObjectError),
    /// The process failed for a reason other than the document.
    #[error("{0}")]
    Interrupted(String),
    /// The process was killed from outside, most likely because the system has no memory left.
    #[error("the parser process was killed")]
    Killed,
}

/// A running parser. Dropping it kills the child process.
pub(super) struct ParserProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
    count: i32,
    sha256: Vec<u8>,
}

impl ParserProcess {
    /// Sends the parts of a book to a new child process, and waits until the document is parsed.
    pub(super) async fn start(
        job: &BookJob,
        objects: &Objects,
        parts: &[ObjectKey],
    ) -> Result<Self, ParserError> {
        let child = spawn(job).map_err(|error| {
            ParserError::Interrupted(format!("the parser process cannot be started: {error}"))
        })?;
        let fetched = stream::iter(parts.to_vec())
            .map(|part| async move { objects.get(&part).await })
            .buffered(PARTS_AHEAD);
        Self::parse(child, fetched, PARSE_TIMEOUT).await
    }

    /// Like [`ParserProcess::start`], with a running process.
    async fn parse(
        mut child: Child,
        parts: impl Stream<Item = Result<Bytes, ObjectError>>,
        limit: Duration,
    ) -> Result<Self, ParserError> {
        let no_pipe = || ParserError::Interrupted("the parser process has no pipe".to_owned());
        let lines = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        let mut process = Self {
            child,
            lines,
            count: 0,
            sha256: Vec::new(),
        };
        process.send(parts, limit).await?;
        match process.read_line(limit).await? {
            Header::Chunks { count, sha256 } => {
                process.count = count;
                process.sha256 = sha256;
                Ok(process)
            }
            Header::Fault(fault) => Err(ParserError::Fault(fault)),
        }
    }

    pub(super) const fn chunks(&self) -> i32 {
        self.count
    }

    pub(super) fn sha256(&self) -> &[u8] {
        &self.sha256
    }

    pub(super) async fn next(&mut self) -> Result<NewChunk, ParserError> {
        self.read_line::<Chunk>(CHUNK_TIMEOUT)
            .await
            .map(NewChunk::from)
    }

    /// Sends all parts. The process must receive them within `limit`, not counting the time of the
    /// object store. A process that has closed its input has failed; its exit status has the
    /// reason.
    async fn send(
        &mut self,
        parts: impl Stream<Item = Result<Bytes, ObjectError>>,
        limit: Duration,
    ) -> Result<(), ParserError> {
        let Some(mut input) = self.child.stdin.take() else {
            return Ok(());
        };
        let (mut parts, mut remaining) = (pin!(parts), limit);
        while let Some(bytes) = parts.next().await {
            let (bytes, started) = (bytes?, Instant::now());
            match timeout(remaining, input.write_all(&bytes)).await {
                Ok(Ok(())) => remaining = remaining.saturating_sub(started.elapsed()),
                Ok(Err(_)) => return Ok(()),
                Err(_) => return Err(ParserError::Fault(too_expensive("time"))),
            }
        }
        Ok(())
    }

    async fn read_line<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, ParserError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.lines).take(MAX_LINE_BYTES);
        let read = timeout(limit, limited.read_until(b'\n', &mut line)).await;
        let is_complete = matches!(read, Ok(Ok(_))) && line.ends_with(b"\n");
        if !is_complete {
            return Err(self.exit_error().await);
        }
        serde_json::from_slice(&line).map_err(|_| {
            ParserError::Interrupted("the parser process wrote an invalid line".to_owned())
        })
    }

    /// The error of a process that ended before its output was complete.
    async fn exit_error(&mut self) -> ParserError {
        match timeout(CHUNK_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => status_error(status),
            Ok(Err(error)) => ParserError::Interrupted(error.to_string()),
            Err(_) => ParserError::Fault(too_expensive("time")),
        }
    }
}

fn spawn(job: &BookJob) -> std::io::Result<Child> {
    Command::new(own_program()?)
        .args([SUBCOMMAND, &job.mime_type, &job.size_bytes.to_string()])
        // The environment has secrets, and the child needs none of it.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Only the parent handles an interrupt from the terminal.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// This program, even if its file has been replaced by another version.
fn own_program() -> std::io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

fn status_error(status: std::process::ExitStatus) -> ParserError {
    let signal = status
        .signal()
        .and_then(|number| Signal::try_from(number).ok());
    match signal {
        Some(Signal::SIGXCPU) => ParserError::Fault(too_expensive("time")),
        // Rust aborts when its memory or stack is exhausted.
        Some(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS) => {
            ParserError::Fault(too_expensive("memory"))
        }
        // The kernel kills processes when the system has no memory left.
        Some(Signal::SIGKILL) => ParserError::Killed,
        _ => ParserError::Interrupted(format!("the parser process ended with {status}")),
    }
}

fn too_expensive(resource: &str) -> BookFault {
    let detail = format!(
        "Parsing needs more {resource} than is allowed for a skills book; simplify the document, or split it into several books."
    );
    fault("too_expensive", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that reads the whole document, and then runs this command.
    fn process(then: &str) -> Child {
        Command::new("sh")
            .args(["-c", &format!("cat > /dev/null; {then}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    const HEADER: &str = r#"echo '{"chunks":{"count":3,"sha256":[1]}}'"#;
    const TEST_TIMEOUT: Duration = Duration::from_secs(3);

    #[tokio::test]
    async fn slow_object_store_does_not_count_as_parse_time() {
        let slow = stream::once(async {
            // The object store takes longer than the document may.
            let silence = std::future::pending::<()>();
            let _ = tokio::time::timeout(TEST_TIMEOUT + Duration::from_secs(1), silence).await;
            Ok(Bytes::from_static(b"text"))
        });
        let process = ParserProcess::parse(process(HEADER), slow, TEST_TIMEOUT)
            .await
            .unwrap();
        assert_eq!((process.chunks(), process.sha256()), (3, &[1][..]));
    }

    #[tokio::test]
    async fn object_store_failure_is_no_document_fault() {
        let failing = stream::iter([Ok(Bytes::from_static(b"text")), Err(ObjectError::TimedOut)]);
        let parsed = ParserProcess::parse(process(HEADER), failing, TEST_TIMEOUT).await;
        assert!(matches!(parsed, Err(ParserError::Objects(_))));
    }

    #[tokio::test]
    async fn exit_status_determines_the_error() {
        async fn check(then: &str, expect: &str) {
            let text = stream::iter([Ok(Bytes::from_static(b"text"))]);
            let Err(error) = ParserProcess::parse(process(then), text, TEST_TIMEOUT).await else {
                panic!("{then}: unexpected chunks");
            };
            let found = match &error {
                ParserError::Fault(fault) => fault.kind.as_str(),
                ParserError::Killed => "killed",
                ParserError::Interrupted(_) => "interrupted",
                ParserError::Objects(_) => "objects",
            };
            assert_eq!(found, expect, "{then}: {error}");
        }
        check("kill -KILL $$", "killed").await;
        check("kill -ABRT $$", "too_expensive").await;
        check("kill -XCPU $$", "too_expensive").await;
        check("exit 1", "interrupted").await;
        check("echo", "interrupted").await;
    }
}
