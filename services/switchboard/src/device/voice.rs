//! What a device listens to and speaks with, and what it offers to the server.

use std::path::{Path, PathBuf};

use switchboard_protocol::message::{AudioFormat, AudioTerms, Codec, ListenMode};
use switchboard_voice::RATE;

use super::sound::SoundProgram;
use crate::exit::Failure;

/// Samples per second of what is played.
pub(super) const SPEAKER_RATE: u32 = 24_000;
/// Audio in one frame, and the interval between two.
pub(super) const FRAME_MS: u16 = 60;
/// Stands for stdin or stdout.
pub(super) const STANDARD: &str = "-";
/// Bits of a sample in WAV files.
pub(super) const BITS: u16 = 16;

/// What the device listens to and speaks with.
pub(crate) struct Voice {
    /// What it listens to.
    pub(crate) microphone: Sound,
    /// What it speaks with; without it, nothing is played.
    pub(crate) speaker: Option<Sound>,
    /// How a message begins and ends.
    pub(crate) listen: ListenMode,
}

/// Where sound comes from or goes to.
pub(crate) enum Sound {
    /// A WAV file with 16-bit samples, a file of raw samples, or `-` for those of stdin or stdout.
    File(PathBuf),
    /// The microphone or the loudspeaker of the machine.
    Machine(SoundProgram),
}

/// How a message begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
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

impl Voice {
    /// The microphone and the loudspeaker of this machine.
    ///
    /// # Errors
    /// When no program for them is installed.
    pub(crate) fn of_machine(listen: Listening) -> Result<Self, Failure> {
        Ok(Self {
            microphone: Sound::Machine(SoundProgram::recorder(RATE)?),
            speaker: Some(Sound::Machine(SoundProgram::player(SPEAKER_RATE)?)),
            listen: listen.into(),
        })
    }

    /// Whether a user speaks at this machine.
    pub(super) const fn is_live(&self) -> bool {
        matches!(self.microphone, Sound::Machine(_))
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

impl Sound {
    /// Whether the name of the file is that of a WAV file.
    pub(super) fn is_wav(path: &Path) -> bool {
        let extension = path.extension();
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case("wav"))
    }
}
