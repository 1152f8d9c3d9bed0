//! The microphone and the speaker of a device: files, or stdin and stdout.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use switchboard_protocol::message::{AudioFormat, AudioTerms, Codec, ListenMode};
use switchboard_voice::{RATE, Resampler};
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval},
};

/// Samples per second of what is played.
const SPEAKER_RATE: u32 = 24_000;
/// Audio in one frame, and the interval between two.
pub(super) const FRAME_MS: u16 = 60;
/// Frames of the microphone that wait for the socket.
const MAX_WAITING_FRAMES: usize = 8;
/// Stands for stdin or stdout.
const STANDARD: &str = "-";
const BITS: u16 = 16;

/// What the device listens to and speaks with.
pub(crate) struct Voice {
    /// A WAV file with 16-bit samples, a file of raw samples at 16 kHz, or `-` for those from stdin.
    pub(crate) microphone: PathBuf,
    /// The same for what is played; without it, nothing is.
    pub(crate) speaker: Option<PathBuf>,
    /// How a message begins and ends.
    pub(crate) listen: ListenMode,
}

/// How a message begins and ends.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Listening {
    Auto,
    Manual,
    Realtime,
}

impl From<Listening> for ListenMode {
    fn from(listening: Listening) -> Self {
        match listening {
            Listening::Auto => Self::Auto,
            Listening::Manual => Self::Manual,
            Listening::Realtime => Self::Realtime,
        }
    }
}

/// An open microphone. It has [`RATE`] samples per second.
pub(super) struct Microphone(Source);

/// A microphone that is listened to.
pub(super) struct Recording {
    frames: mpsc::Receiver<Vec<u8>>,
    ticks: Interval,
}

enum Source {
    Wav {
        reader: WavReader<BufReader<File>>,
        resampler: Box<Resampler>,
    },
    Raw(Box<dyn Read + Send>),
}

/// An open speaker.
pub(super) enum Speaker {
    Wav(WavWriter<BufWriter<File>>),
    Raw(Box<dyn Write + Send>),
    None,
}

impl Voice {
    /// Opens the microphone.
    ///
    /// # Errors
    /// When it does not exist, or is a WAV file in another format.
    pub(super) fn open_microphone(&self) -> anyhow::Result<Microphone> {
        let path = &self.microphone;
        let name = path.display();
        if path == Path::new(STANDARD) {
            return Ok(Microphone::raw(io::stdin()));
        }
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        if !is_wav(path) {
            return Ok(Microphone::raw(BufReader::new(file)));
        }
        let reader = WavReader::new(BufReader::new(file));
        let reader = reader.with_context(|| format!("{name} is not a WAV file"))?;
        let spec = reader.spec();
        ensure!(
            spec.sample_format == SampleFormat::Int && spec.bits_per_sample == BITS,
            "{name} has other samples than 16-bit integers"
        );
        ensure!(
            spec.channels == 1,
            "{name} has {} channels, and must have one",
            spec.channels
        );
        Ok(Microphone(Source::Wav {
            reader,
            resampler: Box::new(Resampler::new(spec.sample_rate, RATE)),
        }))
    }

    /// Opens the speaker.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(super) fn open_speaker(&self) -> anyhow::Result<Speaker> {
        let Some(path) = &self.speaker else {
            return Ok(Speaker::None);
        };
        if path == Path::new(STANDARD) {
            return Ok(Speaker::Raw(Box::new(io::stdout())));
        }
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let file = BufWriter::new(file);
        if !is_wav(path) {
            return Ok(Speaker::Raw(Box::new(file)));
        }
        let spec = WavSpec {
            channels: 1,
            sample_rate: SPEAKER_RATE,
            bits_per_sample: BITS,
            sample_format: SampleFormat::Int,
        };
        Ok(Speaker::Wav(WavWriter::new(file, spec)?))
    }

    /// What the device offers in AUTH.
    pub(super) fn terms(&self) -> AudioTerms {
        let format = |rate| AudioFormat {
            codec: Codec::PcmS16le,
            rate,
            frame_ms: FRAME_MS,
        };
        AudioTerms {
            input: format(RATE),
            output: self.speaker.as_ref().map(|_| format(SPEAKER_RATE)),
            listen: self.listen,
            captions: true,
        }
    }
}

impl Microphone {
    fn raw(source: impl Read + Send + 'static) -> Self {
        Self(Source::Raw(Box::new(source)))
    }

    /// Reads on a thread of its own: reads from stdin cannot be cancelled. The thread ends with the
    /// process.
    pub(super) fn listen(mut self) -> Recording {
        let (sender, frames) = mpsc::channel(MAX_WAITING_FRAMES);
        std::thread::spawn(move || {
            while let Some(frame) = self.next_frame() {
                if sender.blocking_send(frame).is_err() {
                    return;
                }
            }
        });
        let mut ticks = interval(Duration::from_millis(FRAME_MS.into()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Recording { frames, ticks }
    }

    /// The samples of one frame as bytes, and `None` at the end. An error ends the recording like its end.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        let count = |rate: u32| rate as usize * usize::from(FRAME_MS) / 1_000;
        let frame = match &mut self.0 {
            Source::Wav { reader, resampler } => {
                let count = count(reader.spec().sample_rate);
                let samples = reader.samples::<i16>().take(count).map_while(Result::ok);
                let (samples, mut converted) = (samples.collect::<Vec<_>>(), Vec::new());
                resampler.convert(&samples, &mut converted);
                if samples.len() < count {
                    resampler.finish(&mut converted);
                }
                converted.into_iter().flat_map(i16::to_le_bytes).collect()
            }
            Source::Raw(reader) => {
                let mut frame = Vec::new();
                let limit = count(RATE) as u64 * 2;
                let _ = reader.take(limit).read_to_end(&mut frame);
                frame
            }
        };
        (!frame.is_empty()).then_some(frame)
    }
}

impl Recording {
    /// Waits for the next frame, at most one in [`FRAME_MS`]; `None` at the end of the recording.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.ticks.tick().await;
        self.frames.recv().await
    }
}

impl Speaker {
    /// Plays samples.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn play(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Wav(writer) => {
                for sample in bytes.as_chunks().0 {
                    writer.write_sample(i16::from_le_bytes(*sample))?;
                }
            }
            Self::Raw(writer) => writer.write_all(bytes)?,
            Self::None => {}
        }
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Wav(writer) => writer.finalize()?,
            Self::Raw(mut writer) => writer.flush()?,
            Self::None => {}
        }
        Ok(())
    }
}

fn is_wav(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("wav"))
}
