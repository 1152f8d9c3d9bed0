//! The listening side of a conversation: bytes of the device become utterances, and those words.

use std::{collections::VecDeque, time::Duration};

use switchboard_protocol::message::{AudioTerms, Codec, ListenMode, VoiceProblem};
use switchboard_speech::{Recognition, Recognizers, SpeechError, Words};
use switchboard_voice::{
    BadAudio, Decoder, Segment, Segmenter, SegmenterSettings, UtteranceEnd, activity::GatedSilero,
    milliseconds,
};
use tokio::time::Instant;

use super::transcript;

/// How much faster than it is recorded audio may arrive, and for how long.
const MAX_SPEED: f64 = 1.5;
const MAX_AHEAD: Duration = Duration::from_secs(2);
/// Opus of 24 kbit/s with 130 ms.
const OPUS_SLICE_BYTES: usize = 400;
/// The probability from which sound during an answer counts as speech.
const THRESHOLD_WHILE_SPEAKING: f32 = 0.9;
/// The same where utterances had no words, because something else sounds like speech.
const THRESHOLD_IN_NOISE: f32 = 0.95;
/// Utterances without words in a row that mean noise.
const NOISE_UTTERANCES: u32 = 5;

/// What the device's audio contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Speech has begun.
    Began,
    /// An utterance is complete, and its recognition is in progress.
    Ended {
        end: UtteranceEnd,
        /// The last speech was this long before the present end of the audio.
        silence: Duration,
        /// The part of the utterance that is speech, in percent.
        speech_percent: u32,
    },
    /// There was too little speech.
    Nothing,
    /// Nothing was said for a long time.
    Silence,
}

/// Decodes and segments the audio of a device, and has its utterances recognised.
pub(super) struct Listener {
    terms: AudioTerms,
    mode: ListenMode,
    /// The language of the NPC, once an answer has named it.
    language: Option<String>,
    decoder: Decoder,
    segmenter: Segmenter<GatedSilero>,
    /// The utterance in progress is the last one, if it is recognised.
    recognitions: VecDeque<Recognition>,
    pcm: Vec<i16>,
    /// When the stream began, and how much of it has arrived.
    began: Instant,
    samples: u64,
    is_speaking: bool,
    /// Utterances without words since the last one with words.
    wordless: u32,
    /// Until then, audio is ignored.
    ignores_until: Option<Instant>,
}

impl Listener {
    pub(super) fn new(terms: AudioTerms) -> Self {
        let activity = GatedSilero::new();
        let mut listener = Self {
            terms,
            mode: terms.listen,
            language: None,
            decoder: Decoder::new(terms.input),
            segmenter: Segmenter::new(activity, SegmenterSettings::default()),
            recognitions: VecDeque::new(),
            pcm: Vec::new(),
            began: Instant::now(),
            samples: 0,
            is_speaking: false,
            wordless: 0,
            ignores_until: None,
        };
        listener.start(None);
        listener
    }

    /// Bytes that are analysed at a time: some 100 ms of audio.
    pub(super) const fn slice_bytes(&self) -> usize {
        match self.terms.input.codec {
            Codec::PcmS16le => self.terms.input.rate as usize / 5,
            Codec::Opus => OPUS_SLICE_BYTES,
        }
    }

    pub(super) const fn mode(&self) -> ListenMode {
        self.mode
    }

    /// Utterances that begin from now on are in this language, a BCP 47 tag, or in any.
    pub(super) fn set_language(&mut self, language: Option<String>) {
        self.language = language;
    }

    /// Begins a stream, in the mode of AUTH if there is none.
    pub(super) fn start(&mut self, mode: Option<ListenMode>) {
        self.mode = mode.unwrap_or(self.terms.listen);
        self.decoder = Decoder::new(self.terms.input);
        self.cancel();
    }

    /// Ignores audio for this long: the end of a wake word, or of the device's own sound.
    pub(super) fn ignore_for(&mut self, time: Duration) {
        self.ignores_until = Some(Instant::now() + time);
    }

    /// Takes audio of the device, and returns what it contains.
    ///
    /// # Errors
    /// When it cannot be decoded, or arrives too fast. The stream has ended.
    pub(super) fn push(
        &mut self,
        recognizers: Option<&Recognizers>,
        bytes: &[u8],
    ) -> Result<Vec<Heard>, VoiceProblem> {
        self.pcm.clear();
        let decoded = self.decoder.decode(bytes, &mut self.pcm);
        if decoded.is_err() {
            self.start(Some(self.mode));
            return Err(VoiceProblem::BadAudio);
        }
        if self.is_too_fast() {
            self.start(Some(self.mode));
            return Err(VoiceProblem::TooFast);
        }
        if self
            .ignores_until
            .is_some_and(|until| Instant::now() < until)
        {
            return Ok(Vec::new());
        }
        let pcm = std::mem::take(&mut self.pcm);
        let heard = self.segment(recognizers, |segmenter, emit| segmenter.push(&pcm, emit));
        self.pcm = pcm;
        Ok(heard)
    }

