//! The listening side of a conversation: bytes of the device become utterances, and those words.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use switchboard_bus::{MAX_RECORDING_BYTES, Recording};
use switchboard_protocol::message::{AudioTerms, Codec, ListenMode, VoiceProblem};
use switchboard_speech::{Recognition, Recognizers, SpeechError, Words};
use switchboard_voice::{
    BadAudio, Decoder, OggOpus, Recorder, Segment, Segmenter, SegmenterSettings, UtteranceEnd,
    activity::GatedSilero, milliseconds,
};
use tokio::time::Instant;

use super::{
    metrics::{Packet, VoiceMetrics},
    speed::Speed,
    transcript,
};

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
        utterance: Utterance,
        /// The last speech was this long before the present end of the audio.
        silence: Duration,
    },
    /// There was too little speech.
    Nothing,
    /// Nothing was said for a long time.
    Silence,
}

/// An utterance that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Utterance {
    pub(super) end: UtteranceEnd,
    /// The part of it that is speech, in percent.
    pub(super) speech_percent: u32,
}

/// What an utterance was recognised as.
pub(super) enum Recognized {
    /// Words of its beginning.
    Partial(String),
    /// All words of a complete one.
    Words {
        utterance: Utterance,
        words: String,
        /// What the recogniser has received.
        audio: Duration,
        /// The same as packets, if it is recorded.
        recorded: Vec<u8>,
    },
    Failed(SpeechError),
}

/// An utterance whose words are not known yet.
struct Pending {
    recognition: Recognition,
    /// `None` while the user speaks.
    complete: Option<Utterance>,
    /// Its packets, if it is recorded.
    recorded: Option<Vec<u8>>,
}

/// Decodes and segments the audio of a device, and has its utterances recognised.
pub(super) struct Listener<'a> {
    metrics: &'a VoiceMetrics,
    terms: AudioTerms,
    mode: ListenMode,
    /// The language of the NPC, once an answer has named it.
    language: Option<String>,
    decoder: Decoder,
    segmenter: Segmenter<GatedSilero>,
    /// Only the last one may be incomplete.
    pending: VecDeque<Pending>,
    /// `None` unless utterances are recorded.
    recorder: Option<Box<Recorder>>,
    /// Packets of the message whose turn has not begun.
    recorded: Vec<u8>,
    pcm: Vec<i16>,
    speed: Speed,
    is_speaking: bool,
    /// Utterances without words since the last one with words.
    wordless: u32,
    /// Until then, audio is ignored.
    ignores_until: Option<Instant>,
}

