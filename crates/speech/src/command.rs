//! Programs that recognise or speak: started for each utterance or sentence, without a shell, and with
//! few variables of the environment.

use std::{env, process::Stdio};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdout, Command as Process},
};

use crate::{
    failure::Failure,
    language::{is_name, language},
    pcm::PcmReader,
    synthesis::{ChunkSender, SpokenStyle},
    utterance::Utterance,
};

/// Environment variables that a program inherits. All others may be secrets.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ"];
/// Maximum bytes of a transcript and of an error.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The rate of audio without a header.
const RAW_RATE: u32 = 16_000;
/// The words per minute of a speaking rate of 1.
const USUAL_WORDS_PER_MINUTE: f64 = 175.0;

/// A program with its arguments.
pub(crate) struct Command {
    program: String,
    arguments: Vec<String>,
}

impl Command {
    pub(crate) fn new(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().ok_or("the program is missing")?;
        Ok(Self {
            program,
            arguments: words.collect(),
        })
    }

    /// Looks for the program, and does not start it.
    pub(crate) fn contact(&self) -> (String, Result<String, Failure>) {
        let attempt = format!("looked for `{}` in PATH", self.program);
        let found = which::which(&self.program);
        let found = found.map(|path| format!("it is {}", path.display()));
        (
            attempt,
            found.map_err(|error| Failure::Unavailable(error.to_string())),
        )
    }

    /// Recognises an utterance: samples on stdin, words on stdout.
    pub(crate) async fn transcribe(&self, utterance: &Utterance) -> Result<String, Failure> {
        let pcm = utterance.all().await;
        let child = self.start(|argument| argument.to_owned())?;
        let samples: Vec<u8> = pcm.into_iter().flat_map(i16::to_le_bytes).collect();
        self.run(child, &samples, async |stdout| Ok(read_all(stdout).await?))
            .await
    }

    /// Speaks a sentence: text on stdin, a WAV file or samples on stdout.
    pub(crate) async fn speak(
        &self,
        text: &str,
        style: &SpokenStyle,
        chunks: &ChunkSender,
    ) -> Result<(), Failure> {
        let language = language(text, style.language.as_deref());
        let voice = style.voice.as_deref().filter(|voice| is_name(voice));
        let voice = voice.unwrap_or(language);
        let words_per_minute = USUAL_WORDS_PER_MINUTE * style.rate.unwrap_or(1.0);
        let child = self.start(|argument| {
            argument
                .replace("{language}", language)
                .replace("{voice}", voice)
                .replace("{wpm}", &format!("{words_per_minute:.0}"))
        })?;
        self.run(child, text.as_bytes(), async |mut stdout| {
            let mut reader = PcmReader::new(RAW_RATE, 1);
            let mut buffer = vec![0; READ_BYTES];
            loop {
                let length = stdout.read(&mut buffer).await?;
                if length == 0 {
                    return Ok(());
                }
                let samples = reader.read(buffer.get(..length).unwrap_or_default())?;
                chunks.send(samples, reader.rate()).await?;
            }
        })
        .await
    }

    fn start(&self, argument: impl Fn(&str) -> String) -> Result<Child, Failure> {
        let mut command = Process::new(&self.program);
        command
            .args(self.arguments.iter().map(|text| argument(text)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .env_clear();
        for name in INHERITED {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        let failed =
            |error| Failure::Unavailable(format!("cannot start {}: {error}", self.program));
        command.spawn().map_err(failed)
    }

    /// Writes the input of a program and reads its output, until it ends.
    async fn run<T>(
        &self,
        mut child: Child,
        input: &[u8],
        read: impl AsyncFnOnce(ChildStdout) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::Unavailable(format!(
                "{} has no pipes",
                self.program
            )));
        };
        let feed = async move {
            // A program need not read its input.
            let _ = stdin.write_all(input).await;
        };
        let ((), output, error) = tokio::join!(feed, read(stdout), read_all(stderr));
        let output = output?;
        let status = child.wait().await?;
        if status.success() {
            return Ok(output);
        }
        let error = error.unwrap_or_default();
        let detail = format!("{} ended with {status}: {}", self.program, error.trim());
        Err(Failure::Unavailable(detail))
    }
}

/// Reads all of an output, and keeps its beginning.
async fn read_all(mut output: impl AsyncRead + Unpin) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    (&mut output)
        .take(MAX_OUTPUT_BYTES)
        .read_to_end(&mut bytes)
        .await?;
    // A full pipe would stop the program.
    tokio::io::copy(&mut output, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
