//! The child process that reads a document, as its parent sees it: fed, listened to, and killed when it takes too long.
//! Never: more of a document in memory than a few parts and one chunk, or the slowness of storage taken for the document's.

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

/// The hidden subcommand of this program that reads a document.
const SUBCOMMAND: &str = "read-skills-book";
/// How long it may take, once it has the document, until it says what its chunks are; and to take the document before.
const PARSING_LIMIT: Duration = Duration::from_secs(120);
/// How many parts are fetched while an earlier one is handed over.
const PARTS_AHEAD: usize = 4;
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
    /// Somebody else ended it, most likely a system without memory, whosever fault that is.
    #[error("the process that reads was killed")]
    Killed,
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
        let child = start(job).map_err(|error| {
            ReadingError::Interrupted(format!("the process that reads does not start: {error}"))
        })?;
        let fetched = stream::iter(parts.to_vec())
            .map(|part| async move { objects.get(&part).await })
            .buffered(PARTS_AHEAD);
        Self::through(child, fetched, PARSING_LIMIT).await
    }

    /// As [`Reading::begin`], with a process that has started.
    async fn through(
        mut child: Child,
        parts: impl Stream<Item = Result<Bytes, ObjectError>>,
        limit: Duration,
    ) -> Result<Self, ReadingError> {
        let no_pipe = || ReadingError::Interrupted("the process that reads has no pipe".to_owned());
        let lines = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        let mut reading = Self {
            child,
            lines,
            count: 0,
            sha256: Vec::new(),
        };
        reading.feed(parts, limit).await?;
        match reading.line(limit).await? {
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

    /// Writes all parts, which the process has this long to take; waiting for storage does not count. A process that
    /// does not take them has ended, and its end says why.
    async fn feed(
        &mut self,
        parts: impl Stream<Item = Result<Bytes, ObjectError>>,
        limit: Duration,
    ) -> Result<(), ReadingError> {
        let Some(mut input) = self.child.stdin.take() else {
            return Ok(());
        };
        let (mut parts, mut left) = (pin!(parts), limit);
        while let Some(bytes) = parts.next().await {
            let (bytes, begun) = (bytes?, Instant::now());
            match timeout(left, input.write_all(&bytes)).await {
                Ok(Ok(())) => left = left.saturating_sub(begun.elapsed()),
                Ok(Err(_)) => return Ok(()),
                Err(_) => return Err(ReadingError::Fault(too_expensive("time"))),
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
        // Rust aborts when there is no more memory than it may use, or no stack left.
        Some(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS) => {
            ReadingError::Fault(too_expensive("memory"))
        }
        // The system kills when there is none left for anybody.
        Some(Signal::SIGKILL) => ReadingError::Killed,
        _ => ReadingError::Interrupted(format!("the process that reads ended with {status}")),
    }
}

fn too_expensive(what: &str) -> BookFault {
    let detail = format!(
        "Reading it takes more {what} than a skills book may; send it in a simpler form, or as several books."
    );
    fault("too_expensive", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that takes all of the document, and then does this.
    fn process(then: &str) -> Child {
        Command::new("sh")
            .args(["-c", &format!("cat > /dev/null; {then}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    const HEAD: &str = r#"echo '{"chunks":{"count":3,"sha256":[1]}}'"#;
    const LIMIT: Duration = Duration::from_secs(3);

    #[tokio::test]
    async fn a_slow_object_store_takes_none_of_the_time_for_parsing() {
        let slow = stream::once(async {
            // It says nothing for longer than the document may take.
            let silence = std::future::pending::<()>();
            let _ = tokio::time::timeout(LIMIT + Duration::from_secs(1), silence).await;
            Ok(Bytes::from_static(b"text"))
        });
        let reading = Reading::through(process(HEAD), slow, LIMIT).await.unwrap();
        assert_eq!((reading.chunks(), reading.sha256()), (3, &[1][..]));
    }

    #[tokio::test]
    async fn an_object_store_that_fails_is_no_fault_of_the_document() {
        let failing = stream::iter([Ok(Bytes::from_static(b"text")), Err(ObjectError::TimedOut)]);
        let read = Reading::through(process(HEAD), failing, LIMIT).await;
        assert!(matches!(read, Err(ReadingError::Objects(_))));
    }

    #[tokio::test]
    async fn how_the_process_ends_says_whose_fault_it_was() {
        async fn check(then: &str, expect: &str) {
            let text = stream::iter([Ok(Bytes::from_static(b"text"))]);
            let Err(error) = Reading::through(process(then), text, LIMIT).await else {
                panic!("{then}: nothing was said of the chunks");
            };
            let found = match &error {
                ReadingError::Fault(fault) => fault.kind.as_str(),
                ReadingError::Killed => "killed",
                ReadingError::Interrupted(_) => "interrupted",
                ReadingError::Objects(_) => "objects",
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