impl<'a> Listener<'a> {
    pub(super) fn new(terms: AudioTerms, metrics: &'a VoiceMetrics) -> Self {
        let activity = GatedSilero::new();
        let mut listener = Self {
            metrics,
            terms,
            mode: terms.listen,
            language: None,
            decoder: Decoder::new(terms.input),
            segmenter: Segmenter::new(activity, SegmenterSettings::default()),
            pending: VecDeque::new(),
            recorder: None,
            recorded: Vec::new(),
            pcm: Vec::new(),
            speed: Speed::new(),
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

    /// Whether utterances that begin from now on are recorded. What was recorded until then is kept only
    /// if they are.
    pub(super) fn set_recording(&mut self, is_on: bool) {
        if !is_on {
            self.recorder = None;
            self.recorded = Vec::new();
        } else if self.recorder.is_none() {
            self.recorder = Some(Box::default());
        }
    }

    /// Adds an utterance to the recording of the message. Beyond its maximum the rest is cut.
    pub(super) fn keep_recorded(&mut self, packets: &[u8]) {
        if self.recorder.is_some() && self.recorded.len() < MAX_RECORDING_BYTES {
            self.recorded.extend_from_slice(packets);
        }
    }

    /// Takes what was recorded since the last turn.
    pub(super) fn take_recording(&mut self) -> Option<Recording> {
        let packets = std::mem::take(&mut self.recorded);
        let file = OggOpus::from_packets(&packets, MAX_RECORDING_BYTES)?;
        Some(Recording {
            file: Bytes::from(file.bytes.into_boxed_slice()),
            ms: file.ms,
        })
    }

    /// Begins a stream, in the mode of AUTH if there is none.
    pub(super) fn start(&mut self, mode: Option<ListenMode>) {
        self.mode = mode.unwrap_or(self.terms.listen);
        self.continue_after_gap();
        self.cancel();
    }

    /// A part of the stream is missing: what follows begins a packet or a sample.
    pub(super) fn continue_after_gap(&mut self) {
        self.decoder = Decoder::new(self.terms.input);
    }

    /// Ignores audio for this long: the end of a wake word, or of the device's own sound.
    pub(super) fn ignore_for(&mut self, time: Duration) {
        self.ignores_until = Some(Instant::now() + time);
    }

    /// Takes audio of the device, and returns what it contains.
    ///
    /// # Errors
    /// When it cannot be decoded, or arrives too fast. The utterance in progress has ended.
    pub(super) fn push(
        &mut self,
        recognizers: Option<&Recognizers>,
        bytes: &[u8],
    ) -> Result<Vec<Heard>, VoiceProblem> {
        if let Err(problem) = self.decode(bytes) {
            self.continue_after_gap();
            self.restart();
            self.drop_incomplete();
            return Err(problem);
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
        let decoded = self.decode(bytes);
        if decoded.is_err() {
            self.continue_after_gap();
        }
        decoded.is_ok()
    }

    /// Decodes the next audio into `pcm`. While the device is too fast, nothing is decoded.
    fn decode(&mut self, bytes: &[u8]) -> Result<(), VoiceProblem> {
        self.pcm.clear();
        if self.speed.is_exceeded() {
            self.metrics.packets.inc(Packet::Dropped);
            return Ok(());
        }
        let decoded = self.decoder.decode(bytes, &mut self.pcm);
        let decoded = decoded.map_err(|_| VoiceProblem::BadAudio)?;
        self.metrics
            .packets
            .inc_by(Packet::Good, decoded.good.into());
        self.metrics.packets.inc_by(Packet::Bad, decoded.bad.into());
        let added = Duration::from_millis(milliseconds(self.pcm.len() as u64));
        self.metrics.heard_seconds.inc_by(added.as_secs_f64());
        if self.speed.add(added) {
            self.pcm.clear();
            return Err(VoiceProblem::TooFast);
        }
        Ok(())
    }

    /// The device ends its message.
    ///
    /// # Errors
    /// When the message ends within a packet or a sample. It is dropped.
    pub(super) fn end(
        &mut self,
        recognizers: Option<&Recognizers>,
    ) -> Result<Vec<Heard>, BadAudio> {
        self.pcm.clear();
        let finished = self.decoder.finish(&mut self.pcm);
        if finished.is_err() {
            self.drop_incomplete();
        }
        let result = finished.map(|()| {
            let pcm = std::mem::take(&mut self.pcm);
            self.segment(recognizers, |segmenter, emit| {
                segmenter.push(&pcm, emit);
                segmenter.end(emit);
            })
        });
        self.restart();
        result
    }

    /// Forgets all utterances.
    pub(super) fn cancel(&mut self) {
        self.restart();
        self.pending.clear();
        self.recorded.clear();
    }

    /// Forgets the utterance that has just begun, before a provider is asked.
    pub(super) fn drop_last(&mut self) {
        self.pending.pop_back();
    }

    /// Whether an utterance is in progress.
    pub(super) const fn is_hearing(&self) -> bool {
        self.segmenter.is_speaking()
    }

    /// Whether a complete utterance is being recognised.
    pub(super) fn is_recognizing(&self) -> bool {
        self.pending
            .iter()
            .any(|pending| pending.complete.is_some())
    }

    /// Silence is measured from now on.
    pub(super) fn restart_silence(&mut self) {
        self.segmenter.restart_silence();
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
        self.segmenter
            .set_threshold(if self.wordless >= NOISE_UTTERANCES {
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

    /// Waits for words of the first utterance that has none yet; for ever, if there is none. Can be
    /// dropped and called again.
    pub(super) async fn recognized(&mut self) -> Recognized {
        let Some(pending) = self.pending.front_mut() else {
            return std::future::pending().await;
        };
        let words = pending.recognition.next().await;
        match (words, pending.complete) {
            (Ok(Words::Partial(words)), complete) => {
                if complete.is_none() {
                    self.segmenter
                        .set_end_silence_ms(transcript::end_silence_ms(&words));
                }
                Recognized::Partial(words)
            }
            (Ok(Words::Final(words)), Some(utterance)) => {
                let audio = pending.recognition.audio();
                let recorded = pending.recorded.take().unwrap_or_default();
                self.pending.pop_front();
                Recognized::Words {
                    utterance,
                    words,
                    audio,
                    recorded,
                }
            }
            (Ok(Words::Final(_)), None) => {
                // Only a complete one is finished.
                std::future::pending().await
            }
            (Err(error), _) => {
                self.pending.pop_front();
                Recognized::Failed(error)
            }
        }
    }

    fn restart(&mut self) {
        self.segmenter.restart(self.mode == ListenMode::Manual);
    }

    fn drop_incomplete(&mut self) {
        self.pending.retain(|pending| pending.complete.is_some());
    }

    fn segment(
        &mut self,
        recognizers: Option<&Recognizers>,
        feed: impl FnOnce(&mut Segmenter<GatedSilero>, &mut dyn FnMut(Segment<'_>)),
    ) -> Vec<Heard> {
        let mut heard = Vec::new();
        let (pending, language) = (&mut self.pending, &self.language);
        let mut recorder = self.recorder.as_deref_mut();
        let mut emit = |segment: Segment<'_>| {
            let last = pending
                .back_mut()
                .filter(|pending| pending.complete.is_none());
            match segment {
                Segment::Started => {
                    let recorder = recorder.as_mut();
                    let recorded = recorder.map(|recorder| {
                        recorder.begin();
                        Vec::new()
                    });
                    pending.extend(recognizers.map(|recognizers| Pending {
                        recognition: recognizers.begin(language.clone()),
                        complete: None,
                        recorded,
                    }));
                    heard.push(Heard::Began);
                }
                Segment::Audio(pcm) => {
                    if let Some(last) = last {
                        last.recognition.push(pcm);
                        if let (Some(recorder), Some(packets)) = (&mut recorder, &mut last.recorded)
                        {
                            recorder.push(pcm, packets);
                        }
                    }
                }
                Segment::Paused => last.into_iter().for_each(|last| last.recognition.pause()),
                Segment::Resumed => last.into_iter().for_each(|last| last.recognition.resume()),
                Segment::Ended {
                    end,
                    speech_ms,
                    audio_ms,
                    silence_ms,
                } => {
                    let utterance = Utterance {
                        end,
                        speech_percent: speech_ms * 100 / audio_ms.max(1),
                    };
                    if let Some(last) = last {
                        last.recognition.finish();
                        last.complete = Some(utterance);
                        if let (Some(recorder), Some(packets)) = (&mut recorder, &mut last.recorded)
                        {
                            recorder.end(packets);
                        }
                    }
                    heard.push(Heard::Ended {
                        utterance,
                        silence: Duration::from_millis(silence_ms.into()),
                    });
                }
                Segment::Dropped => {
                    if last.is_some() {
                        pending.pop_back();
                    }
                    heard.push(Heard::Nothing);
                }
                Segment::Nothing => heard.push(Heard::Silence),
            }
        };
        feed(&mut self.segmenter, &mut emit);
        if !self.segmenter.is_speaking() {
            let usual = SegmenterSettings::default().end_silence_ms;
            self.segmenter.set_end_silence_ms(usual);
        }
        heard
    }
}