    /// Takes audio that is ignored: what follows may begin within one of its packets. Returns false when
    /// it cannot be decoded.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> bool {
        self.pcm.clear();
        let decoded = self.decoder.decode(bytes, &mut self.pcm);
        if decoded.is_err() {
            self.decoder = Decoder::new(self.terms.input);
        }
        decoded.is_ok()
    }

    /// The device ends its message.
    pub(super) fn end(
        &mut self,
        recognizers: Option<&Recognizers>,
    ) -> Result<Vec<Heard>, BadAudio> {
        self.pcm.clear();
        let finished = self.decoder.finish(&mut self.pcm);
        let pcm = std::mem::take(&mut self.pcm);
        let heard = self.segment(recognizers, |segmenter, emit| {
            segmenter.push(&pcm, emit);
            segmenter.end(emit);
        });
        self.restart();
        finished.map(|()| heard)
    }

    /// Forgets the utterances in progress.
    pub(super) fn cancel(&mut self) {
        self.restart();
        self.recognitions.clear();
    }

    /// Whether a complete utterance, or one in progress, is being recognised.
    pub(super) fn is_recognizing(&self) -> bool {
        !self.recognitions.is_empty()
    }

    /// Whether the device's own sound may be in what it hears.
    pub(super) fn set_speaking(&mut self, is_speaking: bool) {
        self.is_speaking = is_speaking;
        self.set_threshold();
    }

    /// An utterance had words, or none. After several without, speech must be clearer to begin one.
    pub(super) fn count_words(&mut self, has_words: bool) {
        self.wordless = if has_words { 0 } else { self.wordless + 1 };
        self.set_threshold();
    }

    fn set_threshold(&mut self) {
        self.segmenter.set_threshold(if self.wordless >= NOISE_UTTERANCES {
            THRESHOLD_IN_NOISE
        } else if self.is_speaking {
            THRESHOLD_WHILE_SPEAKING
        } else {
            SegmenterSettings::default().on
        });
    }

    /// Speech of the utterance in progress.
    pub(super) const fn speech(&self) -> Duration {
        Duration::from_millis(self.segmenter.speech_ms() as u64)
    }

    /// Waits for words of the first utterance that has none yet: of its beginning, and when it is complete,
    /// all of them. For ever, if there is none.
    pub(super) async fn words(&mut self) -> Result<Words, SpeechError> {
        let Some(recognition) = self.recognitions.front_mut() else {
            return std::future::pending().await;
        };
        let words = recognition.next().await;
        match &words {
            Ok(Words::Partial(words)) if self.recognitions.len() == 1 => {
                self.segmenter
                    .set_end_silence_ms(transcript::end_silence_ms(words));
            }
            Ok(Words::Partial(_)) => {}
            Ok(Words::Final(_)) | Err(_) => {
                self.recognitions.pop_front();
            }
        }
        words
    }

    fn restart(&mut self) {
        self.segmenter.restart(self.mode == ListenMode::Manual);
        (self.began, self.samples) = (Instant::now(), 0);
    }

    fn is_too_fast(&mut self) -> bool {
        self.samples += self.pcm.len() as u64;
        let arrived = Duration::from_millis(milliseconds(self.samples));
        arrived > self.began.elapsed().mul_f64(MAX_SPEED) + MAX_AHEAD
    }

    fn segment(
        &mut self,
        recognizers: Option<&Recognizers>,
        feed: impl FnOnce(&mut Segmenter<GatedSilero>, &mut dyn FnMut(Segment<'_>)),
    ) -> Vec<Heard> {
        let mut heard = Vec::new();
        let (recognitions, language) = (&mut self.recognitions, &self.language);
        let mut emit = |segment: Segment<'_>| match segment {
            Segment::Started => {
                recognitions
                    .extend(recognizers.map(|recognizers| recognizers.begin(language.clone())));
                heard.push(Heard::Began);
            }
            Segment::Audio(pcm) => {
                if let Some(recognition) = recognitions.back_mut() {
                    recognition.push(pcm);
                }
            }
            Segment::Ended {
                end,
                speech_ms,
                audio_ms,
                silence_ms,
            } => {
                if let Some(recognition) = recognitions.back_mut() {
                    recognition.finish();
                }
                heard.push(Heard::Ended {
                    end,
                    silence: Duration::from_millis(silence_ms.into()),
                    speech_percent: speech_ms * 100 / audio_ms.max(1),
                });
            }
            Segment::Dropped => {
                recognitions.pop_back();
                heard.push(Heard::Nothing);
            }
            Segment::Nothing => heard.push(Heard::Silence),
            Segment::Paused => {
                if let Some(recognition) = recognitions.back_mut() {
                    recognition.pause();
                }
            }
            Segment::Resumed => {
                if let Some(recognition) = recognitions.back_mut() {
                    recognition.resume();
                }
            }
        };
        feed(&mut self.segmenter, &mut emit);
        if !self.segmenter.is_speaking() {
            self.segmenter.set_end_silence_ms(SegmenterSettings::default().end_silence_ms);
        }
        heard
    }
}
