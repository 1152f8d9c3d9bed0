//! The child process that reads a document, as its parent sees it: fed, listened to, and killed when it takes too long.
//! Never: more of a document in memory than one part and one chunk.

use std::{os::unix::process::ExitStatusExt, process::Stdio, time::Duration};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use switchboard_store::{BookFault, BookJob, NewChunk, ObjectError, ObjectKey, Objects};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{chunks::Chunk, text::fault};

/// The hidden subcommand of this program that reads a document.
const SUBCOMMAND: &str = "read-skills-book";
/// How long it may take until it says what the document's chunks are.
const PARSING_LIMIT: Duration = Duration::from_secs(120);
/// How long it may take for the next chunk, which it has already.
const CHUNK_LIMIT: Duration = Duration::from_secs(10);
/// The longest line that it writes, in bytes.
const LONGEST_LINE: u64 = 64 * 1024;

/// The first line of the child process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Head {
    /// What follows.
    Chunks {
        count: i32,
        /// Of all of them.
        sha256: Vec<u8>,
    },
    /// Why nothing follows.
    Fault(BookFault),
}

/// Why a document was not read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadingError {
    /// It cannot be read, whoever tries.
    #[error("{}", .0.detail)]
    Fault(BookFault),
    /// Its bytes cannot be had at the moment.
    #[error("the object store failed")]
    Objects(#[from] ObjectError),
    /// The child process was kept from its work.
    #[error("{0}")]
    Interrupted(String),
}

/// A document that is being read; dropped, its child process ends.
pub(super) struct Reading {
    child: Child,
    lines: BufReader<ChildStdout>,
    count: i32,
    sha256: Vec<u8>,
}

impl Reading {
    /// Hands the parts of a book to a child process, and waits until it knows what the chunks are.
    pub(super) async fn begin(
        job: &BookJob,
        objects: &Objects,
        parts: &[ObjectKey],
    ) -> Result<Self, ReadingError> {
        let mut child = start(job).map_err(|error| {
            ReadingError::Interrupted(format!("the process that reads does not start: {error}"))
        })?;
        let no_pipe = || ReadingError::Interrupted("the process that reads has no pipe".to_owned());
        let lines = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        let mut reading = Self {
            child,
            lines,
            count: 0,
            sha256: Vec::new(),
        };
        let parsing = async {
            reading.feed(objects, parts).await?;
            reading.line(PARSING_LIMIT).await
        };
        let Ok(head) = timeout(PARSING_LIMIT, parsing).await else {
            return Err(ReadingError::Fault(too_expensive("time")));
        };
        match head? {
            Head::Chunks { count, sha256 } => {
                reading.count = count;
                reading.sha256 = sha256;
                Ok(reading)
            }
            Head::Fault(fault) => Err(ReadingError::Fault(fault)),
        }
    }

    pub(super) const fn chunks(&self) -> i32 {
        self.count
    }

    pub(super) fn sha256(&self) -> &[u8] {
        &self.sha256
    }

    pub(super) async fn next(&mut self) -> Result<NewChunk, ReadingError> {
        self.line::<Chunk>(CHUNK_LIMIT).await.map(NewChunk::from)
    }

    /// Writes all parts. A process that does not take them has ended, and its end says why.
    async fn feed(&mut self, objects: &Objects, parts: &[ObjectKey]) -> Result<(), ReadingError> {
        let Some(mut input) = self.child.stdin.take() else {
            return Ok(());
        };
        for part in parts {
            let bytes = objects.get(part).await?;
            if input.write_all(&bytes).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn line<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, ReadingError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.lines).take(LONGEST_LINE);
        let read = timeout(within, limited.read_until(b'\n', &mut line)).await;
        let is_whole = matches!(read, Ok(Ok(_))) && line.ends_with(b"\n");
        if !is_whole {
            return Err(self.end().await);
        }
        serde_json::from_slice(&line).map_err(|_| {
            ReadingError::Interrupted("the process that reads wrote what is no chunk".to_owned())
        })
    }

    /// Why the process ended before it had said everything.
    async fn end(&mut self) -> ReadingError {
        match timeout(CHUNK_LIMIT, self.child.wait()).await {
            Ok(Ok(status)) => ended(status),
            Ok(Err(error)) => ReadingError::Interrupted(error.to_string()),
            Err(_) => ReadingError::Fault(too_expensive("time")),
        }
    }
}

fn start(job: &BookJob) -> std::io::Result<Child> {
    Command::new(own_program()?)
        .args([SUBCOMMAND, &job.mime_type, &job.size_bytes.to_string()])
        // It needs no setting of this process, and must not learn a secret.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // An interrupt from the terminal is for its parent.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// This program, also when another version has been put in its place meanwhile.
fn own_program() -> std::io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

fn ended(status: std::process::ExitStatus) -> ReadingError {
    let signal = status
        .signal()
        .and_then(|number| Signal::try_from(number).ok());
    match signal {
        Some(Signal::SIGXCPU) => ReadingError::Fault(too_expensive("time")),
        // Rust aborts when there is no memory or no stack left; the system kills.
        Some(Signal::SIGABRT | Signal::SIGKILL | Signal::SIGSEGV | Signal::SIGBUS) => {
            ReadingError::Fault(too_expensive("memory"))
        }
        _ => ReadingError::Interrupted(format!("the process that reads ended with {status}")),
    }
}

fn too_expensive(what: &str) -> BookFault {
    let detail = format!(
        "Reading it takes more {what} than a skills book may; send it in a simpler form, or as several books."
    );
    fault("too_expensive", detail)
}
