//! The speaker of a device: a file, stdout, or the loudspeaker of the machine.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    process::ChildStdin,
};

use anyhow::Context as _;
use hound::{SampleFormat, WavSpec, WavWriter};

use super::{
    sound::{RunningProgram, SoundProgram},
    voice::{BITS, SPEAKER_RATE, STANDARD, Sound},
};

/// An open speaker.
pub(super) enum Speaker {
    Wav(WavWriter<BufWriter<File>>),
    Raw(Box<dyn Write + Send>),
    Machine {
        program: SoundProgram,
        /// Plays one answer; the pipe is closed after its end.
        playing: Option<(RunningProgram, Option<ChildStdin>)>,
    },
    None,
}

impl Speaker {
    /// Opens the speaker.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(super) fn open(sound: Option<&Sound>) -> anyhow::Result<Self> {
        let path = match sound {
            Some(Sound::File(path)) => path,
            Some(Sound::Machine(program)) => {
                let (program, playing) = (program.clone(), None);
                return Ok(Self::Machine { program, playing });
            }
            None => return Ok(Self::None),
        };
        if path == Path::new(STANDARD) {
            return Ok(Self::Raw(Box::new(io::stdout())));
        }
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let file = BufWriter::new(file);
        if !Sound::is_wav(path) {
            return Ok(Self::Raw(Box::new(file)));
        }
        let spec = WavSpec {
            channels: 1,
            sample_rate: SPEAKER_RATE,
            bits_per_sample: BITS,
            sample_format: SampleFormat::Int,
        };
        Ok(Self::Wav(WavWriter::new(file, spec)?))
    }

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
            Self::Machine { program, playing } => {
                let pipe = playing.as_mut().and_then(|(_, pipe)| pipe.as_mut());
                match pipe {
                    Some(pipe) => pipe.write_all(bytes),
                    None => {
                        let (running, pipe) = program.play()?;
                        let (_, pipe) = playing.insert((running, Some(pipe)));
                        pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(bytes))
                    }
                }
                .with_context(|| format!("{} does not play", program.name))?;
            }
            Self::None => {}
        }
        Ok(())
    }

    /// The answer is complete: the machine plays what it has.
    pub(super) fn end_answer(&mut self) {
        if let Self::Machine { playing, .. } = self {
            *playing = playing.take().map(|(running, _)| (running, None));
        }
    }

    /// Drops what the machine has not played.
    pub(super) fn stop(&mut self) {
        if let Self::Machine { playing, .. } = self {
            *playing = None;
        }
    }

    /// Whether the loudspeaker of the machine plays.
    pub(super) fn is_playing(&mut self) -> bool {
        match self {
            Self::Machine { playing, .. } => playing
                .as_mut()
                .is_some_and(|(running, _)| running.is_running()),
            Self::Wav(_) | Self::Raw(_) | Self::None => false,
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Wav(writer) => writer.finalize()?,
            Self::Raw(mut writer) => writer.flush()?,
            Self::Machine { .. } | Self::None => {}
        }
        Ok(())
    }
}
