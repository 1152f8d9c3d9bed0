//! The microphone of a device: a file, stdin, or that of the machine.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use hound::{SampleFormat, WavReader};
use switchboard_protocol::message::ListenMode;
use switchboard_voice::{RATE, Resampler};
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    sound::{RunningProgram, SoundProgram},
    voice::{BITS, FRAME_MS, STANDARD, Sound},
};

/// Frames of the microphone that wait for the socket.
const MAX_WAITING_FRAMES: usize = 8;

/// An open microphone. It has [`RATE`] samples per second.
pub(super) struct Microphone(Source);

/// A microphone that is listened to.
pub(super) struct Recording {
    /// An empty one is the end.
    frames: mpsc::Receiver<Vec<u8>>,
    /// The frame that is due next.
    next: Option<Vec<u8>>,
    ticks: Interval,
    recorder: Option<RunningProgram>,
}

enum Source {
    Wav {
        reader: WavReader<BufReader<File>>,
        resampler: Box<Resampler>,
        /// Samples of the next frame.
        converted: Vec<i16>,
    },
    Raw(Box<dyn Read + Send>),
    Machine(SoundProgram),
}

impl Microphone {
    /// Opens the microphone.
    ///
    /// # Errors
    /// When it does not exist, or is a WAV file in another format.
    pub(super) fn open(sound: &Sound) -> anyhow::Result<Self> {
        let path = match sound {
            Sound::File(path) => path,
            Sound::Machine(program) => return Ok(Self(Source::Machine(program.clone()))),
        };
        let name = path.display();
        if path == Path::new(STANDARD) {
            return Ok(Self::raw(io::stdin()));
        }
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        if !Sound::is_wav(path) {
            return Ok(Self::raw(BufReader::new(file)));
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
        Ok(Self(Source::Wav {
            reader,
            resampler: Box::new(Resampler::new(spec.sample_rate, RATE)),
            converted: Vec::new(),
        }))
    }

    fn raw(source: impl Read + Send + 'static) -> Self {
        Self(Source::Raw(Box::new(source)))
    }

    /// Reads on a thread of its own: reads from stdin cannot be cancelled. The thread ends with the
    /// recording, or with the process. A message at the machine in `manual` mode ends with Enter.
    ///
    /// # Errors
    /// When the recorder of the machine cannot be started.
    pub(super) fn listen(mut self, mode: ListenMode) -> anyhow::Result<Recording> {
        let (sender, frames) = mpsc::channel(MAX_WAITING_FRAMES);
        let mut recorder = None;
        if let Source::Machine(program) = &self.0 {
            let (running, samples) = program.record()?;
            recorder = Some(running);
            self = Self::raw(samples);
            let sender = sender.clone();
            if mode == ListenMode::Manual {
                std::thread::spawn(move || {
                    let read = io::stdin().read_line(&mut String::new());
                    if read.is_ok_and(|bytes| bytes > 0) {
                        // Fails if the message has ended.
                        let _ = sender.blocking_send(Vec::new());
                    }
                });
            }
        }
        std::thread::spawn(move || {
            while let Some(frame) = self.next_frame() {
                if sender.blocking_send(frame).is_err() {
                    return;
                }
            }
            let _ = sender.blocking_send(Vec::new());
        });
        let mut ticks = interval(Duration::from_millis(FRAME_MS.into()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Ok(Recording {
            frames,
            next: None,
            ticks,
            recorder,
        })
    }

    /// The samples of one frame as bytes, and `None` at the end. An error ends the recording like its end.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        let count = |rate: u32| (rate as usize * usize::from(FRAME_MS) / 1_000).max(1);
        let frame = match &mut self.0 {
            Source::Wav {
                reader,
                resampler,
                converted,
            } => {
                let step = count(reader.spec().sample_rate);
                // A step of the resampler can be longer than a frame.
                while converted.len() < count(RATE) {
                    let samples = reader.samples::<i16>().take(step).map_while(Result::ok);
                    let samples: Vec<_> = samples.collect();
                    resampler.convert(&samples, converted);
                    if samples.len() < step {
                        resampler.finish(converted);
                        break;
                    }
                }
                let end = count(RATE).min(converted.len());
                let samples = converted.drain(..end);
                samples.flat_map(i16::to_le_bytes).collect()
            }
            Source::Raw(reader) => {
                let mut frame = Vec::new();
                let limit = count(RATE) as u64 * 2;
                let _ = reader.take(limit).read_to_end(&mut frame);
                frame
            }
            Source::Machine(_) => Vec::new(),
        };
        (!frame.is_empty()).then_some(frame)
    }
}

impl Recording {
    /// Waits for the next frame, at most one in [`FRAME_MS`]; `None` at the end of the recording.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        if self.next.is_none() {
            self.next = self.frames.recv().await;
        }
        self.ticks.tick().await;
        self.next.take().filter(|frame| !frame.is_empty())
    }

    /// Why the recorder of the machine has ended, if it has failed.
    pub(super) fn failure(&mut self) -> Option<String> {
        self.recorder.as_mut().and_then(RunningProgram::failure)
    }
}

#[cfg(test)]
mod tests {
    use hound::{WavSpec, WavWriter};

    use super::*;

    #[test]
    fn recording_of_any_rate_is_read_to_its_end_in_whole_frames() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tone.wav");
        for sample_rate in [1, 8_000, 16_000, 22_254, 44_056, 44_100, 48_000] {
            let spec = WavSpec {
                channels: 1,
                sample_rate,
                bits_per_sample: BITS,
                sample_format: SampleFormat::Int,
            };
            let mut writer = WavWriter::create(&path, spec).unwrap();
            for _ in 0..2 * sample_rate {
                writer.write_sample(1_000_i16).unwrap();
            }
            writer.finalize().unwrap();
            let mut microphone = Microphone::open(&Sound::File(path.clone())).unwrap();
            let frames: Vec<_> = std::iter::from_fn(|| microphone.next_frame()).collect();
            let frame_bytes = 2 * RATE as usize * usize::from(FRAME_MS) / 1_000;
            let (last, whole) = frames.split_last().unwrap();
            assert!(
                whole.iter().all(|frame| frame.len() == frame_bytes),
                "{sample_rate}"
            );
            let samples = (whole.len() * frame_bytes + last.len()) / 2;
            assert!(
                samples.abs_diff(2 * RATE as usize) <= 1,
                "{sample_rate}: {samples}"
            );
        }
    }
}
