//! A person's speech as a toy sends it.

use std::{fs, ops::Range, path::Path, time::Duration};

use anyhow::Context as _;
use switchboard_protocol::message::{AudioFormat, Codec};
use switchboard_voice::{
    Decoder, Encoder, RATE, Segment, Segmenter, SegmenterSettings, activity::GatedSilero,
};

/// Audio of one frame.
pub(super) const FRAME: Duration = Duration::from_millis(60);
const FORMAT: AudioFormat = AudioFormat {
    codec: Codec::Opus,
    rate: RATE,
    frame_ms: FRAME.as_millis() as u16,
};
/// How the edge listens while it speaks.
const THRESHOLD_WHILE_SPEAKING: f32 = 0.9;
const MIN_INTERRUPTION_MS: u32 = 300;
/// Frames of the recording that are words.
const WORDS: Range<usize> = 12..32;
/// Frames of silence at its end.
const SILENT_FRAMES: usize = 8;

/// The frames of a recording, followed by silence.
pub(super) struct Recording {
    pub(super) frames: Vec<Vec<u8>>,
    /// Index of the frame with which an edge finds the end of the utterance.
    pub(super) end: usize,
    /// Index of the frame with which it interrupts an answer, when the recording follows itself.
    pub(super) interruption: usize,
}

impl Recording {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| {
            format!(
                "cannot read {}: apt-get install pocketsphinx-testdata",
                path.display()
            )
        })?;
        let samples = bytes.as_chunks().0.iter();
        let mut pcm: Vec<_> = samples.copied().map(i16::from_le_bytes).collect();
        pcm.resize(pcm.len() + RATE as usize, 0);
        let mut frames = Vec::new();
        Encoder::new(FORMAT, RATE).encode(&pcm, &mut frames);
        let frames: Vec<_> = frames.into_iter().map(|frame| frame.bytes).collect();

        let mut edge = Edge {
            decoder: Decoder::new(FORMAT),
            segmenter: Segmenter::new(GatedSilero::new(), SegmenterSettings::default()),
        };
        let end = edge.first(&frames, |_, ends| ends)?;
        edge.segmenter.set_threshold(THRESHOLD_WHILE_SPEAKING);
        let interruption = edge.first(&frames, |segmenter, _| {
            segmenter.speech_ms() >= MIN_INTERRUPTION_MS
        })?;
        Ok(Self {
            end: end.context("the recording has no utterance")?,
            interruption: interruption.context("the recording interrupts nothing")?,
            frames,
        })
    }
}

impl Recording {
    /// Frames in which the person speaks.
    pub(super) fn speech(&self) -> &[Vec<u8>] {
        self.frames.get(WORDS).unwrap_or_default()
    }

    /// Frames without speech.
    pub(super) fn silence(&self) -> &[Vec<u8>] {
        let last = self.frames.len().saturating_sub(SILENT_FRAMES);
        self.frames.get(last..).unwrap_or_default()
    }
}

/// What an edge does with the frames.
struct Edge {
    decoder: Decoder,
    segmenter: Segmenter<GatedSilero>,
}

impl Edge {
    /// Returns the index of the first frame after which this holds; its second argument is whether an
    /// utterance ends with the frame.
    fn first(
        &mut self,
        frames: &[Vec<u8>],
        holds: impl Fn(&Segmenter<GatedSilero>, bool) -> bool,
    ) -> anyhow::Result<Option<usize>> {
        for (index, frame) in frames.iter().enumerate() {
            let ends = self.push(frame)?;
            if holds(&self.segmenter, ends) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Returns whether an utterance ends with this frame.
    fn push(&mut self, frame: &[u8]) -> anyhow::Result<bool> {
        let (mut pcm, mut ends) = (Vec::new(), false);
        self.decoder.decode(frame, &mut pcm)?;
        self.segmenter.push(&pcm, &mut |segment: Segment<'_>| {
            ends |= matches!(segment, Segment::Ended { .. });
        });
        Ok(ends)
    }
}
