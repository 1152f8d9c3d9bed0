//! Programs that recognise or speak: started for each utterance or sentence, without a shell, and with
//! few variables of the environment.

use std::{env, process::Stdio};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command as Process},
};

use crate::{
    failure::Failure,
    language::{is_name, language},
    pcm::PcmReader,
    synthesis::{ChunkSender, SpokenStyle},
};

/// Environment variables that a program inherits. All others may be secrets.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ"];
/// Maximum bytes of a transcript and of an error.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The rate of audio without a header.
const RAW_RATE: u32 = 16_000;
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

    /// Recognises an utterance: samples on stdin, words on stdout.
    pub(crate) async fn transcribe(&self, pcm: &[i16]) -> Result<String, Failure> {
        let mut child = self.start(|argument| argument.to_owned())?;
        let samples: Vec<u8> = pcm.iter().copied().flat_map(i16::to_le_bytes).collect();
        let words = read_all(child.stdout.take());
        let ((), words) = tokio::join!(feed(&mut child, &samples), words);
        self.finish(child).await?;
        Ok(words?)
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
        let mut child = self.start(|argument| {
            let argument = argument.replace("{language}", language);
            argument.replace("{voice}", voice)
        })?;
        let stdout = child.stdout.take();
        let speak = async {
            let Some(mut stdout) = stdout else {
                return Ok(());
            };
            let mut reader = PcmReader::new(RAW_RATE, 1);
            let mut buffer = vec![0; READ_BYTES];
            loop {
                let length = stdout.read(&mut buffer).await?;
                if length == 0 {
                    return Ok::<_, Failure>(());
                }
                let samples = reader.read(buffer.get(..length).unwrap_or_default())?;
                chunks.send(samples, reader.rate()).await?;
            }
        };
        let ((), spoken) = tokio::join!(feed(&mut child, text.as_bytes()), speak);
        spoken?;
        self.finish(child).await
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

    async fn finish(&self, mut child: Child) -> Result<(), Failure> {
        let error = read_all(child.stderr.take()).await.unwrap_or_default();
        let status = child.wait().await?;
        if status.success() {
            return Ok(());
        }
        let detail = format!("{} ended with {status}: {}", self.program, error.trim());
        Err(Failure::Unavailable(detail))
    }
}

/// Writes the input of a program, which need not read it.
async fn feed(child: &mut Child, input: &[u8]) {
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input).await;
    }
}

async fn read_all(output: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output
            .take(MAX_OUTPUT_BYTES)
            .read_to_end(&mut bytes)
            .await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
